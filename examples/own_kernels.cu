// A program with kernels of its own: gradients are computed, added up over all devices, and applied. It runs on GPUs
// and, compiled for them too (CMakeLists.txt, docs/virtual-gpus.md), on virtual GPUs.
// usage  example_own_kernels [devices]
#include <cuda_runtime.h>

#include <vector>

#include "arguments.h"
#include "check.h"

namespace {

__constant__ float rate;

__global__ void computeGradient(const float* weights, float* gradient, size_t count, int device) {
  const size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
  if (i < count) gradient[i] = weights[i] + static_cast<float>(device);
}

__global__ void apply(float* weights, const float* gradient, size_t count) {
  const size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
  if (i < count) weights[i] -= rate * gradient[i];
}

/// The sum of all elements, in one block.
template <class T, int kThreads>
__global__ void sum(const T* values, size_t count, double* result) {
  __shared__ double partial[kThreads / 32];
  double mine = 0;
  for (size_t i = threadIdx.x; i < count; i += kThreads) mine += values[i];
  for (int delta = 16; delta > 0; delta /= 2) mine += __shfl_down_sync(0xffffffffu, mine, delta);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < kThreads / 32; ++warp) mine += partial[warp];
    *result = mine;
  }
}

}  // namespace

int main(int argc, char** argv) {
  constexpr size_t kCount = 100000;
  constexpr unsigned kBlocks = (kCount + 255) / 256;
  int devices = 0;
  check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  if (argc > 1) devices = numberFrom(argv[1], "DEVICES", 1, devices);
  const float step = 0.5f;

  std::vector<ncclComm_t> comms(static_cast<size_t>(devices));
  std::vector<cudaStream_t> streams(comms.size());
  std::vector<float*> weights(comms.size());
  std::vector<float*> gradients(comms.size());
  std::vector<double*> sums(comms.size());
  check(ncclCommInitAll(comms.data(), devices, nullptr), "ncclCommInitAll");
  for (size_t d = 0; d < comms.size(); ++d) {
    check(cudaSetDevice(static_cast<int>(d)), "cudaSetDevice");
    check(cudaStreamCreate(&streams[d]), "cudaStreamCreate");
    check(cudaMalloc(&weights[d], kCount * sizeof(float)), "cudaMalloc");
    check(cudaMalloc(&gradients[d], kCount * sizeof(float)), "cudaMalloc");
    check(cudaMalloc(&sums[d], sizeof(double)), "cudaMalloc");
    check(cudaMemset(weights[d], 0, kCount * sizeof(float)), "cudaMemset");
    check(cudaMemcpyToSymbol(rate, &step, sizeof step), "cudaMemcpyToSymbol");
    computeGradient<<<kBlocks, 256, 0, streams[d]>>>(weights[d], gradients[d], kCount, static_cast<int>(d));
    check(cudaGetLastError(), "computeGradient");
  }
  check(ncclGroupStart(), "ncclGroupStart");
  for (size_t d = 0; d < comms.size(); ++d)
    check(ncclAllReduce(gradients[d], gradients[d], kCount, ncclFloat, ncclSum, comms[d], streams[d]), "ncclAllReduce");
  check(ncclGroupEnd(), "ncclGroupEnd");

  const double expected = -0.5 * devices * (devices - 1) / 2 * kCount;
  int wrong = 0;
  for (size_t d = 0; d < comms.size(); ++d) {
    check(cudaSetDevice(static_cast<int>(d)), "cudaSetDevice");
    apply<<<kBlocks, 256, 0, streams[d]>>>(weights[d], gradients[d], kCount);
    sum<float, 256><<<1, 256, 0, streams[d]>>>(weights[d], kCount, sums[d]);
    check(cudaGetLastError(), "apply and sum");
    double total = 0;
    check(cudaStreamSynchronize(streams[d]), "cudaStreamSynchronize");
    check(cudaMemcpy(&total, sums[d], sizeof total, cudaMemcpyDeviceToHost), "cudaMemcpy");
    wrong += total != expected;
    check(ncclCommDestroy(comms[d]), "ncclCommDestroy");
  }
  std::printf("own kernels on %d devices: %d wrong\n", devices, wrong);
  return wrong != 0;
}
