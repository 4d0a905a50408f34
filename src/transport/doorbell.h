// Sleeping and waking across processes: an event count in shared memory.
#pragma once

#include <atomic>
#include <cstdint>

namespace tutti {

/// One for each rank of a communicator, in memory that everyone who may wake the rank can write. The waker's
/// side costs a fence and a load when nobody sleeps.
///
///   waiter                                   waker
///   ticket = prepare()      (sleepers += 1)  change the counter (store)
///   look again at the counters               ring(): fence; if sleepers: sequence += 1, futex wake
///   nothing: sleep(ticket, limit)
///   finish()                (sleepers -= 1)
///
/// The waiter's increment and the waker's fence are sequentially consistent, so either the waiter sees the
/// change when it looks again or the waker sees the sleeper. A process that is killed while it sleeps leaves
/// `sleepers` too high, which costs the others a system call per ring and nothing else.
struct alignas(64) Doorbell {
  std::atomic<uint32_t> sequence{0};
  std::atomic<uint32_t> sleepers{0};

  /// Announces a sleeper; gives the ticket for sleep(). Look at the counters once more after it.
  uint32_t prepare();
  void finish();
  /// Sleeps until the next ring after `ticket` or for limitMicros. May return early.
  void sleep(uint32_t ticket, uint32_t limitMicros);
  void ring() {
#if defined(__SANITIZE_THREAD__)
    // The thread sanitizer does not model fences. A read-modify-write orders the same two accesses, but takes
    // the cache line away from its readers, so it is for the sanitizer only.
    if (sleepers.fetch_add(0, std::memory_order_seq_cst) != 0) wake();
#else
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_relaxed) != 0) wake();
#endif
  }

  /// For many bells at once: change all counters, call fenceBeforeRinging() once, then ringFenced() of each.
  static void fenceBeforeRinging() {
#if !defined(__SANITIZE_THREAD__)
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
  }
  void ringFenced() {
#if defined(__SANITIZE_THREAD__)
    ring();
#else
    if (sleepers.load(std::memory_order_relaxed) != 0) wake();
#endif
  }

 private:
  void wake();
};

}  // namespace tutti
