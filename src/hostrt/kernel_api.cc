// Launches of kernels, their attributes, and the variables of device code.
#include <algorithm>
#include <climits>
#include <cstring>

#include "hostrt/capture.h"
#include "hostrt/copy.h"
#include "hostrt/device.h"
#include "hostrt/kernel_context.h"
#include "hostrt/kernel_launch.h"
#include "hostrt/kernel_limits.h"
#include "hostrt/log.h"
#include "hostrt/per_thread.h"

namespace tutti::hostrt {
namespace {

cudaError_t refuseSize(const Kernel& kernel, cudaError_t error, const char* what) {
  explain("launch of {} refused ({}): {}", kernel.name, cudaGetErrorName(error), what);
  return error;
}

size_t mostDynamicShared(const Kernel& kernel) {
  return kernel.mostDynamicShared ? kernel.mostDynamicShared : kSharedPerBlock;
}

cudaError_t checkSize(const Kernel& kernel, const LaunchRequest& request) {
  const dim3& g = request.grid;
  const dim3& b = request.block;
  if (g.x == 0 || g.y == 0 || g.z == 0 || b.x == 0 || b.y == 0 || b.z == 0)
    return refuseSize(kernel, cudaErrorInvalidConfiguration, "a dimension of grid or block is 0");
  if (g.x > INT_MAX || g.y > 65535 || g.z > 65535)
    return refuseSize(kernel, cudaErrorInvalidConfiguration, "the grid is too large (2^31-1, 65535, 65535)");
  if (b.x > 1024 || b.y > 1024 || b.z > 64 || size_t{b.x} * b.y * b.z > kThreadsPerBlock)
    return refuseSize(kernel, cudaErrorInvalidConfiguration, "the block has more than 1024 threads");
  if (kernel.twin->maxThreads && b.x * b.y * b.z > kernel.twin->maxThreads)
    return refuseSize(kernel, cudaErrorInvalidValue,
                      "the block has more threads than __launch_bounds__ allows");
  if (request.dynamicShared > mostDynamicShared(kernel))
    return refuseSize(
        kernel, cudaErrorInvalidValue,
        "more dynamic shared memory than allowed (48 KiB, or what cudaFuncSetAttribute was given)");
  if (!request.isCooperative) return cudaSuccess;
  const size_t resident =
      size_t{kMultiprocessors} * blocksPerMultiprocessor(b.x * b.y * b.z, request.dynamicShared);
  if (size_t{g.x} * g.y * g.z > resident)
    return refuseSize(kernel, cudaErrorCooperativeLaunchTooLarge, "not all blocks can be resident at once");
  return cudaSuccess;
}

cudaError_t launch(Kernel* kernel, const LaunchRequest& request, cudaStream_t streamHandle) {
  Stream* stream = findStream(streamHandle);
  if (!kernel) return cudaErrorInvalidDeviceFunction;
  return stream ? launchOn(*stream, kernel, request) : cudaErrorInvalidResourceHandle;
}

cudaError_t launchConfigured(const cudaLaunchConfig_t* config, const void* func, void** args,
                             cudaStream_t stream) {
  if (!config || (config->numAttrs > 0 && !config->attrs)) return cudaErrorInvalidValue;
  LaunchRequest request{config->gridDim, config->blockDim, args, config->dynamicSmemBytes, false};
  for (unsigned int i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == cudaLaunchAttributeCooperative)
      request.isCooperative = attribute.val.cooperative != 0;
    if (attribute.id == cudaLaunchAttributeClusterDimension) {
      const auto& c = attribute.val.clusterDim;
      if (size_t{c.x} * c.y * c.z > 1) {
        explain("virtual GPUs have no clusters of blocks");
        return cudaErrorNotSupported;
      }
    }
  }
  return launch(findKernel(func), request, stream);
}

cudaError_t occupancy(int* blocks, const void* func, int blockSize, size_t dynamicShared) {
  const Kernel* kernel = findKernel(func);
  if (!blocks || blockSize <= 0) return cudaErrorInvalidValue;
  if (!kernel) return cudaErrorInvalidDeviceFunction;
  *blocks = static_cast<int>(
      residentPerMultiprocessor(kernel->twin, static_cast<unsigned>(blockSize), dynamicShared));
  return cudaSuccess;
}

/// Where the bytes of a variable lie.
cudaError_t locate(const void* symbol, size_t count, size_t offset, std::byte** address) {
  DeviceVariable variable;
  if (!symbol || !findVariable(symbol, &variable)) return cudaErrorInvalidSymbol;
  if (offset > variable.bytes || count > variable.bytes - offset) return cudaErrorInvalidValue;
  *address = static_cast<std::byte*>(variable.address) + offset;
  return cudaSuccess;
}

}  // namespace

cudaError_t prepareLaunch(Kernel* kernel, const LaunchRequest& request,
                          std::shared_ptr<const KernelLaunch>* result) {
  if (!kernel) return cudaErrorInvalidDeviceFunction;
  if (!kernel->twin) return refuseWithoutTwin(*kernel);
  if (const cudaError_t error = checkSize(*kernel, request); error != cudaSuccess) return error;
  if (kernel->twin->argumentCount > 0 && !request.arguments) return cudaErrorInvalidValue;
  auto launch = std::make_shared<KernelLaunch>();
  launch->twin = kernel->twin;
  launch->name = kernel->name;
  launch->function = kernel->stub;
  launch->grid = request.grid;
  launch->block = request.block;
  launch->dynamicShared = request.dynamicShared;
  launch->isCooperative = request.isCooperative;
  copyArguments(*launch, request.arguments);
  *result = std::move(launch);
  return cudaSuccess;
}

cudaError_t launchOn(Stream& stream, Kernel* kernel, const LaunchRequest& request) {
  if (const cudaError_t error = stream.device.fault.load(); error != cudaSuccess) return error;
  std::shared_ptr<const KernelLaunch> prepared;
  if (const cudaError_t error = prepareLaunch(kernel, request, &prepared); error != cudaSuccess) {
    if (isCaptured(stream)) invalidateCaptureOf(stream, "a kernel could not be launched");
    return error;
  }
  if (const cudaError_t error = checkUse(stream); error != cudaSuccess) return error;
  if (isCaptured(stream)) return captureWork(stream, prepared);
  // Never in the calling thread: the kernel may wait for something that the caller does next.
  stream.enqueue({{}, [prepared, device = &stream.device] { runKernel(*prepared, *device); }, {}});
  return cudaSuccess;
}

unsigned residentPerMultiprocessor(const shim::KernelTwin* twin, unsigned threads, size_t dynamicShared) {
  const unsigned most = twin && twin->maxThreads ? twin->maxThreads : kThreadsPerBlock;
  if (threads > most || dynamicShared > kSharedPerBlockOptin) return 0;
  return blocksPerMultiprocessor(threads, dynamicShared);
}

}  // namespace tutti::hostrt

using namespace tutti::hostrt;

#pragma GCC visibility push(default)
extern "C" {

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* hostFunction) {
  return apiCall([&] {
    if (!kernel) return cudaErrorInvalidValue;
    Kernel* found = findKernel(hostFunction);
    *kernel = reinterpret_cast<cudaKernel_t>(found);
    return found ? cudaSuccess : cudaErrorInvalidDeviceFunction;
  });
}

cudaError_t cudaGetKernel(cudaKernel_t* kernel, const void* hostFunction) {
  return __cudaGetKernel(kernel, hostFunction);
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args, size_t shared,
                               cudaStream_t stream) {
  return apiCall([&] { return launch(findKernel(kernel), {grid, block, args, shared, false}, stream); });
}

cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void** args, size_t shared,
                                    cudaStream_t stream) {
  return __cudaLaunchKernel(kernel, grid, block, args, shared, perThread(stream));
}

cudaError_t cudaLaunchKernel(const void* func, dim3 grid, dim3 block, void** args, size_t shared,
                             cudaStream_t stream) {
  return apiCall([&] { return launch(findKernel(func), {grid, block, args, shared, false}, stream); });
}

cudaError_t cudaLaunchKernel_ptsz(const void* func, dim3 grid, dim3 block, void** args, size_t shared,
                                  cudaStream_t stream) {
  return cudaLaunchKernel(func, grid, block, args, shared, perThread(stream));
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* func, void** args) {
  return apiCall([&] { return launchConfigured(config, func, args, config ? config->stream : nullptr); });
}

cudaError_t cudaLaunchKernelExC_ptsz(const cudaLaunchConfig_t* config, const void* func, void** args) {
  return apiCall(
      [&] { return launchConfigured(config, func, args, perThread(config ? config->stream : nullptr)); });
}

cudaError_t cudaLaunchCooperativeKernel(const void* func, dim3 grid, dim3 block, void** args, size_t shared,
                                        cudaStream_t stream) {
  return apiCall([&] { return launch(findKernel(func), {grid, block, args, shared, true}, stream); });
}

cudaError_t cudaLaunchCooperativeKernel_ptsz(const void* func, dim3 grid, dim3 block, void** args,
                                             size_t shared, cudaStream_t stream) {
  return cudaLaunchCooperativeKernel(func, grid, block, args, shared, perThread(stream));
}

cudaError_t cudaFuncGetName(const char** name, const void* func) {
  return apiCall([&] {
    const Kernel* kernel = findKernel(func);
    if (!name) return cudaErrorInvalidValue;
    if (!kernel) return cudaErrorInvalidDeviceFunction;
    *name = kernel->mangled.c_str();
    return cudaSuccess;
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* func) {
  return apiCall([&] {
    const Kernel* kernel = findKernel(func);
    if (!attributes) return cudaErrorInvalidValue;
    if (!kernel) return cudaErrorInvalidDeviceFunction;
    *attributes = {};
    attributes->maxThreadsPerBlock = static_cast<int>(
        kernel->twin && kernel->twin->maxThreads ? kernel->twin->maxThreads : kThreadsPerBlock);
    attributes->numRegs = 32;
    attributes->ptxVersion = attributes->binaryVersion = 90;
    attributes->maxDynamicSharedSizeBytes = static_cast<int>(mostDynamicShared(*kernel));
    attributes->preferredShmemCarveout = -1;
    return cudaSuccess;
  });
}

cudaError_t cudaFuncSetAttribute(const void* func, cudaFuncAttribute attribute, int value) {
  return apiCall([&] {
    Kernel* kernel = findKernel(func);
    if (!kernel) return cudaErrorInvalidDeviceFunction;
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout)
      return value >= -1 && value <= 100 ? cudaSuccess : cudaErrorInvalidValue;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaErrorInvalidValue;
    if (value < 0 || static_cast<size_t>(value) > kSharedPerBlockOptin) return cudaErrorInvalidValue;
    kernel->mostDynamicShared = std::max<size_t>(kSharedPerBlock, static_cast<size_t>(value));
    return cudaSuccess;
  });
}

cudaError_t cudaFuncSetCacheConfig(const void* func, cudaFuncCache) {
  return apiCall(
      [&] { return findKernel(func) ? cudaSuccess : cudaErrorInvalidDeviceFunction; });  // a preference
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* func, int blockSize,
                                                          size_t dynamicShared) {
  return apiCall([&] { return occupancy(blocks, func, blockSize, dynamicShared); });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* func,
                                                                   int blockSize, size_t dynamicShared,
                                                                   unsigned int) {
  return apiCall([&] { return occupancy(blocks, func, blockSize, dynamicShared); });
}

cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  return apiCall([&] {
    std::byte* found = nullptr;
    if (!address) return cudaErrorInvalidValue;
    const cudaError_t error = locate(symbol, 0, 0, &found);
    if (error == cudaSuccess) *address = found;
    return error;
  });
}

cudaError_t cudaGetSymbolSize(size_t* bytes, const void* symbol) {
  return apiCall([&] {
    DeviceVariable variable;
    if (!bytes) return cudaErrorInvalidValue;
    if (!symbol || !findVariable(symbol, &variable)) return cudaErrorInvalidSymbol;
    *bytes = variable.bytes;
    return cudaSuccess;
  });
}

// The variables are ordinary memory of the process, so that the copies may be of any kind.

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* source, size_t count, size_t offset,
                               cudaMemcpyKind) {
  return apiCall([&] {
    std::byte* to = nullptr;
    const cudaError_t error = locate(symbol, count, offset, &to);
    return error == cudaSuccess ? cudaMemcpy(to, source, count, cudaMemcpyDefault) : error;
  });
}

cudaError_t cudaMemcpyFromSymbol(void* destination, const void* symbol, size_t count, size_t offset,
                                 cudaMemcpyKind) {
  return apiCall([&] {
    std::byte* from = nullptr;
    const cudaError_t error = locate(symbol, count, offset, &from);
    return error == cudaSuccess ? cudaMemcpy(destination, from, count, cudaMemcpyDefault) : error;
  });
}

cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* source, size_t count, size_t offset,
                                    cudaMemcpyKind, cudaStream_t stream) {
  return apiCall([&] {
    std::byte* to = nullptr;
    const cudaError_t error = locate(symbol, count, offset, &to);
    return error == cudaSuccess ? cudaMemcpyAsync(to, source, count, cudaMemcpyDefault, stream) : error;
  });
}

cudaError_t cudaMemcpyFromSymbolAsync(void* destination, const void* symbol, size_t count, size_t offset,
                                      cudaMemcpyKind, cudaStream_t stream) {
  return apiCall([&] {
    std::byte* from = nullptr;
    const cudaError_t error = locate(symbol, count, offset, &from);
    return error == cudaSuccess ? cudaMemcpyAsync(destination, from, count, cudaMemcpyDefault, stream)
                                : error;
  });
}

cudaError_t cudaMemcpyToSymbol_ptds(const void* symbol, const void* source, size_t count, size_t offset,
                                    cudaMemcpyKind kind) {
  const cudaError_t error = cudaMemcpyToSymbolAsync(symbol, source, count, offset, kind, cudaStreamPerThread);
  return error == cudaSuccess ? cudaStreamSynchronize(cudaStreamPerThread) : error;
}
cudaError_t cudaMemcpyFromSymbol_ptds(void* destination, const void* symbol, size_t count, size_t offset,
                                      cudaMemcpyKind kind) {
  const cudaError_t error =
      cudaMemcpyFromSymbolAsync(destination, symbol, count, offset, kind, cudaStreamPerThread);
  return error == cudaSuccess ? cudaStreamSynchronize(cudaStreamPerThread) : error;
}
cudaError_t cudaMemcpyToSymbolAsync_ptsz(const void* symbol, const void* source, size_t count, size_t offset,
                                         cudaMemcpyKind kind, cudaStream_t stream) {
  return cudaMemcpyToSymbolAsync(symbol, source, count, offset, kind, perThread(stream));
}
cudaError_t cudaMemcpyFromSymbolAsync_ptsz(void* destination, const void* symbol, size_t count, size_t offset,
                                           cudaMemcpyKind kind, cudaStream_t stream) {
  return cudaMemcpyFromSymbolAsync(destination, symbol, count, offset, kind, perThread(stream));
}

}  // extern "C"
#pragma GCC visibility pop
