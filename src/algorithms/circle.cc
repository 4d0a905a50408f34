#include "algorithms/circle.h"

#include "algorithms/circulant.h"
#include "algorithms/locations.h"

namespace tutti {

Circle::Circle(const Layout& layout, int32_t ranks, int32_t rank, int32_t origin)
    : layout_(layout),
      ranks_(ranks),
      origin_(origin),
      place_(wrap(layout.positionOf(rank) - origin, ranks)),
      distances_(circulantDistances(ranks)) {}

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
void Circle::reduceScatter(Lane& lane, bool sumsInScratch, const Location& result) const {
  const auto sums = [&](int32_t offset, int32_t count) {
    return sumsInScratch ? at::scratch(offset, count) : at::output(segment(offset), count);
  };
  const auto sized = [&](Step& step, int32_t offset) {
    if (sumsInScratch) step.sizeAs = segment(offset);
  };
  for (int32_t round = rounds() - 1; round >= 0; --round) {
    const int32_t s = distance(round);
    const int32_t count = distance(round + 1) - s;
    const bool first = round == rounds() - 1;
    const bool last = round == 0;
    sized(lane.send(ahead(s), first ? at::input(segment(s), count) : sums(s, count)), s);
    Step& step = lane.recvReduce(behind(s), first ? at::input(segment(0), count) : sums(0, count),
                                 last ? result : sums(0, count));
    sized(step, 0);
    step.finalize = last;
    if (first && count < s) sized(lane.copy(at::input(segment(s - 1)), sums(s - 1, 1)), s - 1);
  }
}

/// reduceScatter() backwards: who held a sum gets the result from where it went.
void Circle::allGather(Lane& lane, bool originKnows) const {
  const auto isTold = [&](int32_t place) { return !originKnows || wrap(place, ranks_) != 0; };
  for (int32_t round = 0; round < rounds(); ++round) {
    const int32_t s = distance(round);
    const int32_t count = distance(round + 1) - s;
    if (isTold(place_ - s)) lane.send(behind(s), at::output(segment(0), count));
    if (isTold(place_)) lane.recv(ahead(s), at::output(segment(s), count));
  }
}

}  // namespace tutti
