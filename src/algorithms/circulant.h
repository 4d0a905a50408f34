// Algorithms on circulant graphs: optimal in rounds and in volume for any number of ranks.
#pragma once

#include <vector>

#include "algorithms/layout.h"

namespace tutti {

/// The distances of the circulant graph for p ranks: d[q] = p, d[k] = ceil(d[k+1] / 2), down to d[0] = 1,
/// with q = ceil(log2 p). Powers of two where p is one.
std::vector<int32_t> circulantDistances(int32_t ranks);

/// ReduceScatter, AllGather and AllReduce (Traeff, "Optimal, non-pipelined reduce-scatter and allreduce
/// algorithms", arXiv 2410.14234), n bytes of the whole vector, p ranks, q = ceil(log2 p):
///
///                  rounds   bytes sent by a rank     order of the reduction
///   ReduceScatter  q        n (p-1)/p                block b: a tree rooted at the rank of b, depth <= q
///   AllGather      q        n (p-1)/p                -
///   AllReduce      2q       2 n (p-1)/p              the same; each part at its rank's position
///
/// Both are the lower bounds. Operators must be commutative. ReduceScatter and AllGather know only the order
/// of the ranks, AllReduce any layout. Broadcast and Reduce: see circulantPipeline(). Works with a FIFO of 1
/// slot.
Schedule circulant(const ScheduleRequest& request);

/// What rank `rank` (counted from the root) receives in a pipelined broadcast over the circulant graph: in
/// round k of each phase of q rounds, block number result[k], plus q for each phase. Negative numbers are
/// blocks of the phase before. (Traeff, "Round-optimal n-block broadcast schedules in logarithmic time",
/// arXiv 2312.11236, section 2: the conditions; the rule used here is in circulant_pipeline.cc.) The root
/// receives nothing: its result is of no use.
std::vector<int32_t> circulantReceives(const std::vector<int32_t>& distances, int32_t rank);

/// Broadcast and Reduce in `blocks` blocks that follow each other (Traeff, "Optimal broadcast schedules in
/// logarithmic time", arXiv 2407.18004; Reduce is Broadcast backwards). b blocks, q = ceil(log2 p):
/// b - 1 + q rounds (the lower bound for b blocks), a rank sends n and receives n at most but for the root of
/// Broadcast, which sends n (b-1+q)/b. Known layouts: any. A Reduce keeps partial sums in b segments of
/// scratch.
Schedule circulantPipeline(const ScheduleRequest& request);

}  // namespace tutti
