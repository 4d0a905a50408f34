#include "hostrt/stream.h"

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "hostrt/capture.h"
#include "hostrt/device.h"
#include "hostrt/process.h"
#include "hostrt/workers.h"

namespace tutti::hostrt {

void Stream::submitOne() {
  if (kind == Kind::blocking && !isBusy()) ++device.busyBlocking;
  ++submitted_;
}

void Stream::completeOne() {
  const uint64_t now = completed.fetch_add(1, std::memory_order_release) + 1;
  if (kind == Kind::blocking && !isBusy()) --device.busyBlocking;
  if (now < wanted_) return;
  wanted_ = kNothing;
  changed_.notify_all();
}

void Stream::becomeInactive() {
  active_ = false;
  if (!destroyed_) return;
  destroyed_ = false;
  device.unused.push_back(this);
}

bool Stream::tryBegin() {
  const std::lock_guard lock(device.mutex);
  if (active_ || isBusy()) return false;
  if (kind == Kind::legacy && device.busyBlocking > 0) return false;
  if (kind == Kind::blocking && device.legacy.isBusy()) return false;
  active_ = true;
  submitOne();
  return true;
}

void Stream::end() {
  {
    const std::lock_guard lock(device.mutex);
    completeOne();
    if (queue_.empty()) return becomeInactive();
  }
  giveToWorker(*this);
}

void Stream::handOff(tuttiStreamTask task) {
  {
    const std::lock_guard lock(device.mutex);
    handedOff_ = task;
    hasHandedOff_ = true;
  }
  giveToWorker(*this);
}

Marker Stream::enqueue(StreamWork work) {
  Marker done{this, 0};
  {
    const std::lock_guard lock(device.mutex);
    if (kind == Kind::legacy && device.busyBlocking > 0) {
      for (Stream* other : device.streams)
        if (other->kind == Kind::blocking && other->isBusy())
          work.after.push_back({other, other->submitted_});
    } else if (kind == Kind::blocking && device.legacy.isBusy()) {
      work.after.push_back({&device.legacy, device.legacy.submitted_});
    }
    queue_.push_back(std::move(work));
    submitOne();
    done.number = submitted_;
    if (active_) return done;
    active_ = true;
  }
  giveToWorker(*this);
  return done;
}

bool Stream::tryMarker(Marker* marker) {
  const std::lock_guard lock(device.mutex);
  if (kind == Kind::legacy && device.busyBlocking > 0) return false;
  if (kind == Kind::blocking && device.legacy.isBusy()) return false;
  *marker = {this, submitted_};
  return true;
}

void Stream::pending(std::vector<Marker>& markers) {
  const std::lock_guard lock(device.mutex);
  if (isBusy()) markers.push_back({this, submitted_});
  if (kind != Kind::legacy || device.busyBlocking == 0) return;
  for (Stream* other : device.streams)
    if (other->kind == Kind::blocking && other->isBusy()) markers.push_back({other, other->submitted_});
}

bool Stream::isIdle() {
  const std::lock_guard lock(device.mutex);
  return !isBusy() && (kind != Kind::legacy || device.busyBlocking == 0);
}

void Stream::drain() {
  const int callersDevice = currentDevice();
  setCurrentDevice(device.index);
  while (runNext()) {
  }
  setCurrentDevice(callersDevice);
}

bool Stream::runNext() {
  StreamWork work;
  {
    const std::lock_guard lock(device.mutex);
    if (hasHandedOff_) {
      work.task = handedOff_;
      hasHandedOff_ = false;
    } else {
      work = std::move(queue_.front());
      queue_.pop_front();
    }
  }
  waitForAll(work.after);
  parkIfExiting();
  if (work.task.run) work.task.run(work.task.context);
  if (work.task.release) work.task.release(work.task.context);
  if (work.work) work.work();
  // What the work holds is given back before anyone sees it done.
  work = {};
  // Done and inactive in one step: who has waited for the end finds the stream ready for tryBegin.
  const std::lock_guard lock(device.mutex);
  completeOne();
  if (!queue_.empty()) return true;
  becomeInactive();
  return false;
}
void waitFor(const Marker& marker) {
  using Clock = std::chrono::steady_clock;
  if (marker.reached()) return;
  // Most waits are for work that is about to end; more ranks than cores make long spinning harmful.
  const auto spinUntil = Clock::now() + std::chrono::microseconds(20);
  do {
    for (int i = 0; i < 32; ++i) {
      if (marker.reached()) return;
      cpuRelax();
    }
    ::sched_yield();
  } while (Clock::now() < spinUntil);

  Stream& stream = *marker.stream;
  std::unique_lock lock(stream.device.mutex);
  // The time-out serves process exit alone: workers stop then, and nobody notifies.
  while (!marker.reached() && !isExiting()) {
    stream.wanted_ = std::min(stream.wanted_, marker.number);
    stream.changed_.wait_for(lock, std::chrono::seconds(1));
  }
}

void waitForAll(const std::vector<Marker>& markers) {
  for (const Marker& marker : markers) waitFor(marker);
}

void Stream::forgetWork() {
  new (&queue_) std::deque<StreamWork>;
  new (&changed_) std::condition_variable;
  handedOff_ = {};
  hasHandedOff_ = false;
  active_ = false;
  wanted_ = kNothing;
  completed.store(submitted_, std::memory_order_release);
}

HandleTable<Stream>& streamHandles() {
  static auto* table = new HandleTable<Stream>('S');
  return *table;
}

Stream* createStream(Device& device, Stream::Kind kind, unsigned int flags, int priority) {
  static std::atomic<uint64_t> nextId{1};
  watchForks();
  Stream* stream = nullptr;
  {
    const std::lock_guard lock(device.mutex);
    if (!device.unused.empty()) {
      stream = device.unused.back();
      device.unused.pop_back();
    }
  }
  if (!stream) {
    auto fresh = std::make_unique<Stream>(device, kind);
    if (!streamHandles().add(fresh.get())) return nullptr;
    stream = fresh.release();
    const std::lock_guard lock(device.mutex);
    device.streams.push_back(stream);
    device.unused.reserve(device.streams.size());  // so that becomeInactive cannot fail
  }
  const std::lock_guard lock(device.mutex);
  stream->kind = kind;
  stream->flags = flags;
  stream->priority = priority;
  stream->id = nextId.fetch_add(1, std::memory_order_relaxed);
  return stream;
}

void destroyStream(Stream& stream) {
  if (isCaptured(stream)) leaveCapture(stream);
  const std::lock_guard lock(stream.device.mutex);
  stream.destroyed_ = true;
  if (!stream.active_) stream.becomeInactive();
}

Stream* findStream(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) {
    Device* device = currentDeviceOrNull();
    return device ? &device->legacy : nullptr;
  }
  if (handle == cudaStreamPerThread) {
    Device* device = currentDeviceOrNull();
    return device ? perThreadStream(*device) : nullptr;
  }
  return streamHandles().find(handle);
}

Stream* perThreadStream(Device& device) {
  struct Streams {
    std::vector<Stream*> byDevice;
    ~Streams() {
      for (Stream* stream : byDevice)
        if (stream) destroyStream(*stream);
    }
  };
  thread_local Streams streams;
  const auto index = static_cast<size_t>(device.index);
  if (streams.byDevice.size() <= index) streams.byDevice.resize(index + 1);
  Stream*& stream = streams.byDevice[index];
  if (!stream) stream = createStream(device, Stream::Kind::blocking, cudaStreamDefault, 0);
  return stream;
}

}  // namespace tutti::hostrt
