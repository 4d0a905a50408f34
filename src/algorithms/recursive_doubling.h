// Recursive doubling.
#pragma once

#include "algorithms/layout.h"

namespace tutti {

/// AllReduce for short vectors; AllGather (doubling) and ReduceScatter (halving) where p is a power of two
/// (Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", IJHPCA
/// 2005, sections 4.1, 4.2 and 4.5). p ranks, L = floor(log2 p), n bytes of the whole vector:
///
///                  rounds                               bytes sent by a rank   order of the reduction
///   AllReduce      L; <= L + 2 if p is no power of two  L n; + n               by position, balanced
///   AllGather      log2 p                               n (p-1)/p (the bound)  -
///   ReduceScatter  log2 p                               n (p-1)/p (the bound)  each block at its rank, depth
///   log2 p
///
/// Where p is no power of two, the first 2(p - 2^L) positions fold in pairs: the odd one hands its vector to
/// the even one and gets the result from it. Both ends of an exchange compute (lower position (+) higher
/// position), so results are bitwise equal on all ranks. Works with a FIFO of 1 slot.
Schedule recursiveDoubling(const ScheduleRequest& request);

}  // namespace tutti
