// Allocation, registration and questions about pointers.
#include <algorithm>
#include <vector>

#include "hostrt/capture.h"
#include "hostrt/device.h"
#include "hostrt/log.h"
#include "hostrt/memory.h"
#include "hostrt/memory_pool.h"

using namespace tutti::hostrt;

namespace {

/// Rows of pitched memory start on cache lines.
constexpr size_t kPitchUnit = 512;

cudaError_t allocateHere(void** pointer, size_t bytes, MemoryKind kind, unsigned int flags) {
  if (!pointer) return cudaErrorInvalidValue;
  Device* device = currentDeviceOrNull();
  if (!device) return cudaErrorNoDevice;
  if (const cudaError_t error = device->fault.load(); error != cudaSuccess) return error;
  if (const cudaError_t error = checkUnsafe(); error != cudaSuccess) return error;
  return memory().allocate(device->index, bytes, kind, flags, false, pointer);
}

/// As in CUDA, freeing waits for the device: work that was enqueued earlier may still use the memory.
cudaError_t freeAfterWork(void* pointer, MemoryKind kind) {
  if (!pointer) return cudaSuccess;
  if (const cudaError_t error = checkUnsafe(); error != cudaSuccess) return error;
  if (Device* device = findDevice(memory().find(pointer).device)) {
    std::vector<Marker> markers;
    device->pending(markers);
    waitForAll(markers);
  }
  return memory().free(pointer, kind);
}

/// At once: the memory is there whenever the stream gets to its users. In a capture it becomes a node, and
/// the memory stays with the graph.
cudaError_t allocateAsync(void** pointer, size_t bytes, MemoryPool* pool, cudaStream_t handle) {
  if (!pointer) return cudaErrorInvalidValue;
  Stream* stream = findStream(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t error = checkUse(*stream); error != cudaSuccess) return error;
  if (!pool) pool = currentPool(stream->device);
  if (!pool) return cudaErrorMemoryAllocation;
  const bool isNode = isCaptured(*stream);
  const cudaError_t error = memory().allocateFrom(*pool, bytes, isNode, pointer);
  if (error != cudaSuccess || !isNode || bytes == 0) return error;
  const cudaError_t added = captureWork(*stream, std::make_shared<GraphMemory>(*pointer));
  if (added != cudaSuccess) *pointer = nullptr;
  return added;
}

cudaError_t freeAsync(void* pointer, cudaStream_t handle) {
  Stream* stream = findStream(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t error = checkUse(*stream); error != cudaSuccess) return error;
  if (!pointer) return cudaSuccess;
  const MemoryInfo info = memory().find(pointer);
  if (info.type != MemoryInfo::Type::device || info.imported || info.base != pointer)
    return cudaErrorInvalidValue;
  if (isCaptured(*stream)) {
    // Memory from outside would be gone at the second launch.
    return info.ofGraph ? captureWork(*stream, FreeWork{pointer}) : cudaErrorInvalidValue;
  }
  runOrEnqueue(*stream, [pointer] { memory().free(pointer, MemoryKind::device); });
  return cudaSuccess;
}

bool isKnown(const void* pointer, size_t bytes) {
  const MemoryInfo info = memory().find(pointer);
  if (info.type == MemoryInfo::Type::unregistered) return false;
  return bytes <= info.bytes - static_cast<size_t>(static_cast<const std::byte*>(pointer) - info.base);
}

bool mulOverflows(size_t a, size_t b, size_t* product) { return __builtin_mul_overflow(a, b, product); }

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** devPtr, size_t size) {
  return apiCall([&] { return allocateHere(devPtr, size, MemoryKind::device, 0); });
}

cudaError_t cudaMallocPitch(void** devPtr, size_t* pitch, size_t width, size_t height) {
  return apiCall([&] {
    size_t bytes = 0;
    if (!pitch || width > SIZE_MAX - kPitchUnit) return cudaErrorInvalidValue;
    const size_t rowBytes = (width + kPitchUnit - 1) / kPitchUnit * kPitchUnit;
    if (mulOverflows(rowBytes, height, &bytes)) return cudaErrorMemoryAllocation;
    *pitch = rowBytes;
    return allocateHere(devPtr, bytes, MemoryKind::device, 0);
  });
}

cudaError_t cudaMalloc3D(cudaPitchedPtr* pitchedDevPtr, cudaExtent extent) {
  return apiCall([&] {
    size_t rows = 0;
    if (!pitchedDevPtr || mulOverflows(extent.height, extent.depth, &rows)) return cudaErrorInvalidValue;
    *pitchedDevPtr = {nullptr, 0, extent.width, extent.height};
    return cudaMallocPitch(&pitchedDevPtr->ptr, &pitchedDevPtr->pitch, extent.width, rows);
  });
}

cudaError_t cudaMallocManaged(void** devPtr, size_t size, unsigned int flags) {
  return apiCall([&] {
    if (size == 0 || (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost))
      return cudaErrorInvalidValue;
    return allocateHere(devPtr, size, MemoryKind::managed, 0);
  });
}

cudaError_t cudaMallocAsync(void** devPtr, size_t size, cudaStream_t stream) {
  return apiCall([&] { return allocateAsync(devPtr, size, nullptr, stream); });
}

cudaError_t cudaMallocFromPoolAsync(void** ptr, size_t size, cudaMemPool_t memPool, cudaStream_t stream) {
  return apiCall([&] {
    MemoryPool* pool = findPool(memPool);
    return pool ? allocateAsync(ptr, size, pool, stream) : cudaErrorInvalidValue;
  });
}

cudaError_t cudaFreeAsync(void* devPtr, cudaStream_t stream) {
  return apiCall([&] { return freeAsync(devPtr, stream); });
}

cudaError_t cudaFree(void* devPtr) {
  return apiCall([&] { return freeAfterWork(devPtr, MemoryKind::device); });
}

cudaError_t cudaMallocHost(void** ptr, size_t size) { return cudaHostAlloc(ptr, size, cudaHostAllocDefault); }

cudaError_t cudaHostAlloc(void** pHost, size_t size, unsigned int flags) {
  return apiCall([&] {
    constexpr unsigned int kKnown = cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
    if (flags & ~kKnown) return cudaErrorInvalidValue;
    return allocateHere(pHost, size, MemoryKind::host, flags);
  });
}

cudaError_t cudaFreeHost(void* ptr) {
  return apiCall([&] { return freeAfterWork(ptr, MemoryKind::host); });
}

cudaError_t cudaHostRegister(void* ptr, size_t size, unsigned int flags) {
  return apiCall([&] {
    constexpr unsigned int kKnown = cudaHostRegisterPortable | cudaHostRegisterMapped |
                                    cudaHostRegisterIoMemory | cudaHostRegisterReadOnly;
    if (flags & ~kKnown) return cudaErrorInvalidValue;
    Device* device = currentDeviceOrNull();
    if (const cudaError_t error = checkUnsafe(); error != cudaSuccess) return error;
    return device ? memory().registerHost(ptr, size, flags, device->index) : cudaErrorNoDevice;
  });
}

cudaError_t cudaHostUnregister(void* ptr) {
  return apiCall([&] {
    if (!ptr) return cudaErrorInvalidValue;
    if (const cudaError_t error = checkUnsafe(); error != cudaSuccess) return error;
    return memory().unregisterHost(ptr);
  });
}

cudaError_t cudaHostGetDevicePointer(void** pDevice, void* pHost, unsigned int flags) {
  return apiCall([&] {
    if (!pDevice || flags != 0) return cudaErrorInvalidValue;
    const MemoryInfo info = memory().find(pHost);
    if (info.type != MemoryInfo::Type::host && info.type != MemoryInfo::Type::managed)
      return cudaErrorInvalidValue;
    *pDevice = pHost;
    return cudaSuccess;
  });
}

cudaError_t cudaHostGetFlags(unsigned int* flags, void* pHost) {
  return apiCall([&] {
    const MemoryInfo info = memory().find(pHost);
    if (!flags || info.type != MemoryInfo::Type::host) return cudaErrorInvalidValue;
    // The address is always valid for devices, whether that was asked for or not.
    *flags = info.flags | cudaHostAllocMapped;
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* ptr) {
  return apiCall([&] {
    if (!attributes) return cudaErrorInvalidValue;
    *attributes = {};
    const MemoryInfo info = memory().find(ptr);
    attributes->device = info.device;
    void* address = const_cast<void*>(ptr);
    switch (info.type) {
      case MemoryInfo::Type::unregistered:
        attributes->type = cudaMemoryTypeUnregistered;
        attributes->hostPointer = address;
        break;
      case MemoryInfo::Type::host:
        attributes->type = cudaMemoryTypeHost;
        attributes->hostPointer = attributes->devicePointer = address;
        break;
      case MemoryInfo::Type::device:
        attributes->type = cudaMemoryTypeDevice;
        attributes->devicePointer = address;
        break;
      case MemoryInfo::Type::managed:
        attributes->type = cudaMemoryTypeManaged;
        attributes->hostPointer = attributes->devicePointer = address;
        break;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return apiCall([&] {
    if (!free || !total) return cudaErrorInvalidValue;
    if (!currentDeviceOrNull()) return cudaErrorNoDevice;
    const MachineMemory machine = machineMemory();
    *free = machine.available;
    *total = machine.total;
    return cudaSuccess;
  });
}

cudaError_t cudaMemAdvise(const void* devPtr, size_t count, cudaMemoryAdvise, cudaMemLocation) {
  // All memory is equally near.
  return apiCall([&] { return count > 0 && isKnown(devPtr, count) ? cudaSuccess : cudaErrorInvalidValue; });
}

cudaError_t cudaMemPrefetchAsync(const void* devPtr, size_t count, cudaMemLocation, unsigned int flags,
                                 cudaStream_t stream) {
  return apiCall([&] {
    if (!findStream(stream)) return cudaErrorInvalidResourceHandle;
    return flags == 0 && count > 0 && isKnown(devPtr, count) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, cudaChannelFormatKind f) {
  return {x, y, z, w, f};
}

}  // extern "C"
