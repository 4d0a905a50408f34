// Stream capture: work of a stream becomes nodes of a graph instead of being executed.
//
// A capture begins on one stream, its *origin*. Other streams join it when they wait for an event that was
// recorded in it. Every stream of a capture has *tails*: the nodes that its next node comes after.
//
//     origin   A ----- record(e) -------------- wait(f) -- C -- EndCapture      A --> B --> C
//                          |                       |                             `---------^
//     other             wait(e) -- B -- record(f) -'
//
// Whatever breaks a rule invalidates the capture: its streams refuse work until EndCapture, which gives no
// graph. Everything here is guarded by graphMutex(); streams that are not captured pay one atomic read.
#pragma once

#include <thread>
#include <vector>

#include "hostrt/graph.h"
#include "hostrt/stream.h"

namespace tutti::hostrt {

struct Capture {
  uint64_t id = 0;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  std::shared_ptr<Graph> graph;
  Stream* origin = nullptr;
  std::vector<Stream*> streams;
  bool isInvalidated = false;
  bool isUnjoined = false;  // a stream was destroyed with work that the origin does not wait for
};

inline bool isCaptured(const Stream& stream) {
  return stream.capture.load(std::memory_order_acquire) != nullptr;
}

/// For calls that add work: fails for the legacy stream while a blocking stream of its device is captured,
/// which it would have to wait for. That invalidates the capture.
cudaError_t checkUse(Stream& stream);
/// For calls that need the stream to execute (query, synchronise, callbacks): fails also when the stream is
/// captured, and invalidates the capture.
cudaError_t checkExecutes(Stream& stream);
/// For calls that wait for the device.
cudaError_t checkExecutes(Device& device);
/// For calls that are not stream-ordered and would escape a capture (cudaMalloc and its like): fails while a
/// capture that the thread's mode respects is going on, and invalidates that.
cudaError_t checkUnsafe();

/// For a call that a graph would lack: a kernel that could not be launched.
void invalidateCaptureOf(Stream& stream, const char* why);

/// Adds a node to the stream's capture.
cudaError_t captureWork(Stream& stream, NodeWork work);
/// The same for work that belongs to several streams: they all have it as their only tail then.
cudaError_t captureWork(std::span<Stream* const> streams, NodeWork work);

/// Records an event in a capturing stream.
cudaError_t captureRecord(Stream& stream, Event& event);
/// The stream waits for an event, when stream or event are captured. May make the stream join.
cudaError_t captureWait(Stream& stream, const Event& event);
/// The capture that the event was recorded in is invalidated, if it is still going on.
void invalidateCaptureOf(const Event& event);

cudaError_t beginCapture(Stream& stream, cudaStreamCaptureMode mode, std::shared_ptr<Graph> graph,
                         std::vector<GraphNode*> tails);
/// On success gives the graph; the caller decides who owns it.
cudaError_t endCapture(Stream& stream, std::shared_ptr<Graph>* graph);
/// For a stream that is destroyed.
void leaveCapture(Stream& stream);

/// How the calling thread respects captures; gives the former mode.
cudaStreamCaptureMode exchangeThreadMode(cudaStreamCaptureMode mode);

}  // namespace tutti::hostrt
