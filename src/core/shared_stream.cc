#include "core/shared_stream.h"

#include <chrono>
#include <thread>

#include "core/communicator.h"

namespace tutti {
namespace {

struct SharedWork {
  std::vector<RankTask*> tasks;
};

bool advanceAll(std::vector<RankTask*>& running) {
  return advanceSideBySide(
      running, [](RankTask* task) -> RankTask& { return *task; },
      [](const RankTask& task) { return task.communicator().tasks().mayRun(task); }, [](RankTask*) {});
}

void run(void* context) {
  std::vector<RankTask*> running = static_cast<SharedWork*>(context)->tasks;
  for (RankTask* task : running) task->communicator().monitor().arm();
  auto lastProgress = std::chrono::steady_clock::now();
  while (!running.empty()) {
    const auto now = std::chrono::steady_clock::now();
    if (advanceAll(running)) {
      lastProgress = now;
    } else if (now - lastProgress < std::chrono::microseconds(200)) {
      std::this_thread::yield();
    } else {
      // No sleep on a bell: each rank has its own, and any of them may move next.
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

void release(void* context) {
  auto* work = static_cast<SharedWork*>(context);
  const std::vector<RankTask*> tasks = std::move(work->tasks);
  delete work;
  for (RankTask* task : tasks) releaseHolder(task);
}

}  // namespace

void releaseHolder(RankTask* task) {
  if (task->holders.fetch_sub(1, std::memory_order_acq_rel) == 1) task->communicator().tasks().recycle(task);
}

bool shareStream(const RankTask& a, const RankTask& b) {
  if (a.stream() != b.stream()) return false;
  // A null stream is that of the communicator's device.
  return a.stream() != nullptr || a.communicator().device() == b.communicator().device();
}

tuttiStreamTask sharedWork(std::vector<RankTask*> tasks) {
  return {run, release, new SharedWork{std::move(tasks)}};
}

}  // namespace tutti
