// A message between every two ranks that have something for each other.
#pragma once

#include "algorithms/layout.h"

namespace tutti {

/// AllToAll, Gather and Scatter as single messages, none forwarded: every byte crosses one connection once,
/// which is the least possible, and all messages are under way at the same time (one round). p ranks, n bytes
/// of all blocks:
///
///              sent by a rank          received by a rank
///   AllToAll   n (p-1)/p               n (p-1)/p
///   Gather     n/p (not the root)      n (p-1)/p (the root)
///   Scatter    n (p-1)/p (the root)    n/p (not the root)
///
/// A rank begins with its next neighbour, so that no two ranks send to the same one at first. AllToAll works
/// in place: a rank sends a slice of all its blocks before it overwrites any of it. ("Spread-out" in Kang et
/// al. 2020, here with slices in place of one message a pair.)
Schedule spread(const ScheduleRequest& request);

}  // namespace tutti
