// Groups, version, errors, and what is declared but not served yet.
#include "api/entry.h"
#include "base/log.h"
#include "core/group.h"
#include "core/last_error.h"
#include "core/lifecycle.h"

using namespace tutti;

extern "C" {

ncclResult_t pncclGetVersion(int* version) {
  return entry("ncclGetVersion", [&]() -> Status {
    if (version == nullptr) return invalidArgument("version is null");
    *version = NCCL_VERSION_CODE;
    return Status::ok();
  });
}

const char* pncclGetErrorString(ncclResult_t result) {
  switch (static_cast<int>(result)) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the Tutti developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    case kTimeoutResult:
      return "timed out - a rank is late, stuck or unreachable (run with NCCL_DEBUG=WARN for details)";
    default:
      return "unknown result code";
  }
}

const char* pncclGetLastError(ncclComm_t comm) {
  // A communicator that failed by itself (a peer died) says why; otherwise this thread's last failed call
  // counts.
  if (comm != nullptr)
    if (const Status failure = failureOf(comm); !failure.isOk()) return keepFailureText(failure);
  return lastErrorText();
}
void pncclResetDebugInit(void) { resetLog(); }

ncclResult_t pncclGroupStart(void) {
  return entry("ncclGroupStart", [] {
    Group::ofThisThread().start();
    return Status::ok();
  });
}

ncclResult_t pncclGroupEnd(void) {
  return entry("ncclGroupEnd", [] { return Group::ofThisThread().end(); });
}

ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t* simInfo) {
  return entry("ncclGroupSimulateEnd", [&] { return Group::ofThisThread().simulateEnd(simInfo); });
}

TUTTI_WEAK_ALIAS(GetVersion) ncclResult_t ncclGetVersion(int*);
TUTTI_WEAK_ALIAS(GetErrorString) const char* ncclGetErrorString(ncclResult_t);
TUTTI_WEAK_ALIAS(GetLastError) const char* ncclGetLastError(ncclComm_t);
TUTTI_WEAK_ALIAS(ResetDebugInit) void ncclResetDebugInit(void);
TUTTI_WEAK_ALIAS(GroupStart) ncclResult_t ncclGroupStart(void);
TUTTI_WEAK_ALIAS(GroupEnd) ncclResult_t ncclGroupEnd(void);
TUTTI_WEAK_ALIAS(GroupSimulateEnd) ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t*);

}  // extern "C"
