// What compiled programs call before main and around kernel launches. nvcc emits, for every file with
// kernels,
//
//   handle = __cudaRegisterFatBinary(image)
//   __cudaRegisterFunction(handle, host stub, ..., mangled name, ...)    a kernel
//   __cudaRegisterVar(handle, host variable, ..., name, ...)             a __device__ variable
//   __cudaRegisterFatBinaryEnd(handle)
//
// (kernel_registry.cc), and f<<<grid, block>>>(x) becomes __cudaPushCallConfiguration in the caller, then
// __cudaPopCallConfiguration, __cudaGetKernel and __cudaLaunchKernel (kernel_api.cc) in the stub.
#include <new>
#include <vector>

#include "hostrt/api.h"
#include "hostrt/log.h"
#include "hostrt/per_thread.h"

namespace tutti::hostrt {
namespace {

struct CallConfiguration {
  dim3 grid;
  dim3 block;
  size_t sharedMemory;
  cudaStream_t stream;
};
thread_local std::vector<CallConfiguration> callConfigurations;

}  // namespace

}  // namespace tutti::hostrt

using namespace tutti::hostrt;

#pragma GCC visibility push(default)
extern "C" {

void __cudaRegisterHostVar(void**, const char*, char*, size_t) {}

void __cudaRegisterManagedVar(void** /*module*/, void** hostPointer, char* /*deviceAddress*/,
                              const char* name, int /*ext*/, size_t size, int /*constant*/, int /*global*/) {
  // The program reaches a __managed__ variable through this pointer, kernels or not.
  if (hostPointer && cudaMallocManaged(hostPointer, size, cudaMemAttachGlobal) != cudaSuccess)
    warn("no memory for the managed variable {} ({} bytes)", name ? name : "?", size);
  else if (hostPointer)
    __builtin_memset(*hostPointer, 0, size);
}

char __cudaInitModule(void**) { return 1; }

unsigned __cudaPushCallConfiguration(dim3 gridDim, dim3 blockDim, size_t sharedMem, CUstream_st* stream) {
  return static_cast<unsigned>(apiCall([&] {
    callConfigurations.push_back({gridDim, blockDim, sharedMem, stream});
    return cudaSuccess;
  }));
}

cudaError_t __cudaPopCallConfiguration(dim3* gridDim, dim3* blockDim, size_t* sharedMem, void* stream) {
  return apiCall([&] {
    if (callConfigurations.empty()) return cudaErrorMissingConfiguration;
    const CallConfiguration top = callConfigurations.back();
    callConfigurations.pop_back();
    *gridDim = top.grid;
    *blockDim = top.block;
    *sharedMem = top.sharedMemory;
    *static_cast<cudaStream_t*>(stream) = top.stream;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** funcPtr, unsigned long long,
                                    cudaDriverEntryPointQueryResult* driverStatus) {
  return apiCall([&] {
    if (!symbol || !funcPtr) return cudaErrorInvalidValue;
    *funcPtr = nullptr;
    if (driverStatus) *driverStatus = cudaDriverEntryPointSymbolNotFound;
    // Success with a status, as CUDA answers for a function that the driver lacks; an error for callers who
    // do not look at the status.
    return driverStatus ? cudaSuccess : cudaErrorSymbolNotFound;
  });
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** funcPtr, unsigned int,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* driverStatus) {
  return cudaGetDriverEntryPoint(symbol, funcPtr, flags, driverStatus);
}

cudaError_t cudaGetDriverEntryPoint_ptsz(const char* symbol, void** funcPtr, unsigned long long flags,
                                         cudaDriverEntryPointQueryResult* driverStatus) {
  return cudaGetDriverEntryPoint(symbol, funcPtr, flags, driverStatus);
}

cudaError_t cudaGetDriverEntryPointByVersion_ptsz(const char* symbol, void** funcPtr, unsigned int,
                                                  unsigned long long flags,
                                                  cudaDriverEntryPointQueryResult* driverStatus) {
  return cudaGetDriverEntryPoint(symbol, funcPtr, flags, driverStatus);
}

}  // extern "C"
#pragma GCC visibility pop
