#include "hostrt/capture.h"

#include <algorithm>
#include <unordered_set>

#include "hostrt/device.h"
#include "hostrt/event.h"
#include "hostrt/log.h"

namespace tutti::hostrt {
namespace {

thread_local cudaStreamCaptureMode threadMode = cudaStreamCaptureModeGlobal;

std::vector<std::unique_ptr<Capture>>& captures() {
  static auto* all = new std::vector<std::unique_ptr<Capture>>;
  return *all;
}
std::atomic<int> activeCaptures{0};

Capture* captureOf(const Stream& stream) { return stream.capture.load(std::memory_order_relaxed); }

Capture* findCapture(uint64_t id) {
  for (const auto& capture : captures())
    if (capture->id == id) return capture.get();
  return nullptr;
}

void invalidate(Capture& capture, const char* why) {
  if (capture.isInvalidated) return;
  explain("stream capture {} is invalid from here on: {}", capture.id, why);
  capture.isInvalidated = true;
}

void join(Capture& capture, Stream& stream, std::vector<GraphNode*> tails) {
  capture.streams.push_back(&stream);
  stream.captureTails = std::move(tails);
  if (stream.kind == Stream::Kind::blocking) stream.device.capturedBlocking.fetch_add(1);
  stream.capture.store(&capture, std::memory_order_release);
}

void leave(Capture& capture, Stream& stream) {
  std::erase(capture.streams, &stream);
  if (stream.kind == Stream::Kind::blocking) stream.device.capturedBlocking.fetch_sub(1);
  stream.captureTails.clear();
  stream.capture.store(nullptr, std::memory_order_release);
}

void end(Capture& capture) {
  while (!capture.streams.empty()) leave(capture, *capture.streams.back());
  activeCaptures.fetch_sub(1);
  std::erase_if(captures(), [&](const auto& one) { return one.get() == &capture; });
}

void addTails(std::vector<GraphNode*>& tails, const std::vector<GraphNode*>& more) {
  for (GraphNode* node : more) {
    // The program may have destroyed nodes that an event or a stream still marks.
    if (!liveNodes().find(node) || std::find(tails.begin(), tails.end(), node) != tails.end()) continue;
    tails.push_back(node);
  }
}

/// The origin waits for everything that was captured on the stream.
bool isJoined(const Capture& capture, const Stream& stream) {
  std::unordered_set<const GraphNode*> reached;
  std::vector<GraphNode*> open;
  addTails(open, capture.origin->captureTails);
  while (!open.empty()) {
    const GraphNode* node = open.back();
    open.pop_back();
    if (!reached.insert(node).second) continue;
    open.insert(open.end(), node->dependencies.begin(), node->dependencies.end());
  }
  std::vector<GraphNode*> tails;
  addTails(tails, stream.captureTails);
  return std::all_of(tails.begin(), tails.end(),
                     [&](const GraphNode* tail) { return reached.count(tail) != 0; });
}

}  // namespace

cudaStreamCaptureMode exchangeThreadMode(cudaStreamCaptureMode mode) {
  return std::exchange(threadMode, mode);
}

cudaError_t checkUse(Stream& stream) {
  if (stream.kind != Stream::Kind::legacy || stream.device.capturedBlocking.load() == 0) return cudaSuccess;
  const std::lock_guard lock(graphMutex());
  for (const auto& capture : captures())
    for (const Stream* other : capture->streams)
      if (&other->device == &stream.device && other->kind == Stream::Kind::blocking)
        invalidate(*capture, "the legacy default stream, which waits for blocking streams, was used");
  return cudaErrorStreamCaptureImplicit;
}

cudaError_t checkExecutes(Stream& stream) {
  if (const cudaError_t error = checkUse(stream); error != cudaSuccess) return error;
  if (!isCaptured(stream)) return cudaSuccess;
  const std::lock_guard lock(graphMutex());
  Capture* capture = captureOf(stream);
  if (!capture) return cudaSuccess;
  invalidate(*capture, "one of its streams was queried or synchronised, or was given a callback");
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t checkExecutes(Device& device) {
  if (activeCaptures.load() == 0) return cudaSuccess;
  const std::lock_guard lock(graphMutex());
  cudaError_t result = cudaSuccess;
  for (const auto& capture : captures())
    for (const Stream* stream : capture->streams)
      if (&stream->device == &device) {
        invalidate(*capture, "the device was synchronised or reset");
        result = cudaErrorStreamCaptureUnsupported;
      }
  return result;
}

cudaError_t checkUnsafe() {
  if (activeCaptures.load() == 0 || threadMode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  const std::lock_guard lock(graphMutex());
  cudaError_t result = cudaSuccess;
  for (const auto& capture : captures()) {
    const bool isMine =
        capture->thread == std::this_thread::get_id() && capture->mode != cudaStreamCaptureModeRelaxed;
    const bool isGlobal =
        threadMode == cudaStreamCaptureModeGlobal && capture->mode == cudaStreamCaptureModeGlobal;
    if (!isMine && !isGlobal) continue;
    invalidate(*capture,
               "a call that is not stream-ordered was made (see cudaThreadExchangeStreamCaptureMode)");
    result = cudaErrorStreamCaptureUnsupported;
  }
  return result;
}

cudaError_t captureWork(Stream& stream, NodeWork work) {
  Stream* const streams[] = {&stream};
  return captureWork(streams, std::move(work));
}

cudaError_t captureWork(std::span<Stream* const> streams, NodeWork work) {
  // Declared first: what the work holds must not be destroyed under the lock.
  NodeWork mine = std::move(work);
  const std::lock_guard lock(graphMutex());
  Capture* capture = captureOf(*streams[0]);
  std::vector<GraphNode*> tails;
  for (const Stream* stream : streams) {
    if (!capture || captureOf(*stream) != capture) return cudaErrorStreamCaptureIsolation;
    addTails(tails, stream->captureTails);
  }
  if (capture->isInvalidated) return cudaErrorStreamCaptureInvalidated;
  GraphNode* node = capture->graph->add(std::move(mine), tails);
  for (Stream* stream : streams) stream->captureTails = {node};
  return cudaSuccess;
}

cudaError_t captureRecord(Stream& stream, Event& event) {
  const std::lock_guard lock(graphMutex());
  const Capture* capture = captureOf(stream);
  if (!capture || capture->isInvalidated) return cudaErrorStreamCaptureInvalidated;
  event.recordCaptured(capture->id, stream.captureTails);
  return cudaSuccess;
}

cudaError_t captureWait(Stream& stream, const Event& event) {
  const std::lock_guard lock(graphMutex());
  Capture* mine = captureOf(stream);
  const auto [id, nodes] = event.captured();
  Capture* theirs = id != 0 ? findCapture(id) : nullptr;
  if (mine && mine->isInvalidated) return cudaErrorStreamCaptureInvalidated;
  if (id == 0) {  // then the stream is captured
    if (!mine || !event.wasRecorded()) return cudaSuccess;
    invalidate(*mine, "a stream would wait for an event from outside of the capture");
    return cudaErrorStreamCaptureIsolation;
  }
  if (!theirs) {
    if (!mine) return cudaErrorCapturedEvent;
    invalidate(*mine, "a stream would wait for an event of a capture that has ended");
    return cudaErrorStreamCaptureIsolation;
  }
  if (theirs->isInvalidated) return cudaErrorStreamCaptureInvalidated;
  if (mine && mine != theirs) {
    invalidate(*mine, "a stream would wait for an event of another capture");
    invalidate(*theirs, "a stream of another capture would wait for one of its events");
    return cudaErrorStreamCaptureMerge;
  }
  if (stream.kind == Stream::Kind::legacy) {
    invalidate(*theirs, "the legacy default stream would wait for one of its events");
    return cudaErrorStreamCaptureImplicit;
  }
  if (!mine) join(*theirs, stream, {});
  addTails(stream.captureTails, nodes);
  return cudaSuccess;
}

void invalidateCaptureOf(const Event& event) {
  const std::lock_guard lock(graphMutex());
  if (Capture* capture = findCapture(event.captured().first))
    invalidate(*capture, "an event that was recorded in it was queried or synchronised");
}

void invalidateCaptureOf(Stream& stream, const char* why) {
  const std::lock_guard lock(graphMutex());
  if (Capture* capture = captureOf(stream)) invalidate(*capture, why);
}

cudaError_t beginCapture(Stream& stream, cudaStreamCaptureMode mode, std::shared_ptr<Graph> graph,
                         std::vector<GraphNode*> tails) {
  static uint64_t lastId = 0;
  if (stream.kind == Stream::Kind::legacy) return cudaErrorStreamCaptureUnsupported;
  const std::lock_guard lock(graphMutex());
  if (captureOf(stream)) return cudaErrorIllegalState;
  captures().push_back(std::make_unique<Capture>());
  Capture& capture = *captures().back();
  capture.id = ++lastId;
  capture.mode = mode;
  capture.thread = std::this_thread::get_id();
  capture.graph = std::move(graph);
  capture.origin = &stream;
  activeCaptures.fetch_add(1);
  join(capture, stream, std::move(tails));
  return cudaSuccess;
}

cudaError_t endCapture(Stream& stream, std::shared_ptr<Graph>* graph) {
  std::shared_ptr<Graph> result;  // destroyed after the lock is given back
  const std::lock_guard lock(graphMutex());
  Capture* capture = captureOf(stream);
  if (!capture) return cudaErrorIllegalState;
  if (capture->origin != &stream) {
    invalidate(*capture, "cudaStreamEndCapture on another stream than it began on");
    return cudaErrorStreamCaptureUnmatched;
  }
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id())
    return cudaErrorStreamCaptureWrongThread;
  const bool isUnjoined =
      capture->isUnjoined || !std::all_of(capture->streams.begin(), capture->streams.end(),
                                          [&](const Stream* other) { return isJoined(*capture, *other); });
  const bool isInvalidated = capture->isInvalidated;
  result = capture->graph;
  end(*capture);
  if (isInvalidated) return cudaErrorStreamCaptureInvalidated;
  if (isUnjoined) return cudaErrorStreamCaptureUnjoined;
  *graph = std::move(result);
  return cudaSuccess;
}

void leaveCapture(Stream& stream) {
  std::shared_ptr<Graph> graph;  // destroyed after the lock is given back
  const std::lock_guard lock(graphMutex());
  Capture* capture = captureOf(stream);
  if (!capture) return;
  if (capture->origin == &stream) {
    graph = capture->graph;
    end(*capture);
    return;
  }
  capture->isUnjoined = capture->isUnjoined || !isJoined(*capture, stream);
  leave(*capture, stream);
}

}  // namespace tutti::hostrt
