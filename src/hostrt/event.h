// Events: marks in the order of streams.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "hostrt/stream.h"

namespace tutti::hostrt {

struct Device;

/// Thread-safe. An event that was never recorded counts as reached.
class Event : public HandleTarget {
 public:
  Event(Device& owner, unsigned int eventFlags) : device(&owner), flags(eventFlags) {}

  /// Marks the end of what was enqueued on the stream so far; notes the time at which the stream gets there.
  void record(Stream& stream);
  /// Of the latest record.
  Marker marker() const;
  bool wasRecorded() const;
  /// Of the latest record, which must be reached, in nanoseconds of the monotonic clock.
  int64_t time() const { return time_.load(std::memory_order_acquire); }
  bool hasTiming() const { return !(flags & cudaEventDisableTiming); }
  /// Marks a point in a capture instead: what comes after these nodes.
  void recordCaptured(uint64_t capture, std::vector<GraphNode*> nodes);
  /// The latest record was in a capture.
  bool isCaptured() const { return capture_.load(std::memory_order_acquire) != 0; }
  /// Number of the capture (0: none) and the nodes.
  std::pair<uint64_t, std::vector<GraphNode*>> captured() const;
  /// Prepares the event for its next user.
  void reset(Device& owner, unsigned int eventFlags);

  Device* device;
  unsigned int flags;

 private:
  void stamp(uint64_t record);

  mutable std::mutex mutex_;  // of marker_, nodes_
  Marker marker_;
  std::vector<GraphNode*> nodes_;
  std::atomic<uint64_t> capture_{0};
  std::atomic<uint64_t> record_{0};  // number of the latest record; 0: none. Never repeated.
  std::atomic<bool> recorded_{false};
  std::atomic<int64_t> time_{0};
};

/// Null when the handle is not valid.
Event* findEvent(cudaEvent_t handle);

/// What the entry points do, for a given device or stream.
cudaError_t createEvent(Device& device, unsigned int flags, cudaEvent_t* handle);
cudaError_t destroyEvent(cudaEvent_t handle);
cudaError_t recordEvent(cudaEvent_t handle, Stream& stream, unsigned int flags);
cudaError_t waitForEvent(Stream& stream, cudaEvent_t handle, unsigned int flags);
/// Of an event that was not recorded in a capture: done, cudaErrorNotReady, or its device's error.
cudaError_t stateOf(const Event& event);

}  // namespace tutti::hostrt
