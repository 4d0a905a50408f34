// Several tasks of one group on one stream: ranks of a communicator, or of several.
#pragma once

#include <cstddef>
#include <vector>

#include "base/host_runtime.h"
#include "core/rank_task.h"

namespace tutti {

/// Bytes that a task moves before the next one has a turn, so that the ranks of a group stay in step.
constexpr size_t kBytesPerTurn = 256 * 1024;

/// Gives each task that may run a turn. Those that end are completed, handed to `onEnd` and dropped from the
/// list. `taskOf` gives the task of an element. True when anything moved.
template <typename Element, typename TaskOf, typename MayRun, typename OnEnd>
bool advanceSideBySide(std::vector<Element>& running, TaskOf taskOf, MayRun mayRun, OnEnd onEnd) {
  bool progressed = false;
  for (size_t i = 0; i < running.size();) {
    RankTask& task = taskOf(running[i]);
    if (!mayRun(task)) {
      ++i;
      continue;
    }
    const RankTask::State state = task.advance(kBytesPerTurn);
    progressed = progressed || state != RankTask::State::waiting;
    if (state == RankTask::State::done || state == RankTask::State::failed) {
      task.complete();
      onEnd(running[i]);
      running[i] = running.back();
      running.pop_back();
    } else {
      ++i;
    }
  }
  return progressed;
}

/// True for tasks of one launch that were given the same stream. One behind the other in its queue they could
/// wait for each other for ever: ranks of one communicator, and also communicators that ranks of other
/// processes name in another order.
bool shareStream(const RankTask& a, const RankTask& b);

/// Work for that stream that runs all the tasks side by side. Each must have one holder, which the work
/// gives up at its end. Allocates; so does a group with several tasks on one stream.
tuttiStreamTask sharedWork(std::vector<RankTask*> tasks);

/// One holder less; the last one gives the task back.
void releaseHolder(RankTask* task);

}  // namespace tutti
