/* What Tutti adds to the NCCL API. C and C++. BSD-3-Clause; see LICENSE. */
#ifndef TUTTI_TUTTI_H_
#define TUTTI_TUTTI_H_

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

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif /* TUTTI_TUTTI_H_ */
