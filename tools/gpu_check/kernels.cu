// Compiled by nvcc for GPUs and by the host compiler for virtual ones (docs/virtual-gpus.md).
#include "gpu_check/kernels.h"

namespace tutti::gpu_check {
namespace {

constexpr unsigned kThreads = 512;

__global__ void emptyKernel() {}

__global__ void copyKernel(char* to, const char* from, size_t bytes) {
  const size_t all = static_cast<size_t>(gridDim.x) * blockDim.x;
  const size_t mine = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
  const size_t vectors = bytes / sizeof(uint4);
  // Four loads are under way before the first store.
  size_t i = mine;
  const auto* source = reinterpret_cast<const uint4*>(from);
  auto* target = reinterpret_cast<uint4*>(to);
  for (; i + 3 * all < vectors; i += 4 * all) {
    const uint4 a = source[i];
    const uint4 b = source[i + all];
    const uint4 c = source[i + 2 * all];
    const uint4 d = source[i + 3 * all];
    target[i] = a;
    target[i + all] = b;
    target[i + 2 * all] = c;
    target[i + 3 * all] = d;
  }
  for (; i < vectors; i += all) target[i] = source[i];
  for (size_t byte = vectors * sizeof(uint4) + mine; byte < bytes; byte += all) to[byte] = from[byte];
}

}  // namespace

cudaError_t launchEmpty(cudaStream_t stream) {
  emptyKernel<<<1, 32, 0, stream>>>();
  return cudaGetLastError();
}

cudaError_t launchCopy(void* to, const void* from, size_t bytes, unsigned blocks, cudaStream_t stream) {
  const size_t needed = (bytes / sizeof(uint4) + kThreads) / kThreads;
  const unsigned used = needed < blocks ? static_cast<unsigned>(needed) : blocks;
  copyKernel<<<used, kThreads, 0, stream>>>(static_cast<char*>(to), static_cast<const char*>(from), bytes);
  return cudaGetLastError();
}

}  // namespace tutti::gpu_check
