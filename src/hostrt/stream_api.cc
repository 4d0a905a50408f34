// cudaStream*, cudaLaunchHostFunc and their per-thread forms.
#include <algorithm>
#include <vector>

#include "hostrt/capture.h"
#include "hostrt/device.h"
#include "hostrt/event.h"
#include "hostrt/per_thread.h"
#include "hostrt/priorities.h"

using namespace tutti::hostrt;

namespace {

cudaError_t create(cudaStream_t* handle, unsigned int flags, int priority) {
  if (!handle || (flags & ~unsigned{cudaStreamNonBlocking})) return cudaErrorInvalidValue;
  Device* device = currentDeviceOrNull();
  if (!device) return cudaErrorNoDevice;
  const auto kind = flags & cudaStreamNonBlocking ? Stream::Kind::nonBlocking : Stream::Kind::blocking;
  Stream* stream =
      createStream(*device, kind, flags, std::clamp(priority, kGreatestPriority, kLeastPriority));
  if (!stream) return cudaErrorMemoryAllocation;
  *handle = static_cast<cudaStream_t>(streamHandles().handleOf(*stream));
  return cudaSuccess;
}

/// Runs body(stream), or says that the handle is not valid.
template <class Body>
cudaError_t withStream(cudaStream_t handle, Body&& body) {
  return apiCall([&] {
    Stream* stream = findStream(handle);
    return stream ? body(*stream) : cudaErrorInvalidResourceHandle;
  });
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return apiCall([&] { return create(stream, cudaStreamDefault, 0); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return apiCall([&] { return create(stream, flags, 0); });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  return apiCall([&] { return create(stream, flags, priority); });
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return apiCall([&] {
    Stream* stream = streamHandles().find(handle);  // not a default stream
    if (!stream || !HandleTable<Stream>::retire(*stream, handle)) return cudaErrorInvalidResourceHandle;
    destroyStream(*stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return withStream(handle, [](Stream& stream) {
    if (const cudaError_t error = checkExecutes(stream); error != cudaSuccess) return error;
    return stream.isIdle() ? faultOf(stream) : cudaErrorNotReady;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return withStream(handle, [](Stream& stream) {
    if (const cudaError_t error = checkExecutes(stream); error != cudaSuccess) return error;
    std::vector<Marker> markers;
    stream.pending(markers);
    waitForAll(markers);
    return faultOf(stream);
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t eventHandle, unsigned int flags) {
  return withStream(handle, [&](Stream& stream) { return waitForEvent(stream, eventHandle, flags); });
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
  return withStream(handle, [&](const Stream& stream) {
    if (!device) return cudaErrorInvalidValue;
    *device = stream.device.index;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned int* flags) {
  return withStream(handle, [&](const Stream& stream) {
    if (!flags) return cudaErrorInvalidValue;
    *flags = stream.flags;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetId(cudaStream_t handle, unsigned long long* streamId) {
  return withStream(handle, [&](const Stream& stream) {
    if (!streamId) return cudaErrorInvalidValue;
    // Default streams have no number of their own; the device's makes one that created streams never reach.
    *streamId = stream.id ? stream.id : (1ULL << 63) + static_cast<unsigned long long>(stream.device.index);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  return withStream(handle, [&](const Stream& stream) {
    if (!priority) return cudaErrorInvalidValue;
    *priority = stream.priority;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamAddCallback(cudaStream_t handle, cudaStreamCallback_t callback, void* userData,
                                  unsigned int flags) {
  return withStream(handle, [&](Stream& stream) {
    if (!callback || flags != 0) return cudaErrorInvalidValue;
    if (const cudaError_t error = checkExecutes(stream); error != cudaSuccess) return error;
    stream.enqueue({{}, [=] { callback(handle, cudaSuccess, userData); }, {}});
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t fn, void* userData) {
  return withStream(handle, [&](Stream& stream) {
    if (!fn) return cudaErrorInvalidValue;
    if (const cudaError_t error = checkUse(stream); error != cudaSuccess) return error;
    if (isCaptured(stream)) return captureWork(stream, cudaHostNodeParams{fn, userData});
    // Never inline: the function may wait for something that the caller does next.
    stream.enqueue({{}, {}, {fn, nullptr, userData}});
    return cudaSuccess;
  });
}

cudaError_t cudaStreamAttachMemAsync(cudaStream_t handle, void* devPtr, size_t, unsigned int flags) {
  // Managed memory is accessible from everywhere at any time.
  return withStream(handle, [&](Stream& stream) {
    const bool isKnown =
        flags == cudaMemAttachGlobal || flags == cudaMemAttachHost || flags == cudaMemAttachSingle;
    if (!devPtr || !isKnown) return cudaErrorInvalidValue;
    return checkExecutes(stream);  // cannot be captured in CUDA either
  });
}

cudaError_t cudaStreamCopyAttributes(cudaStream_t dst, cudaStream_t src) {
  // Attributes are hints for kernels and the L2 cache: there is nothing to copy.
  return withStream(dst,
                    [&](Stream&) { return findStream(src) ? cudaSuccess : cudaErrorInvalidResourceHandle; });
}

cudaError_t cudaStreamQuery_ptsz(cudaStream_t stream) { return cudaStreamQuery(perThread(stream)); }
cudaError_t cudaStreamSynchronize_ptsz(cudaStream_t stream) {
  return cudaStreamSynchronize(perThread(stream));
}
cudaError_t cudaStreamWaitEvent_ptsz(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  return cudaStreamWaitEvent(perThread(stream), event, flags);
}
cudaError_t cudaStreamGetDevice_ptsz(cudaStream_t stream, int* device) {
  return cudaStreamGetDevice(perThread(stream), device);
}
cudaError_t cudaStreamGetFlags_ptsz(cudaStream_t stream, unsigned int* flags) {
  return cudaStreamGetFlags(perThread(stream), flags);
}
cudaError_t cudaStreamGetId_ptsz(cudaStream_t stream, unsigned long long* streamId) {
  return cudaStreamGetId(perThread(stream), streamId);
}
cudaError_t cudaStreamGetPriority_ptsz(cudaStream_t stream, int* priority) {
  return cudaStreamGetPriority(perThread(stream), priority);
}
cudaError_t cudaStreamAddCallback_ptsz(cudaStream_t stream, cudaStreamCallback_t callback, void* userData,
                                       unsigned int flags) {
  return cudaStreamAddCallback(perThread(stream), callback, userData, flags);
}
cudaError_t cudaLaunchHostFunc_ptsz(cudaStream_t stream, cudaHostFn_t fn, void* userData) {
  return cudaLaunchHostFunc(perThread(stream), fn, userData);
}
cudaError_t cudaStreamAttachMemAsync_ptsz(cudaStream_t stream, void* devPtr, size_t length,
                                          unsigned int flags) {
  return cudaStreamAttachMemAsync(perThread(stream), devPtr, length, flags);
}
cudaError_t cudaStreamCopyAttributes_ptsz(cudaStream_t dst, cudaStream_t src) {
  return cudaStreamCopyAttributes(perThread(dst), perThread(src));
}
cudaError_t cudaMallocAsync_ptsz(void** devPtr, size_t size, cudaStream_t stream) {
  return cudaMallocAsync(devPtr, size, perThread(stream));
}
cudaError_t cudaMallocFromPoolAsync_ptsz(void** ptr, size_t size, cudaMemPool_t memPool,
                                         cudaStream_t stream) {
  return cudaMallocFromPoolAsync(ptr, size, memPool, perThread(stream));
}
cudaError_t cudaFreeAsync_ptsz(void* devPtr, cudaStream_t stream) {
  return cudaFreeAsync(devPtr, perThread(stream));
}
cudaError_t cudaMemPrefetchAsync_ptsz(const void* devPtr, size_t count, cudaMemLocation location,
                                      unsigned int flags, cudaStream_t stream) {
  return cudaMemPrefetchAsync(devPtr, count, location, flags, perThread(stream));
}

}  // extern "C"
