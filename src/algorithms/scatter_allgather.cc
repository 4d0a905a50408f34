#include "algorithms/scatter_allgather.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "algorithms/binomial.h"
#include "algorithms/circle.h"
#include "algorithms/locations.h"

namespace tutti {
namespace {

/// Part v belongs to the rank v places after the root, which is the circle's origin.
void broadcast(const Circle& circle, const BinomialNode& node, Lane& lane) {
  const bool root = circle.place() == 0;
  if (!root) lane.recv(circle.rankAt(node.parent), at::output(node.place, node.subtree));
  for (const int32_t child : node.children) {
    const int32_t parts = node.subtreeOf(child, circle.ranks());
    lane.send(circle.rankAt(child), root ? at::input(child, parts) : at::output(child, parts));
  }
  if (root) lane.copy(at::input(0, circle.ranks()), at::output(0, circle.ranks()));
  circle.allGather(lane, true);
}

// In scratch: sums by offset from the own place, and behind them the parts of the own subtree.
void reduce(const Circle& circle, const BinomialNode& node, Lane& lane) {
  const bool root = circle.place() == 0;
  const int32_t sums = Circle::sumSegments(circle.ranks());
  circle.reduceScatter(lane, true, root ? at::output(0) : at::scratch(sums));
  for (auto child = node.children.rbegin(); child != node.children.rend(); ++child) {
    const int32_t parts = node.subtreeOf(*child, circle.ranks());
    const Location into = root ? at::output(*child, parts) : at::scratch(sums + *child - node.place, parts);
    lane.recv(circle.rankAt(*child), into).sizeAs = *child;
  }
  if (!root) lane.send(circle.rankAt(node.parent), at::scratch(sums, node.subtree)).sizeAs = node.place;
}

}  // namespace

Schedule scatterAllGather(const ScheduleRequest& request) {
  if (request.ranks == 1) return singleRank(request, "scatter_allgather");
  Schedule schedule = makeSchedule(request, "scatter_allgather", request.ranks);
  const auto largest = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(request.ranks - 1)));
  schedule.maxCount = std::max(largest, request.ranks / 2);
  const Circle circle(request.layout, request.ranks, request.rank, request.layout.positionOf(request.root));
  const BinomialNode node = binomialNode(request.ranks, circle.place());
  Lane& lane = schedule.lanes.emplace_back();
  if (request.collective == Collective::broadcast) {
    broadcast(circle, node, lane);
  } else {
    schedule.scratchSegments = Circle::sumSegments(request.ranks) + largest;
    reduce(circle, node, lane);
  }
  return tidy(std::move(schedule));
}

}  // namespace tutti
