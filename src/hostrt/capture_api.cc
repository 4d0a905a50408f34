// cudaStreamBeginCapture and what belongs to it, and the per-thread forms.
#include <utility>

#include "hostrt/capture.h"
#include "hostrt/device.h"
#include "hostrt/per_thread.h"

using namespace tutti::hostrt;

namespace {

bool isMode(cudaStreamCaptureMode mode) {
  return mode >= cudaStreamCaptureModeGlobal && mode <= cudaStreamCaptureModeRelaxed;
}

/// Only plain edges exist here: others order parts of kernels.
bool arePlain(const cudaGraphEdgeData* edges, size_t count) {
  if (!edges) return true;
  for (size_t i = 0; i < count; ++i)
    if (edges[i].from_port || edges[i].to_port || edges[i].type) return false;
  return true;
}

cudaError_t beginOnGraph(Stream& stream, cudaGraph_t handle, const cudaGraphNode_t* dependencies,
                         const cudaGraphEdgeData* edges, size_t count, cudaStreamCaptureMode mode) {
  if (!isMode(mode) || !arePlain(edges, count)) return cudaErrorInvalidValue;
  std::vector<GraphNode*> tails;
  std::shared_ptr<Graph> owned;
  {
    const std::lock_guard lock(graphMutex());
    const Graph* graph = findGraph(handle);
    if (!graph || !graph->self) return cudaErrorInvalidValue;  // without an owner: a child node's
    owned = graph->self;
    if (const cudaError_t error = findNodes(*graph, dependencies, count, &tails); error != cudaSuccess)
      return error;
  }
  return beginCapture(stream, mode, std::move(owned), std::move(tails));
}

/// What a capturing stream's next node comes after, as arrays that stay until the stream's next call.
void describe(Stream& stream, cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
              const cudaGraphEdgeData** edges, size_t* count) {
  const Capture& capture = *stream.capture.load();
  if (graph) *graph = handleOf(capture.graph.get());
  if (dependencies) {
    stream.captureHandles.clear();
    for (const GraphNode* node : stream.captureTails) stream.captureHandles.push_back(handleOf(node));
    *dependencies = stream.captureHandles.data();
  }
  if (edges) {
    stream.captureEdges.assign(stream.captureTails.size(), {});
    *edges = stream.captureEdges.data();
  }
  if (count) *count = stream.captureTails.size();
}

cudaError_t updateDependencies(Stream& stream, const cudaGraphNode_t* handles, const cudaGraphEdgeData* edges,
                               size_t count, unsigned int flags) {
  if (flags > cudaStreamSetCaptureDependencies || !arePlain(edges, count)) return cudaErrorInvalidValue;
  const std::lock_guard lock(graphMutex());
  const Capture* capture = stream.capture.load();
  if (!capture) return cudaErrorIllegalState;
  if (capture->isInvalidated) return cudaErrorStreamCaptureInvalidated;
  std::vector<GraphNode*> tails;
  if (flags == cudaStreamAddCaptureDependencies) tails = stream.captureTails;
  if (const cudaError_t error = findNodes(*capture->graph, handles, count, &tails); error != cudaSuccess)
    return error;
  stream.captureTails = std::move(tails);
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

/// The legacy stream has no state to report while a blocking stream is captured; the question is harmless.
bool isUnusable(const Stream& stream) {
  return stream.kind == Stream::Kind::legacy && stream.device.capturedBlocking.load() > 0;
}

}  // namespace

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return withStream(handle, [&](Stream& stream) {
    if (!isMode(mode)) return cudaErrorInvalidValue;
    return beginCapture(stream, mode, std::make_shared<Graph>(), {});
  });
}

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t handle, cudaGraph_t graph,
                                          const cudaGraphNode_t* dependencies,
                                          const cudaGraphEdgeData* dependencyData, size_t numDependencies,
                                          cudaStreamCaptureMode mode) {
  return withStream(handle, [&](Stream& stream) {
    return beginOnGraph(stream, graph, dependencies, dependencyData, numDependencies, mode);
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* pGraph) {
  return withStream(handle, [&](Stream& stream) {
    if (!pGraph) return cudaErrorInvalidValue;
    *pGraph = nullptr;
    std::shared_ptr<Graph> graph;
    if (const cudaError_t error = endCapture(stream, &graph); error != cudaSuccess) return error;
    const std::lock_guard lock(graphMutex());
    graph->self = graph;
    *pGraph = handleOf(graph.get());
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* captureStatus) {
  return cudaStreamGetCaptureInfo(handle, captureStatus, nullptr, nullptr, nullptr, nullptr, nullptr);
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* captureStatus,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies, const cudaGraphEdgeData** edgeData,
                                     size_t* numDependencies) {
  return withStream(handle, [&](Stream& stream) {
    if (!captureStatus) return cudaErrorInvalidValue;
    if (isUnusable(stream)) return cudaErrorStreamCaptureImplicit;
    *captureStatus = cudaStreamCaptureStatusNone;
    if (id) *id = 0;
    if (graph) *graph = nullptr;
    if (dependencies) *dependencies = nullptr;
    if (edgeData) *edgeData = nullptr;
    if (numDependencies) *numDependencies = 0;
    if (!isCaptured(stream)) return cudaSuccess;
    const std::lock_guard lock(graphMutex());
    const Capture* capture = stream.capture.load();
    if (!capture) return cudaSuccess;
    *captureStatus =
        capture->isInvalidated ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
    if (id) *id = capture->id;
    if (!capture->isInvalidated) describe(stream, graph, dependencies, edgeData, numDependencies);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t handle, cudaGraphNode_t* dependencies,
                                                const cudaGraphEdgeData* dependencyData,
                                                size_t numDependencies, unsigned int flags) {
  return withStream(handle, [&](Stream& stream) {
    return updateDependencies(stream, dependencies, dependencyData, numDependencies, flags);
  });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return apiCall([&] {
    if (!mode || !isMode(*mode)) return cudaErrorInvalidValue;
    *mode = exchangeThreadMode(*mode);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamBeginCapture_ptsz(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return cudaStreamBeginCapture(perThread(stream), mode);
}
cudaError_t cudaStreamBeginCaptureToGraph_ptsz(cudaStream_t stream, cudaGraph_t graph,
                                               const cudaGraphNode_t* dependencies,
                                               const cudaGraphEdgeData* dependencyData,
                                               size_t numDependencies, cudaStreamCaptureMode mode) {
  return cudaStreamBeginCaptureToGraph(perThread(stream), graph, dependencies, dependencyData,
                                       numDependencies, mode);
}
cudaError_t cudaStreamEndCapture_ptsz(cudaStream_t stream, cudaGraph_t* pGraph) {
  return cudaStreamEndCapture(perThread(stream), pGraph);
}
cudaError_t cudaStreamIsCapturing_ptsz(cudaStream_t stream, cudaStreamCaptureStatus* captureStatus) {
  return cudaStreamIsCapturing(perThread(stream), captureStatus);
}
cudaError_t cudaStreamGetCaptureInfo_ptsz(cudaStream_t stream, cudaStreamCaptureStatus* captureStatus,
                                          unsigned long long* id, cudaGraph_t* graph,
                                          const cudaGraphNode_t** dependencies,
                                          const cudaGraphEdgeData** edgeData, size_t* numDependencies) {
  return cudaStreamGetCaptureInfo(perThread(stream), captureStatus, id, graph, dependencies, edgeData,
                                  numDependencies);
}
cudaError_t cudaStreamUpdateCaptureDependencies_ptsz(cudaStream_t stream, cudaGraphNode_t* dependencies,
                                                     const cudaGraphEdgeData* dependencyData,
                                                     size_t numDependencies, unsigned int flags) {
  return cudaStreamUpdateCaptureDependencies(perThread(stream), dependencies, dependencyData, numDependencies,
                                             flags);
}

}  // extern "C"
