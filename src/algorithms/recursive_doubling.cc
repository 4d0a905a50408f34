#include "algorithms/recursive_doubling.h"

#include <bit>
#include <utility>

namespace tutti {
namespace {

constexpr Location kInput{Buffer::input, 0, 1, kSelf};
constexpr Location kOutput{Buffer::output, 0, 1, kSelf};

// p = 6: fold          exchange 1        exchange 2       unfold
//        0 <- 1        0 <-> 2           0 <-> 4          0 -> 1
//        2 <- 3        4 <-> 5           2 <-> 5          2 -> 3
//        4  5
void allReduce(Lane& lane, const ScheduleRequest& request) {
  const Layout& layout = request.layout;
  const auto core = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(request.ranks)));
  const int32_t folded = request.ranks - core;  // pairs at the start
  const int32_t position = layout.positionOf(request.rank);
  const bool inPair = position < 2 * folded;

  if (inPair && position % 2 == 1) {
    const int32_t partner = layout.rankAt(position - 1);
    lane.send(partner, kInput);
    lane.recv(partner, kOutput);
    return;
  }
  if (inPair) lane.recvReduce(layout.rankAt(position + 1), kInput, kOutput);
  const int32_t member = inPair ? position / 2 : position - folded;  // number within the core
  Location own = inPair ? kOutput : kInput;
  for (int32_t distance = 1; distance < core; distance *= 2) {
    const int32_t other = member ^ distance;
    const int32_t partner = layout.rankAt(other < folded ? 2 * other : other + folded);
    lane.send(partner, own);
    Step& step = lane.recvReduce(partner, own, kOutput);
    step.messageFirst = other < member;
    step.finalize = 2 * distance == core;
    own = kOutput;
  }
  if (inPair) lane.send(layout.rankAt(position + 1), kOutput);
}

/// After k exchanges a rank holds the 2^k blocks of its group; groups are aligned, so they are consecutive.
void allGather(Lane& lane, const ScheduleRequest& request) {
  const int32_t rank = request.rank;
  lane.copy({Buffer::input, rank}, {Buffer::output, rank});
  for (int32_t held = 1; held < request.ranks; held *= 2) {
    const int32_t partner = rank ^ held;
    lane.send(partner, {Buffer::output, rank & ~(held - 1), held});
    lane.recv(partner, {Buffer::output, partner & ~(held - 1), held});
  }
}

/// The blocks that a rank adds up are halved with the partner at distance p/2, p/4, ..., 1. Sums lie in
/// scratch: block b at number b mod p/2, since after the first exchange half of them are left.
void reduceScatter(Lane& lane, const ScheduleRequest& request) {
  const int32_t rank = request.rank;
  const int32_t half = request.ranks / 2;
  for (int32_t distance = half; distance >= 1; distance /= 2) {
    const int32_t partner = rank ^ distance;
    const int32_t kept = rank & ~(distance - 1);
    const int32_t given = partner & ~(distance - 1);
    const Location sums{Buffer::scratch, kept % half, distance};
    const auto own = [&](int32_t block) {
      if (distance == half) return Location{Buffer::input, block, distance};
      return Location{Buffer::scratch, block % half, distance};
    };
    const bool last = distance == 1;
    lane.send(partner, own(given)).sizeAs = given;
    Step& step = lane.recvReduce(partner, own(kept), last ? Location{Buffer::output, rank} : sums);
    step.sizeAs = kept;
    step.finalize = last;
  }
}

}  // namespace

Schedule recursiveDoubling(const ScheduleRequest& request) {
  if (request.ranks == 1) return singleRank(request, "doubling");
  Schedule schedule = makeSchedule(request, "doubling", 1);
  Lane& lane = schedule.lanes.emplace_back();
  if (request.collective == Collective::allGather) {
    schedule.maxCount = request.ranks / 2;
    allGather(lane, request);
  } else if (request.collective == Collective::reduceScatter) {
    schedule.maxCount = request.ranks / 2;
    schedule.scratchSegments = request.ranks > 2 ? request.ranks / 2 : 0;
    reduceScatter(lane, request);
  } else {
    allReduce(lane, request);
  }
  return tidy(std::move(schedule));
}

}  // namespace tutti
