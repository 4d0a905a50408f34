// Direct algorithms: every rank works on the memory of all others. For ranks of one host.
#pragma once

#include "algorithms/layout.h"

namespace tutti {

/// One-shot: every rank lays its input into its own shared scratch, and everyone takes what it needs from
/// there. All collectives. p ranks, n bytes of the whole vector; one round of signals; every result is
/// reduced in the order of the ranks, so all are bitwise equal.
///
///                  copied into scratch, a rank   read from scratches, a rank
///   AllReduce      n                             p n
///   ReduceScatter  n                             n
///   AllGather      n/p                           n
///   Broadcast      n (the root)                  n (not the root)
///   Reduce         n                             p n (the root)
///   AllToAll       n                             n (p-1)/p
///   Gather         n/p (not the root)            n (p-1)/p (the root)
///   Scatter        n (the root)                  n/p (not the root)
///
/// There is no barrier at the end: halves alternate, and the signals of one run are the barrier that the run
/// after the next needs (Buffer::scratch). The idea of exchanging through two alternating buffers with one
/// synchronisation is that of the shared-memory AllReduce in DeepSpeed (symmetric_naive_all_reduce).
Schedule oneShot(const ScheduleRequest& request);

/// Two-shot AllReduce through scratch: ReduceScatter, then AllGather (Rabenseifner's split, Thakur et al.
/// 2005 section 4.5, with direct access in place of the exchanges). A rank copies n into scratch, reads n to
/// reduce its part and n to gather: (p - 1) n / p less than one-shot for each rank, for a second round of
/// signals.
Schedule twoShot(const ScheduleRequest& request);

/// Zero-copy over the users' buffers, which all ranks must have mapped: entry barrier, each rank moves its
/// share straight between user buffers, exit barrier. Memory traffic of the whole host (loads and stores):
/// AllReduce 2 p n (the lower bound: each input read once, each output written once), ReduceScatter (p+1) n,
/// AllGather and AllToAll 2 p n, Broadcast 2 (p-1) n + the root's own copy, Reduce (p+1) n, Gather and
/// Scatter 2 n. Reduced in the order of the ranks by one rank for all, so results are bitwise equal. AllToAll
/// only out of place: in place a rank would overwrite what others have yet to read.
Schedule direct(const ScheduleRequest& request);

}  // namespace tutti
