#include "core/handle.h"

#include <mutex>
#include <vector>

#include "base/identity.h"
#include "core/communicator.h"

ncclComm::ncclComm(std::unique_ptr<tutti::Communicator> made, bool blocks)
    : blocking(blocks), communicator(std::move(made)), forks(tutti::forkCount()) {}
ncclComm::~ncclComm() = default;

namespace tutti {

ncclComm_t newHandle(std::unique_ptr<Communicator> communicator, bool blocking) {
  // Kept reachable and never destroyed: a handle must stay readable in calls made from static destructors.
  static std::mutex& mutex = *new std::mutex;
  static std::vector<ncclComm_t>& all = *new std::vector<ncclComm_t>;
  const std::lock_guard lock(mutex);
  all.push_back(new ncclComm(std::move(communicator), blocking));
  return all.back();
}

Status checkHandle(ncclComm_t comm) {
  if (comm == nullptr) return invalidArgument("the communicator is null");
  if (comm->magic != ncclComm::kMagic) {
    return invalidArgument("{} is not a communicator (wrong magic number)", static_cast<const void*>(comm));
  }
  // The memory and the sockets behind it are the parent's, who goes on with them.
  if (comm->forks != forkCount())
    return invalidUsage(
        "the communicator belongs to the process that forked this one: a child makes its own");
  return Status::ok();
}

Result<CommUse> resolveHandle(ncclComm_t comm, Allow allow) {
  TUTTI_TRY(checkHandle(comm));
  // Counted in before the state is read, as whoever ends the handle sets the state before it reads the count:
  // in the one order of all such accesses, one of the two sees the other.
  comm->users.fetch_add(1, std::memory_order_seq_cst);
  CommUse use(comm);
  switch (comm->state.load(std::memory_order_seq_cst)) {
    case ncclComm::State::ready:
      if (allow == Allow::ready && comm->pending.load(std::memory_order_acquire) != 0) {
        return invalidUsage(
            "the call before on this non-blocking communicator is still in progress: poll "
            "ncclCommGetAsyncError until it says ncclSuccess");
      }
      return use;
    case ncclComm::State::initialising:
      if (allow == Allow::making) return use;
      return invalidUsage(
          "the communicator is not ready: its initialisation has not ended (inside a group it ends with "
          "ncclGroupEnd; non-blocking, when ncclCommGetAsyncError says ncclSuccess)");
    case ncclComm::State::failed: {
      const std::lock_guard lock(comm->mutex);
      return comm->failure.withContext("the communicator's initialisation failed");
    }
    case ncclComm::State::ended:
      break;
  }
  return invalidArgument("the communicator was destroyed or aborted before");
}

Status checkNotFinalized(const CommUse& use) {
  if (use.handle()->finalized.load(std::memory_order_acquire))
    return invalidUsage("the communicator was finalized (ncclCommFinalize)");
  return Status::ok();
}

namespace {

Status checkOpen(const CommUse& use) {
  if (use->revoked()) return invalidUsage("the communicator was revoked (ncclCommRevoke)");
  return checkNotFinalized(use);
}

}  // namespace

Result<CommUse> resolveForWork(ncclComm_t comm) {
  TUTTI_ASSIGN(CommUse use, resolveHandle(comm));
  TUTTI_TRY(checkOpen(use));
  return use;
}

Result<CommUse> resolveForLaunch(ncclComm_t comm) {
  TUTTI_ASSIGN(CommUse use, resolveHandle(comm, Allow::making));
  if (comm->state.load(std::memory_order_acquire) == ncclComm::State::initialising)
    return resolveHandle(comm);
  TUTTI_TRY(checkOpen(use));
  return use;
}

}  // namespace tutti
