// Binomial trees.
#pragma once

#include "algorithms/layout.h"

namespace tutti {

/// A binomial tree over positions counted from the root: the parent of a position is the number without its
/// lowest bit. Used by Broadcast, Reduce, Gather, Scatter; see Thakur, Rabenseifner and Gropp, IJHPCA 2005,
/// sections 4.4 and 4.6. p ranks, q = ceil(log2 p), n bytes of the whole vector (all blocks):
///
///              rounds   bytes sent by the busiest rank   order of the reduction
///   Broadcast  q        q n (the root)                   -
///   Reduce     q        n                                by position, near ranks first, depth q
///   Gather     q        n / 2                            -
///   Scatter    q        n (p-1)/p (the root)             -
///
/// For short vectors. Gather takes in at most q messages a rank, where all at once would be p - 1 at the
/// root. Gather and Scatter know only the ranks' own order; inner ranks keep blocks on their way in scratch.
/// Works with a FIFO of 1 slot.
Schedule binomial(const ScheduleRequest& request);

/// One rank's place in the tree of `ranks` positions, the root being 0.
struct BinomialNode {
  int32_t place = 0;
  int32_t parent = -1;            // -1: the root
  int32_t subtree = 1;            // places place .. place + subtree - 1
  std::vector<int32_t> children;  // the farthest first
  int32_t subtreeOf(int32_t child, int32_t ranks) const;
};
BinomialNode binomialNode(int32_t ranks, int32_t place);

}  // namespace tutti
