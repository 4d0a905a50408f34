#include "hostrt/event.h"

#include <chrono>
#include <memory>
#include <vector>

#include "hostrt/capture.h"
#include "hostrt/device.h"
#include "hostrt/per_thread.h"

namespace tutti::hostrt {
namespace {

struct Events {
  HandleTable<Event> handles{'E'};
  std::mutex mutex;
  std::vector<Event*> unused;
};

Events& events() {
  static auto* all = new Events;
  return *all;
}

cudaError_t createHere(cudaEvent_t* handle, unsigned int flags) {
  constexpr unsigned int kKnown = cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
  if (!handle || (flags & ~kKnown)) return cudaErrorInvalidValue;
  if ((flags & cudaEventInterprocess) && !(flags & cudaEventDisableTiming)) return cudaErrorInvalidValue;
  Device* device = currentDeviceOrNull();
  return device ? createEvent(*device, flags, handle) : cudaErrorNoDevice;
}

cudaError_t recordEvent(cudaEvent_t handle, cudaStream_t streamHandle, unsigned int flags) {
  Stream* stream = findStream(streamHandle);
  return stream ? recordEvent(handle, *stream, flags) : cudaErrorInvalidResourceHandle;
}

/// An event of a capture has no state outside of it. Other events say what other streams do, which a capture
/// cannot see.
cudaError_t checkAnswers(const Event& event) {
  if (!event.isCaptured()) return checkUnsafe();
  invalidateCaptureOf(event);
  return cudaErrorCapturedEvent;
}

}  // namespace

cudaError_t createEvent(Device& device, unsigned int flags, cudaEvent_t* handle) {
  Events& all = events();
  Event* event = nullptr;
  {
    const std::lock_guard lock(all.mutex);
    if (!all.unused.empty()) {
      event = all.unused.back();
      all.unused.pop_back();
    }
  }
  if (event) {
    event->reset(device, flags);
  } else {
    auto fresh = std::make_unique<Event>(device, flags);
    if (!all.handles.add(fresh.get())) return cudaErrorMemoryAllocation;
    event = fresh.release();
  }
  *handle = static_cast<cudaEvent_t>(all.handles.handleOf(*event));
  return cudaSuccess;
}

cudaError_t destroyEvent(cudaEvent_t handle) {
  Event* event = findEvent(handle);
  if (!event || !HandleTable<Event>::retire(*event, handle)) return cudaErrorInvalidResourceHandle;
  Events& all = events();
  const std::lock_guard lock(all.mutex);
  all.unused.push_back(event);
  return cudaSuccess;
}

cudaError_t recordEvent(cudaEvent_t handle, Stream& stream, unsigned int flags) {
  Event* event = findEvent(handle);
  if (!event || event->device != &stream.device) return cudaErrorInvalidResourceHandle;
  if (flags & ~unsigned{cudaEventRecordExternal}) return cudaErrorInvalidValue;
  if (const cudaError_t error = checkUse(stream); error != cudaSuccess) return error;
  if (flags == cudaEventRecordExternal)
    return isCaptured(stream) ? captureWork(stream, RecordWork{handle}) : cudaErrorInvalidValue;
  if (isCaptured(stream)) return captureRecord(stream, *event);
  event->record(stream);
  return cudaSuccess;
}

cudaError_t waitForEvent(Stream& stream, cudaEvent_t handle, unsigned int flags) {
  const Event* event = findEvent(handle);
  if (!event) return cudaErrorInvalidResourceHandle;
  if (flags & ~unsigned{cudaEventWaitExternal}) return cudaErrorInvalidValue;
  if (const cudaError_t error = checkUse(stream); error != cudaSuccess) return error;
  // Flags that make a node of it are an error outside of a capture, as in CUDA.
  if (flags == cudaEventWaitExternal)
    return isCaptured(stream) ? captureWork(stream, WaitWork{handle}) : cudaErrorInvalidValue;
  if (isCaptured(stream) || event->isCaptured()) return captureWait(stream, *event);
  const Marker marker = event->marker();
  if (!marker.reached() && marker.stream != &stream) stream.enqueue({{marker}, {}, {}});
  return cudaSuccess;
}

cudaError_t stateOf(const Event& event) {
  const Marker marker = event.marker();
  if (!marker.reached()) return cudaErrorNotReady;
  return marker.stream ? faultOf(*marker.stream) : cudaSuccess;
}

void Event::record(Stream& stream) {
  const std::lock_guard lock(mutex_);
  capture_.store(0, std::memory_order_release);
  const uint64_t number = record_.fetch_add(1, std::memory_order_relaxed) + 1;
  recorded_.store(true, std::memory_order_relaxed);
  // Without a time to note, the end of what the stream has is mark enough.
  if (!hasTiming() && stream.tryMarker(&marker_)) return;
  if (stream.tryBegin()) {
    stamp(number);
    stream.end();
    marker_ = {};
  } else {
    marker_ = stream.enqueue({{}, [this, number] { stamp(number); }, {}});
  }
}

void Event::recordCaptured(uint64_t capture, std::vector<GraphNode*> nodes) {
  const std::lock_guard lock(mutex_);
  record_.fetch_add(1, std::memory_order_relaxed);  // a pending record sets nothing any more
  recorded_.store(false, std::memory_order_relaxed);
  marker_ = {};
  nodes_ = std::move(nodes);
  capture_.store(capture, std::memory_order_release);
}

std::pair<uint64_t, std::vector<GraphNode*>> Event::captured() const {
  const std::lock_guard lock(mutex_);
  return {capture_.load(std::memory_order_relaxed), nodes_};
}

void Event::stamp(uint64_t record) {
  // A record that was overtaken by a later one must not set the time of that.
  if (record_.load(std::memory_order_relaxed) != record) return;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  time_.store(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count(), std::memory_order_release);
}

Marker Event::marker() const {
  const std::lock_guard lock(mutex_);
  return marker_;
}

bool Event::wasRecorded() const { return recorded_.load(std::memory_order_relaxed); }

void Event::reset(Device& owner, unsigned int eventFlags) {
  const std::lock_guard lock(mutex_);
  device = &owner;
  flags = eventFlags;
  marker_ = {};
  nodes_.clear();
  capture_.store(0, std::memory_order_relaxed);
  recorded_.store(false, std::memory_order_relaxed);
  record_.fetch_add(1, std::memory_order_relaxed);  // a pending record of the former user sets nothing
}

Event* findEvent(cudaEvent_t handle) { return events().handles.find(handle); }

}  // namespace tutti::hostrt

using namespace tutti::hostrt;

extern "C" {

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return apiCall([&] { return createHere(event, cudaEventDefault); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return apiCall([&] { return createHere(event, flags); });
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  return apiCall([&] { return destroyEvent(handle); });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return apiCall([&] { return recordEvent(event, stream, cudaEventRecordDefault); });
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
  return apiCall([&] { return recordEvent(event, stream, flags); });
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return apiCall([&] {
    const Event* event = findEvent(handle);
    if (!event) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t error = checkAnswers(*event); error != cudaSuccess) return error;
    return stateOf(*event);
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return apiCall([&] {
    const Event* event = findEvent(handle);
    if (!event) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t error = checkAnswers(*event); error != cudaSuccess) return error;
    const Marker marker = event->marker();
    waitFor(marker);
    return marker.stream ? faultOf(*marker.stream) : cudaSuccess;
  });
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t startHandle, cudaEvent_t endHandle) {
  return apiCall([&] {
    if (!ms) return cudaErrorInvalidValue;
    const Event* start = findEvent(startHandle);
    const Event* end = findEvent(endHandle);
    for (const Event* event : {start, end})
      if (event && event->isCaptured()) return cudaErrorCapturedEvent;
    for (const Event* event : {start, end})
      if (!event || !event->hasTiming() || !event->wasRecorded()) return cudaErrorInvalidResourceHandle;
    if (!start->marker().reached() || !end->marker().reached()) return cudaErrorNotReady;
    *ms = static_cast<float>(static_cast<double>(end->time() - start->time()) / 1e6);
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord_ptsz(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecord(event, perThread(stream));
}

cudaError_t cudaEventRecordWithFlags_ptsz(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
  return cudaEventRecordWithFlags(event, perThread(stream), flags);
}

}  // extern "C"
