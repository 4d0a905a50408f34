// The threads of one process: a barrier that an error can break.
#pragma once

#include <atomic>
#include <thread>

namespace tutti::perf {

/// Threads meet here. Spins and yields before it sleeps, so that threads leave it close together.
class ThreadBarrier {
 public:
  explicit ThreadBarrier(int threads) : threads_(threads) {}

  /// False when the barrier was broken, before or while waiting. `asleep`: for threads that have long to wait
  /// and must not disturb what others measure meanwhile.
  bool wait(bool asleep = false) {
    const unsigned phase = phase_.load(std::memory_order_acquire);
    if (broken_.load(std::memory_order_acquire)) return false;
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
      arrived_.store(0, std::memory_order_relaxed);
      phase_.fetch_add(1, std::memory_order_release);
      phase_.notify_all();
      return !broken_.load(std::memory_order_acquire);
    }
    for (int spin = 0; phase_.load(std::memory_order_acquire) == phase; ++spin) {
      if (spin < kYields && !asleep)
        std::this_thread::yield();
      else
        phase_.wait(phase, std::memory_order_acquire);
    }
    return !broken_.load(std::memory_order_acquire);
  }

  /// Lets everybody go, now and later, with false. Any thread may call it.
  void breakUp() {
    broken_.store(true, std::memory_order_release);
    phase_.fetch_add(1, std::memory_order_release);
    phase_.notify_all();
  }

 private:
  static constexpr int kYields = 2000;

  const int threads_;
  std::atomic<int> arrived_{0};
  std::atomic<unsigned> phase_{0};
  std::atomic<bool> broken_{false};
};

}  // namespace tutti::perf
