#include "algorithms/rabenseifner.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "algorithms/locations.h"

namespace tutti {
namespace {

/// The power of two that works, and how the ranks beyond it fold into it.
struct Core {
  const Layout& layout;
  int32_t size;
  int32_t folded;  // pairs at the start
  int32_t position;

  explicit Core(const ScheduleRequest& request)
      : layout(request.layout),
        size(static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(request.ranks)))),
        folded(request.ranks - size),
        position(layout.positionOf(request.rank)) {}

  bool inPair() const { return position < 2 * folded; }
  bool folds() const { return inPair() && position % 2 == 1; }
  int32_t partnerInPair() const { return layout.rankAt(position ^ 1); }
  int32_t member() const { return inPair() ? position / 2 : position - folded; }
  int32_t rankOf(int32_t member) const {
    return layout.rankAt(member < folded ? 2 * member : member + folded);
  }
  /// A whole vector goes as messages of half of it, which the exchanges need anyway.
  int32_t half() const { return size / 2; }
  Affine halves() const { return {0, half(), 0}; }
};

// The range that a member is responsible for is halved with the partner at distance c/2, c/4, ..., 1; then
// the ranges grow together again. Member 1 of 4:
//
//   parts        0 1 2 3
//   distance 2   + + > >      > sent, + a contribution comes in
//   distance 1   > +
//   distance 1   < o          o complete, < received
//   distance 2   o o < <
void exchange(const Core& core, Lane& lane) {
  const int32_t member = core.member();
  int32_t first = 0;
  bool fresh = !core.inPair();  // sums are in the output from the first addition on
  for (int32_t distance = core.size / 2; distance >= 1; distance /= 2) {
    const int32_t partner = core.rankOf(member ^ distance);
    const int32_t kept = (member & distance) != 0 ? first + distance : first;
    const int32_t given = (member & distance) != 0 ? first : first + distance;
    const auto own = [&](int32_t segment) {
      return fresh ? at::input(segment, distance) : at::output(segment, distance);
    };
    lane.send(partner, own(given));
    lane.recvReduce(partner, own(kept), at::output(kept, distance)).finalize = distance == 1;
    first = kept;
    fresh = false;
  }
  for (int32_t distance = 1; distance < core.size; distance *= 2) {
    const int32_t partner = core.rankOf(member ^ distance);
    const int32_t held = member & ~(distance - 1);
    lane.send(partner, at::output(held, distance));
    lane.recv(partner, at::output(held ^ distance, distance));
  }
}

}  // namespace

Schedule rabenseifner(const ScheduleRequest& request) {
  if (request.ranks == 1) return singleRank(request, "rabenseifner");
  const Core core(request);
  Schedule schedule = makeSchedule(request, "rabenseifner", core.size);
  schedule.maxCount = core.half();
  Lane& lane = schedule.lanes.emplace_back();
  const int32_t half = core.half();
  if (core.folds()) {
    lane.loop(2).send(core.partnerInPair(), at::input(core.halves(), half));
    lane.loop(2).recv(core.partnerInPair(), at::output(core.halves(), half));
    return tidy(std::move(schedule));
  }
  if (core.inPair()) {
    lane.loop(2).recvReduce(core.partnerInPair(), at::input(core.halves(), half),
                            at::output(core.halves(), half));
    lane.once();
  }
  exchange(core, lane);
  if (core.inPair()) lane.loop(2).send(core.partnerInPair(), at::output(core.halves(), half));
  return tidy(std::move(schedule));
}

}  // namespace tutti
