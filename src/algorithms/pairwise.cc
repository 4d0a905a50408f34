#include "algorithms/pairwise.h"

#include <utility>

#include "algorithms/locations.h"

namespace tutti {

Schedule pairwise(const ScheduleRequest& request) {
  if (request.ranks == 1) return singleRank(request, "pairwise");
  const int32_t p = request.ranks;
  const int32_t rank = request.rank;
  Schedule schedule = makeSchedule(request, "pairwise", 1);
  Lane& lane = schedule.lanes.emplace_back();
  const int32_t alone = wrap(2 * rank, p);  // the round in which a rank meets itself
  const auto rounds = [&](int32_t first, int32_t count) {
    const Affine partner(wrap(first - rank, p), 1, p);
    lane.loop(count);
    lane.send(partner, at::input(partner));
    lane.recv(partner, at::output(partner));
  };
  rounds(0, alone);
  lane.once().copy(at::input(rank), at::output(rank));
  rounds(alone + 1, p - 1 - alone);
  return tidy(std::move(schedule));
}

}  // namespace tutti
