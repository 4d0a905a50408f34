// Streams: ordered work on a device.
//
// Every piece of work of a stream has a number. `submitted` counts what was handed in, `completed` what is
// done; the stream is idle when they are equal. A marker (stream, number) is a point in that order: events,
// waits between streams and synchronisation are all "wait until completed >= number". Numbers grow for ever,
// also when a destroyed stream is used again, so an old marker is simply one that was reached.
//
// Work on an idle stream may run in the calling thread (tryBegin, then end). Other work waits in the queue
// for a worker thread, which a stream has only while its queue is not empty.
//
//     caller             stream                   worker
//     tryBegin --------> occupied: 1 submitted
//     enqueue(B) ------> queue: B
//     handOff(A') -----> queue: A' B -----------> A' (still number 1), then B (number 2)
//
// The legacy stream of a device waits for all work of blocking streams that was enqueued before its own, and
// they for its. Markers always point at work enqueued earlier, so waits cannot form a circle.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "base/host_runtime.h"
#include "hostrt/api.h"
#include "hostrt/handle_table.h"

namespace tutti::hostrt {

class Stream;
struct Capture;
struct Device;
struct GraphNode;

/// A point in a stream's order. Empty (no stream): a point that was always reached.
struct Marker {
  Stream* stream = nullptr;
  uint64_t number = 0;
  bool reached() const;
};

/// What a worker runs: first waits for the markers, then calls `work` or `task`, whichever is set.
struct StreamWork {
  std::vector<Marker> after;
  std::function<void()> work;
  tuttiStreamTask task{};
};

/// Thread-safe. Fields other than `completed` are guarded by the device's mutex or fixed while the stream is
/// in use.
class Stream : public HandleTarget {
 public:
  enum class Kind : uint8_t { legacy, blocking, nonBlocking };
  Stream(Device& owner, Kind streamKind) : device(owner), kind(streamKind) {}

  /// Occupies the stream if it is idle and nothing that it must wait for is pending. After true, call end or
  /// handOff.
  bool tryBegin();
  void end();
  /// Ends an occupation: `task` takes its place in the order and runs on a worker. Allocates nothing. When
  /// the system has no thread left, the task runs in the calling thread.
  void handOff(tuttiStreamTask task);
  /// Adds work at the end. Gives the marker that is reached when it is done.
  Marker enqueue(StreamWork work);

  /// The end of what was enqueued so far. False when work enqueued now would have to wait for other streams
  /// too, so that no marker of this stream stands for "from here on".
  bool tryMarker(Marker* marker);
  /// Appends to `markers` what must be reached before everything enqueued so far is done; for the legacy
  /// stream that includes the device's blocking streams. Nothing is appended when the stream is idle.
  void pending(std::vector<Marker>& markers);
  bool isIdle();

  /// Runs the work that there is (at least one piece). Called by the worker that was given the stream.
  void drain();
  /// In a forked child: the threads that had the work are not here, and the work is the parent's. What it
  /// holds is never given back.
  void forgetWork();

  Device& device;
  Kind kind;  // of a stream in use
  unsigned int flags = 0;
  int priority = 0;
  uint64_t id = 0;
  std::atomic<uint64_t> completed{0};

  // Of capture.h: the capture that the stream is part of, or null; the rest is guarded by graphMutex().
  std::atomic<Capture*> capture{nullptr};
  std::vector<GraphNode*> captureTails;
  std::vector<cudaGraphNode_t> captureHandles;  // captureTails as the program was given them
  std::vector<cudaGraphEdgeData> captureEdges;

 private:
  friend void waitFor(const Marker& marker);
  friend struct Device;
  friend void destroyStream(Stream& stream);

  bool isBusy() const { return submitted_ != completed.load(std::memory_order_relaxed); }
  /// Runs the next piece of work, of which there is one. False when it was the last: the stream is inactive
  /// then, and may be somebody else's.
  bool runNext();
  void submitOne();
  void completeOne();
  void becomeInactive();

  uint64_t submitted_ = 0;
  bool active_ = false;  // occupied by a caller, or a worker has it
  bool destroyed_ = false;
  bool hasHandedOff_ = false;
  tuttiStreamTask handedOff_{};  // goes before the queue
  std::deque<StreamWork> queue_;
  /// The lowest number that anybody waits for: whoever waits for the last of many is not woken by each.
  static constexpr uint64_t kNothing = UINT64_MAX;
  uint64_t wanted_ = kNothing;
  std::condition_variable changed_;
};

inline bool Marker::reached() const {
  return !stream || stream->completed.load(std::memory_order_acquire) >= number;
}

/// Blocks until the marker is reached: spins shortly, then sleeps. Returns at once when the process is
/// exiting.
void waitFor(const Marker& marker);
void waitForAll(const std::vector<Marker>& markers);

/// Null when there are too many streams.
Stream* createStream(Device& device, Stream::Kind kind, unsigned int flags, int priority);
/// The stream's work finishes; its memory is used again after that.
void destroyStream(Stream& stream);

/// The stream behind a handle: null and cudaStreamLegacy mean the legacy stream of the current device,
/// cudaStreamPerThread the calling thread's. Null when the handle is not valid.
Stream* findStream(cudaStream_t handle);
HandleTable<Stream>& streamHandles();
/// Of the calling thread on the device; made on first use, destroyed when the thread ends.
Stream* perThreadStream(Device& device);

/// Runs `work` in the stream's order: in the calling thread when the stream is idle, otherwise on its worker.
template <class Work>
void runOrEnqueue(Stream& stream, Work&& work) {
  if (stream.tryBegin()) {
    work();
    stream.end();
  } else {
    stream.enqueue({{}, std::function<void()>(std::forward<Work>(work)), {}});
  }
}

}  // namespace tutti::hostrt
