#include "core/init.h"

#include <set>
#include <string>

#include "base/log.h"
#include "bootstrap/unique_id.h"
#include "core/config.h"
#include "core/group.h"
#include "device/device_world.h"
#include "device/host_table.h"

namespace tutti {
namespace {

/// Records how the making of a handle's communicator ended. Abort may have ended the handle meanwhile: then
/// it stays so.
void settle(ncclComm_t handle, const Status& outcome) {
  if (!outcome.isOk()) {
    const std::lock_guard lock(handle->mutex);
    handle->failure = outcome;
  }
  auto expected = ncclComm::State::initialising;
  handle->state.compare_exchange_strong(
      expected, outcome.isOk() ? ncclComm::State::ready : ncclComm::State::failed, std::memory_order_seq_cst);
}

Status checkCounts(const ncclComm_t* comm, int ranks, int rank) {
  if (comm == nullptr) return invalidArgument("newcomm is null");
  if (ranks < 1) return invalidArgument("nranks is {}, but a communicator has at least 1 rank", ranks);
  if (rank < 0 || rank >= ranks) return invalidArgument("rank {} is not in 0..{}", rank, ranks - 1);
  return Status::ok();
}

Result<int> deviceCount() {
  if (world() == World::gpus) {
    TUTTI_ASSIGN(Driver* const driver, kernelDriver());
    return driver->deviceCount();
  }
  TUTTI_ASSIGN(const tuttiHostRuntime_v1* runtime, hostTable());
  int count = 0;
  if (const int error = runtime->deviceCount(&count); error != 0)
    return systemError(error, "count the devices");
  return count;
}

}  // namespace

Result<int> currentDevice() {
  if (world() == World::gpus) {
    TUTTI_ASSIGN(Driver* const driver, kernelDriver());
    return driver->currentDevice();
  }
  TUTTI_ASSIGN(const tuttiHostRuntime_v1* runtime, hostTable());
  int device = 0;
  if (const int error = runtime->currentDevice(&device); error != 0)
    return systemError(error, "find the current device");
  return device;
}

std::shared_ptr<CommUse> beginHandle(const CommunicatorSetup& setup) {
  const ncclComm_t handle = newHandle(std::make_unique<Communicator>(setup), setup.blocking);
  return std::make_shared<CommUse>(std::move(resolveHandle(handle, Allow::making)).value());
}

Job makeJob(std::shared_ptr<CommUse> handle, std::function<Status()> prepare) {
  Job job;
  job.blocking = handle->handle()->blocking;
  job.cancel = [handle](const Status& why) { (*handle)->interrupt(why); };
  job.run = [handle, prepare = std::move(prepare)] {
    // Out of memory, for one, must not leave a handle that is for ever initialising.
    const Status status = statusOf([&] {
      setLogDevice((*handle)->device());
      // As NCCL: at VERSION and WARN one line for the job. (The first line settles what is enabled.)
      const int rank = (*handle)->rank();
      if (rank == 0) logVersionOnce();
      logInfo(Subsystem::init, "communicator {} rank {} of {}: init starts",
              static_cast<const void*>(handle->get()), rank, (*handle)->ranks());
      if (rank != 0 && logEnabled(LogLevel::info, Subsystem::init)) logVersionOnce();
      if (prepare) TUTTI_TRY(prepare());
      return (*handle)->connect();
    });
    settle(handle->handle(), status);
    return status;
  };
  return job;
}

Status initRank(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank, const ncclConfig_t* config) {
  return initRankScalable(comm, ranks, rank, 1, &id, config);
}

Status initRankScalable(ncclComm_t* comm, int ranks, int rank, int idCount, const ncclUniqueId* ids,
                        const ncclConfig_t* config) {
  if (comm != nullptr) *comm = nullptr;
  TUTTI_TRY(checkCounts(comm, ranks, rank));
  if (ids == nullptr) return invalidArgument("commId is null");
  if (idCount < 1 || idCount > ranks)
    return invalidArgument("nId is {}, but must be at least 1 and at most nranks ({})", idCount, ranks);
  CommunicatorSetup setup;
  TUTTI_TRY(applyConfig(config, setup));
  setup.rank = rank;
  setup.ranks = ranks;
  setup.id = ids[0];
  TUTTI_ASSIGN(setup.device, currentDevice());
  // One rendezvous is enough for thousands of ranks, as it takes one message from each. The others are not
  // needed.
  for (int i = 1; i < idCount; ++i) forgetUniqueId(ids[i]);
  const auto handle = beginHandle(setup);
  *comm = handle->handle();
  return Group::ofThisThread().submitJob(makeJob(handle, nullptr));
}

Status initAll(ncclComm_t* comms, int devices, const int* deviceList) {
  if (comms == nullptr) return invalidArgument("comms is null");
  TUTTI_ASSIGN(const int available, deviceCount());
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
    const auto handle = beginHandle(setup);
    comms[i] = handle->handle();
    group.latch(group.submitJob(makeJob(handle, nullptr)));
  }
  return group.end();
}

}  // namespace tutti
