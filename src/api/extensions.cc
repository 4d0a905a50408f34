// What tutti/tutti.h adds to the NCCL API.
#include "tutti/tutti.h"

#include "api/entry.h"
#include "core/choice_calls.h"
#include "core/memory.h"
#include "core/variable_calls.h"

using namespace tutti;

extern "C" {

ncclResult_t tuttiStreamSynchronize(cudaStream_t stream) {
  return entry("tuttiStreamSynchronize", [&] { return synchronizeStream(stream); });
}

ncclResult_t tuttiAllGatherv(const void* sendbuff, void* recvbuff, size_t sendcount, const size_t* recvcounts,
                             const size_t* recvdispls, ncclDataType_t datatype, ncclComm_t comm,
                             cudaStream_t stream) {
  return entry("tuttiAllGatherv", [&] {
    return callVariable({.collective = Collective::allGather,
                         .input = sendbuff,
                         .output = recvbuff,
                         .ownCount = sendcount,
                         .blocks = {recvcounts, recvdispls},
                         .type = datatype,
                         .comm = comm,
                         .stream = stream});
  });
}

ncclResult_t tuttiReduceScatterv(const void* sendbuff, void* recvbuff, const size_t* sendcounts,
                                 const size_t* senddispls, size_t recvcount, ncclDataType_t datatype,
                                 ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return entry("tuttiReduceScatterv", [&] {
    return callVariable({.collective = Collective::reduceScatter,
                         .input = sendbuff,
                         .output = recvbuff,
                         .ownCount = recvcount,
                         .blocks = {sendcounts, senddispls},
                         .type = datatype,
                         .op = op,
                         .comm = comm,
                         .stream = stream});
  });
}

ncclResult_t tuttiAlltoAllv(const void* sendbuff, const size_t* sendcounts, const size_t* senddispls,
                            void* recvbuff, const size_t* recvcounts, const size_t* recvdispls,
                            ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  return entry("tuttiAlltoAllv", [&] {
    return callAllToAllv({.input = sendbuff,
                          .sent = {sendcounts, senddispls},
                          .output = recvbuff,
                          .received = {recvcounts, recvdispls},
                          .type = datatype,
                          .comm = comm,
                          .stream = stream});
  });
}

ncclResult_t tuttiGatherv(const void* sendbuff, void* recvbuff, size_t sendcount, const size_t* recvcounts,
                          const size_t* recvdispls, ncclDataType_t datatype, int root, ncclComm_t comm,
                          cudaStream_t stream) {
  return entry("tuttiGatherv", [&] {
    return callVariable({.collective = Collective::gather,
                         .input = sendbuff,
                         .output = recvbuff,
                         .ownCount = sendcount,
                         .blocks = {recvcounts, recvdispls},
                         .type = datatype,
                         .root = root,
                         .comm = comm,
                         .stream = stream});
  });
}

ncclResult_t tuttiScatterv(const void* sendbuff, void* recvbuff, const size_t* sendcounts,
                           const size_t* senddispls, size_t recvcount, ncclDataType_t datatype, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return entry("tuttiScatterv", [&] {
    return callVariable({.collective = Collective::scatter,
                         .input = sendbuff,
                         .output = recvbuff,
                         .ownCount = recvcount,
                         .blocks = {sendcounts, senddispls},
                         .type = datatype,
                         .root = root,
                         .comm = comm,
                         .stream = stream});
  });
}

ncclResult_t tuttiCommSetAlgo(ncclComm_t comm, const char* algo, const char* proto, int channels) {
  return entry("tuttiCommSetAlgo", [&] { return setAlgo(comm, algo, proto, channels); });
}

ncclResult_t tuttiCommQueryPlan(ncclComm_t comm, const char* function, size_t count, ncclDataType_t datatype,
                                int mapped, tuttiPlan_t* plan) {
  return entry("tuttiCommQueryPlan",
               [&] { return queryPlan(comm, function, count, datatype, mapped, plan); });
}

ncclResult_t tuttiCommLastPlan(ncclComm_t comm, tuttiPlan_t* plan) {
  return entry("tuttiCommLastPlan", [&] { return lastPlan(comm, plan); });
}

}  // extern "C"
