// Any algorithm inside hosts with any algorithm between them.
#pragma once

#include <string_view>
#include <vector>

#include "algorithms/layout.h"

namespace tutti {

/// AllReduce, Broadcast and Reduce over hosts of any sizes, made of two algorithms. The vector is cut for
/// *rails*; for each of them one rank of every host is the worker (of the root's host: the root), and
///
///   AllReduce = `intra` Reduce to the worker, `inter` AllReduce among workers, `intra` Broadcast from the
///   worker Broadcast = `inter` Broadcast among workers, `intra` Broadcast from the worker Reduce    =
///   `intra` Reduce to the worker, `inter` Reduce among workers
///
/// each on a lane of its own. request.intra names an algorithm with Reduce and Broadcast by messages, or
/// "direct": where a host's buffers are mapped (request.mapped) its worker adds up the inputs where they lie
/// and stores into all outputs; elsewhere it is binomial. request.inter names one by messages. Both see the
/// ranks in the order of request.hosts. Rounds: the sum of the phases'; bytes: each rail's share of theirs. A
/// rank that works for no rail of its host's takes part in the phases inside it alone. (As HAN in Luo et al.,
/// CLUSTER 2020, with rails for its segments.)
Schedule twoLevel(const ScheduleRequest& request);

/// What may stand for the two.
std::vector<std::string_view> intraAlgorithms();
std::vector<std::string_view> interAlgorithms(Collective collective);

/// How many rails twoLevel() makes on each channel.
int32_t twoLevelRails(const ScheduleRequest& request);

}  // namespace tutti
