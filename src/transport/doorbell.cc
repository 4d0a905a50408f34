#include "transport/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace tutti {
namespace {

// Shared futexes (without FUTEX_PRIVATE_FLAG): the word lies in memory that several processes map.
long futex(std::atomic<uint32_t>* word, int operation, uint32_t value, const timespec* limit) {
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
  return ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), operation, value, limit, nullptr, 0);
}

}  // namespace

uint32_t Doorbell::prepare() {
  sleepers.fetch_add(1, std::memory_order_seq_cst);
#if !defined(__SANITIZE_THREAD__)
  std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with the fence in ring()
#endif
  return sequence.load(std::memory_order_acquire);
}

void Doorbell::finish() { sleepers.fetch_sub(1, std::memory_order_relaxed); }

void Doorbell::sleep(uint32_t ticket, uint32_t limitMicros) {
  const timespec limit{static_cast<time_t>(limitMicros / 1000000U),
                       static_cast<long>(limitMicros % 1000000U) * 1000L};
  // Every outcome (woken, value changed, time-out, signal) means "look again" to the caller.
  futex(&sequence, FUTEX_WAIT, ticket, &limit);
}

void Doorbell::wake() {
  sequence.fetch_add(1, std::memory_order_release);
  futex(&sequence, FUTEX_WAKE, INT_MAX, nullptr);
}

}  // namespace tutti
