#include "hostrt/graph.h"

#include <algorithm>
#include <queue>
#include <unordered_map>

#include "hostrt/memory.h"

namespace tutti::hostrt {
namespace {

template <class T>
void addOnce(std::vector<T>& list, T value) {
  if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
}

}  // namespace

std::mutex& graphMutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

LiveObjects<Graph>& liveGraphs() {
  static auto* all = new LiveObjects<Graph>;
  return *all;
}

LiveObjects<GraphNode>& liveNodes() {
  static auto* all = new LiveObjects<GraphNode>;
  return *all;
}

LiveObjects<UserObject>& liveUserObjects() {
  static auto* all = new LiveObjects<UserObject>;
  return *all;
}

cudaGraphNodeType typeOf(const NodeWork& work) {
  struct Types {
    cudaGraphNodeType operator()(const EmptyWork&) const { return cudaGraphNodeTypeEmpty; }
    cudaGraphNodeType operator()(const cudaHostNodeParams&) const { return cudaGraphNodeTypeHost; }
    cudaGraphNodeType operator()(const Copy&) const { return cudaGraphNodeTypeMemcpy; }
    cudaGraphNodeType operator()(const Fill&) const { return cudaGraphNodeTypeMemset; }
    // What it would be on a GPU.
    cudaGraphNodeType operator()(const std::shared_ptr<LibraryWork>&) const {
      return cudaGraphNodeTypeKernel;
    }
    cudaGraphNodeType operator()(const std::shared_ptr<Graph>&) const { return cudaGraphNodeTypeGraph; }
    cudaGraphNodeType operator()(const RecordWork&) const { return cudaGraphNodeTypeEventRecord; }
    cudaGraphNodeType operator()(const WaitWork&) const { return cudaGraphNodeTypeWaitEvent; }
    cudaGraphNodeType operator()(const std::shared_ptr<GraphMemory>&) const {
      return cudaGraphNodeTypeMemAlloc;
    }
    cudaGraphNodeType operator()(const FreeWork&) const { return cudaGraphNodeTypeMemFree; }
    cudaGraphNodeType operator()(const std::shared_ptr<const KernelLaunch>&) const {
      return cudaGraphNodeTypeKernel;
    }
  };
  return std::visit(Types{}, work);
}

GraphMemory::~GraphMemory() { memory().freeOfGraph(pointer_); }

GraphNode::GraphNode(Graph& owner, NodeWork nodeWork) : graph(&owner), work(std::move(nodeWork)) {
  liveNodes().add(this);
}

GraphNode::~GraphNode() { liveNodes().remove(this); }

UserObject::UserObject(void* pointer, cudaHostFn_t destroy, unsigned int references)
    : pointer_(pointer), destroy_(destroy), references_(references) {
  liveUserObjects().add(this);
}

UserObject::~UserObject() { liveUserObjects().remove(this); }

bool UserObject::release(unsigned int count) {
  unsigned int seen = references_.load(std::memory_order_relaxed);
  do {
    if (count > seen) return false;
  } while (!references_.compare_exchange_weak(seen, seen - count, std::memory_order_acq_rel));
  if (seen != count) return true;
  liveUserObjects().remove(this);
  destroy_(pointer_);
  delete this;
  return true;
}

Graph::Graph() { liveGraphs().add(this); }

Graph::~Graph() {
  liveGraphs().remove(this);
  for (const auto& [object, count] : userObjects) object->release(count);
}

GraphNode* Graph::add(NodeWork work, std::span<GraphNode* const> dependencies) {
  if (std::holds_alternative<std::shared_ptr<GraphMemory>>(work)) ownsMemory = true;
  nodes.push_back(std::make_unique<GraphNode>(*this, std::move(work)));
  GraphNode& node = *nodes.back();
  for (GraphNode* dependency : dependencies) connect(*dependency, node);
  return &node;
}

void Graph::connect(GraphNode& from, GraphNode& to) {
  addOnce(to.dependencies, &from);
  addOnce(from.dependents, &to);
}

void Graph::disconnect(GraphNode& from, GraphNode& to) {
  std::erase(to.dependencies, &from);
  std::erase(from.dependents, &to);
}

std::shared_ptr<Graph> Graph::clone() const {
  auto copy = std::make_shared<Graph>();
  std::unordered_map<const GraphNode*, GraphNode*> twins;
  for (const auto& node : nodes) {
    NodeWork work = node->work;
    if (const auto* child = std::get_if<std::shared_ptr<Graph>>(&work)) work = (*child)->clone();
    GraphNode* twin = copy->add(std::move(work), {});
    twin->original = node.get();
    twins[node.get()] = twin;
  }
  for (const auto& node : nodes)
    for (GraphNode* dependency : node->dependencies) connect(*twins[dependency], *twins[node.get()]);
  for (const auto& [object, count] : userObjects) {
    object->retain(count);
    copy->userObjects[object] = count;
  }
  return copy;
}

std::vector<GraphNode*> Graph::ordered() const {
  std::unordered_map<const GraphNode*, size_t> numbers;
  std::vector<size_t> missing(nodes.size());
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
  for (size_t i = 0; i < nodes.size(); ++i) {
    numbers[nodes[i].get()] = i;
    missing[i] = nodes[i]->dependencies.size();
    if (missing[i] == 0) ready.push(i);
  }
  std::vector<GraphNode*> order;
  while (!ready.empty()) {
    GraphNode* node = nodes[ready.top()].get();
    ready.pop();
    order.push_back(node);
    for (const GraphNode* dependent : node->dependents)
      if (const size_t i = numbers[dependent]; --missing[i] == 0) ready.push(i);
  }
  return order;
}

cudaError_t findNodes(const Graph& graph, const cudaGraphNode_t* handles, size_t count,
                      std::vector<GraphNode*>* nodes) {
  if (count > 0 && !handles) return cudaErrorInvalidValue;
  for (size_t i = 0; i < count; ++i) {
    GraphNode* node = findNode(handles[i]);
    if (!node || node->graph != &graph) return cudaErrorInvalidValue;
    nodes->push_back(node);
  }
  return cudaSuccess;
}

}  // namespace tutti::hostrt
