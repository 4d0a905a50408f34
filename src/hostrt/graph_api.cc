// cudaGraph*: making graphs by hand, and questions about them.
#include <algorithm>

#include "hostrt/event.h"
#include "hostrt/graph.h"
#include "hostrt/kernel_launch.h"

using namespace tutti::hostrt;

namespace {

/// Runs body(graph) under the lock, or says that the handle is not valid.
template <class Body>
cudaError_t withGraph(cudaGraph_t handle, Body&& body) {
  return apiCall([&] {
    const std::lock_guard lock(graphMutex());
    Graph* graph = findGraph(handle);
    return graph ? body(*graph) : cudaErrorInvalidValue;
  });
}

template <class Body>
cudaError_t withNode(cudaGraphNode_t handle, Body&& body) {
  return apiCall([&] {
    const std::lock_guard lock(graphMutex());
    GraphNode* node = findNode(handle);
    return node ? body(*node) : cudaErrorInvalidValue;
  });
}

cudaError_t addNode(cudaGraphNode_t* result, cudaGraph_t handle, const cudaGraphNode_t* dependencies,
                    size_t count, NodeWork work) {
  if (!result) return cudaErrorInvalidValue;
  return withGraph(handle, [&](Graph& graph) {
    std::vector<GraphNode*> nodes;
    if (const cudaError_t error = findNodes(graph, dependencies, count, &nodes); error != cudaSuccess)
      return error;
    *result = handleOf(graph.add(std::move(work), nodes));
    return cudaSuccess;
  });
}

cudaError_t fillOf(const cudaMemsetParams* p, Fill* fill) {
  if (!p || !p->dst) return cudaErrorInvalidValue;
  if (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4) return cudaErrorInvalidValue;
  if (__builtin_mul_overflow(p->width, p->elementSize, &fill->width)) return cudaErrorInvalidValue;
  fill->dst = static_cast<std::byte*>(p->dst);
  fill->pitch = p->pitch;
  fill->value = p->value;
  fill->elementBytes = p->elementSize;
  fill->height = p->height;
  return checkFill(*fill);
}

cudaError_t launchOf(const cudaKernelNodeParams* p, std::shared_ptr<const KernelLaunch>* launch) {
  if (!p || !p->func || p->extra) return cudaErrorInvalidValue;
  return prepareLaunch(findKernel(static_cast<const void*>(p->func)),
                       {p->gridDim, p->blockDim, p->kernelParams, p->sharedMemBytes, false}, launch);
}

cudaMemcpy3DParms parametersOf(const Copy& copy) {
  cudaMemcpy3DParms p = {};
  p.srcPtr = {const_cast<std::byte*>(copy.src), copy.srcPitch ? copy.srcPitch : copy.width, copy.width,
              copy.height};
  p.dstPtr = {copy.dst, copy.dstPitch ? copy.dstPitch : copy.width, copy.width, copy.height};
  // As a 3D copy has it: a slice is ysize rows.
  if (copy.srcSlice && copy.srcPitch) p.srcPtr.ysize = copy.srcSlice / copy.srcPitch;
  if (copy.dstSlice && copy.dstPitch) p.dstPtr.ysize = copy.dstSlice / copy.dstPitch;
  p.extent = {copy.width, copy.height, copy.depth};
  p.kind = copy.kind;
  return p;
}

/// The convention of all lists: without an array, gives the length; with one, fills it up to its length with
/// null behind the last entry, and gives the number of entries written.
class List {
 public:
  List(cudaGraphNode_t* array, size_t* length) : array_(array), length_(length), room_(array ? *length : 0) {}
  void add(const GraphNode* node) {
    if (count_ < room_) array_[count_] = handleOf(node);
    ++count_;
  }
  void end() {
    for (size_t i = count_; i < room_; ++i) array_[i] = nullptr;
    *length_ = array_ ? std::min(count_, room_) : count_;
  }

 private:
  cudaGraphNode_t* array_;
  size_t* length_;
  size_t room_;
  size_t count_ = 0;
};

void clearEdges(cudaGraphEdgeData* edges, size_t count) {
  if (edges) std::fill_n(edges, count, cudaGraphEdgeData{});
}

cudaError_t listNodes(const std::vector<GraphNode*>& nodes, cudaGraphNode_t* array, cudaGraphEdgeData* edges,
                      size_t* length) {
  if (!length) return cudaErrorInvalidValue;
  List list(array, length);
  for (const GraphNode* node : nodes) list.add(node);
  list.end();
  if (array) clearEdges(edges, *length);
  return cudaSuccess;
}

cudaError_t listEdges(const Graph& graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
                      cudaGraphEdgeData* edges, size_t* length) {
  if (!length || (from == nullptr) != (to == nullptr)) return cudaErrorInvalidValue;
  size_t sameLength = *length;
  List froms(from, length);
  List tos(to, &sameLength);
  for (const auto& node : graph.nodes)
    for (const GraphNode* dependent : node->dependents) {
      froms.add(node.get());
      tos.add(dependent);
    }
  froms.end();
  tos.end();
  if (from) clearEdges(edges, *length);
  return cudaSuccess;
}

/// Finds all pairs before anything is changed.
cudaError_t findPairs(const Graph& graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                      size_t count, std::vector<GraphNode*>* froms, std::vector<GraphNode*>* tos) {
  if (const cudaError_t error = findNodes(graph, from, count, froms); error != cudaSuccess) return error;
  return findNodes(graph, to, count, tos);
}

bool areConnected(const GraphNode& from, const GraphNode& to) {
  return std::find(from.dependents.begin(), from.dependents.end(), &to) != from.dependents.end();
}

cudaError_t addDependencies(Graph& graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                            size_t count) {
  std::vector<GraphNode*> froms;
  std::vector<GraphNode*> tos;
  if (const cudaError_t error = findPairs(graph, from, to, count, &froms, &tos); error != cudaSuccess)
    return error;
  for (size_t i = 0; i < count; ++i)
    if (froms[i] == tos[i] || areConnected(*froms[i], *tos[i])) return cudaErrorInvalidValue;
  for (size_t i = 0; i < count; ++i) Graph::connect(*froms[i], *tos[i]);
  return cudaSuccess;
}

cudaError_t removeDependencies(Graph& graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                               size_t count) {
  std::vector<GraphNode*> froms;
  std::vector<GraphNode*> tos;
  if (const cudaError_t error = findPairs(graph, from, to, count, &froms, &tos); error != cudaSuccess)
    return error;
  for (size_t i = 0; i < count; ++i)
    if (!areConnected(*froms[i], *tos[i])) return cudaErrorInvalidValue;
  for (size_t i = 0; i < count; ++i) Graph::disconnect(*froms[i], *tos[i]);
  return cudaSuccess;
}

/// Takes the node out; the caller destroys it without the lock.
std::unique_ptr<GraphNode> extract(GraphNode& node) {
  while (!node.dependencies.empty()) Graph::disconnect(*node.dependencies.back(), node);
  while (!node.dependents.empty()) Graph::disconnect(node, *node.dependents.back());
  auto& nodes = node.graph->nodes;
  const auto found =
      std::find_if(nodes.begin(), nodes.end(), [&](const auto& one) { return one.get() == &node; });
  std::unique_ptr<GraphNode> taken = std::move(*found);
  nodes.erase(found);
  return taken;
}

cudaError_t retainUserObject(cudaGraph_t graphHandle, cudaUserObject_t handle, unsigned int count,
                             unsigned int flags) {
  return withGraph(graphHandle, [&](Graph& graph) {
    UserObject* object = liveUserObjects().find(handle);
    if (!object || count == 0 || (flags & ~unsigned{cudaGraphUserObjectMove})) return cudaErrorInvalidValue;
    if (!(flags & cudaGraphUserObjectMove)) object->retain(count);
    graph.userObjects[object] += count;
    return cudaSuccess;
  });
}

}  // namespace

extern "C" {

cudaError_t cudaGraphCreate(cudaGraph_t* pGraph, unsigned int flags) {
  return apiCall([&] {
    if (!pGraph || flags != 0) return cudaErrorInvalidValue;
    auto graph = std::make_shared<Graph>();
    graph->self = graph;
    *pGraph = handleOf(graph.get());
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t handle) {
  std::shared_ptr<Graph> owned;  // destroyed after the lock is given back
  return withGraph(handle, [&](Graph& graph) {
    owned = std::move(graph.self);
    return owned ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaGraphClone(cudaGraph_t* pGraphClone, cudaGraph_t originalGraph) {
  return withGraph(originalGraph, [&](Graph& graph) {
    if (!pGraphClone) return cudaErrorInvalidValue;
    if (graph.ownsMemory) return cudaErrorNotSupported;  // as in CUDA: the memory is the one graph's
    const auto copy = graph.clone();
    copy->self = copy;
    *pGraphClone = handleOf(copy.get());
    return cudaSuccess;
  });
}

cudaError_t cudaGraphNodeFindInClone(cudaGraphNode_t* pNode, cudaGraphNode_t originalNode,
                                     cudaGraph_t clonedGraph) {
  return withGraph(clonedGraph, [&](Graph& graph) {
    if (!pNode || !findNode(originalNode)) return cudaErrorInvalidValue;
    for (const auto& node : graph.nodes) {
      if (handleOf(node->original) != originalNode) continue;
      *pNode = handleOf(node.get());
      return cudaSuccess;
    }
    return cudaErrorInvalidValue;
  });
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                  const cudaGraphNode_t* pDependencies, size_t numDependencies) {
  return addNode(pGraphNode, graph, pDependencies, numDependencies, EmptyWork{});
}

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                 const cudaGraphNode_t* pDependencies, size_t numDependencies,
                                 const cudaHostNodeParams* pNodeParams) {
  if (!pNodeParams || !pNodeParams->fn) return recordError(cudaErrorInvalidValue);
  return addNode(pGraphNode, graph, pDependencies, numDependencies, *pNodeParams);
}

cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                   const cudaGraphNode_t* pDependencies, size_t numDependencies,
                                   const cudaMemcpy3DParms* pCopyParams) {
  return apiCall([&] {
    Copy copy;
    cudaError_t error = copyOf(pCopyParams, &copy);
    if (error == cudaSuccess) error = checkCopy(copy, copy.kind);
    if (error != cudaSuccess) return error;
    return addNode(pGraphNode, graph, pDependencies, numDependencies, copy);
  });
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                     const cudaGraphNode_t* pDependencies, size_t numDependencies, void* dst,
                                     const void* src, size_t count, cudaMemcpyKind kind) {
  cudaMemcpy3DParms p = {};
  p.srcPtr = {const_cast<void*>(src), count, count, 1};
  p.dstPtr = {dst, count, count, 1};
  p.extent = {count, 1, 1};
  p.kind = kind;
  return cudaGraphAddMemcpyNode(pGraphNode, graph, pDependencies, numDependencies, &p);
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                   const cudaGraphNode_t* pDependencies, size_t numDependencies,
                                   const cudaMemsetParams* pMemsetParams) {
  return apiCall([&] {
    Fill fill;
    if (const cudaError_t error = fillOf(pMemsetParams, &fill); error != cudaSuccess) return error;
    return addNode(pGraphNode, graph, pDependencies, numDependencies, fill);
  });
}

cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                       const cudaGraphNode_t* pDependencies, size_t numDependencies,
                                       cudaGraph_t childGraph) {
  return apiCall([&] {
    std::shared_ptr<Graph> copy;
    {
      const std::lock_guard lock(graphMutex());
      const Graph* child = findGraph(childGraph);
      if (!child || childGraph == graph) return cudaErrorInvalidValue;
      if (child->ownsMemory) return cudaErrorNotSupported;
      copy = child->clone();
    }
    return addNode(pGraphNode, graph, pDependencies, numDependencies, copy);
  });
}

cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                        const cudaGraphNode_t* pDependencies, size_t numDependencies,
                                        cudaEvent_t event) {
  if (!findEvent(event)) return recordError(cudaErrorInvalidResourceHandle);
  return addNode(pGraphNode, graph, pDependencies, numDependencies, RecordWork{event});
}

cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                      const cudaGraphNode_t* pDependencies, size_t numDependencies,
                                      cudaEvent_t event) {
  if (!findEvent(event)) return recordError(cudaErrorInvalidResourceHandle);
  return addNode(pGraphNode, graph, pDependencies, numDependencies, WaitWork{event});
}

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                   const cudaGraphNode_t* pDependencies, size_t numDependencies,
                                   const cudaKernelNodeParams* pNodeParams) {
  return apiCall([&] {
    std::shared_ptr<const KernelLaunch> launch;
    if (const cudaError_t error = launchOf(pNodeParams, &launch); error != cudaSuccess) return error;
    return addNode(pGraphNode, graph, pDependencies, numDependencies, launch);
  });
}

cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t handle, cudaKernelNodeParams* pNodeParams) {
  return withNode(handle, [&](const GraphNode& node) {
    const auto* kernel = std::get_if<std::shared_ptr<const KernelLaunch>>(&node.work);
    if (!kernel || !pNodeParams) return cudaErrorInvalidValue;
    const KernelLaunch& launch = **kernel;
    // The arguments belong to the node, as in CUDA.
    *pNodeParams = {const_cast<void*>(launch.function),
                    launch.grid,
                    launch.block,
                    static_cast<unsigned int>(launch.dynamicShared),
                    const_cast<void**>(launch.arguments.data()),
                    nullptr};
    return cudaSuccess;
  });
}

cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t handle, const cudaKernelNodeParams* pNodeParams) {
  return apiCall([&] {
    std::shared_ptr<const KernelLaunch> launch;
    if (const cudaError_t error = launchOf(pNodeParams, &launch); error != cudaSuccess) return error;
    return withNode(handle, [&](GraphNode& node) {
      auto* kernel = std::get_if<std::shared_ptr<const KernelLaunch>>(&node.work);
      if (!kernel) return cudaErrorInvalidValue;
      *kernel = launch;
      return cudaSuccess;
    });
  });
}

cudaError_t cudaGraphDestroyNode(cudaGraphNode_t handle) {
  std::unique_ptr<GraphNode> taken;  // destroyed after the lock is given back
  return withNode(handle, [&](GraphNode& node) {
    taken = extract(node);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t handle, const cudaGraphNode_t* from,
                                     const cudaGraphNode_t* to, const cudaGraphEdgeData*,
                                     size_t numDependencies) {
  return withGraph(handle, [&](Graph& graph) { return addDependencies(graph, from, to, numDependencies); });
}

cudaError_t cudaGraphRemoveDependencies(cudaGraph_t handle, const cudaGraphNode_t* from,
                                        const cudaGraphNode_t* to, const cudaGraphEdgeData*,
                                        size_t numDependencies) {
  return withGraph(handle,
                   [&](Graph& graph) { return removeDependencies(graph, from, to, numDependencies); });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t* nodes, size_t* numNodes) {
  return withGraph(handle, [&](const Graph& graph) {
    std::vector<GraphNode*> all;
    for (const auto& node : graph.nodes) all.push_back(node.get());
    return listNodes(all, nodes, nullptr, numNodes);
  });
}

cudaError_t cudaGraphGetRootNodes(cudaGraph_t handle, cudaGraphNode_t* pRootNodes, size_t* pNumRootNodes) {
  return withGraph(handle, [&](const Graph& graph) {
    std::vector<GraphNode*> roots;
    for (const auto& node : graph.nodes)
      if (node->dependencies.empty()) roots.push_back(node.get());
    return listNodes(roots, pRootNodes, nullptr, pNumRootNodes);
  });
}

cudaError_t cudaGraphGetEdges(cudaGraph_t handle, cudaGraphNode_t* from, cudaGraphNode_t* to,
                              cudaGraphEdgeData* edgeData, size_t* numEdges) {
  return withGraph(handle,
                   [&](const Graph& graph) { return listEdges(graph, from, to, edgeData, numEdges); });
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t handle, cudaGraphNodeType* pType) {
  return withNode(handle, [&](const GraphNode& node) {
    if (!pType) return cudaErrorInvalidValue;
    *pType = typeOf(node.work);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t handle, cudaGraphNode_t* pDependencies,
                                         cudaGraphEdgeData* edgeData, size_t* pNumDependencies) {
  return withNode(handle, [&](const GraphNode& node) {
    return listNodes(node.dependencies, pDependencies, edgeData, pNumDependencies);
  });
}

cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t handle, cudaGraphNode_t* pDependentNodes,
                                           cudaGraphEdgeData* edgeData, size_t* pNumDependentNodes) {
  return withNode(handle, [&](const GraphNode& node) {
    return listNodes(node.dependents, pDependentNodes, edgeData, pNumDependentNodes);
  });
}

cudaError_t cudaGraphHostNodeGetParams(cudaGraphNode_t handle, cudaHostNodeParams* pNodeParams) {
  return withNode(handle, [&](const GraphNode& node) {
    const auto* host = std::get_if<cudaHostNodeParams>(&node.work);
    if (!host || !pNodeParams) return cudaErrorInvalidValue;
    *pNodeParams = *host;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphHostNodeSetParams(cudaGraphNode_t handle, const cudaHostNodeParams* pNodeParams) {
  return withNode(handle, [&](GraphNode& node) {
    auto* host = std::get_if<cudaHostNodeParams>(&node.work);
    if (!host || !pNodeParams || !pNodeParams->fn) return cudaErrorInvalidValue;
    *host = *pNodeParams;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t handle, cudaMemcpy3DParms* pNodeParams) {
  return withNode(handle, [&](const GraphNode& node) {
    const auto* copy = std::get_if<Copy>(&node.work);
    if (!copy || !pNodeParams) return cudaErrorInvalidValue;
    *pNodeParams = parametersOf(*copy);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t handle, cudaMemsetParams* pNodeParams) {
  return withNode(handle, [&](const GraphNode& node) {
    const auto* fill = std::get_if<Fill>(&node.work);
    if (!fill || !pNodeParams) return cudaErrorInvalidValue;
    *pNodeParams = {fill->dst,
                    fill->pitch,
                    fill->value,
                    fill->elementBytes,
                    fill->width / fill->elementBytes,
                    fill->height * fill->depth};
    return cudaSuccess;
  });
}

cudaError_t cudaGraphChildGraphNodeGetGraph(cudaGraphNode_t handle, cudaGraph_t* pGraph) {
  return withNode(handle, [&](const GraphNode& node) {
    const auto* child = std::get_if<std::shared_ptr<Graph>>(&node.work);
    if (!child || !pGraph) return cudaErrorInvalidValue;
    *pGraph = handleOf(child->get());
    return cudaSuccess;
  });
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t* object_out, void* ptr, cudaHostFn_t destroy,
                                 unsigned int initialRefcount, unsigned int flags) {
  return apiCall([&] {
    // The flag is required: it says that the program knows that nobody waits for the destructor.
    if (!object_out || !destroy || initialRefcount == 0 || flags != cudaUserObjectNoDestructorSync)
      return cudaErrorInvalidValue;
    *object_out = reinterpret_cast<cudaUserObject_t>(new UserObject(ptr, destroy, initialRefcount));
    return cudaSuccess;
  });
}

cudaError_t cudaUserObjectRetain(cudaUserObject_t handle, unsigned int count) {
  return apiCall([&] {
    UserObject* object = liveUserObjects().find(handle);
    if (!object || count == 0) return cudaErrorInvalidValue;
    object->retain(count);
    return cudaSuccess;
  });
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t handle, unsigned int count) {
  return apiCall([&] {
    UserObject* object = liveUserObjects().find(handle);
    return object && count > 0 && object->release(count) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned int count,
                                      unsigned int flags) {
  return retainUserObject(graph, object, count, flags);
}

cudaError_t cudaGraphReleaseUserObject(cudaGraph_t graphHandle, cudaUserObject_t handle, unsigned int count) {
  return apiCall([&] {
    UserObject* object = liveUserObjects().find(handle);
    {
      const std::lock_guard lock(graphMutex());
      Graph* graph = findGraph(graphHandle);
      if (!graph || !object || count == 0) return cudaErrorInvalidValue;
      const auto held = graph->userObjects.find(object);
      if (held == graph->userObjects.end() || held->second < count) return cudaErrorInvalidValue;
      held->second -= count;
      if (held->second == 0) graph->userObjects.erase(held);
    }
    object->release(count);  // may run the program's destructor
    return cudaSuccess;
  });
}

}  // extern "C"
