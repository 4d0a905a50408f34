/* Compiles as C: the headers, an API call in each group, and the structs. */
#include "cuda_runtime.h"

int hostrtPlainC(void);

int hostrtPlainC(void) {
  struct cudaDeviceProp prop;
  cudaStream_t stream = cudaStreamLegacy;
  dim3 grid = {1, 1, 1};
  void* pointer = 0;
  if (cudaGetDeviceProperties(&prop, 0) != cudaSuccess) return 1;
  if (cudaMalloc(&pointer, 8) != cudaSuccess) return 2;
  if (cudaMemcpyAsync(pointer, &grid, 8, cudaMemcpyDefault, stream) != cudaSuccess) return 3;
  return cudaFree(pointer) != cudaSuccess;
}
