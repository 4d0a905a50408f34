#include "core/shared_stream.h"

#include <chrono>
#include <thread>

#include "core/communicator.h"

namespace tutti {
namespace {

constexpr size_t kBytesPerTurn = 256 * 1024;

struct SharedWork {
  std::vector<RankTask*> tasks;
};

/// Advances the tasks whose turn it is and drops those that have ended. True when anything moved.
bool advanceAll(std::vector<RankTask*>& running) {
  bool progressed = false;
  for (size_t i = 0; i < running.size();) {
    RankTask* task = running[i];
    if (!task->communicator().tasks().mayRun(*task)) {
      ++i;
      continue;
    }
    const HostRun::State state = task->advance(kBytesPerTurn);
    progressed = progressed || state != HostRun::State::waiting;
    if (state == HostRun::State::done || state == HostRun::State::failed) {
      task->complete();
      running[i] = running.back();
      running.pop_back();
    } else {
      ++i;
    }
  }
  return progressed;
}

void run(void* context) {
  std::vector<RankTask*> running = static_cast<SharedWork*>(context)->tasks;
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
  const Communicator& first = a.communicator();
  const Communicator& second = b.communicator();
  // A null stream is that of the communicator's device.
  return first.session() == second.session() && (a.stream() != nullptr || first.device() == second.device());
}

tuttiStreamTask sharedWork(std::vector<RankTask*> tasks) {
  return {run, release, new SharedWork{std::move(tasks)}};
}

}  // namespace tutti
