#include "algorithms/circulant.h"

#include <algorithm>
#include <utility>

#include "algorithms/circle.h"
#include "algorithms/locations.h"

namespace tutti {

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
  const bool cutsVector = request.collective == Collective::allReduce;
  const Layout inOrder;
  const Circle circle(cutsVector ? request.layout : inOrder, request.ranks, request.rank, 0);
  Schedule schedule = makeSchedule(request, "circulant", cutsVector ? request.ranks : 1);
  schedule.maxCount = request.ranks / 2;
  Lane& lane = schedule.lanes.emplace_back();
  switch (request.collective) {
    case Collective::allReduce:
      circle.reduceScatter(lane, false, at::output(circle.segment(0)));
      circle.allGather(lane, false);
      break;
    case Collective::reduceScatter:
      schedule.scratchSegments = Circle::sumSegments(request.ranks);
      circle.reduceScatter(lane, true, at::output(circle.segment(0)));
      break;
    default:  // allGather
      lane.copy(at::input(request.rank), at::output(request.rank));
      circle.allGather(lane, false);
      break;
  }
  return tidy(std::move(schedule));
}

}  // namespace tutti
