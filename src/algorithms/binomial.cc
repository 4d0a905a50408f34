#include "algorithms/binomial.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "algorithms/locations.h"

namespace tutti {
namespace {

/// The longest hop from a place to a child, were there ranks enough: its lowest bit; the root's has no end.
int32_t reach(int32_t place, int32_t ranks) {
  return place == 0 ? static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(ranks))) : place & -place;
}

//  0 -- 4 -- 6        places; a subtree is a range, e.g. 4 .. 6
//  |    '--- 5
//  +--- 2 -- 3
//  '--- 1
class Builder {
 public:
  Builder(const ScheduleRequest& request, Lane& lane)
      : request_(request),
        lane_(lane),
        p_(request.ranks),
        root_(request.layout.positionOf(request.root)),
        node_(binomialNode(p_, wrap(request.layout.positionOf(request.rank) - root_, p_))) {}

  void broadcast() {
    const Location output = at::output(0);
    if (!isRoot()) lane_.recv(parent(), output);
    for (const int32_t child : node_.children) lane_.send(rankAt(child), isRoot() ? at::input(0) : output);
    if (isRoot()) lane_.copy(at::input(0), output);
  }

  void reduce() {
    const Location sum = isRoot() ? at::output(0) : at::scratch(0);
    const std::vector<int32_t>& children = node_.children;
    for (auto child = children.rbegin(); child != children.rend(); ++child) {
      Step& step = lane_.recvReduce(rankAt(*child), child == children.rbegin() ? at::input(0) : sum, sum);
      step.sizeAs = 0;
      step.finalize = isRoot() && std::next(child) == children.rend();
    }
    if (!isRoot()) lane_.send(parent(), children.empty() ? at::input(0) : sum).sizeAs = 0;
  }

  void gather() {
    const bool leaf = node_.children.empty();
    if (isRoot()) {
      lane_.copy(at::input(request_.rank), at::output(request_.rank));
    } else if (!leaf) {
      lane_.copy(at::input(request_.rank), at::scratch(0));
    }
    for (auto child = node_.children.rbegin(); child != node_.children.rend(); ++child) {
      const int32_t blocks = node_.subtreeOf(*child, p_);
      const Location into =
          isRoot() ? at::output(block(*child), blocks) : at::scratch(*child - node_.place, blocks);
      lane_.recv(rankAt(*child), into).sizeAs = block(*child);
    }
    if (!isRoot())
      lane_.send(parent(), leaf ? at::input(request_.rank) : at::scratch(0, node_.subtree)).sizeAs =
          block(node_.place);
  }

  void scatter() {
    const bool leaf = node_.children.empty();
    if (!isRoot())
      lane_.recv(parent(), leaf ? at::output(request_.rank) : at::scratch(0, node_.subtree)).sizeAs =
          block(node_.place);
    for (const int32_t child : node_.children) {
      const int32_t blocks = node_.subtreeOf(child, p_);
      const Location from =
          isRoot() ? at::input(block(child), blocks) : at::scratch(child - node_.place, blocks);
      lane_.send(rankAt(child), from).sizeAs = block(child);
    }
    if (isRoot()) {
      lane_.copy(at::input(request_.rank), at::output(request_.rank));
    } else if (!leaf) {
      lane_.copy(at::scratch(0), at::output(request_.rank));
    }
  }

 private:
  bool isRoot() const { return node_.parent < 0; }
  int32_t rankAt(int32_t place) const { return request_.layout.rankAt(wrap(place + root_, p_)); }
  int32_t parent() const { return rankAt(node_.parent); }
  /// The block of the rank at a place, where ranks stand in their own order.
  Affine block(int32_t place) const { return wrap(place + root_, p_); }

  const ScheduleRequest& request_;
  Lane& lane_;
  int32_t p_;
  int32_t root_;
  BinomialNode node_;
};

}  // namespace

BinomialNode binomialNode(int32_t ranks, int32_t place) {
  BinomialNode node;
  node.place = place;
  node.parent = place == 0 ? -1 : place & (place - 1);
  node.subtree = std::min(reach(place, ranks), ranks - place);
  for (int32_t hop = reach(place, ranks) / 2; hop >= 1; hop /= 2)
    if (place + hop < ranks) node.children.push_back(place + hop);
  return node;
}

int32_t BinomialNode::subtreeOf(int32_t child, int32_t ranks) const {
  return std::min(child - place, ranks - child);
}

Schedule binomial(const ScheduleRequest& request) {
  if (request.ranks == 1) return singleRank(request, "binomial");
  const bool blocks = request.collective == Collective::gather || request.collective == Collective::scatter;
  ScheduleRequest ordered = request;
  if (blocks) ordered.layout = Layout();  // neighbours' blocks are neighbours in the ranks' own order only
  Schedule schedule = makeSchedule(request, "binomial", 1);
  Builder builder(ordered, schedule.lanes.emplace_back());
  const auto largest = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(request.ranks - 1)));
  switch (request.collective) {
    case Collective::broadcast:
      builder.broadcast();
      break;
    case Collective::reduce:
      schedule.scratchSegments = 1;
      builder.reduce();
      break;
    case Collective::gather:
      schedule.maxCount = schedule.scratchSegments = largest;
      builder.gather();
      break;
    default:  // scatter
      schedule.maxCount = schedule.scratchSegments = largest;
      builder.scatter();
      break;
  }
  return tidy(std::move(schedule));
}

}  // namespace tutti
