// tuttiHostRuntime_v1: what libnccl.so.2 asks of the runtime (base/host_runtime.h).
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <vector>

#include "base/host_runtime.h"
#include "hostrt/capture.h"
#include "hostrt/device.h"
#include "hostrt/kernel_run.h"
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

/// The stream's work is not executed, or would have to wait for work that is not.
bool isUnavailable(Stream& stream) { return isCaptured(stream) || checkUse(stream) != cudaSuccess; }

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

int deviceSlot(int device, int* slot, int* slots) {
  return guarded([&] {
    const Device* found = findDevice(device);
    if (!found) return ENODEV;
    *slot = found->slot;
    *slots = std::max(configuredSlots(), found->slot + 1);
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
    if (isUnavailable(stream)) return EPERM;
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
    if (isUnavailable(stream)) return EPERM;
    stream.enqueue({{}, {}, task});
    return 0;
  });
}

int streamQuery(void* handle) {
  return withStream(handle, [](Stream& stream) {
    if (isUnavailable(stream)) return EPERM;
    if (!stream.isIdle()) return EBUSY;
    return faultOf(stream) == cudaSuccess ? 0 : EIO;
  });
}

int streamSynchronize(void* handle) {
  return withStream(handle, [](Stream& stream) {
    if (isUnavailable(stream)) return EPERM;
    std::vector<Marker> markers;
    stream.pending(markers);
    waitForAll(markers);
    return faultOf(stream) == cudaSuccess ? 0 : EIO;
  });
}

int streamCapture(void* handle, tuttiCaptureState* state) {
  return withStream(handle, [&](Stream& stream) {
    *state = {};
    if (checkUse(stream) != cudaSuccess) return EPERM;
    if (!isCaptured(stream)) return 0;
    const std::lock_guard lock(graphMutex());
    if (const Capture* capture = stream.capture.load())
      *state = {capture->id, capture->isInvalidated ? 1 : 0};
    return 0;
  });
}

int streamCaptureAdd(void* const* handles, size_t count, tuttiGraphWork work) {
  return guarded([&] {
    std::vector<Stream*> streams;
    for (size_t i = 0; i < count; ++i) {
      Stream* stream = findStream(static_cast<cudaStream_t>(handles[i]));
      if (!stream || !isCaptured(*stream)) return EINVAL;
      streams.push_back(stream);
    }
    if (streams.empty() || !work.launch) return EINVAL;
    // Without `release` until it stands in the graph: what fails leaves it with the caller.
    auto held = std::make_shared<LibraryWork>(tuttiGraphWork{work.launch, nullptr, work.context});
    const cudaError_t error = captureWork(streams, held);
    if (error != cudaSuccess) return error == cudaErrorStreamCaptureInvalidated ? EPERM : EINVAL;
    held->takeOver(work.release);
    return 0;
  });
}

size_t kernelReport(char* text, size_t bytes) {
  size_t length = 0;
  guarded([&] {
    const std::string report = describeKernels();
    length = report.size();
    if (bytes == 0) return 0;
    const size_t copied = std::min(bytes - 1, report.size());
    std::memcpy(text, report.data(), copied);
    text[copied] = 0;
    return 0;
  });
  return length;
}

const void* kernelTwins() { return tuttiKernelTwins_v1_get(); }

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
    streamCapture,
    streamCaptureAdd,
    deviceSlot,
    kernelReport,
    kernelTwins,
};

}  // namespace
}  // namespace tutti::hostrt

extern "C" __attribute__((visibility("default"))) const tuttiHostRuntime_v1* tuttiHostRuntime_v1_get(void) {
  return &tutti::hostrt::kTable;
}
