#include "core/launcher.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <vector>

#include "base/params.h"
#include "base/thread_object.h"
#include "core/communicator.h"
#include "core/device_scope.h"
#include "core/shared_stream.h"
#include "device/host_table.h"

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;

void runTask(void* context) { static_cast<RankTask*>(context)->runToEnd(); }
void releaseTask(void* context) { releaseHolder(static_cast<RankTask*>(context)); }
tuttiStreamTask mainWork(RankTask* task) { return {runTask, releaseTask, task}; }

/// On each further stream of the task: everything before it on that stream is done, so it has arrived; what
/// comes after it waits for the task.
void arriveAndWait(void* context) {
  auto* task = static_cast<RankTask*>(context);
  task->streamsToArrive.fetch_sub(1, std::memory_order_acq_rel);
  task->communicator().tasks().wakeWaiters();
  task->finished.wait(0, std::memory_order_acquire);
}

/// The device of the task's default streams; none when it has no such stream.
std::optional<DeviceScope> deviceFor(const tuttiHostRuntime_v1& runtime, const RankTask& task) {
  if (task.stream() != nullptr && task.otherStreams().empty()) return std::nullopt;
  return std::optional<DeviceScope>(std::in_place, runtime, task.communicator().device());
}

/// A stream that this thread occupies, and how many of its tasks have not ended.
struct Occupied {
  void* occupation;
  size_t tasks;
};

struct Inline {
  RankTask* task;
  size_t stream;  // in InlineTasks::streams
};

/// Kept between calls so that launching allocates nothing.
struct InlineTasks {
  std::vector<Inline> list;
  std::vector<Occupied> streams;

  void clear() {
    list.clear();
    streams.clear();
  }
};

bool hasTurn(const RankTask& task) { return task.communicator().tasks().hasTurn(task); }

/// Advances the tasks that this thread holds; ends those that are done. True when anything moved.
bool advanceInline(const tuttiHostRuntime_v1& runtime, InlineTasks& tasks) {
  return advanceSideBySide(
      tasks.list, [](const Inline& one) -> RankTask& { return *one.task; }, hasTurn,
      [&](const Inline& one) {
        Occupied& stream = tasks.streams[one.stream];
        if (--stream.tasks == 0) runtime.streamEnd(stream.occupation);
        releaseHolder(one.task);
      });
}

/// A task whose turn it is: only then may this thread work with its communicator's executor. Null when there
/// is none.
RankTask* taskWithTurn(const std::vector<Inline>& tasks) {
  const auto found =
      std::find_if(tasks.begin(), tasks.end(), [](const Inline& one) { return hasTurn(*one.task); });
  return found == tasks.end() ? nullptr : found->task;
}

void spinInline(const tuttiHostRuntime_v1& runtime, InlineTasks& tasks) {
  const auto end = Clock::now() + std::chrono::microseconds(params().spinMicros());
  auto lastProgress = Clock::now();
  while (!tasks.list.empty()) {
    const bool progressed = advanceInline(runtime, tasks);
    const auto now = Clock::now();
    if (progressed) lastProgress = now;
    if (now >= end) break;
    RankTask* task = progressed ? nullptr : taskWithTurn(tasks.list);
    if (task == nullptr) continue;
    // As the executor's own waiting: where ranks outnumber cores, a peer may need this core to make the
    // progress that we wait for.
    HostExecutor& executor = task->communicator().executor();
    if (now - lastProgress >= executor.options().wait.spin) executor.yieldCore();
  }
}

/// Makes the task's further streams arrive, and wait for its end.
Status placeArrivals(const tuttiHostRuntime_v1& runtime, RankTask* task) {
  task->streamsToArrive.store(static_cast<uint32_t>(task->otherStreams().size()), std::memory_order_relaxed);
  task->holders.store(1, std::memory_order_relaxed);
  for (cudaStream_t stream : task->otherStreams()) {
    task->holders.fetch_add(1, std::memory_order_relaxed);
    if (const int error = runtime.streamEnqueue(stream, {arriveAndWait, releaseTask, task}); error != 0) {
      task->holders.fetch_sub(1, std::memory_order_relaxed);
      return systemError(error, "enqueue on stream {}", static_cast<const void*>(stream));
    }
  }
  return Status::ok();
}

/// Puts the task on its streams: in `inlineTasks` when its stream is idle, else in the stream's queue.
Status place(const tuttiHostRuntime_v1& runtime, RankTask* task, InlineTasks& inlineTasks) {
  const auto device = deviceFor(runtime, *task);
  TUTTI_TRY(placeArrivals(runtime, task));
  void* occupation = nullptr;
  if (runtime.streamTryBegin(task->stream(), &occupation) == 0) {
    inlineTasks.list.push_back({task, inlineTasks.streams.size()});
    inlineTasks.streams.push_back({occupation, 1});
  } else if (const int error = runtime.streamEnqueue(task->stream(), mainWork(task)); error != 0) {
    return systemError(error, "enqueue on stream {}", static_cast<const void*>(task->stream()));
  }
  return Status::ok();
}

/// The other ranks may have started already: a rank that cannot join in makes the communicator unusable. The
/// task still has to end, in its turn, so that what was enqueued before and after it ends.
void giveUp(RankTask* task, const Status& why) {
  task->communicator().fail(why);
  task->runToEnd();
  releaseHolder(task);
}

/// Tasks that share a stream (see shareStream): in `inlineTasks` when it is idle, else one piece of work in
/// its queue.
Status placeShared(const tuttiHostRuntime_v1& runtime, const std::vector<RankTask*>& tasks,
                   InlineTasks& inlineTasks) {
  const auto device = deviceFor(runtime, *tasks.front());
  Status status;
  for (RankTask* task : tasks) {
    if (Status arrivals = placeArrivals(runtime, task); !arrivals.isOk()) status = std::move(arrivals);
  }
  if (void* occupation = nullptr;
      status.isOk() && runtime.streamTryBegin(tasks.front()->stream(), &occupation) == 0) {
    for (RankTask* task : tasks) inlineTasks.list.push_back({task, inlineTasks.streams.size()});
    inlineTasks.streams.push_back({occupation, tasks.size()});
    return status;
  }
  if (status.isOk()) {
    const tuttiStreamTask work = sharedWork(tasks);
    const int error = runtime.streamEnqueue(tasks.front()->stream(), work);
    if (error == 0) return status;
    status = systemError(error, "enqueue on stream {}", static_cast<const void*>(tasks.front()->stream()));
    for (RankTask* task : tasks) task->communicator().fail(status);
    work.run(work.context);
    work.release(work.context);
    return status;
  }
  for (RankTask* task : tasks) giveUp(task, status);
  return status;
}

/// Takes the tasks that share the stream of tasks[first] out of the list (they become null) when there are
/// any besides itself.
std::vector<RankTask*> takeSharing(std::span<RankTask*> tasks, size_t first) {
  std::vector<RankTask*> sharing;
  for (size_t i = first + 1; i < tasks.size(); ++i) {
    if (tasks[i] == nullptr || !shareStream(*tasks[first], *tasks[i])) continue;
    if (sharing.empty()) sharing.push_back(tasks[first]);
    sharing.push_back(std::exchange(tasks[i], nullptr));
  }
  return sharing;
}

/// What this thread has not ended goes to the streams' workers.
void handOff(const tuttiHostRuntime_v1& runtime, const InlineTasks& tasks) {
  for (const Inline& rest : tasks.list)
    if (hasTurn(*rest.task)) rest.task->communicator().executor().returnConnections();
  for (size_t i = 0; i < tasks.streams.size(); ++i) {
    const Occupied& stream = tasks.streams[i];
    if (stream.tasks == 0) continue;
    if (stream.tasks == 1) {
      const auto one = std::ranges::find(tasks.list, i, &Inline::stream);
      runtime.streamHandOff(stream.occupation, mainWork(one->task));
      continue;
    }
    std::vector<RankTask*> together;
    for (const Inline& rest : tasks.list)
      if (rest.stream == i) together.push_back(rest.task);
    runtime.streamHandOff(stream.occupation, sharedWork(std::move(together)));
  }
}

}  // namespace

tuttiStreamTask replayTask(RankTask* task) {
  task->streamsToArrive.store(0, std::memory_order_relaxed);
  task->holders.store(1, std::memory_order_relaxed);
  return mainWork(task);
}

Status launchTasks(std::span<RankTask*> tasks) {
  TUTTI_ASSIGN(const tuttiHostRuntime_v1* runtime, hostTable());
  InlineTasks& inlineTasks = threadObject<InlineTasks>();
  inlineTasks.clear();
  Status status;
  for (size_t i = 0; i < tasks.size(); ++i) {
    RankTask* const task = tasks[i];
    if (task == nullptr) continue;
    if (const std::vector<RankTask*> sharing = takeSharing(tasks, i); !sharing.empty()) {
      if (Status placed = placeShared(*runtime, sharing, inlineTasks); !placed.isOk())
        status = std::move(placed);
      continue;
    }
    const Status placed = place(*runtime, task, inlineTasks);
    if (placed.isOk()) continue;
    giveUp(task, placed);
    status = placed;
  }
  spinInline(*runtime, inlineTasks);
  handOff(*runtime, inlineTasks);
  return status;
}

}  // namespace tutti
