/* What Tutti adds to the NCCL API. C and C++. BSD-3-Clause; see LICENSE. */
#ifndef TUTTI_TUTTI_H_
#define TUTTI_TUTTI_H_

#include <stddef.h>

#include "../nccl.h"

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* Waits until everything enqueued on `stream` is done: cudaStreamSynchronize for programs that use no CUDA,
 * whose collectives run on the null stream. Errors of a communicator are not told here: see
 * ncclCommGetAsyncError. */
ncclResult_t tuttiStreamSynchronize(cudaStream_t stream);

/* Collectives whose blocks differ in size. What holds for all of them:
 *
 * - Counts and displacements are in elements of `datatype`. Their arrays have one entry for each rank of the
 *   communicator, in the order of the ranks; they are in host memory, are read during the call, and may be
 * changed or freed when it has returned.
 * - A displacement is where a rank's block begins in the buffer that holds a block for every rank. The array
 * may be NULL: the blocks then lie one behind the other. There may be gaps, which stay untouched; received
 * blocks must not overlap.
 * - A count may be 0. A buffer of which nothing is read or written may be NULL.
 * - Like NCCL's, the calls enqueue on `stream` and return; they may stand in groups, beside any other calls.
 * All ranks call them, in the same order.
 * - Wrong arguments give ncclInvalidArgument, and ncclGetLastError says which. Counts that do not match
 * between ranks are found when the data move, and fail the communicator (ncclCommGetAsyncError), naming ranks
 * and sizes.
 * - Buffers must not overlap, except in place, where a call says how that looks. */

/* Every rank gets the blocks of all. Rank r sends recvcounts[r] elements, which every rank receives at
 * recvbuff + recvdispls[r].
 *   sendcount    must be recvcounts[own rank]
 *   recvcounts   the same on all ranks
 *   recvdispls   may differ between ranks
 * In place: sendbuff == recvbuff + recvdispls[own rank]. */
ncclResult_t tuttiAllGatherv(const void* sendbuff, void* recvbuff, size_t sendcount, const size_t* recvcounts,
                             const size_t* recvdispls, ncclDataType_t datatype, ncclComm_t comm,
                             cudaStream_t stream);

/* Reduces the vectors of all ranks and leaves block r of the result on rank r. Block r has sendcounts[r]
 * elements, at sendbuff + senddispls[r] on every rank. All operators of ncclReduceScatter, those of
 * ncclRedOpCreatePreMulSum included.
 *   sendcounts   the same on all ranks
 *   senddispls   may differ between ranks; blocks without gaps on all ranks can be reduced without copies
 *   recvcount    must be sendcounts[own rank]
 * In place: recvbuff == sendbuff + senddispls[own rank]; the other blocks of sendbuff may then be
 * overwritten. */
ncclResult_t tuttiReduceScatterv(const void* sendbuff, void* recvbuff, const size_t* sendcounts,
                                 const size_t* senddispls, size_t recvcount, ncclDataType_t datatype,
                                 ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);

/* Every rank sends a block to every rank, itself included: sendcounts[r] elements from sendbuff +
 * senddispls[r] go to rank r, recvcounts[r] elements from rank r come to recvbuff + recvdispls[r]. What a
 * rank sends to another must be as much as that one receives from it; nobody needs to know the counts of
 * other pairs. There is no form in place. */
ncclResult_t tuttiAlltoAllv(const void* sendbuff, const size_t* sendcounts, const size_t* senddispls,
                            void* recvbuff, const size_t* recvcounts, const size_t* recvdispls,
                            ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream);

/* Rank `root` gets the blocks of all: recvcounts[r] elements of rank r at recvbuff + recvdispls[r]. recvbuff,
 * recvcounts and recvdispls matter on the root only; other ranks may pass NULL.
 *   sendcount    must be what the root has as recvcounts[own rank]
 * In place on the root: sendbuff == recvbuff + recvdispls[root]. */
ncclResult_t tuttiGatherv(const void* sendbuff, void* recvbuff, size_t sendcount, const size_t* recvcounts,
                          const size_t* recvdispls, ncclDataType_t datatype, int root, ncclComm_t comm,
                          cudaStream_t stream);

/* Rank `root` gives every rank its block: sendcounts[r] elements from sendbuff + senddispls[r] go to rank r.
 * sendbuff, sendcounts and senddispls matter on the root only; other ranks may pass NULL.
 *   recvcount    must be what the root has as sendcounts[own rank]
 * In place on the root: recvbuff == sendbuff + senddispls[root]. */
ncclResult_t tuttiScatterv(const void* sendbuff, void* recvbuff, const size_t* sendcounts,
                           const size_t* senddispls, size_t recvcount, ncclDataType_t datatype, int root,
                           ncclComm_t comm, cudaStream_t stream);

/* How a collective runs, or would run. */
typedef struct tuttiPlan {
  size_t size;        /* of this structure, as the caller knows it: TUTTI_PLAN_INITIALIZER */
  char algorithm[64]; /* as NCCL_ALGO spells it: "ring"; "" where no collective has run */
  char protocol[16];  /* as NCCL_PROTO spells it: "simple" */
  char reason[104];   /* "prediction", "NCCL_ALGO=ring", "tuning.csv:12" (the tuning file's line) */
  int channels;
  double seconds; /* that the cost model expects */
  /* What else the choice depends on. */
  int hosts;       /* groups of ranks that share memory */
  int rails;       /* connections that each channel of a hierarchical algorithm makes between two hosts */
  int maxChannels; /* that the communicator has */
  int crowded;     /* 1 where more ranks share a machine than it has processors, else 0 */
  double linkBandwidth; /* bytes/s between hosts that the topology promises; 0: not known */
  size_t sliceBytes;    /* most that one message carries */
} tuttiPlan_t;

#define TUTTI_PLAN_INITIALIZER \
  { sizeof(tuttiPlan_t), "", "", "", 0, 0, 0, 0, 0, 0, 0, 0 }

/* Says which algorithms, protocols and number of channels later calls on the communicator may use, in the
 * place of NCCL_ALGO, NCCL_PROTO and the library's own choice.
 *
 * - algo, proto: as the two variables: lists, also for single functions ("allreduce:ring;broadcast:^tree").
 *   NULL or "": what the variables say counts again.
 * - channels: at most as many as the communicator has: 1 inside a host, 4 between hosts, unless
 *   NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS, minCTAs or maxCTAs say something else. 0: the library chooses.
 *
 * All ranks call it with the same arguments, at the same place between their calls. It waits for the
 * operations that this rank has enqueued on the communicator; it must not stand in a group
 * (ncclInvalidUsage). What it makes impossible is an error of the later call. */
ncclResult_t tuttiCommSetAlgo(ncclComm_t comm, const char* algo, const char* proto, int channels);

/* How a call would run, without running it. Local: ranks need not ask together.
 *
 * - function: "allreduce", "allgather", "reducescatter", "broadcast", "reduce", "alltoall", "gather" or
 *   "scatter"; count and datatype as in the call.
 * - mapped: 1 where all ranks of each host can use each other's buffers in place (memory of ncclMemAlloc,
 *   registered, or in one process), else 0.
 *
 * ncclInvalidUsage where NCCL_ALGO, NCCL_PROTO or tuttiCommSetAlgo leave nothing that can run the call. */
ncclResult_t tuttiCommQueryPlan(ncclComm_t comm, const char* function, size_t count, ncclDataType_t datatype,
                                int mapped, tuttiPlan_t* plan);

/* How the last collective ran that this rank executed on the communicator. To be called when the streams with
 * its calls are idle. */
ncclResult_t tuttiCommLastPlan(ncclComm_t comm, tuttiPlan_t* plan);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif /* TUTTI_TUTTI_H_ */
