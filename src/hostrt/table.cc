// tuttiHostRuntime_v1: what libnccl.so.2 asks of the runtime (base/host_runtime.h).
#include <cerrno>
#include <new>
#include <vector>

#include "base/host_runtime.h"
#include "hostrt/device.h"
#include "hostrt/memory.h"

namespace tutti::hostrt {
namespace {

/// Runs the body; exceptions become errno values, and so does the use in a forked child.
template <class Body>
int guarded(Body&& body) noexcept {
  if (isUnusableFork()) return ECHILD;
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  } catch (...) {
    return EAGAIN;  // a lock or thread that the system refused
  }
}

template <class Body>
int withStream(void* handle, Body&& body) {
  return guarded([&] {
    Stream* stream = findStream(static_cast<cudaStream_t>(handle));
    return stream ? body(*stream) : EINVAL;
  });
}

int deviceCount(int* count) {
  return guarded([&] {
    *count = static_cast<int>(devices().size());
    return 0;
  });
}

int getCurrentDevice(int* device) {
  *device = currentDevice();
  return 0;
}

int chooseCurrentDevice(int device) {
  return guarded([&] {
    if (!findDevice(device)) return ENODEV;
    setCurrentDevice(device);
    return 0;
  });
}

int memoryAllocate(int device, size_t bytes, void** pointer) {
  return guarded([&] {
    if (!findDevice(device)) return ENODEV;
    return memory().allocate(device, bytes, MemoryKind::device, 0, true, pointer) == cudaSuccess ? 0 : ENOMEM;
  });
}

int memoryFree(void* pointer) {
  return guarded([&] {
    if (!pointer) return 0;
    return memory().free(pointer, MemoryKind::device) == cudaSuccess ? 0 : EINVAL;
  });
}

int memoryFileOf(const void* pointer, tuttiMemoryFileRef* ref) {
  return guarded([&] { return memory().fileOf(pointer, ref) ? 0 : ENOENT; });
}

int streamDevice(void* handle, int* device) {
  return withStream(handle, [&](const Stream& stream) {
    *device = stream.device.index;
    return 0;
  });
}

int streamTryBegin(void* handle, void** occupation) {
  return withStream(handle, [&](Stream& stream) {
    if (!stream.tryBegin()) return EBUSY;
    *occupation = &stream;
    return 0;
  });
}

void streamEnd(void* occupation) { static_cast<Stream*>(occupation)->end(); }

void streamHandOff(void* occupation, tuttiStreamTask task) {
  static_cast<Stream*>(occupation)->handOff(task);
}

int streamEnqueue(void* handle, tuttiStreamTask task) {
  return withStream(handle, [&](Stream& stream) {
    if (!task.run) return EINVAL;
    stream.enqueue({{}, {}, task});
    return 0;
  });
}

int streamQuery(void* handle) {
  // No work of this runtime fails after it was enqueued, so there is no EIO yet.
  return withStream(handle, [](Stream& stream) { return stream.isIdle() ? 0 : EBUSY; });
}

int streamSynchronize(void* handle) {
  return withStream(handle, [](Stream& stream) {
    std::vector<Marker> markers;
    stream.pending(markers);
    waitForAll(markers);
    return 0;
  });
}

constexpr tuttiHostRuntime_v1 kTable = {
    sizeof(tuttiHostRuntime_v1),
    1,
    deviceCount,
    getCurrentDevice,
    chooseCurrentDevice,
    memoryAllocate,
    memoryFree,
    memoryFileOf,
    streamDevice,
    streamTryBegin,
    streamEnd,
    streamHandOff,
    streamEnqueue,
    streamQuery,
    streamSynchronize,
};

}  // namespace
}  // namespace tutti::hostrt

extern "C" __attribute__((visibility("default"))) const tuttiHostRuntime_v1* tuttiHostRuntime_v1_get(void) {
  return &tutti::hostrt::kTable;
}
