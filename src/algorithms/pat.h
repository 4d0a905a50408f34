// Parallel aggregated trees.
#pragma once

#include "algorithms/layout.h"

namespace tutti {

/// AllGather and ReduceScatter by parallel aggregated trees (Jeaugey, "PAT: a new algorithm for all-gather
/// and reduce-scatter operations at scale", arXiv 2506.20252). Every block has a binomial tree of its own;
/// all trees are alike but for where they stand, and their messages over the same distance travel together,
/// up to A blocks (ScheduleRequest::blocks, rounded down to a power of two, at least 2; else 32). Far hops
/// carry few blocks. Any p, q = ceil(log2 p), n bytes of all blocks:
///
///                  rounds                          bytes sent by a rank   scratch (ReduceScatter)
///   p <= 2A        q                               n (p-1)/p              <= A blocks
///   p > 2A         about (p/2A)(log2 A + 2)        n (p-1)/p              A + log2(p/2A) + 1 blocks
///
/// The volume is the lower bound. Reduction: a binomial tree rooted at the block's rank, depth <= q +
/// log2(p/2A). Knows only the ranks' own order. Works with a FIFO of 1 slot.
Schedule pat(const ScheduleRequest& request);

}  // namespace tutti
