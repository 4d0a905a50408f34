// Memory, registration and reduction operators.
#include "core/memory.h"
#include "api/entry.h"
#include "core/communicator.h"
#include "core/handle.h"
#include "core/validate.h"

using namespace tutti;

extern "C" {

ncclResult_t pncclMemAlloc(void** ptr, size_t size) {
  return entry("ncclMemAlloc", [&] { return allocateMemory(ptr, size); });
}

ncclResult_t pncclMemFree(void* ptr) {
  return entry("ncclMemFree", [&] { return freeMemory(ptr); });
}

ncclResult_t pncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle) {
  return entry("ncclCommRegister", [&]() -> Status {
    if (handle == nullptr) return invalidArgument("handle is null");
    TUTTI_ASSIGN(const CommUse communicator, resolveHandle(comm));
    TUTTI_ASSIGN(*handle, communicator->registrations().add(buff, size));
    return Status::ok();
  });
}

ncclResult_t pncclCommDeregister(const ncclComm_t comm, void* handle) {
  return entry("ncclCommDeregister", [&]() -> Status {
    TUTTI_ASSIGN(const CommUse communicator, resolveHandle(comm));
    return communicator->registrations().remove(handle);
  });
}

ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                       ncclScalarResidence_t residence, ncclComm_t comm) {
  return entry("ncclRedOpCreatePreMulSum", [&]() -> Status {
    if (op == nullptr) return invalidArgument("op is null");
    TUTTI_ASSIGN(const CommUse communicator, resolveHandle(comm));
    TUTTI_TRY(checkType(datatype));
    TUTTI_ASSIGN(*op, communicator->operators().createPreMulSum(scalar, datatype, residence));
    return Status::ok();
  });
}

ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  return entry("ncclRedOpDestroy", [&]() -> Status {
    TUTTI_ASSIGN(const CommUse communicator, resolveHandle(comm));
    return communicator->operators().destroy(op);
  });
}

TUTTI_WEAK_ALIAS(MemAlloc) ncclResult_t ncclMemAlloc(void**, size_t);
TUTTI_WEAK_ALIAS(MemFree) ncclResult_t ncclMemFree(void*);
TUTTI_WEAK_ALIAS(CommRegister) ncclResult_t ncclCommRegister(const ncclComm_t, void*, size_t, void**);
TUTTI_WEAK_ALIAS(CommDeregister) ncclResult_t ncclCommDeregister(const ncclComm_t, void*);
TUTTI_WEAK_ALIAS(RedOpCreatePreMulSum)
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t*, void*, ncclDataType_t, ncclScalarResidence_t, ncclComm_t);
TUTTI_WEAK_ALIAS(RedOpDestroy) ncclResult_t ncclRedOpDestroy(ncclRedOp_t, ncclComm_t);

}  // extern "C"
