#include "base/event.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace tutti {

void Event::notify() {
  sequence_.fetch_add(1, std::memory_order_acq_rel);
  ::syscall(SYS_futex, &sequence_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void Event::wait(uint32_t ticket, std::chrono::microseconds limit) {
  if (limit.count() <= 0 || sequence_.load(std::memory_order_acquire) != ticket) return;
  timespec timeout{};
  timeout.tv_sec = static_cast<time_t>(limit.count() / 1000000);
  timeout.tv_nsec = static_cast<long>(limit.count() % 1000000) * 1000;
  ::syscall(SYS_futex, &sequence_, FUTEX_WAIT_PRIVATE, ticket, &timeout, nullptr, 0);
}

}  // namespace tutti
