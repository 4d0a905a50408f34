// Sleeping and waking across processes: an event count in shared memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "base/unique_fd.h"

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
///
/// A waiter who waits for sockets too sleeps in poll() instead (sleepPolling()). A futex does not end that,
/// so the bell has a line: the abstract name of a datagram socket of the waiter, to which the waker sends a
/// byte. Only the waiter reads that socket, and it polls the socket itself: poll() looks at its descriptors
/// once more after something has ended its sleep, and sleeps on when another thread has read the byte.
struct alignas(64) Doorbell {
  static constexpr size_t kLineBytes = 40;

  std::atomic<uint32_t> sequence{0};
  std::atomic<uint32_t> sleepers{0};  // announced: from prepare() to finish()
  std::atomic<uint32_t> inFutex{0};
  std::atomic<uint32_t> inPoll{0};
  char line[kLineBytes] = {};  // written once, before inPoll is raised for the first time

  /// Announces a sleeper; gives the ticket for sleep(). Look at the counters once more after it.
  uint32_t prepare();
  void finish();
  /// Sleeps until the next ring after `ticket` or for limitMicros. May return early.
  void sleep(uint32_t ticket, uint32_t limitMicros);
  /// As sleep(), and until `descriptor` is readable (-1: none). `ownLine` is the socket of openLine(); it is
  /// read empty here and must be read nowhere else. Others may read `descriptor` meanwhile, when they ring
  /// after that.
  void sleepPolling(uint32_t ticket, uint32_t limitMicros, int ownLine, int descriptor);
  /// A socket, non-blocking, that wakers from now on send to; for sleepPolling(). Once in a bell's life.
  /// Wakers must be in the same network namespace. Whoever is on this host can send to it too, which wakes
  /// the waiter in vain and nothing else.
  Result<UniqueFd> openLine();

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
  void sendOnLine() const;
};
static_assert(sizeof(Doorbell) == 64);

}  // namespace tutti
