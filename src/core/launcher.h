// From a group's operations to streams: who runs what, where.
#pragma once

#include <span>

#include "base/host_runtime.h"
#include "base/status.h"
#include "core/rank_task.h"

namespace tutti {

/// Enqueues the tasks on their streams. Tasks whose streams are idle are advanced by the calling thread, all
/// together, for a bounded time (TUTTI_SPIN_US), so that a small collective among the ranks of this group or
/// of ranks that are waiting already ends without a hand-off; what is unfinished then goes to the streams'
/// workers.
///
/// A task with several streams runs on the first one. On each other stream a small task arrives, then waits
/// for the end: the group is one synchronisation point for all its streams.
Status launchTasks(std::span<RankTask*> tasks);

/// A task that does not go on its streams by itself: the work that runs it, for a graph, which has its order
/// from the capture (all its streams have arrived where it stands).
tuttiStreamTask replayTask(RankTask* task);

}  // namespace tutti
