// Executable graphs: a graph as pieces of streams' work.
//
// Nodes are dealt to *lanes*: a node goes on the lane of a dependency that is still that lane's last node, or
// opens a new lane. Lane 0 is the stream that the graph is launched on, the others are streams of the
// executable. Nodes that follow each other on a lane, and that nobody on another lane waits for or lets wait
// between them, form a *segment*, one piece of work of the stream:
//
//       a                     lane 0 (the launch stream):  [a]  [b c]         [f]  join
//      / \                                                  |       \        /
//     b   d                                                 |        `------/.
//     |   |        becomes                                  v              /
//     c   e                   lane 1:              fork --> [d e] --------'
//      \ /
//       f
//
// Branches have threads of their own, as work that waits for another branch must not stand behind it: two
// ranks of a collective may be two branches of one graph. (Beyond kMostLanes lanes they share.)
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "hostrt/graph.h"
#include "hostrt/stream.h"

namespace tutti::hostrt {

/// How the nodes of a graph become work of streams. Immutable, shared by the launches that run.
struct ExecPlan {
  struct Item {
    const GraphNode* node;
    std::vector<size_t> after;  // items
    size_t lane = 0;
    bool startsSegment = false;
  };
  struct Segment {
    size_t lane = 0;
    size_t begin = 0;  // of `members`
    size_t end = 0;
    std::vector<size_t> after;  // segments on other lanes
  };

  std::shared_ptr<const Graph> graph;  // a copy, which nobody changes
  std::vector<Item> items;             // each after those that it depends on; child graphs are unfolded
  std::vector<size_t> members;         // items, by segment
  std::vector<Segment> segments;       // each after those that it depends on
  size_t lanes = 0;
  size_t libraryItems = 0;
};

/// Thread-safe. Launches of one executable run one after the other, as in CUDA.
class GraphExec : public std::enable_shared_from_this<GraphExec> {
 public:
  GraphExec(Device& device, unsigned long long flags);
  ~GraphExec();
  GraphExec(const GraphExec&) = delete;
  GraphExec& operator=(const GraphExec&) = delete;

  /// Takes over a snapshot of the graph. cudaErrorInvalidValue when it has a circle.
  cudaError_t setGraph(std::shared_ptr<const Graph> snapshot);
  cudaError_t launch(Stream& stream);
  std::shared_ptr<const ExecPlan> plan() const;
  unsigned long long flags() const { return flags_; }

  std::shared_ptr<GraphExec> self;  // set while the program owns it

 private:
  Stream* laneStream(size_t lane, Stream& launchStream) const {
    return lane == 0 ? &launchStream : streams_[lane - 1];
  }

  Device& device_;
  const unsigned long long flags_;
  mutable std::mutex mutex_;
  std::shared_ptr<const ExecPlan> plan_;
  std::vector<Stream*> streams_;  // of the lanes from 1 on
  Marker lastEnd_;
};

LiveObjects<GraphExec>& liveExecs();

}  // namespace tutti::hostrt
