#include "core/init.h"

#include <set>
#include <string>

#include "base/log.h"
#include "bootstrap/unique_id.h"
#include "core/config.h"
#include "core/group.h"
#include "device/host_table.h"

namespace tutti {
namespace {

Result<int> currentDevice() {
  TUTTI_ASSIGN(const tuttiHostRuntime_v1* runtime, hostTable());
  int device = 0;
  if (const int error = runtime->currentDevice(&device); error != 0)
    return systemError(error, "find the current device");
  return device;
}

/// Makes the communicator of a handle and records the outcome in the handle.
Status build(ncclComm_t handle, const CommunicatorSetup& setup) {
  setLogDevice(setup.device);
  logVersionOnce();
  auto result = Communicator::create(setup);
  if (!result.isOk()) {
    handle->failure = result.status();
    handle->state.store(ncclComm::State::failed, std::memory_order_release);
    return result.status();
  }
  handle->communicator = std::move(result).value();
  handle->state.store(ncclComm::State::ready, std::memory_order_release);
  return Status::ok();
}

Status submitBuild(ncclComm_t* comm, const CommunicatorSetup& setup) {
  ncclComm_t handle = newHandle();
  *comm = handle;
  return Group::ofThisThread().submitJob([handle, setup] { return build(handle, setup); });
}

/// Takes the communicator out of its handle, which is a tombstone afterwards. Only one of several callers
/// gets it.
Result<std::unique_ptr<Communicator>> bury(ncclComm_t comm) {
  if (comm == nullptr) return invalidArgument("the communicator is null");
  if (comm->magic != ncclComm::kMagic) return resolveHandle(comm).status();
  const auto before = comm->state.exchange(ncclComm::State::destroyed, std::memory_order_acq_rel);
  switch (before) {
    case ncclComm::State::ready:
      return std::move(comm->communicator);
    case ncclComm::State::failed:
      return std::unique_ptr<Communicator>();  // nothing was made: nothing to end
    case ncclComm::State::destroyed:
      return invalidArgument("the communicator was destroyed or aborted before");
    case ncclComm::State::initialising:
      break;
  }
  comm->state.store(before, std::memory_order_release);
  return invalidUsage("the communicator cannot be ended while it is being initialised");
}

}  // namespace

Status initRank(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank, const ncclConfig_t* config) {
  if (comm == nullptr) return invalidArgument("newcomm is null");
  *comm = nullptr;
  if (ranks < 1) return invalidArgument("nranks is {}, but a communicator has at least 1 rank", ranks);
  if (rank < 0 || rank >= ranks) return invalidArgument("rank {} is not in 0..{}", rank, ranks - 1);
  CommunicatorSetup setup;
  TUTTI_TRY(applyConfig(config, setup));
  setup.rank = rank;
  setup.ranks = ranks;
  setup.id = id;
  TUTTI_ASSIGN(setup.device, currentDevice());
  return submitBuild(comm, setup);
}

Status initAll(ncclComm_t* comms, int devices, const int* deviceList) {
  if (comms == nullptr) return invalidArgument("comms is null");
  TUTTI_ASSIGN(const tuttiHostRuntime_v1* runtime, hostTable());
  int available = 0;
  if (const int error = runtime->deviceCount(&available); error != 0)
    return systemError(error, "count the devices");
  if (devices < 1) return invalidArgument("ndev is {}, but at least 1 device is needed", devices);
  std::set<int> seen;
  for (int i = 0; i < devices; ++i) {
    const int device = deviceList != nullptr ? deviceList[i] : i;
    if (device < 0 || device >= available) {
      return invalidArgument("device {} (number {} of the list) does not exist: there are {}", device, i,
                             available);
    }
    if (!seen.insert(device).second) return invalidUsage("device {} is in the list twice", device);
  }
  TUTTI_ASSIGN(const ncclUniqueId id, createUniqueId());
  Group& group = Group::ofThisThread();
  group.start();
  for (int i = 0; i < devices; ++i) {
    CommunicatorSetup setup;
    setup.rank = i;
    setup.ranks = devices;
    setup.device = deviceList != nullptr ? deviceList[i] : i;
    setup.id = id;
    group.latch(submitBuild(&comms[i], setup));
  }
  return group.end();
}

Status finalizeComm(ncclComm_t comm) {
  TUTTI_ASSIGN(Communicator * communicator, resolveHandle(comm));
  return communicator->finalize();
}

Status destroyComm(ncclComm_t comm) {
  if (comm == nullptr) return Status::ok();
  TUTTI_ASSIGN(std::unique_ptr<Communicator> communicator, bury(comm));
  return communicator ? communicator->close() : Status::ok();
}

Status abortComm(ncclComm_t comm) {
  if (comm == nullptr) return Status::ok();
  TUTTI_ASSIGN(std::unique_ptr<Communicator> communicator, bury(comm));
  if (communicator) communicator->abort();
  return Status::ok();
}

Status asyncError(ncclComm_t comm, ncclResult_t* result) {
  if (result == nullptr) return invalidArgument("asyncError is null");
  if (comm != nullptr && comm->magic == ncclComm::kMagic) {
    const auto state = comm->state.load(std::memory_order_acquire);
    if (state == ncclComm::State::initialising) {
      *result = ncclInProgress;
      return Status::ok();
    }
    if (state == ncclComm::State::failed) {
      *result = comm->failure.code();
      return Status::ok();
    }
  }
  TUTTI_ASSIGN(Communicator * communicator, resolveHandle(comm));
  *result = communicator->error().code();
  return Status::ok();
}

Status failureOf(ncclComm_t comm) {
  if (comm != nullptr && comm->magic == ncclComm::kMagic &&
      comm->state.load(std::memory_order_acquire) == ncclComm::State::failed)
    return comm->failure;
  auto communicator = resolveHandle(comm);
  return communicator.isOk() ? communicator.value()->error() : Status::ok();
}

}  // namespace tutti
