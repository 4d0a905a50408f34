// Broadcast and Reduce of long vectors in two phases.
#pragma once

#include "algorithms/layout.h"

namespace tutti {

/// Broadcast: the root scatters the vector's p parts down a binomial tree, then all gather them (van de
/// Geijn; Thakur, Rabenseifner and Gropp, IJHPCA 2005, section 4.4, here with the circulant AllGather, which
/// takes any p). Reduce is the same backwards: circulant ReduceScatter, then a binomial Gather. p ranks, q =
/// ceil(log2 p), n bytes:
///
///              rounds     bytes sent by the busiest rank       order of the reduction
///   Broadcast  <= 2q      n (p-1)/p (the root), others less    -
///                         than 2 n (p-1)/p
///   Reduce     <= 2q      less than 2 n (p-1)/p                each part at its position, depth <= q
///
/// Any layout. The root gets nothing in the second phase of Broadcast, which has nothing to tell it. Works
/// with a FIFO of 1 slot.
Schedule scatterAllGather(const ScheduleRequest& request);

}  // namespace tutti
