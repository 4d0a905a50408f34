// ncclAllReduce and the other collectives, ncclSend, ncclRecv.
#include "api/entry.h"
#include "core/calls.h"

using namespace tutti;

extern "C" {

ncclResult_t pncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                            ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return entry("ncclAllReduce", [&] {
    return callCollective({.collective = Collective::allReduce,
                           .input = sendbuff,
                           .output = recvbuff,
                           .count = count,
                           .type = datatype,
                           .op = op,
                           .comm = comm,
                           .stream = stream});
  });
}

ncclResult_t pncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                         ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return entry("ncclReduce", [&] {
    return callCollective({.collective = Collective::reduce,
                           .input = sendbuff,
                           .output = recvbuff,
                           .count = count,
                           .type = datatype,
                           .op = op,
                           .root = root,
                           .comm = comm,
                           .stream = stream});
  });
}

ncclResult_t pncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                            int root, ncclComm_t comm, cudaStream_t stream) {
  return entry("ncclBroadcast", [&] {
    return callCollective({.collective = Collective::broadcast,
                           .input = sendbuff,
                           .output = recvbuff,
                           .count = count,
                           .type = datatype,
                           .root = root,
                           .comm = comm,
                           .stream = stream});
  });
}

ncclResult_t pncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                        cudaStream_t stream) {
  return entry("ncclBcast", [&] {
    return callCollective({.collective = Collective::broadcast,
                           .input = buff,
                           .output = buff,
                           .count = count,
                           .type = datatype,
                           .root = root,
                           .comm = comm,
                           .stream = stream});
  });
}

ncclResult_t pncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                cudaStream_t stream) {
  return entry("ncclReduceScatter", [&] {
    return callCollective({.collective = Collective::reduceScatter,
                           .input = sendbuff,
                           .output = recvbuff,
                           .count = recvcount,
                           .type = datatype,
                           .op = op,
                           .comm = comm,
                           .stream = stream});
  });
}

ncclResult_t pncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                            ncclComm_t comm, cudaStream_t stream) {
  return entry("ncclAllGather", [&] {
    return callCollective({.collective = Collective::allGather,
                           .input = sendbuff,
                           .output = recvbuff,
                           .count = sendcount,
                           .type = datatype,
                           .comm = comm,
                           .stream = stream});
  });
}

ncclResult_t pncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream) {
  return entry("ncclAlltoAll", [&] {
    return callCollective({.collective = Collective::allToAll,
                           .input = sendbuff,
                           .output = recvbuff,
                           .count = count,
                           .type = datatype,
                           .comm = comm,
                           .stream = stream});
  });
}

ncclResult_t pncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                         int root, ncclComm_t comm, cudaStream_t stream) {
  return entry("ncclGather", [&] {
    return callCollective({.collective = Collective::gather,
                           .input = sendbuff,
                           .output = recvbuff,
                           .count = count,
                           .type = datatype,
                           .root = root,
                           .comm = comm,
                           .stream = stream});
  });
}

ncclResult_t pncclScatter(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                          int root, ncclComm_t comm, cudaStream_t stream) {
  return entry("ncclScatter", [&] {
    return callCollective({.collective = Collective::scatter,
                           .input = sendbuff,
                           .output = recvbuff,
                           .count = count,
                           .type = datatype,
                           .root = root,
                           .comm = comm,
                           .stream = stream});
  });
}

ncclResult_t pncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                       cudaStream_t stream) {
  return entry("ncclSend", [&] { return callSend(sendbuff, count, datatype, peer, comm, stream); });
}

ncclResult_t pncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                       cudaStream_t stream) {
  return entry("ncclRecv", [&] { return callRecv(recvbuff, count, datatype, peer, comm, stream); });
}

TUTTI_WEAK_ALIAS(AllReduce)
ncclResult_t ncclAllReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t);
TUTTI_WEAK_ALIAS(Reduce)
ncclResult_t ncclReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t,
                        cudaStream_t);
TUTTI_WEAK_ALIAS(Broadcast)
ncclResult_t ncclBroadcast(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
TUTTI_WEAK_ALIAS(Bcast) ncclResult_t ncclBcast(void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
TUTTI_WEAK_ALIAS(ReduceScatter)
ncclResult_t ncclReduceScatter(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                               cudaStream_t);
TUTTI_WEAK_ALIAS(AllGather)
ncclResult_t ncclAllGather(const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t);
TUTTI_WEAK_ALIAS(AlltoAll)
ncclResult_t ncclAlltoAll(const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t);
TUTTI_WEAK_ALIAS(Gather)
ncclResult_t ncclGather(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
TUTTI_WEAK_ALIAS(Scatter)
ncclResult_t ncclScatter(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
TUTTI_WEAK_ALIAS(Send)
ncclResult_t ncclSend(const void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
TUTTI_WEAK_ALIAS(Recv) ncclResult_t ncclRecv(void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);

}  // extern "C"
