// What compiled programs call before main and around kernel launches. nvcc emits, for every file with
// kernels,
//
//   handle = __cudaRegisterFatBinary(image)
//   __cudaRegisterFunction(handle, host stub, ..., mangled name, ...)    a kernel
//   __cudaRegisterVar(handle, host variable, ..., name, ...)             a __device__ variable
//   __cudaRegisterFatBinaryEnd(handle)
//
// and f<<<grid, block>>>(x) becomes __cudaPushCallConfiguration in the caller, then
// __cudaPopCallConfiguration,
// __cudaGetKernel and __cudaLaunchKernel in the stub. Everything is accepted, so that programs with kernels
// start; a launch fails and names the kernel.
#include <cxxabi.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "hostrt/capture.h"
#include "hostrt/device.h"
#include "hostrt/log.h"
#include "hostrt/per_thread.h"
#include "hostrt/registration.h"

namespace tutti::hostrt {
namespace {

struct Kernel {
  std::string name;  // mangled
  void** module = nullptr;
};

/// Kernels by host stub. Never destroyed: modules unregister at exit.
struct Registry {
  std::mutex mutex;
  std::map<const void*, std::unique_ptr<Kernel>> kernels;
};

Registry& registry() {
  static auto* all = new Registry;
  return *all;
}

const Kernel* findKernel(const void* hostFunction) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.kernels.find(hostFunction);
  return found == all.kernels.end() ? nullptr : found->second.get();
}

std::string demangled(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 && text ? text.get() : name;
}

cudaError_t refuse(const Kernel* kernel) {
  if (!kernel) return cudaErrorInvalidDeviceFunction;
  warn("the host runtime does not run kernels: launch of {} refused (cudaErrorNotSupported)",
       demangled(kernel->name));
  return cudaErrorNotSupported;
}

cudaError_t refuseLaunch(const Kernel* kernel, cudaStream_t stream) {
  if (!kernel) return cudaErrorInvalidDeviceFunction;
  Stream* found = findStream(stream);
  if (!found) return cudaErrorInvalidResourceHandle;
  if (isCaptured(*found)) invalidateCaptureOf(*found, "a kernel was launched, which would be missing");
  return refuse(kernel);
}

struct CallConfiguration {
  dim3 grid;
  dim3 block;
  size_t sharedMemory;
  cudaStream_t stream;
};
thread_local std::vector<CallConfiguration> callConfigurations;

}  // namespace

cudaError_t refuseKernelNode(const void* hostFunction) { return refuse(findKernel(hostFunction)); }

}  // namespace tutti::hostrt

using namespace tutti::hostrt;

#pragma GCC visibility push(default)
extern "C" {

void** __cudaRegisterFatBinary(void* image) {
  // Only its identity is used; the image is read when kernels run.
  return new (std::nothrow) void*(image);
}

void __cudaRegisterFatBinaryEnd(void**) {}

void __cudaUnregisterFatBinary(void** module) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.kernels, [&](const auto& entry) { return entry.second->module == module; });
  delete module;
}

void __cudaRegisterFunction(void** module, const char* hostFunction, char*, const char* deviceName, int,
                            uint3*, uint3*, dim3*, dim3*, int*) {
  apiCall([&] {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    all.kernels[hostFunction] = std::make_unique<Kernel>(Kernel{deviceName ? deviceName : "?", module});
    return cudaSuccess;
  });
}

void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
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

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* hostFunction) {
  return apiCall([&] {
    if (!kernel) return cudaErrorInvalidValue;
    const Kernel* found = findKernel(hostFunction);
    *kernel = reinterpret_cast<cudaKernel_t>(const_cast<Kernel*>(found));
    return found ? cudaSuccess : cudaErrorInvalidDeviceFunction;
  });
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void**, size_t, cudaStream_t stream) {
  return apiCall([&] { return refuseLaunch(reinterpret_cast<const Kernel*>(kernel), stream); });
}

cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3, dim3, void**, size_t, cudaStream_t stream) {
  return apiCall([&] { return refuseLaunch(reinterpret_cast<const Kernel*>(kernel), perThread(stream)); });
}

cudaError_t cudaLaunchKernel(const void* func, dim3, dim3, void**, size_t, cudaStream_t stream) {
  return apiCall([&] { return refuseLaunch(findKernel(func), stream); });
}

cudaError_t cudaLaunchKernel_ptsz(const void* func, dim3, dim3, void**, size_t, cudaStream_t stream) {
  return apiCall([&] { return refuseLaunch(findKernel(func), perThread(stream)); });
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* func, void**) {
  return apiCall(
      [&] { return config ? refuseLaunch(findKernel(func), config->stream) : cudaErrorInvalidValue; });
}

cudaError_t cudaLaunchKernelExC_ptsz(const cudaLaunchConfig_t* config, const void* func, void** args) {
  if (!config) return cudaLaunchKernelExC(config, func, args);
  cudaLaunchConfig_t own = *config;
  own.stream = perThread(config->stream);
  return cudaLaunchKernelExC(&own, func, args);
}

cudaError_t cudaLaunchCooperativeKernel(const void* func, dim3, dim3, void**, size_t, cudaStream_t stream) {
  return apiCall([&] { return refuseLaunch(findKernel(func), stream); });
}

cudaError_t cudaLaunchCooperativeKernel_ptsz(const void* func, dim3, dim3, void**, size_t,
                                             cudaStream_t stream) {
  return apiCall([&] { return refuseLaunch(findKernel(func), perThread(stream)); });
}

cudaError_t cudaFuncGetName(const char** name, const void* func) {
  return apiCall([&] {
    const Kernel* kernel = findKernel(func);
    if (!name) return cudaErrorInvalidValue;
    if (!kernel) return cudaErrorInvalidDeviceFunction;
    *name = kernel->name.c_str();
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
