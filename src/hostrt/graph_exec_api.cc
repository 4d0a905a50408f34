// cudaGraphInstantiate, cudaGraphLaunch and what belongs to them.
#include "hostrt/capture.h"
#include "hostrt/device.h"
#include "hostrt/graph_exec.h"
#include "hostrt/log.h"
#include "hostrt/per_thread.h"

using namespace tutti::hostrt;

namespace {

/// Shared, so that another thread's cudaGraphExecDestroy does not take it away.
std::shared_ptr<GraphExec> findExec(cudaGraphExec_t handle) {
  const std::lock_guard lock(graphMutex());
  const GraphExec* exec = liveExecs().find(handle);
  return exec ? exec->self : nullptr;
}

cudaError_t instantiate(cudaGraphExec_t* result, cudaGraph_t handle, unsigned long long flags) {
  // Launches from kernels need kernels.
  if (flags & cudaGraphInstantiateFlagDeviceLaunch) return cudaErrorNotSupported;
  constexpr unsigned long long kKnown = cudaGraphInstantiateFlagAutoFreeOnLaunch |
                                        cudaGraphInstantiateFlagUpload |
                                        cudaGraphInstantiateFlagUseNodePriority;
  if (!result || (flags & ~kKnown)) return cudaErrorInvalidValue;
  Device* device = currentDeviceOrNull();
  if (!device) return cudaErrorNoDevice;
  auto exec = std::make_shared<GraphExec>(*device, flags);
  std::shared_ptr<const Graph> snapshot;
  {
    const std::lock_guard lock(graphMutex());
    const Graph* graph = findGraph(handle);
    if (!graph) return cudaErrorInvalidValue;
    snapshot = graph->clone();
  }
  if (const cudaError_t error = exec->setGraph(std::move(snapshot)); error != cudaSuccess) return error;
  const std::lock_guard lock(graphMutex());
  exec->self = exec;
  *result = reinterpret_cast<cudaGraphExec_t>(exec.get());
  return cudaSuccess;
}

cudaError_t launchGraph(cudaGraphExec_t handle, cudaStream_t streamHandle) {
  const auto exec = findExec(handle);
  if (!exec) return cudaErrorInvalidValue;
  Stream* stream = findStream(streamHandle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t error = checkUse(*stream); error != cudaSuccess) return error;
  if (!isCaptured(*stream)) return exec->launch(*stream);
  const auto plan = exec->plan();
  if (plan->graph->ownsMemory) return cudaErrorNotSupported;
  return captureWork(*stream, plan->graph->clone());
}

/// Where the graph differs from that of the executable so that its work cannot take the other's place. Nodes
/// correspond by their order.
cudaGraphExecUpdateResultInfo compare(const Graph& old, const Graph& fresh) {
  if (old.nodes.size() != fresh.nodes.size())
    return {cudaGraphExecUpdateErrorTopologyChanged, nullptr, nullptr};
  std::map<const GraphNode*, size_t> oldNumbers;
  std::map<const GraphNode*, size_t> freshNumbers;
  for (size_t i = 0; i < old.nodes.size(); ++i) {
    oldNumbers[old.nodes[i].get()] = i;
    freshNumbers[fresh.nodes[i].get()] = i;
  }
  for (size_t i = 0; i < old.nodes.size(); ++i) {
    const GraphNode& before = *old.nodes[i];
    const GraphNode& after = *fresh.nodes[i];
    const auto error = [&](cudaGraphExecUpdateResult what, const GraphNode* from) {
      return cudaGraphExecUpdateResultInfo{what, handleOf(&after), handleOf(from)};
    };
    if (typeOf(before.work) != typeOf(after.work))
      return error(cudaGraphExecUpdateErrorNodeTypeChanged, nullptr);
    if (before.dependencies.size() != after.dependencies.size())
      return error(cudaGraphExecUpdateErrorTopologyChanged, nullptr);
    for (size_t d = 0; d < after.dependencies.size(); ++d)
      if (oldNumbers[before.dependencies[d]] != freshNumbers[after.dependencies[d]])
        return error(cudaGraphExecUpdateErrorTopologyChanged, after.dependencies[d]);
    if (const auto* child = std::get_if<std::shared_ptr<Graph>>(&after.work)) {
      const auto inside = compare(*std::get<std::shared_ptr<Graph>>(before.work), **child);
      if (inside.result != cudaGraphExecUpdateSuccess) return inside;
    }
    if (const auto* memory = std::get_if<std::shared_ptr<GraphMemory>>(&after.work);
        memory && *memory != std::get<std::shared_ptr<GraphMemory>>(before.work))
      return error(cudaGraphExecUpdateErrorParametersChanged, nullptr);
  }
  return {cudaGraphExecUpdateSuccess, nullptr, nullptr};
}

cudaError_t update(cudaGraphExec_t handle, cudaGraph_t graphHandle, cudaGraphExecUpdateResultInfo* info) {
  const auto exec = findExec(handle);
  if (!exec) return cudaErrorInvalidValue;
  const auto plan = exec->plan();
  std::shared_ptr<const Graph> snapshot;
  cudaGraphExecUpdateResultInfo result{cudaGraphExecUpdateError, nullptr, nullptr};
  {
    const std::lock_guard lock(graphMutex());
    if (const Graph* graph = findGraph(graphHandle)) {
      result = compare(*plan->graph, *graph);
      if (result.result == cudaGraphExecUpdateSuccess) snapshot = graph->clone();
    }
  }
  if (info) *info = result;
  if (!snapshot) return cudaErrorGraphExecUpdateFailure;
  return exec->setGraph(std::move(snapshot));
}

}  // namespace

extern "C" {

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* pGraphExec, cudaGraph_t graph, unsigned long long flags) {
  return apiCall([&] { return instantiate(pGraphExec, graph, flags); });
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* pGraphExec, cudaGraph_t graph,
                                          unsigned long long flags) {
  return apiCall([&] { return instantiate(pGraphExec, graph, flags); });
}

cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t* pGraphExec, cudaGraph_t graph,
                                           cudaGraphInstantiateParams* instantiateParams) {
  return apiCall([&] {
    if (!instantiateParams) return cudaErrorInvalidValue;
    const cudaError_t error = instantiate(pGraphExec, graph, instantiateParams->flags);
    instantiateParams->errNode_out = nullptr;
    instantiateParams->result_out = error == cudaSuccess             ? cudaGraphInstantiateSuccess
                                    : error == cudaErrorInvalidValue ? cudaGraphInstantiateInvalidStructure
                                                                     : cudaGraphInstantiateError;
    return error;
  });
}

cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t graphExec, unsigned long long* flags) {
  return apiCall([&] {
    const auto exec = findExec(graphExec);
    if (!exec || !flags) return cudaErrorInvalidValue;
    *flags = exec->flags();
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t hGraphExec, cudaGraph_t hGraph,
                                cudaGraphExecUpdateResultInfo* resultInfo) {
  return apiCall([&] { return update(hGraphExec, hGraph, resultInfo); });
}

cudaError_t cudaGraphUpload(cudaGraphExec_t graphExec, cudaStream_t stream) {
  return apiCall([&] {  // everything is where it runs
    if (!findExec(graphExec)) return cudaErrorInvalidValue;
    return findStream(stream) ? cudaSuccess : cudaErrorInvalidResourceHandle;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream) {
  return apiCall([&] { return launchGraph(graphExec, stream); });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec) {
  return apiCall([&] {
    std::shared_ptr<GraphExec> owned;  // destroyed after the lock is given back, since it is declared before
    const std::lock_guard lock(graphMutex());
    GraphExec* exec = liveExecs().find(graphExec);
    if (!exec || !exec->self) return cudaErrorInvalidValue;
    owned = std::move(exec->self);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiateWithParams_ptsz(cudaGraphExec_t* pGraphExec, cudaGraph_t graph,
                                                cudaGraphInstantiateParams* instantiateParams) {
  return cudaGraphInstantiateWithParams(pGraphExec, graph, instantiateParams);
}
cudaError_t cudaGraphUpload_ptsz(cudaGraphExec_t graphExec, cudaStream_t stream) {
  return cudaGraphUpload(graphExec, perThread(stream));
}
cudaError_t cudaGraphLaunch_ptsz(cudaGraphExec_t graphExec, cudaStream_t stream) {
  return cudaGraphLaunch(graphExec, perThread(stream));
}

}  // extern "C"
