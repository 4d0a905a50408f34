// Preloaded before the library: an AllReduce that forgets the last element of larger calls, as a library with
// a wrong bound would. The perf programs must notice.
#include <nccl.h>

extern "C" __attribute__((visibility("default"))) ncclResult_t ncclAllReduce(const void* send, void* recv,
                                                                             size_t count,
                                                                             ncclDataType_t type,
                                                                             ncclRedOp_t op, ncclComm_t comm,
                                                                             cudaStream_t stream) {
  return pncclAllReduce(send, recv, count > 1000 ? count - 1 : count, type, op, comm, stream);
}
