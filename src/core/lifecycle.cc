#include "core/lifecycle.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "core/communicator.h"
#include "core/group.h"

namespace tutti {
namespace {

/// Those inside leave within microseconds after an interruption; others when their call ends.
void awaitUsers(const ncclComm& comm) {
  for (int round = 0; comm.users.load(std::memory_order_seq_cst) != 0; ++round) {
    if (round < 64) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
}

/// Turns a handle into a tombstone. Gives the communicator once nobody works with it any more. Only one of
/// several callers gets it.
Result<std::unique_ptr<Communicator>> endHandle(ncclComm_t comm, bool interrupt) {
  {
    const std::lock_guard lock(comm->mutex);  // an abort that finds the handle ended finds `closing`, too
    if (comm->state.exchange(ncclComm::State::ended, std::memory_order_seq_cst) == ncclComm::State::ended)
      return invalidArgument("the communicator was destroyed or aborted before");
    if (!interrupt) comm->closing = comm->communicator.get();
  }
  if (interrupt) comm->communicator->interrupt(Status(ncclRemoteError, "the communicator is being aborted"));
  awaitUsers(*comm);
  return std::move(comm->communicator);
}

}  // namespace

Status finalizeComm(ncclComm_t comm) {
  TUTTI_ASSIGN(CommUse resolved, resolveHandle(comm));
  if (resolved->revoked()) return invalidUsage("the communicator was revoked: it can only be destroyed");
  if (comm->finalized.exchange(true, std::memory_order_acq_rel))
    return invalidUsage("the communicator was finalized before");
  const auto use = std::make_shared<CommUse>(std::move(resolved));
  const auto cancelled = std::make_shared<std::atomic<bool>>(false);
  Job job;
  job.blocking = comm->blocking;
  job.order = comm;
  job.subject = use;
  job.cancel = [cancelled, comm](const Status&) {
    cancelled->store(true);
    comm->finalized.store(false, std::memory_order_release);
  };
  job.run = [use, cancelled]() -> Status {
    if (cancelled->load()) return Status::ok();
    TUTTI_TRY((*use)->finalize());
    return (*use)->error();
  };
  return Group::ofThisThread().submitJob(std::move(job));
}

Status destroyComm(ncclComm_t comm) {
  if (comm == nullptr) return Status::ok();
  TUTTI_TRY(checkHandle(comm));
  const ncclComm::State state = comm->state.load(std::memory_order_acquire);
  if (state == ncclComm::State::ended) return resolveHandle(comm).status();
  if (state != ncclComm::State::failed)
    TUTTI_TRY(resolveHandle(comm).status().withContext("ncclCommAbort could end it"));
  TUTTI_ASSIGN(const std::unique_ptr<Communicator> communicator, endHandle(comm, false));
  const Status status = communicator->close();
  const std::lock_guard lock(comm->mutex);
  comm->closing = nullptr;
  return status;
}

namespace {

/// True when another thread is in ncclCommDestroy: it ends now, with what it waits for.
bool interruptDestroy(ncclComm_t comm) {
  const std::lock_guard lock(comm->mutex);
  if (comm->closing == nullptr) return false;
  comm->closing->interrupt(
      Status(ncclRemoteError, fmt::format("rank {} aborted the communicator", comm->closing->rank())));
  return true;
}

}  // namespace

Status abortComm(ncclComm_t comm) {
  if (comm == nullptr) return Status::ok();
  TUTTI_TRY(checkHandle(comm));
  if (comm->state.load(std::memory_order_acquire) == ncclComm::State::ended && interruptDestroy(comm))
    return Status::ok();
  TUTTI_ASSIGN(std::unique_ptr<Communicator> communicator, endHandle(comm, true));
  Communicator::abort(std::move(communicator));
  return Status::ok();
}

Status revokeComm(ncclComm_t comm, int flags) {
  TUTTI_ASSIGN(const CommUse use, resolveHandle(comm));
  if (flags != 0)
    return invalidArgument("revokeFlags is {:#x}, but only NCCL_REVOKE_DEFAULT (0) is known", flags);
  TUTTI_TRY(checkNotFinalized(use));
  return use->revoke("revoked the communicator");
}

Status asyncError(ncclComm_t comm, ncclResult_t* result) {
  if (result == nullptr) return invalidArgument("asyncError is null");
  TUTTI_TRY(checkHandle(comm));
  if (comm->state.load(std::memory_order_acquire) == ncclComm::State::failed) {
    *result = failureOf(comm).code();
    return Status::ok();
  }
  TUTTI_ASSIGN(const CommUse use, resolveHandle(comm, Allow::making));
  const bool making = comm->state.load(std::memory_order_acquire) == ncclComm::State::initialising;
  if (making || comm->pending.load(std::memory_order_acquire) != 0) {
    *result = ncclInProgress;
  } else {
    *result = failureOf(comm).code();
  }
  return Status::ok();
}

Status failureOf(ncclComm_t comm) {
  if (!checkHandle(comm).isOk()) return Status::ok();
  {
    const std::lock_guard lock(comm->mutex);
    if (!comm->failure.isOk()) return comm->failure;
  }
  const auto use = resolveHandle(comm, Allow::making);
  if (!use.isOk() || (*use)->revoked()) return Status::ok();
  // Kernels cannot tell by themselves.
  const bool ready = comm->state.load(std::memory_order_acquire) == ncclComm::State::ready;
  if (KernelCalls* const kernels = ready ? (*use)->kernels() : nullptr;
      kernels != nullptr && (*use)->error().isOk())
    if (const Status error = kernels->deviceError(); !error.isOk()) (*use)->fail(error);
  return (*use)->error();
}

}  // namespace tutti
