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

TUTTI_WEAK_ALIAS(CommWindowRegister)
ncclResult_t ncclCommWindowRegister(ncclComm_t, void*, size_t, ncclWindow_t*, int);
TUTTI_WEAK_ALIAS(CommWindowDeregister) ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t);

}  // extern "C"
