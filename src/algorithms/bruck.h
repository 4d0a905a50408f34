// AllToAll in a logarithmic number of rounds.
#pragma once

#include "algorithms/layout.h"

namespace tutti {

/// AllToAll for short blocks (Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all
/// communications in multiport message-passing systems", TPDS 1997, section 3.2, radix 2). A block travels by
/// the binary digits of the distance between its two ranks: in round k all blocks whose distance has bit k
/// move 2^k ranks on, in one message. Any p, q = ceil(log2 p), n bytes of all blocks: q rounds, at most n q /
/// 2 bytes sent by a rank (less where p is no power of two). p segments of scratch. Works with a FIFO of 1
/// slot.
Schedule bruck(const ScheduleRequest& request);

}  // namespace tutti
