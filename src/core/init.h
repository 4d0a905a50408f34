// Making communicators behind ncclComm_t handles.
#pragma once

#include <functional>
#include <memory>

#include "base/status.h"
#include "core/communicator.h"
#include "core/group.h"
#include "core/handle.h"

namespace tutti {

/// Checks the arguments, makes a handle and, now or at the end of the open group, the communicator behind it.
Status initRank(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank, const ncclConfig_t* config);
/// With several unique ids, of which all ranks give the same, in the same order.
Status initRankScalable(ncclComm_t* comm, int ranks, int rank, int idCount, const ncclUniqueId* ids,
                        const ncclConfig_t* config);
/// One communicator a device, all in this process.
Status initAll(ncclComm_t* comms, int devices, const int* deviceList);

/// A handle that is being made, for the job that makes it.
std::shared_ptr<CommUse> beginHandle(const CommunicatorSetup& setup);
/// Makes a job of `prepare` (may be null), which gives the communicator what it lacks to connect, and of
/// connecting. The handle is ready, or has failed, when the job has ended.
Job makeJob(std::shared_ptr<CommUse> handle, std::function<Status()> prepare);

/// The calling thread's current device.
Result<int> currentDevice();

}  // namespace tutti
