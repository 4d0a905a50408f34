// tuttiHostRuntime_v1: what libnccl.so.2 asks of the runtime (base/host_runtime.h).
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <vector>

#include "base/host_runtime.h"
#include "hostrt/capture.h"
#include "hostrt/device.h"
#include "hostrt/event.h"
#include "hostrt/kernel_launch.h"
#include "hostrt/kernel_limits.h"
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

// ---- for a driver: everything for a given device

/// The answer to an error of CUDA's API.
int errnoOf(cudaError_t error, const Device& device) {
  if (error == cudaSuccess) return 0;
  if (device.fault.load() != cudaSuccess) return EIO;
  if (error == cudaErrorMemoryAllocation) return ENOMEM;
  const bool isOfCapture =
      error >= cudaErrorStreamCaptureUnsupported && error <= cudaErrorStreamCaptureWrongThread;
  return isOfCapture ? EPERM : EINVAL;
}

/// The stream behind the handle, which must belong to the device; null when it does not.
Stream* streamOf(Device& device, void* handle) {
  const int callers = currentDevice();
  setCurrentDevice(device.index);  // whose default streams the handle may mean
  Stream* stream = nullptr;
  try {
    stream = findStream(static_cast<cudaStream_t>(handle));
  } catch (...) {
    setCurrentDevice(callers);
    throw;
  }
  setCurrentDevice(callers);
  return stream && &stream->device == &device ? stream : nullptr;
}

/// Runs body(device), which gives an errno value.
template <class Body>
int onDevice(int number, Body&& body) {
  return guarded([&] {
    Device* device = findDevice(number);
    return device ? body(*device) : ENODEV;
  });
}

/// Runs body(stream), which gives a cudaError_t.
template <class Body>
int onStream(int number, void* handle, Body&& body) {
  return onDevice(number, [&](Device& device) {
    Stream* stream = streamOf(device, handle);
    return stream ? errnoOf(body(*stream), device) : EINVAL;
  });
}

void copyText(const std::string& from, char* to, size_t bytes) {
  const size_t length = std::min(bytes - 1, from.size());
  std::memcpy(to, from.data(), length);
  to[length] = 0;
}

int deviceFacts(int number, tuttiDeviceFacts* facts) {
  return onDevice(number, [&](const Device& device) {
    const DeviceProperties properties = propertiesOf(device);
    copyText(properties.name, facts->name, sizeof facts->name);
    copyText(properties.busId, facts->busId, sizeof facts->busId);
    facts->major = properties.major;
    facts->minor = properties.minor;
    facts->multiprocessors = static_cast<int>(kMultiprocessors);
    return 0;
  });
}

int deviceReaches(int number, int peer, int* answer) {
  return onDevice(number, [&](const Device& device) {
    const Device* other = findDevice(peer);
    if (!other) return ENODEV;
    *answer = reaches(device, *other) ? 1 : 0;
    return 0;
  });
}

int pinnedAllocate(int number, size_t bytes, void** pointer) {
  return onDevice(number, [&](const Device& device) {
    constexpr unsigned int kFlags = cudaHostAllocPortable | cudaHostAllocMapped;
    const cudaError_t error = memory().allocate(device.index, bytes, MemoryKind::host, kFlags, true, pointer);
    return error == cudaSuccess ? 0 : ENOMEM;
  });
}

int pinnedFree(void* pointer) {
  return guarded([&] {
    if (!pointer) return 0;
    return memory().free(pointer, MemoryKind::host) == cudaSuccess ? 0 : EINVAL;
  });
}

int pointerFacts(const void* pointer, tuttiPointerFacts* facts) {
  return guarded([&] {
    const MemoryInfo info = memory().find(pointer);
    *facts = {tuttiPointerUnknown, -1};
    if (info.type == MemoryInfo::Type::unregistered) return 0;
    facts->device = info.device;
    if (info.type == MemoryInfo::Type::host) facts->kind = tuttiPointerHost;
    if (info.type == MemoryInfo::Type::device) facts->kind = tuttiPointerDevice;
    if (info.type == MemoryInfo::Type::managed) facts->kind = tuttiPointerManaged;
    return 0;
  });
}

int kernelLaunch(int number, void* handle, const void* twin, const tuttiKernelShape* shape,
                 void* const* arguments) {
  return onStream(number, handle, [&](Stream& stream) {
    if (!twin || !shape) return cudaErrorInvalidValue;
    LaunchRequest request;
    request.grid = dim3(shape->grid[0], shape->grid[1], shape->grid[2]);
    request.block = dim3(shape->block[0], shape->block[1], shape->block[2]);
    request.arguments = const_cast<void**>(arguments);
    request.dynamicShared = shape->sharedBytes;
    return launchOn(stream, kernelOfTwin(*static_cast<const shim::KernelTwin*>(twin)), request);
  });
}

int kernelResident(int number, const void* twin, uint32_t threads, size_t sharedBytes, uint32_t* blocks) {
  return onDevice(number, [&](const Device&) {
    if (!twin || threads == 0) return EINVAL;
    const auto* kernel = static_cast<const shim::KernelTwin*>(twin);
    *blocks = kMultiprocessors * residentPerMultiprocessor(kernel, threads, sharedBytes);
    return 0;
  });
}

int eventCreate(int number, void** event) {
  return onDevice(number, [&](Device& device) {
    cudaEvent_t handle = nullptr;
    const cudaError_t error = createEvent(device, cudaEventDisableTiming, &handle);
    *event = handle;
    return error == cudaSuccess ? 0 : ENOMEM;
  });
}

int eventDestroy(void* event) {
  return guarded([&] { return destroyEvent(static_cast<cudaEvent_t>(event)) == cudaSuccess ? 0 : EINVAL; });
}

int eventRecord(int number, void* handle, void* event, int inGraph) {
  return onStream(number, handle, [&](Stream& stream) {
    return recordEvent(static_cast<cudaEvent_t>(event), stream,
                       inGraph != 0 ? cudaEventRecordExternal : cudaEventRecordDefault);
  });
}

int eventWait(int number, void* handle, void* event, int inGraph) {
  return onStream(number, handle, [&](Stream& stream) {
    return waitForEvent(stream, static_cast<cudaEvent_t>(event),
                        inGraph != 0 ? cudaEventWaitExternal : cudaEventWaitDefault);
  });
}

int eventQuery(void* handle) {
  return guarded([&] {
    const Event* event = findEvent(static_cast<cudaEvent_t>(handle));
    if (!event) return EINVAL;
    if (event->isCaptured()) return EPERM;
    const cudaError_t state = stateOf(*event);
    if (state == cudaErrorNotReady) return EBUSY;
    return state == cudaSuccess ? 0 : EIO;
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
    streamCapture,
    streamCaptureAdd,
    deviceSlot,
    kernelReport,
    kernelTwins,
    deviceFacts,
    deviceReaches,
    pinnedAllocate,
    pinnedFree,
    pointerFacts,
    kernelLaunch,
    kernelResident,
    eventCreate,
    eventDestroy,
    eventRecord,
    eventWait,
    eventQuery,
};

}  // namespace
}  // namespace tutti::hostrt

extern "C" __attribute__((visibility("default"))) const tuttiHostRuntime_v1* tuttiHostRuntime_v1_get(void) {
  return &tutti::hostrt::kTable;
}
