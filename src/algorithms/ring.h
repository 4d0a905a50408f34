// Ring and chain algorithms.
#pragma once

#include "algorithms/layout.h"

namespace tutti {

/// Ring AllReduce, AllGather and ReduceScatter (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms
/// for clusters of workstations", JPDC 2009, section 4); chains for Broadcast and Reduce, pipelined by
/// slices. n = bytes of the whole vector (all blocks), p ranks:
///
///                  rounds        bytes sent by a rank   order of the reduction
///   AllReduce      2(p - 1)      2 n (p-1)/p            segment s: from position s+1 round the ring to s
///   ReduceScatter  p - 1         n (p-1)/p              block at position s: the same
///   AllGather      p - 1         n (p-1)/p              -
///   Broadcast      p - 1         n (not the last)       -
///   Reduce         p - 1         n (not the root)       from the position after the root round to the root
///
/// The first three meet the lower bound on volume for any p and load every link of the ring alike. Needs a
/// FIFO of 2 slots (1 slot: every rank waits for its successor to take what it sent before).
Schedule ring(const ScheduleRequest& request);

}  // namespace tutti
