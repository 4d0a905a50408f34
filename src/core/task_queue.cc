#include "core/task_queue.h"

#include <algorithm>
#include <thread>

#include "core/communicator.h"

namespace tutti {

TaskQueue::TaskQueue(Communicator& communicator) : communicator_(communicator) {}
TaskQueue::~TaskQueue() = default;

RankTask* TaskQueue::acquire(std::span<const Operation> operations) {
  const auto collectives =
      static_cast<uint64_t>(std::count_if(operations.begin(), operations.end(), [](const auto& one) {
        return one.kind == Operation::Kind::collective;
      }));
  RankTask* task = nullptr;
  uint64_t ticket = 0;
  uint64_t firstCollective = 0;
  {
    // Held for a few instructions, and contended only when a worker recycles a task at the same moment.
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      all_.push_back(std::make_unique<RankTask>(communicator_));
      free_.reserve(all_.capacity());  // so that recycle() needs no memory
      task = all_.back().get();
    } else {
      task = free_.back();
      free_.pop_back();
    }
    firstCollective = communicator_.monitor().progress.called(collectives, operations.size() - collectives);
    ticket = tickets_.fetch_add(1, std::memory_order_acq_rel) + 1;
    issued_.fetch_add(1, std::memory_order_acq_rel);
  }
  task->assign(ticket, firstCollective, operations);
  return task;
}

void TaskQueue::recycle(RankTask* task) {
  {
    const std::lock_guard lock(mutex_);
    free_.push_back(task);
  }
  release();
}

void TaskQueue::release() {
  std::unique_ptr<Communicator> last;
  {
    const std::lock_guard lock(mutex_);
    ++returned_;
    if (abandoned_ != nullptr && returned_ == issued_.load(std::memory_order_acquire))
      last = std::move(abandoned_);
  }
  if (last == nullptr) {
    // release, and the last touch: whoever sees the count in drain() may destroy this object.
    recycled_.fetch_add(1, std::memory_order_release);
    return;
  }
  awaitLastTouches(1);
  last.reset();  // and this object with it
}

/// Every task has been returned; those who did it leave in a moment.
void TaskQueue::awaitLastTouches(uint64_t without) const {
  while (recycled_.load(std::memory_order_acquire) + without != issued_.load(std::memory_order_acquire))
    std::this_thread::yield();
}

void TaskQueue::abandon(std::unique_ptr<Communicator> communicator) {
  {
    const std::lock_guard lock(mutex_);
    if (returned_ != issued_.load(std::memory_order_acquire)) {
      abandoned_ = std::move(communicator);
      return;
    }
  }
  awaitLastTouches(0);
}

bool TaskQueue::mayRun(const RankTask& task) const {
  if (task.ticket() != finished_.load(std::memory_order_acquire) + 1) return false;
  return hasTurn(task) || communicator_.faults().stopped();
}

Status TaskQueue::waitForTurn(const RankTask& task, const FaultState& faults) {
  while (true) {
    const uint32_t seen = changes_.load(std::memory_order_acquire);
    const bool othersDone = task.ticket() == finished_.load(std::memory_order_acquire) + 1;
    // After a fault the tasks still end in order, but no longer wait for other streams to arrive.
    if (othersDone && faults.stopped()) return faults.error();
    if (hasTurn(task)) return Status::ok();
    changes_.wait(seen, std::memory_order_acquire);
  }
}

void TaskQueue::finish(const RankTask& task) {
  finished_.store(task.ticket(), std::memory_order_release);
  wakeWaiters();
}

void TaskQueue::wakeWaiters() {
  changes_.fetch_add(1, std::memory_order_release);
  changes_.notify_all();
}

Status TaskQueue::drain(Deadline deadline) {
  // Polling: only at teardown, and the last task may need a peer for as long as the deadline allows.
  while (recycled_.load(std::memory_order_acquire) != issued_.load(std::memory_order_acquire)) {
    if (deadline.passed()) return systemError(ETIMEDOUT, "wait for the operations that are still running");
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return Status::ok();
}

}  // namespace tutti
