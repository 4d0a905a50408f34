// How a thread waits for another one: spin a little, then let others run.
#pragma once

#include <sched.h>

#include <cstdint>

namespace tutti {

/// Tells the core that this is a spin loop (frees the sibling hyper-thread, saves power).
inline void cpuPause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

/// One object a wait. Call pause() between two looks at the condition: the first `spins` calls cost a few
/// cycles each, later ones give the core to whoever can run. Sleeping (doorbell, event) is the caller's
/// business: exhausted() says when spinning has stopped to make sense.
class Backoff {
 public:
  explicit Backoff(uint32_t spins = 64, uint32_t yields = 64) : spins_(spins), yields_(yields) {}

  void pause() {
    ++rounds_;
    if (rounds_ <= spins_) {
      cpuPause();
    } else {
      ::sched_yield();
    }
  }
  bool exhausted() const { return rounds_ >= spins_ + yields_; }
  void reset() { rounds_ = 0; }

 private:
  uint32_t spins_;
  uint32_t yields_;
  uint32_t rounds_ = 0;
};

}  // namespace tutti
