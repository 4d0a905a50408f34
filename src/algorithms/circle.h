// One rank's place on the circulant graph, and the two phases that circulant and scatter_allgather are made
// of.
#pragma once

#include <vector>

#include "algorithms/layout.h"
#include "algorithms/schedule.h"

namespace tutti {

/// Places are counted from position `origin` of the layout. Segments are named by their owner's distance from
/// here: offset i is the part (or block) of the place i places on.
class Circle {
 public:
  Circle(const Layout& layout, int32_t ranks, int32_t rank, int32_t origin);

  int32_t ranks() const { return ranks_; }
  int32_t place() const { return place_; }
  int32_t rounds() const { return static_cast<int32_t>(distances_.size()) - 1; }
  int32_t distance(int32_t round) const { return distances_[static_cast<size_t>(round)]; }
  int32_t ahead(int32_t by) const { return rankAt(place_ + by); }
  int32_t behind(int32_t by) const { return rankAt(place_ - by); }
  int32_t rankAt(int32_t place) const { return layout_.rankAt(wrap(place + origin_, ranks_)); }
  Affine segment(int32_t offset) const { return wrap(place_ + offset, ranks_); }

  /// Segments of scratch that reduceScatter() keeps sums in.
  static int32_t sumSegments(int32_t ranks) { return ranks == 2 ? 0 : (ranks + 1) / 2; }
  /// Adds up offset 0 into `result`, on this rank; sums on the way lie in the output, or in scratch by
  /// offset.
  void reduceScatter(Lane& lane, bool sumsInScratch, const Location& result) const;
  /// From the outputs' own segments to all. `originKnows`: place 0 has everything, and is told nothing.
  void allGather(Lane& lane, bool originKnows) const;

 private:
  const Layout& layout_;
  int32_t ranks_;
  int32_t origin_;
  int32_t place_;
  std::vector<int32_t> distances_;
};

}  // namespace tutti
