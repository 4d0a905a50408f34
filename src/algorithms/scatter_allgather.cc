#include "algorithms/scatter_allgather.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "algorithms/binomial.h"
#include "algorithms/circulant.h"
#include "algorithms/locations.h"

namespace tutti {
namespace {

/// Part v belongs to the rank v places after the root. All rounds go round the circle of places.
class Phases {
 public:
  Phases(const ScheduleRequest& request, Lane& lane)
      : request_(request),
        lane_(lane),
        p_(request.ranks),
        root_(request.layout.positionOf(request.root)),
        place_(wrap(request.layout.positionOf(request.rank) - root_, p_)),
        node_(binomialNode(p_, place_)),
        distances_(circulantDistances(p_)) {}

  void broadcast() {
    const bool root = place_ == 0;
    if (!root) lane_.recv(rankAt(node_.parent), at::output(place_, node_.subtree));
    for (const int32_t child : node_.children) {
      const int32_t parts = node_.subtreeOf(child, p_);
      lane_.send(rankAt(child), root ? at::input(child, parts) : at::output(child, parts));
    }
    if (root) lane_.copy(at::input(0, p_), at::output(0, p_));
    for (size_t round = 0; round + 1 < distances_.size(); ++round) {
      const int32_t s = distances_[round];
      const int32_t count = distances_[round + 1] - s;
      if (wrap(place_ - s, p_) != 0) lane_.send(rankAt(place_ - s), at::output(place_, count));
      if (!root) lane_.recv(rankAt(place_ + s), at::output(offset(s), count));
    }
  }

  // In scratch: sums by offset from the own place, and behind them the parts of the own subtree.
  void reduce() {
    const bool root = place_ == 0;
    const int32_t sums = sumSegments(p_);
    const Location result = root ? at::output(0) : at::scratch(sums);
    reduceScatter(result);
    for (auto child = node_.children.rbegin(); child != node_.children.rend(); ++child) {
      const int32_t parts = node_.subtreeOf(*child, p_);
      const Location into = root ? at::output(*child, parts) : at::scratch(sums + *child - place_, parts);
      lane_.recv(rankAt(*child), into).sizeAs = *child;
    }
    if (!root) lane_.send(rankAt(node_.parent), at::scratch(sums, node_.subtree)).sizeAs = place_;
  }

  /// Segments of scratch that hold sums: see reduceScatter().
  static int32_t sumSegments(int32_t ranks) { return ranks == 2 ? 0 : (ranks + 1) / 2; }

 private:
  int32_t rankAt(int32_t place) const { return request_.layout.rankAt(wrap(place + root_, p_)); }
  Affine offset(int32_t by) const { return wrap(place_ + by, p_); }

  // As in circulant.cc, with places for positions.
  void reduceScatter(Location result) {
    for (size_t round = distances_.size() - 1; round-- > 0;) {
      const int32_t s = distances_[round];
      const int32_t count = distances_[round + 1] - s;
      const bool first = round + 2 == distances_.size();
      const bool last = round == 0;
      lane_.send(rankAt(place_ + s), first ? at::input(offset(s), count) : at::scratch(s, count)).sizeAs =
          offset(s);
      Step& step =
          lane_.recvReduce(rankAt(place_ - s), first ? at::input(offset(0), count) : at::scratch(0, count),
                           last ? result : at::scratch(0, count));
      step.sizeAs = offset(0);
      step.finalize = last;
      if (first && count < s) lane_.copy(at::input(offset(s - 1)), at::scratch(s - 1));
    }
  }

  const ScheduleRequest& request_;
  Lane& lane_;
  int32_t p_;
  int32_t root_;
  int32_t place_;
  BinomialNode node_;
  std::vector<int32_t> distances_;
};

}  // namespace

Schedule scatterAllGather(const ScheduleRequest& request) {
  if (request.ranks == 1) return singleRank(request, "scatter_allgather");
  Schedule schedule = makeSchedule(request, "scatter_allgather", request.ranks);
  const auto largest = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(request.ranks - 1)));
  schedule.maxCount = std::max(largest, request.ranks / 2);
  Phases phases(request, schedule.lanes.emplace_back());
  if (request.collective == Collective::broadcast) {
    phases.broadcast();
  } else {
    schedule.scratchSegments = Phases::sumSegments(request.ranks) + largest;
    phases.reduce();
  }
  return tidy(std::move(schedule));
}

}  // namespace tutti
