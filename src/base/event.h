// Sleeping and waking inside a process, with time-outs on the monotonic clock.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tutti {

/// An event count. The waiter takes a ticket, looks at its condition (under the mutex that guards it), and
/// sleeps until notify() is called after the ticket was taken:
///
///   for (;;) {
///     const uint32_t ticket = event.ticket();
///     if (condition()) break;
///     event.wait(ticket, 20ms);   // may return early
///   }
///
/// Used in place of std::condition_variable because waits here are short slices between looks at an abort
/// flag, and because nothing has to be locked by the notifier.
class Event {
 public:
  uint32_t ticket() const { return sequence_.load(std::memory_order_acquire); }
  void notify();
  void wait(uint32_t ticket, std::chrono::microseconds limit);

 private:
  std::atomic<uint32_t> sequence_{0};
};

}  // namespace tutti
