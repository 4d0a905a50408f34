#include "algorithms/circulant.h"

#include <algorithm>
#include <utility>

#include "algorithms/locations.h"

namespace tutti {
namespace {

/// One rank's place on the circle. Segments are named by their owner's distance from here: offset i is the
/// part (or block) of the position i places on.
struct Circle {
  const Layout& layout;
  int32_t p;
  int32_t position;
  std::vector<int32_t> distances;
  int32_t rounds;

  explicit Circle(const ScheduleRequest& request)
      : layout(request.layout),
        p(request.ranks),
        position(layout.positionOf(request.rank)),
        distances(circulantDistances(p)),
        rounds(static_cast<int32_t>(distances.size()) - 1) {}

  int32_t distance(int32_t round) const { return distances[static_cast<size_t>(round)]; }
  int32_t ahead(int32_t by) const { return layout.rankAt(wrap(position + by, p)); }
  int32_t behind(int32_t by) const { return layout.rankAt(wrap(position - by, p)); }
  Affine segment(int32_t offset) const { return wrap(position + offset, p); }
};

// Rounds from the longest distance to 1. Before the round with distances s and s' (the next longer one) the
// offsets 0 .. s'-1 are of interest. The upper ones go to the rank s ahead, which has them as its offsets
// 0 .. s'-s-1. For 5 ranks (distances 1 2 3 5), at one rank:
//
//   offsets   0 1 2 3 4
//   s = 3     + +   > >      > sent ahead, + a contribution comes in
//   s = 2     +   >
//   s = 1     + >            offset 0 is complete
//
// Where p is odd, the middle offset is sent in the second round without having been added to.
//
// `partials(offset, count)` is where sums are kept, `sized` sets sizeAs where that is scratch.
template <typename Partials, typename Sized>
void reduceScatterRounds(const Circle& circle, Lane& lane, Partials partials, Sized sized, Location result) {
  for (int32_t round = circle.rounds - 1; round >= 0; --round) {
    const int32_t s = circle.distance(round);
    const int32_t count = circle.distance(round + 1) - s;
    const bool first = round == circle.rounds - 1;
    const bool last = round == 0;
    if (first) {
      lane.send(circle.ahead(s), at::input(circle.segment(s), count));
    } else {
      sized(lane.send(circle.ahead(s), partials(s, count)), s);
    }
    const Location held = first ? at::input(circle.segment(0), count) : partials(0, count);
    Step& step = lane.recvReduce(circle.behind(s), held, last ? result : partials(0, count));
    step.finalize = last;
    if (!last && !first) sized(step, 0);
    if (first && count < s) {
      sized(lane.copy(at::input(circle.segment(s - 1)), partials(s - 1, 1)), s - 1);
    }
  }
}

/// The same backwards: who held a sum gets the result from where it went.
void allGatherRounds(const Circle& circle, Lane& lane) {
  for (int32_t round = 0; round < circle.rounds; ++round) {
    const int32_t s = circle.distance(round);
    const int32_t count = circle.distance(round + 1) - s;
    lane.send(circle.behind(s), at::output(circle.segment(0), count));
    lane.recv(circle.ahead(s), at::output(circle.segment(s), count));
  }
}

void allReduce(const Circle& circle, Lane& lane) {
  const auto partials = [&](int32_t offset, int32_t count) {
    return at::output(circle.segment(offset), count);
  };
  reduceScatterRounds(
      circle, lane, partials, [](Step&, int32_t) {}, at::output(circle.segment(0)));
  allGatherRounds(circle, lane);
}

void reduceScatter(const Circle& circle, Lane& lane) {
  const auto partials = [](int32_t offset, int32_t count) { return at::scratch(offset, count); };
  const auto sized = [&](Step& step, int32_t offset) { step.sizeAs = circle.segment(offset); };
  reduceScatterRounds(circle, lane, partials, sized, at::output(circle.segment(0)));
}

}  // namespace

std::vector<int32_t> circulantDistances(int32_t ranks) {
  std::vector<int32_t> distances = {ranks};
  while (distances.back() > 1) distances.push_back((distances.back() + 1) / 2);
  std::ranges::reverse(distances);
  return distances;
}

Schedule circulant(const ScheduleRequest& request) {
  if (request.ranks == 1) return singleRank(request, "circulant");
  if (request.collective == Collective::broadcast || request.collective == Collective::reduce)
    return circulantPipeline(request);
  // Blocks of the ranks are neighbours in the ranks' own order only.
  ScheduleRequest inOrder = request;
  if (request.collective != Collective::allReduce) inOrder.layout = Layout();
  const Circle circle(inOrder);
  const bool cutsVector = request.collective == Collective::allReduce;
  Schedule schedule = makeSchedule(request, "circulant", cutsVector ? request.ranks : 1);
  schedule.maxCount = request.ranks / 2;
  Lane& lane = schedule.lanes.emplace_back();
  switch (request.collective) {
    case Collective::allReduce:
      allReduce(circle, lane);
      break;
    case Collective::reduceScatter:
      schedule.scratchSegments = circle.rounds > 1 ? circle.distance(circle.rounds - 1) : 0;
      reduceScatter(circle, lane);
      break;
    default:  // allGather
      lane.copy(at::input(request.rank), at::output(request.rank));
      allGatherRounds(circle, lane);
      break;
  }
  return tidy(std::move(schedule));
}

}  // namespace tutti
