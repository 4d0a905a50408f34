// AllToAll as exchanges between pairs.
#pragma once

#include "algorithms/layout.h"

namespace tutti {

/// AllToAll in rounds in which every rank exchanges blocks with one other (the round-robin tournament: in
/// round i, ranks that add up to i modulo p meet; a rank that meets itself copies). p - 1 rounds (p where p
/// is odd, one of them free), n (p-1)/p bytes sent by a rank: the lower bound. At any time each rank has one
/// sender and one receiver, so no link or port is flooded ("incast"), which all messages at once (spread) may
/// do. Works in place: a block is sent before what replaces it comes, since both ends exchange in the same
/// round. Works with a FIFO of 1 slot.
Schedule pairwise(const ScheduleRequest& request);

}  // namespace tutti
