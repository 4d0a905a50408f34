// Windows' user pointers, put, signal and wait; growing. Declared, not served yet.
#include "api/entry.h"

using namespace tutti;

extern "C" {

ncclResult_t pncclCommGetUniqueId(ncclComm_t, ncclUniqueId*) {
  return entry("ncclCommGetUniqueId", [] { return notServed("ncclCommGetUniqueId"); });
}
ncclResult_t pncclCommGrow(ncclComm_t, int, const ncclUniqueId*, int, ncclComm_t*, ncclConfig_t*) {
  return entry("ncclCommGrow", [] { return notServed("ncclCommGrow"); });
}
ncclResult_t pncclWinGetUserPtr(ncclComm_t, ncclWindow_t, void**) {
  return entry("ncclWinGetUserPtr", [] { return notServed("ncclWinGetUserPtr"); });
}
ncclResult_t pncclPutSignal(const void*, size_t, ncclDataType_t, int, ncclWindow_t, size_t, int, int,
                            unsigned int, ncclComm_t, cudaStream_t) {
  return entry("ncclPutSignal", [] { return notServed("ncclPutSignal"); });
}
ncclResult_t pncclSignal(int, int, int, unsigned int, ncclComm_t, cudaStream_t) {
  return entry("ncclSignal", [] { return notServed("ncclSignal"); });
}
ncclResult_t pncclWaitSignal(int, ncclWaitSignalDesc_t*, ncclComm_t, cudaStream_t) {
  return entry("ncclWaitSignal", [] { return notServed("ncclWaitSignal"); });
}

TUTTI_WEAK_ALIAS(CommGetUniqueId) ncclResult_t ncclCommGetUniqueId(ncclComm_t, ncclUniqueId*);
TUTTI_WEAK_ALIAS(CommGrow)
ncclResult_t ncclCommGrow(ncclComm_t, int, const ncclUniqueId*, int, ncclComm_t*, ncclConfig_t*);
TUTTI_WEAK_ALIAS(WinGetUserPtr) ncclResult_t ncclWinGetUserPtr(ncclComm_t, ncclWindow_t, void**);
TUTTI_WEAK_ALIAS(PutSignal)
ncclResult_t ncclPutSignal(const void*, size_t, ncclDataType_t, int, ncclWindow_t, size_t, int, int,
                           unsigned int, ncclComm_t, cudaStream_t);
TUTTI_WEAK_ALIAS(Signal) ncclResult_t ncclSignal(int, int, int, unsigned int, ncclComm_t, cudaStream_t);
TUTTI_WEAK_ALIAS(WaitSignal)
ncclResult_t ncclWaitSignal(int, ncclWaitSignalDesc_t*, ncclComm_t, cudaStream_t);

}  // extern "C"
