// Graphs: work and its order, to be executed later and often.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_set>
#include <variant>
#include <vector>

#include "base/host_runtime.h"
#include "hostrt/api.h"
#include "hostrt/copy.h"

namespace tutti::hostrt {

class Graph;
class Event;
struct KernelLaunch;

/// The objects of one kind that programs hold handles of (their addresses), so that a wild or stale handle is
/// recognised without reading it. Thread-safe.
template <class T>
class LiveObjects {
 public:
  void add(const T* object) {
    const std::lock_guard lock(mutex_);
    all_.insert(object);
  }
  void remove(const T* object) {
    const std::lock_guard lock(mutex_);
    all_.erase(object);
  }
  /// Null when there is no such object.
  T* find(const void* handle) {
    const std::lock_guard lock(mutex_);
    auto* object = const_cast<T*>(static_cast<const T*>(handle));
    return all_.count(object) ? object : nullptr;
  }

 private:
  std::mutex mutex_;
  std::unordered_set<const T*> all_;
};

/// Work of the library (tuttiGraphWork), shared by a graph, its copies, its executables and their launches;
/// released with the last of them.
class LibraryWork {
 public:
  explicit LibraryWork(tuttiGraphWork work) : work_(work) {}
  ~LibraryWork() {
    if (work_.release) work_.release(work_.context);
  }
  LibraryWork(const LibraryWork&) = delete;
  LibraryWork& operator=(const LibraryWork&) = delete;
  int launch(tuttiStreamTask* task) const { return work_.launch(work_.context, task); }
  /// Before anyone launches it.
  void takeOver(void (*release)(void*)) { work_.release = release; }

 private:
  tuttiGraphWork work_;
};

/// Memory of a cudaMallocAsync that was captured: its address is fixed when it is captured, and it stays
/// until graph and executables are gone.
class GraphMemory {
 public:
  explicit GraphMemory(void* pointer) : pointer_(pointer) {}
  ~GraphMemory();
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;

 private:
  void* const pointer_;
};

struct EmptyWork {};
struct RecordWork {
  cudaEvent_t event;
};
struct WaitWork {
  cudaEvent_t event;
};
struct FreeWork {
  void* pointer;
};
using NodeWork = std::variant<EmptyWork, cudaHostNodeParams, Copy, Fill, std::shared_ptr<LibraryWork>,
                              std::shared_ptr<Graph>, RecordWork, WaitWork, std::shared_ptr<GraphMemory>,
                              FreeWork, std::shared_ptr<const KernelLaunch>>;
cudaGraphNodeType typeOf(const NodeWork& work);

/// Guarded by graphMutex(), like everything of graphs and captures.
struct GraphNode {
  GraphNode(Graph& owner, NodeWork nodeWork);
  ~GraphNode();
  GraphNode(const GraphNode&) = delete;
  GraphNode& operator=(const GraphNode&) = delete;

  Graph* const graph;
  NodeWork work;
  std::vector<GraphNode*> dependencies;  // no duplicates
  std::vector<GraphNode*> dependents;
  const GraphNode* original = nullptr;  // of a node in a clone
};

/// An object of the program with a count of references. The last release runs its destructor.
class UserObject {
 public:
  UserObject(void* pointer, cudaHostFn_t destroy, unsigned int references);
  ~UserObject();
  UserObject(const UserObject&) = delete;
  UserObject& operator=(const UserObject&) = delete;

  void retain(unsigned int count) { references_.fetch_add(count, std::memory_order_relaxed); }
  /// False when there are fewer references. May destroy the object, so no lock may be held.
  bool release(unsigned int count);

 private:
  void* const pointer_;
  const cudaHostFn_t destroy_;
  std::atomic<unsigned int> references_;
};

/// Nodes in the order in which they were made. Destroy it without holding a lock: what it refers to runs
/// destructors of programs and of the library.
class Graph : public std::enable_shared_from_this<Graph> {
 public:
  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  GraphNode* add(NodeWork work, std::span<GraphNode* const> dependencies);
  static void connect(GraphNode& from, GraphNode& to);
  static void disconnect(GraphNode& from, GraphNode& to);
  /// With the references to user objects.
  std::shared_ptr<Graph> clone() const;
  /// All nodes, each after its dependencies, otherwise in the order in which they were made; fewer than all
  /// when there is a circle.
  std::vector<GraphNode*> ordered() const;

  std::vector<std::unique_ptr<GraphNode>> nodes;
  std::map<UserObject*, unsigned int> userObjects;  // with the number of references
  std::shared_ptr<Graph> self;                      // set while the program owns the graph
  bool ownsMemory = false;                          // has allocation nodes
};

std::mutex& graphMutex();
LiveObjects<Graph>& liveGraphs();
LiveObjects<GraphNode>& liveNodes();
LiveObjects<UserObject>& liveUserObjects();

/// Null when the handle is not valid.
inline Graph* findGraph(cudaGraph_t handle) { return liveGraphs().find(handle); }
inline GraphNode* findNode(cudaGraphNode_t handle) { return liveNodes().find(handle); }
inline cudaGraph_t handleOf(const Graph* graph) {
  return reinterpret_cast<cudaGraph_t>(const_cast<Graph*>(graph));
}
inline cudaGraphNode_t handleOf(const GraphNode* node) {
  return reinterpret_cast<cudaGraphNode_t>(const_cast<GraphNode*>(node));
}

/// The nodes behind handles; an error when one is not a node of the graph.
cudaError_t findNodes(const Graph& graph, const cudaGraphNode_t* handles, size_t count,
                      std::vector<GraphNode*>* nodes);

}  // namespace tutti::hostrt
