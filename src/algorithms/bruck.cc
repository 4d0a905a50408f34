#include "algorithms/bruck.h"

#include <algorithm>
#include <utility>

#include "algorithms/locations.h"

namespace tutti {
namespace {

/// How many of the distances 0 .. ranks-1 have that bit.
int32_t blocksWith(int32_t bit, int32_t ranks) {
  const int32_t whole = ranks / (2 * bit) * bit;
  return whole + std::max(0, ranks % (2 * bit) - bit);
}

}  // namespace

// In scratch a block lies at the distance that it has to go, at whatever rank it is:
//
//   distance    0 1 2 3 4 5 6 7
//   round 0       >   >   >   >    to the rank 1 ahead
//   round 1         > >     > >    2 ahead: runs of 2, 4 apart
//   round 2             > > > >    4 ahead
Schedule bruck(const ScheduleRequest& request) {
  if (request.ranks == 1) return singleRank(request, "bruck");
  const int32_t p = request.ranks;
  const int32_t rank = request.rank;
  Schedule schedule = makeSchedule(request, "bruck", 1);
  schedule.scratchSegments = p;
  Lane& lane = schedule.lanes.emplace_back();
  lane.copy(at::input(rank, p), at::scratch(0, p));
  for (int32_t bit = 1; bit < p; bit *= 2) {
    const int32_t blocks = blocksWith(bit, p);
    schedule.maxCount = std::max(schedule.maxCount, blocks);
    const Location moved = at::scratch(bit, blocks, blocks <= bit ? Pattern{} : Pattern{bit, 2 * bit});
    // All blocks of an AllToAll have the same size.
    lane.send(wrap(rank + bit, p), moved).sizeAs = 0;
    lane.recv(wrap(rank - bit, p), moved).sizeAs = 0;
  }
  // What came from the rank d behind lies at distance d.
  lane.loop(p).copy(at::scratch(Affine(0, 1, p)), at::output(Affine(rank, -1, p)));
  return tidy(std::move(schedule));
}

}  // namespace tutti
