// The kernels of gpu-baseline, launched.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace tutti::gpu_check {

/// A kernel that does nothing, in one block of one warp.
cudaError_t launchEmpty(cudaStream_t stream);

/// Copies with 16 bytes a load and store. Buffers are aligned to 16 bytes; of a last part that is shorter,
/// bytes.
cudaError_t launchCopy(void* to, const void* from, size_t bytes, unsigned blocks, cudaStream_t stream);

}  // namespace tutti::gpu_check
