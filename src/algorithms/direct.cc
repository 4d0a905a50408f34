#include "algorithms/direct.h"

#include <numeric>
#include <utility>

#include "algorithms/locations.h"

namespace tutti {
namespace {

constexpr int kAll = 0;  // the one team: all ranks, ascending

Schedule start(const ScheduleRequest& request, const char* name, int32_t parts) {
  Schedule schedule = makeSchedule(request, name, parts);
  schedule.maxCount = 0;
  schedule.flags = 1;
  schedule.teams.emplace_back(static_cast<size_t>(request.ranks));
  std::iota(schedule.teams[kAll].begin(), schedule.teams[kAll].end(), 0);
  schedule.lanes.emplace_back();
  return schedule;
}

/// The ranks after this one, round: starting at different peers keeps them from queueing at one memory.
Affine othersOf(const ScheduleRequest& request) { return {request.rank + 1, 1, request.ranks}; }

}  // namespace

// Every form has one signal to everybody at or after the first access to scratch and one wait for everybody,
// at the end at the latest. The wait is where the data needs it, or last where the data does not: the root of
// a Broadcast and the leaves of a Reduce would else run ahead of slow readers.
Schedule oneShot(const ScheduleRequest& request) {
  if (request.ranks == 1) return singleRank(request, "oneshot");
  Schedule schedule = start(request, "oneshot", 1);
  schedule.sharedScratch = true;
  const bool laysOutAll = request.collective == Collective::reduceScatter ||
                          request.collective == Collective::allToAll ||
                          request.collective == Collective::scatter;
  schedule.scratchSegments = laysOutAll ? request.ranks : 1;
  const int32_t rank = request.rank;
  const int32_t p = request.ranks;
  const bool isRoot = rank == request.root;
  Lane& lane = schedule.lanes[0];
  switch (request.collective) {
    case Collective::allReduce:
      lane.copy(at::input(0), at::scratch(0));
      lane.signalTeam(kAll);
      lane.waitTeam(kAll);
      lane.reduceTeam(kAll, at::scratch(0), at::output(0)).finalize = true;
      break;
    case Collective::reduceScatter:
      lane.copy(at::input(0, p), at::scratch(0, p));
      lane.signalTeam(kAll);
      lane.waitTeam(kAll);
      lane.reduceTeam(kAll, at::scratch(rank), at::output(rank)).finalize = true;
      break;
    case Collective::allGather:
      lane.copy(at::input(rank), at::scratch(0));
      lane.signalTeam(kAll);
      lane.copy(at::input(rank), at::output(rank));
      lane.waitTeam(kAll);
      lane.loop(p - 1).copy(at::of(at::scratch(0), othersOf(request)), at::output(othersOf(request)));
      break;
    case Collective::broadcast:
      if (isRoot) lane.copy(at::input(0), at::scratch(0));
      lane.signalTeam(kAll);
      if (isRoot) lane.copy(at::input(0), at::output(0));
      lane.waitTeam(kAll);
      if (!isRoot) lane.copy(at::of(at::scratch(0), request.root), at::output(0));
      break;
    case Collective::allToAll:
      lane.copy(at::input(0, p), at::scratch(0, p));
      lane.signalTeam(kAll);
      lane.copy(at::input(rank), at::output(rank));
      lane.waitTeam(kAll);
      lane.loop(p - 1).copy(at::of(at::scratch(rank), othersOf(request)), at::output(othersOf(request)));
      break;
    case Collective::gather:
      if (!isRoot) lane.copy(at::input(rank), at::scratch(0));
      lane.signalTeam(kAll);
      if (isRoot) lane.copy(at::input(rank), at::output(rank));
      lane.waitTeam(kAll);
      if (isRoot)
        lane.loop(p - 1).copy(at::of(at::scratch(0), othersOf(request)), at::output(othersOf(request)));
      break;
    case Collective::scatter:
      if (isRoot) lane.copy(at::input(0, p), at::scratch(0, p));
      lane.signalTeam(kAll);
      if (isRoot) lane.copy(at::input(rank), at::output(rank));
      lane.waitTeam(kAll);
      if (!isRoot) lane.copy(at::of(at::scratch(rank), request.root), at::output(rank));
      break;
    default:  // reduce
      lane.copy(at::input(0), at::scratch(0));
      lane.signalTeam(kAll);
      lane.waitTeam(kAll);
      if (isRoot) lane.reduceTeam(kAll, at::scratch(0), at::output(0)).finalize = true;
      break;
  }
  return tidy(std::move(schedule));
}

// Scratch segment s holds the own contribution to part s; only rank s reads part s of everybody, so it may
// put the sum in the place of its own contribution.
Schedule twoShot(const ScheduleRequest& request) {
  if (request.ranks == 1) return singleRank(request, "twoshot");
  Schedule schedule = start(request, "twoshot", request.ranks);
  schedule.sharedScratch = true;
  schedule.scratchSegments = request.ranks;
  const int32_t rank = request.rank;
  const int32_t p = request.ranks;
  Lane& lane = schedule.lanes[0];
  lane.copy(at::input(0, p), at::scratch(0, p));
  lane.signalTeam(kAll);
  lane.waitTeam(kAll);
  Step& sum = lane.reduceTeam(kAll, at::scratch(rank), at::scratch(rank));
  sum.finalize = true;
  sum.sizeAs = rank;
  lane.signalTeam(kAll);
  lane.copy(at::scratch(rank), at::output(rank));
  lane.waitTeam(kAll);
  lane.loop(p - 1).copy(at::of(at::scratch(othersOf(request)), othersOf(request)),
                        at::output(othersOf(request)));
  return tidy(std::move(schedule));
}

namespace {

// Collectives in which every rank but the root has to do with the root alone: the root says "my buffer is
// ready", each other rank moves its share and says "I am done". Two ranks that are not the root never wait
// for each other.
void directRooted(const ScheduleRequest& request, Lane& lane) {
  const int32_t rank = request.rank;
  const bool oneBlock = request.collective == Collective::broadcast;
  const int32_t block = oneBlock ? 0 : rank;
  if (rank == request.root) {
    lane.signalTeam(kAll);
    lane.copy(at::input(block), at::output(block));
    lane.waitTeam(kAll);
    return;
  }
  lane.wait(request.root);
  if (request.collective == Collective::gather) {
    lane.copy(at::input(block), at::of(at::output(block), request.root));
  } else {
    lane.copy(at::of(at::input(block), request.root), at::output(block));
  }
  lane.signal(request.root);
}

}  // namespace

// The entry barrier says "my buffers are ready", the exit barrier "I am done with yours". In place, a segment
// of the shared memory is written only by the rank that alone reads it.
Schedule direct(const ScheduleRequest& request) {
  if (request.ranks == 1) return singleRank(request, "direct");
  const int32_t rank = request.rank;
  const int32_t p = request.ranks;
  const bool rooted = request.collective == Collective::broadcast ||
                      request.collective == Collective::gather || request.collective == Collective::scatter;
  const bool cutsVector =
      request.collective == Collective::allReduce || request.collective == Collective::reduce;
  Schedule schedule = start(request, "direct", cutsVector ? p : 1);
  schedule.sharedUserBuffers = true;
  Lane& lane = schedule.lanes[0];
  if (rooted) {
    directRooted(request, lane);
    return tidy(std::move(schedule));
  }
  lane.signalTeam(kAll);
  lane.waitTeam(kAll);
  switch (request.collective) {
    case Collective::allReduce:
      lane.reduceTeam(kAll, at::input(rank), at::output(rank), kAll).finalize = true;
      break;
    case Collective::reduceScatter:
      lane.reduceTeam(kAll, at::input(rank), at::output(rank)).finalize = true;
      break;
    case Collective::allGather:
      lane.copy(at::input(rank), at::output(rank));
      lane.loop(p - 1).copy(at::of(at::input(othersOf(request)), othersOf(request)),
                            at::output(othersOf(request)));
      lane.once();
      break;
    case Collective::allToAll:
      lane.copy(at::input(rank), at::output(rank));
      lane.loop(p - 1).copy(at::of(at::input(rank), othersOf(request)), at::output(othersOf(request)));
      lane.once();
      break;
    default:  // reduce
      lane.reduceTeam(kAll, at::input(rank), at::of(at::output(rank), request.root)).finalize = true;
      break;
  }
  lane.signalTeam(kAll);
  lane.waitTeam(kAll);
  return tidy(std::move(schedule));
}

}  // namespace tutti
