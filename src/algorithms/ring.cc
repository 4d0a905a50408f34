#include "algorithms/ring.h"

#include <utility>

namespace tutti {
namespace {

/// This rank's place: position, neighbours, and the blocks of the ranks before it.
struct RingPlace {
  const Layout& layout;
  int32_t p, position, next, previous;

  explicit RingPlace(const ScheduleRequest& request)
      : layout(request.layout),
        p(request.ranks),
        position(layout.positionOf(request.rank)),
        next(layout.rankAt(wrap(position + 1, p))),
        previous(layout.rankAt(wrap(position - 1, p))) {}

  int32_t blockBefore(int32_t distance) const { return layout.rankAt(wrap(position - distance, p)); }

  /// Calls body(lane, block) for the blocks of the positions first, first+1, ... before this one, `times` of
  /// them: as a loop where block numbers are affine (rank = position), else one after the other.
  template <typename Body>
  void backwards(Lane& lane, int32_t first, int32_t times, Body body) const {
    if (layout.identity()) {
      lane.loop(times);
      body(lane, Affine(wrap(position - first, p), -1, p));
    } else {
      lane.once();
      for (int32_t i = 0; i < times; ++i) body(lane, Affine(blockBefore(first + i)));
    }
    lane.once();
  }
};

// Block b starts at the position after its owner, gathers a contribution at every rank and is complete at its
// owner. Drawn for 4 ranks, block 0 (a dot is one rank's contribution):
//
//     rank 1 --.--> rank 2 --..--> rank 3 --...--> rank 0 (....)
void reduceScatterPhase(Lane& lane, const RingPlace& at) {
  lane.once().send(at.next, {Buffer::input, at.blockBefore(1)});
  at.backwards(lane, 2, at.p - 2, [&](Lane& l, Affine block) {
    l.recvReduceSend(at.previous, {Buffer::input, block}, at.next);
  });
}

// The owner has sent its complete block; everyone else stores it and passes it on, the last one only stores.
void allGatherPhase(Lane& lane, const RingPlace& at) {
  at.backwards(lane, 1, at.p - 2, [&](Lane& l, Affine block) {
    l.recvCopySend(at.previous, {Buffer::output, block}, at.next);
  });
  lane.once().recv(at.previous, {Buffer::output, at.blockBefore(at.p - 1)});
}

void allReduce(Lane& lane, const RingPlace& at) {
  const int32_t own = at.blockBefore(0);
  reduceScatterPhase(lane, at);
  lane.recvReduceCopySend(at.previous, {Buffer::input, own}, {Buffer::output, own}, at.next).finalize = true;
  allGatherPhase(lane, at);
}

void reduceScatter(Lane& lane, const RingPlace& at) {
  const int32_t own = at.blockBefore(0);
  reduceScatterPhase(lane, at);
  lane.recvReduce(at.previous, {Buffer::input, own}, {Buffer::output, own}).finalize = true;
}

void allGather(Lane& lane, const RingPlace& at) {
  const int32_t own = at.blockBefore(0);
  lane.send(at.next, {Buffer::input, own});
  lane.copy({Buffer::input, own}, {Buffer::output, own});
  allGatherPhase(lane, at);
}

/// Chain root -> root+1 -> ... -> root-1, in positions.
void broadcast(Lane& lane, const RingPlace& at, int32_t rootPosition) {
  const int32_t distance = wrap(at.position - rootPosition, at.p);
  const Location output{Buffer::output, 0};
  if (distance == 0) {
    lane.send(at.next, {Buffer::input, 0});
    lane.copy({Buffer::input, 0}, output);
  } else if (distance < at.p - 1) {
    lane.recvCopySend(at.previous, output, at.next);
  } else {
    lane.recv(at.previous, output);
  }
}

/// Chain root+1 -> root+2 -> ... -> root, in positions.
void reduce(Lane& lane, const RingPlace& at, int32_t rootPosition) {
  const int32_t distance = wrap(at.position - rootPosition, at.p);
  const Location input{Buffer::input, 0};
  if (distance == 0) {
    lane.recvReduce(at.previous, input, {Buffer::output, 0}).finalize = true;
  } else if (distance == 1) {
    lane.send(at.next, input);
  } else {
    lane.recvReduceSend(at.previous, input, at.next);
  }
}

}  // namespace

Schedule ring(const ScheduleRequest& request) {
  if (request.ranks == 1) return singleRank(request, "ring");
  const RingPlace at(request);
  const int32_t rootPosition = request.layout.positionOf(request.root);
  const bool cutsVector = request.collective == Collective::allReduce;
  Schedule schedule = makeSchedule(request, "ring", cutsVector ? request.ranks : 1);
  Lane& lane = schedule.lanes.emplace_back();
  switch (request.collective) {
    case Collective::allReduce:
      allReduce(lane, at);
      break;
    case Collective::reduceScatter:
      reduceScatter(lane, at);
      break;
    case Collective::allGather:
      allGather(lane, at);
      break;
    case Collective::broadcast:
      broadcast(lane, at, rootPosition);
      break;
    default:
      reduce(lane, at, rootPosition);
      break;
  }
  return tidy(std::move(schedule));
}

}  // namespace tutti
