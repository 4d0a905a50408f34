#include "algorithms/pat.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "algorithms/locations.h"

namespace tutti {
namespace {

constexpr int32_t kAggregation = 32;

/// Blocks that a message carries at most.
int32_t aggregation(const ScheduleRequest& request) {
  const auto wanted = static_cast<uint32_t>(request.blocks > 0 ? request.blocks : kAggregation);
  return std::max(2, static_cast<int32_t>(std::bit_floor(wanted)));
}

int32_t lowestBit(int32_t node) { return node & -node; }

// The tree of a block with 11 ranks; a node's number is its distance from the block's rank. AllGather goes
// down, far hops first, ReduceScatter up, near ones first. Rank r is node o of the tree of rank r - o.
//
//   0 -- 8 -- 10        hop of 8: node 8           1 block
//   |    '--- 9         hop of 4: node 4           1 block
//   +--- 4 -- 6 - 7     hop of 2: nodes 2 6 10     3 blocks
//   |    '--- 5         hop of 1: nodes 1 3 5 7 9  5 blocks
//   +--- 2 -- 3
//   '--- 1
class Trees {
 public:
  Trees(const ScheduleRequest& request, Lane& lane)
      : p_(request.ranks), rank_(request.rank), most_(aggregation(request)), group_(2 * most_), lane_(lane) {}

  void allGather() {
    lane_.copy(at::input(rank_), at::output(rank_));
    for (int32_t hop = highestHop(p_); hop >= 1; hop /= 2) {
      const int32_t nodes = nodesAt(hop, p_);
      for (int32_t done = 0; done < nodes; done += most_) {
        const int32_t count = std::min(most_, nodes - done);
        const Pattern apart = every(-2 * hop, count);
        lane_.send(ahead(hop), at::output(blockOf(2 * hop * done), count, apart));
        lane_.recv(behind(hop), at::output(blockOf(hop + 2 * hop * done), count, apart));
      }
    }
  }

  // Groups of group_ nodes, the farthest first. Inside a group, hop by hop. What is then collected at its
  // first node goes on to that node's parent, the first node of another group, where it waits for that
  // group's turn. The waiting sums are those of the ancestors of a single node: one for each length of hop.
  void reduceScatter() {
    for (int32_t base = (p_ - 1) / group_ * group_; base >= 0; base -= group_) {
      const int32_t size = std::min(group_, p_ - base);
      if (base > 0 || size > 1) reduceGroup(base, size);
    }
  }

  /// Scratch of ReduceScatter: sums of every second node of a group, then those that wait.
  int32_t scratchSegments() const {
    if (p_ == 2) return 0;
    const int32_t sums = (std::min(p_, group_) + 1) / 2;
    return sums + (p_ > group_ ? waitingPlace(0) + 1 : 0);
  }

 private:
  int32_t ahead(int32_t by) const { return wrap(rank_ + by, p_); }
  int32_t behind(int32_t by) const { return wrap(rank_ - by, p_); }
  Affine blockOf(int32_t node) const { return behind(node); }

  static Pattern every(int32_t stride, int32_t count) { return count == 1 ? Pattern{} : Pattern{1, stride}; }
  static int32_t highestHop(int32_t nodes) {
    return nodes < 2 ? 0 : static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(nodes - 1)));
  }
  /// Nodes that are reached by that hop, of `size` ones from a group's first on: number hop, 3 hop, 5 hop,
  /// ...
  static int32_t nodesAt(int32_t hop, int32_t size) { return (size + hop - 1) / (2 * hop); }

  /// Which of the waiting sums is that of a group's first node.
  int32_t waitingPlace(int32_t base) const {
    const int32_t hop = base == 0 ? 2 * highestHop(p_) : lowestBit(base);
    return std::countr_zero(static_cast<uint32_t>(hop / group_));
  }
  Location waiting(int32_t base) const { return at::scratch(group_ / 2 + waitingPlace(base)); }
  bool somethingWaits(int32_t base) const {
    const int32_t hop = base == 0 ? p_ : lowestBit(base);
    return group_ < hop && base + group_ < p_;
  }

  void reduceGroup(int32_t base, int32_t size) {
    // The last node may have no child that would have started its sum.
    if (size % 2 == 1) copyOwn(base + size - 1, size / 2);
    for (int32_t hop = 1; hop < size; hop *= 2) {
      if (hop == 2) addWaiting(base);  // now there is a sum to add to, and node 0's is not final yet
      exchange(base, size, hop, base == 0 && 2 * hop >= size);
    }
    if (base == 0) return;
    const int32_t hop = lowestBit(base);
    const int32_t parent = base - hop;
    lane_.send(behind(hop), at::scratch(0)).sizeAs = blockOf(base);
    // The first of the parent's children to come is the one farthest from it.
    const bool first = parent + 2 * hop >= p_ || (parent != 0 && 2 * hop >= lowestBit(parent));
    Step& step = first ? lane_.recv(ahead(hop), waiting(parent))
                       : lane_.recvReduce(ahead(hop), waiting(parent), waiting(parent));
    step.sizeAs = blockOf(parent);
  }

  void copyOwn(int32_t node, int32_t place) { lane_.copy(at::input(blockOf(node)), at::scratch(place)); }

  void addWaiting(int32_t base) {
    if (somethingWaits(base)) lane_.reduceLocal(waiting(base), at::scratch(0)).sizeAs = blockOf(base);
  }

  void exchange(int32_t base, int32_t size, int32_t hop, bool last) {
    const int32_t nodes = nodesAt(hop, size);
    const Pattern apart = every(-2 * hop, nodes);
    const Pattern sums = every(hop, nodes);
    if (hop == 1) {
      lane_.send(behind(1), at::input(blockOf(base + 1), nodes, apart));
    } else {
      Step& step = lane_.send(behind(hop), at::scratch(hop / 2, nodes, sums));
      step.sizeAs = blockOf(base + hop);
      step.sizePattern = apart;
    }
    const Location held = hop == 1 ? at::input(blockOf(base), nodes, apart) : at::scratch(0, nodes, sums);
    Step& step = lane_.recvReduce(ahead(hop), held, last ? at::output(rank_) : at::scratch(0, nodes, sums));
    step.finalize = last;
    if (last) return;
    step.sizeAs = blockOf(base);
    step.sizePattern = apart;
  }

  int32_t p_;
  int32_t rank_;
  int32_t most_;   // blocks a message
  int32_t group_;  // nodes whose messages travel together
  Lane& lane_;
};

}  // namespace

Schedule pat(const ScheduleRequest& request) {
  if (request.ranks == 1) return singleRank(request, "pat");
  Schedule schedule = makeSchedule(request, "pat", 1);
  Lane& lane = schedule.lanes.emplace_back();
  schedule.maxCount = std::min(request.ranks / 2, aggregation(request));
  Trees trees(request, lane);
  if (request.collective == Collective::allGather) {
    trees.allGather();
  } else {
    schedule.scratchSegments = trees.scratchSegments();
    trees.reduceScatter();
  }
  return tidy(std::move(schedule));
}

}  // namespace tutti
