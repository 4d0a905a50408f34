// Windows, and one-sided communication through them.
#include "core/one_sided.h"
#include "api/entry.h"

using namespace tutti;

extern "C" {

ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win,
                                     int winFlags) {
  return entry("ncclCommWindowRegister", [&] { return registerWindowCall(comm, buff, size, win, winFlags); });
}

ncclResult_t pncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
  return entry("ncclCommWindowDeregister", [&] { return deregisterWindowCall(comm, win); });
}

ncclResult_t pncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void** outUserPtr) {
  return entry("ncclWinGetUserPtr", [&]() -> Status {
    if (outUserPtr == nullptr) return invalidArgument("outUserPtr is null");
    TUTTI_ASSIGN(*outUserPtr, windowPointerCall(comm, win));
    return Status::ok();
  });
}

ncclResult_t pncclPutSignal(const void* localbuff, size_t count, ncclDataType_t datatype, int peer,
                            ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx,
                            unsigned int flags, ncclComm_t comm, cudaStream_t stream) {
  return entry("ncclPutSignal", [&] {
    return putSignalCall({.source = localbuff,
                          .count = count,
                          .type = datatype,
                          .peer = peer,
                          .window = peerWin,
                          .offset = peerWinOffset,
                          .signal = sigIdx,
                          .context = ctx,
                          .flags = flags},
                         comm, stream);
  });
}

ncclResult_t pncclSignal(int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
                         cudaStream_t stream) {
  return entry("ncclSignal", [&] { return signalCall(peer, sigIdx, ctx, flags, comm, stream); });
}

ncclResult_t pncclWaitSignal(int nDesc, ncclWaitSignalDesc_t* signalDescs, ncclComm_t comm,
                             cudaStream_t stream) {
  return entry("ncclWaitSignal", [&]() -> Status {
    if (nDesc < 0) return invalidArgument("nDesc is {}, but cannot be negative", nDesc);
    if (nDesc > 0 && signalDescs == nullptr)
      return invalidArgument("signalDescs is null, but nDesc is {}", nDesc);
    std::vector<WaitArguments> waits;
    for (int i = 0; i < nDesc; ++i) {
      const ncclWaitSignalDesc_t& one = signalDescs[i];
      waits.push_back({.count = one.opCnt, .peer = one.peer, .signal = one.sigIdx, .context = one.ctx});
    }
    return waitSignalCall(waits, comm, stream);
  });
}

TUTTI_WEAK_ALIAS(CommWindowRegister)
ncclResult_t ncclCommWindowRegister(ncclComm_t, void*, size_t, ncclWindow_t*, int);
TUTTI_WEAK_ALIAS(CommWindowDeregister) ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t);
TUTTI_WEAK_ALIAS(WinGetUserPtr) ncclResult_t ncclWinGetUserPtr(ncclComm_t, ncclWindow_t, void**);
TUTTI_WEAK_ALIAS(PutSignal)
ncclResult_t ncclPutSignal(const void*, size_t, ncclDataType_t, int, ncclWindow_t, size_t, int, int,
                           unsigned int, ncclComm_t, cudaStream_t);
TUTTI_WEAK_ALIAS(Signal) ncclResult_t ncclSignal(int, int, int, unsigned int, ncclComm_t, cudaStream_t);
TUTTI_WEAK_ALIAS(WaitSignal)
ncclResult_t ncclWaitSignal(int, ncclWaitSignalDesc_t*, ncclComm_t, cudaStream_t);

}  // extern "C"
