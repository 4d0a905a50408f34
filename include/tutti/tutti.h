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

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif /* TUTTI_TUTTI_H_ */
