// What virtual GPUs cost: launches, switches between threads, barriers, blocks. Run by hand.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace {

using Clock = std::chrono::steady_clock;

__global__ void nothing() {}
__global__ void barriers(int rounds) {
  for (int i = 0; i < rounds; ++i) __syncthreads();
}
__global__ void shuffles(int rounds, int* out) {
  int value = static_cast<int>(threadIdx.x);
  for (int i = 0; i < rounds; ++i) value += __shfl_xor_sync(~0u, value, 1);
  *out = value;
}
__global__ void copy(const float4* from, float4* to, size_t count) {
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < count; i += stride) to[i] = from[i];
}

/// The best of five, in nanoseconds for each of `count` pieces.
template <class Body>
void measure(const char* what, double count, Body&& body) {
  double best = 1e30;
  for (int i = 0; i < 5; ++i) {
    const auto start = Clock::now();
    body();
    cudaDeviceSynchronize();
    best = std::min(best, std::chrono::duration<double, std::nano>(Clock::now() - start).count());
  }
  std::printf("%-58s %10.1f ns\n", what, best / count);
}

}  // namespace

int main() {
  int* out = nullptr;
  cudaMallocManaged(&out, sizeof *out);
  measure("launch and synchronise, 1 block of 1 thread", 1000, [] {
    for (int i = 0; i < 1000; ++i) {
      nothing<<<1, 1>>>();
      cudaDeviceSynchronize();
    }
  });
  measure("launch and synchronise, 2 blocks of 32 threads", 1000, [] {
    for (int i = 0; i < 1000; ++i) {
      nothing<<<2, 32>>>();
      cudaDeviceSynchronize();
    }
  });
  measure("one of 10000 launches in a row, 1 block of 1 thread", 10000, [] {
    for (int i = 0; i < 10000; ++i) nothing<<<1, 1>>>();
  });
  measure("a thread that begins and ends, 1000 blocks of 256", 256e3, [] { nothing<<<1000, 256>>>(); });
  measure("a block of 32 threads, of 10000", 1e4, [] { nothing<<<10000, 32>>>(); });
  measure("switch at a barrier, 32 threads", 32e4, [] { barriers<<<1, 32>>>(10000); });
  measure("switch at a barrier, 256 threads", 256e3, [] { barriers<<<1, 256>>>(1000); });
  measure("switch at a barrier, 1024 threads", 1024e2, [] { barriers<<<1, 1024>>>(100); });
  measure("shuffle, each thread of a warp", 32e4, [&] { shuffles<<<1, 32>>>(10000, out); });
  constexpr size_t kBytes = size_t{64} << 20;
  float4* from = nullptr;
  float4* to = nullptr;
  cudaMalloc(&from, kBytes);
  cudaMalloc(&to, kBytes);
  cudaMemset(from, 1, kBytes);
  measure("copy 64 MiB by 16 blocks of 256 threads, each KiB", kBytes / 1024.0,
          [&] { copy<<<16, 256>>>(from, to, kBytes / sizeof(float4)); });
  return cudaGetLastError() != cudaSuccess;
}
