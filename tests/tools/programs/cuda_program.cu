// An ordinary CUDA host program, with a kernel that it only launches when asked: two devices, streams, events, pinned
// and device memory. Prints "sum N" when everything is right.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "check.h"

__managed__ int managedCounter;

__global__ void addOne(int* values) { values[threadIdx.x] += 1; }

static void CUDART_CB doubleAll(void* data) {
  auto& values = *static_cast<std::vector<int>*>(data);
  for (int& value : values) value *= 2;
}

int main(int argc, char** argv) {
  int devices = 0;
  CHECK(cudaGetDeviceCount(&devices));
  if (devices < 2) return 2;
  const int n = 1 << 20;
  long long sum = 0;
  for (int device = 0; device < 2; ++device) {
    CHECK(cudaSetDevice(device));
    cudaDeviceProp prop;
    CHECK(cudaGetDeviceProperties(&prop, device));
    std::printf("device %d: %s, %d.%d\n", device, prop.name, prop.major, prop.minor);
    std::vector<int> values(n, device + 1);
    int* onDevice = nullptr;
    int* copy = nullptr;
    int* pinned = nullptr;
    CHECK(cudaMalloc(&onDevice, n * sizeof(int)));
    CHECK(cudaMalloc(&copy, n * sizeof(int)));
    CHECK(cudaMallocHost(&pinned, n * sizeof(int)));
    cudaStream_t stream;
    cudaStream_t second;
    cudaEvent_t start, stop;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreate(&second));
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&stop));
    CHECK(cudaEventRecord(start, stream));
    CHECK(cudaLaunchHostFunc(stream, doubleAll, &values));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpyAsync(onDevice, values.data(), n * sizeof(int), cudaMemcpyHostToDevice, stream));
    CHECK(cudaEventRecord(stop, stream));
    CHECK(cudaStreamWaitEvent(second, stop, 0));
    CHECK(cudaMemcpyAsync(copy, onDevice, n * sizeof(int), cudaMemcpyDeviceToDevice, second));
    CHECK(cudaMemcpyAsync(pinned, copy, n * sizeof(int), cudaMemcpyDeviceToHost, second));
    if (argc > 1 && std::strcmp(argv[1], "kernel") == 0) {
      addOne<<<1, 32, 0, second>>>(copy);
      CHECK(cudaGetLastError());
    }
    CHECK(cudaStreamSynchronize(second));
    CHECK(cudaMemset(copy, 0, n * sizeof(int)));
    float ms = -1;
    CHECK(cudaEventElapsedTime(&ms, start, stop));
    if (ms < 0) return 3;
    for (int i = 0; i < n; ++i) sum += pinned[i];
    managedCounter += 1;
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(stop));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaStreamDestroy(second));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(copy));
    CHECK(cudaFree(onDevice));
  }
  CHECK(cudaDeviceSynchronize());
  std::printf("sum %lld, managed %d\n", sum, managedCounter);
  return 0;
}
