// Making and ending communicators behind ncclComm_t handles.
#pragma once

#include <functional>

#include "base/status.h"
#include "core/communicator.h"
#include "core/handle.h"

namespace tutti {

/// Checks the arguments, makes a handle and, now or at the end of the open group, the communicator behind it.
Status initRank(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank, const ncclConfig_t* config);
/// One communicator a device, all in this process.
Status initAll(ncclComm_t* comms, int devices, const int* deviceList);

Status finalizeComm(ncclComm_t comm);
Status destroyComm(ncclComm_t comm);
Status abortComm(ncclComm_t comm);
/// The communicator's state: ok, or the error that made it unusable; ncclInProgress while it is being made.
Status asyncError(ncclComm_t comm, ncclResult_t* result);
/// The error behind that state, with its message; ok when there is none, or when the handle is not valid.
Status failureOf(ncclComm_t comm);

}  // namespace tutti
