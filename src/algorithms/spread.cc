#include "algorithms/spread.h"

namespace tutti {
namespace {

Location input(Affine segment) { return {Buffer::input, segment}; }
Location output(Affine segment) { return {Buffer::output, segment}; }

}  // namespace

Schedule spread(const ScheduleRequest& request) {
  if (request.ranks == 1) return singleRank(request, "spread");
  const int32_t p = request.ranks;
  const int32_t rank = request.rank;
  const Affine after(rank + 1, 1, p);
  const Affine before(rank - 1, -1, p);
  Schedule schedule = makeSchedule(request, "spread", 1);
  Lane& lane = schedule.lanes.emplace_back();
  switch (request.collective) {
    case Collective::gather:
      if (rank == request.root) {
        lane.copy(input(rank), output(rank));
        lane.loop(p - 1).recv(before, output(before));
      } else {
        lane.send(request.root, input(rank));
      }
      break;
    case Collective::scatter:
      if (rank == request.root) {
        lane.loop(p - 1).send(after, input(after));
        lane.once().copy(input(rank), output(rank));
      } else {
        lane.recv(request.root, output(rank));
      }
      break;
    default:  // allToAll
      lane.loop(p - 1).send(after, input(after));
      lane.once().copy(input(rank), output(rank));
      lane.loop(p - 1).recv(before, output(before));
      break;
  }
  return tidy(std::move(schedule));
}

}  // namespace tutti
