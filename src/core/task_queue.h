// The order in which a communicator's tasks run, and the pool that they come from.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/deadline.h"
#include "base/fault_state.h"
#include "base/status.h"
#include "core/rank_task.h"

namespace tutti {

/// Thread-safe. Tickets are 1, 2, 3, ...; the task whose ticket is one more than the number of finished tasks
/// has its turn.
class TaskQueue {
 public:
  explicit TaskQueue(Communicator& communicator);
  ~TaskQueue();

  /// A task for these operations, with the next ticket.
  RankTask* acquire(std::span<const Operation> operations);
  void recycle(RankTask* task);

  bool hasTurn(const RankTask& task) const {
    return task.ticket() == finished_.load(std::memory_order_acquire) + 1 &&
           task.streamsToArrive.load(std::memory_order_acquire) == 0;
  }
  /// As hasTurn(); after a fault tasks still end in order, but no longer wait for other streams to arrive.
  bool mayRun(const RankTask& task) const;
  /// Blocks until hasTurn(); also when the communicator failed, since earlier tasks then end quickly.
  Status waitForTurn(const RankTask& task, const FaultState& faults);
  void finish(const RankTask& task);
  /// For whoever changed streamsToArrive.
  void wakeWaiters();

  /// For tasks that cannot end yet: the communicator (the owner of this object) is kept until the last of
  /// them has been recycled, and deleted then.
  void abandon(std::unique_ptr<Communicator> communicator);

  /// A task has been made that has not ended.
  bool busy() const {
    return finished_.load(std::memory_order_acquire) != tickets_.load(std::memory_order_acquire);
  }
  /// For other work on streams that uses the communicator: it counts as a task that has no turn. release() is
  /// the last that such work does.
  void retain() { issued_.fetch_add(1, std::memory_order_acq_rel); }
  void release();

  /// Waits until every task so far has ended and nobody refers to it any more: then the communicator may go.
  Status drain(Deadline deadline);

 private:
  void awaitLastTouches(uint64_t without) const;

  Communicator& communicator_;
  std::mutex mutex_;  // guards the pool and abandoned_
  std::vector<std::unique_ptr<RankTask>> all_;
  std::vector<RankTask*> free_;
  std::unique_ptr<Communicator> abandoned_;  // it owns itself through this, until recycle() lets go
  uint64_t returned_ = 0;                    // tasks that recycle() has put back
  std::atomic<uint64_t> tickets_{0};
  std::atomic<uint64_t> issued_{0};  // tasks, and what retain() counts
  std::atomic<uint64_t> finished_{0};
  std::atomic<uint64_t> recycled_{0};
  std::atomic<uint32_t> changes_{0};  // bumped and notified whenever a turn may have come
};

}  // namespace tutti
