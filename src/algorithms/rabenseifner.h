// Recursive halving, then doubling.
#pragma once

#include "algorithms/layout.h"

namespace tutti {

/// AllReduce as ReduceScatter by recursive halving and AllGather by recursive doubling (Rabenseifner,
/// "Optimization of collective reduction operations", ICCS 2004; Thakur, Rabenseifner and Gropp, IJHPCA 2005,
/// section 4.5). p ranks, L = floor(log2 p), c = 2^L, n bytes of the whole vector:
///
///                      rounds          bytes sent by the busiest rank   order of the reduction
///   p a power of two   2L              2 n (c-1)/c (the bound)          each part at its position, depth L
///   other p            2L + 2          2 n (c-1)/c + n                  the same; folded pairs first
///
/// Where p is no power of two, the first 2(p - c) positions fold in pairs: the odd one hands its vector to
/// the even one and gets the result from it. That doubles the volume; the circulant form has no such price.
/// Any layout. Works with a FIFO of 1 slot.
Schedule rabenseifner(const ScheduleRequest& request);

}  // namespace tutti
