// Several ranks of one communicator on one stream.
#pragma once

#include <vector>

#include "base/host_runtime.h"
#include "core/rank_task.h"

namespace tutti {

/// True for tasks of one launch that are ranks of the same communicator and were given the same stream: one
/// behind the other in the stream's queue they would wait for each other for ever.
bool shareStream(const RankTask& a, const RankTask& b);

/// Work for that stream that runs all the tasks side by side. Each must have one holder, which the work
/// gives up at its end.
tuttiStreamTask sharedWork(std::vector<RankTask*> tasks);

/// One holder less; the last one gives the task back.
void releaseHolder(RankTask* task);

}  // namespace tutti
