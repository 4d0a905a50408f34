// AllReduce over several hosts that sends each byte between hosts as seldom as possible.
#pragma once

#include "algorithms/layout.h"

namespace tutti {

/// A ring over hosts instead of ranks: 2 (h - 1) rounds, and 2 (h - 1) / h vectors through each host's link,
/// where a ring of all p ranks needs 2 (p - 1) rounds and sends 2 (p - 1) / p vectors. (Two levels, as in Jia
/// et al. 2018, "Highly Scalable Deep Learning Training System", section 4.2, with the inner levels folded
/// into the ring's own steps.)
///
/// The vector is cut for several *rails*, each a ring of its own in which one rank of every host, the rail's
/// worker, reduces and forwards for its host. Hosts may have different numbers of ranks: a rank then works
/// for several rails.
///
///     host 0        host 1        host 2
///   [ 0 ]---rail 0--[ 2 ]---------[ 4 ]--.       ranks 0, 2, 4: workers of rail 0
///   [ 1 ]---rail 1--[ 3 ]---------[ 4 ]--.       ranks 1, 3 and again 4, alone on its host: of rail 1
///
/// Inside a host there are two ways, and each host chooses for itself: what travels between hosts is the
/// same.
///   request.mapped  the worker reads the inputs of all its host's ranks where they lie and stores results
///   into
///                   all their outputs. One pass over memory does it all: message + inputs -> message.
///   else            the others send their inputs to the worker and get results back, as messages.
/// Order of the sum: hosts along the ring, and on each the worker before the others.
///
/// Hosts: request.hosts; without any, each rank is a host of its own, and this is a plain ring.
Schedule hierarchical(const ScheduleRequest& request);

/// How many rails there are: as many as the largest host has ranks, but at most kMostRailsPerRank for a rank
/// of the smallest.
int32_t railCount(const std::vector<std::vector<int32_t>>& hosts);
constexpr int32_t kMostRailsPerRank = 3;

}  // namespace tutti
