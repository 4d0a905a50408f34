/* Start and stop of a profiler: accepted, without effect on the host runtime. */
#ifndef TUTTI_HOSTRT_CUDA_PROFILER_API_H_
#define TUTTI_HOSTRT_CUDA_PROFILER_API_H_

#include "driver_types.h"

#ifdef __cplusplus
extern "C" {
#endif

cudaError_t cudaProfilerStart(void);
cudaError_t cudaProfilerStop(void);

#ifdef __cplusplus
}
#endif

#endif /* TUTTI_HOSTRT_CUDA_PROFILER_API_H_ */
