// What becomes of communicators: finalize, destroy, abort, revoke, and what is wrong with them.
#pragma once

#include "base/status.h"
#include "core/handle.h"

namespace tutti {

Status finalizeComm(ncclComm_t comm);
Status destroyComm(ncclComm_t comm);
/// May be called by any thread, whatever others do with the communicator.
Status abortComm(ncclComm_t comm);
Status revokeComm(ncclComm_t comm, int flags);
/// The communicator's state: ok, or the error that made it unusable; ncclInProgress while a call goes on.
Status asyncError(ncclComm_t comm, ncclResult_t* result);
/// The error behind that state, with its message; ok when there is none, or when the handle is not valid.
Status failureOf(ncclComm_t comm);

}  // namespace tutti
