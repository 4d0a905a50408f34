// Waiting for peers: finish() and advanceAll().
#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "executor/host/host_executor.h"

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kPollsPerClock = 16;

/// Tells the core that this is a spin loop.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

size_t coresOfProcess() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return static_cast<size_t>(std::max(1, CPU_COUNT(&set)));
}

/// Time since the run last moved, read from the clock only now and then.
class IdleTimer {
 public:
  void restart() {
    polls_ = 0;
    running_ = false;
  }
  /// When the wait began; right after elapsed().
  Clock::time_point since() const { return start_; }
  /// Call once a poll without progress.
  Clock::duration elapsed() {
    if (polls_++ % kPollsPerClock == 0) {
      const auto now = Clock::now();
      if (!running_) start_ = now;
      running_ = true;
      elapsed_ = now - start_;
    }
    return elapsed_;
  }

 private:
  int polls_ = 0;
  bool running_ = false;
  Clock::time_point start_;
  Clock::duration elapsed_{};
};

}  // namespace

WaitPolicy WaitPolicy::forRanks(const Endpoint& endpoint) {
  size_t here = 0;
  for (const int rank : endpoint.localRanks()) here += endpoint.sameProcess(rank) ? 1 : 0;
  const auto online = static_cast<size_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  WaitPolicy policy;
  // Processes may be bound to a core each, so only this process's ranks are compared with its cores.
  if (here > coresOfProcess() || endpoint.localRanks().size() > online) {
    policy.spin = std::chrono::microseconds(1);
    policy.yield = std::chrono::microseconds(1000);
  }
  return policy;
}

/// Yields, unless that cost a whole time slice lately: then the core is shared with a thread that does not
/// wait as we do, and sleeping is better, since the kernel lets a thread that wakes up run at once. Tried
/// again after a pause, which doubles while yielding stays expensive: on a busy machine one yield may cost
/// tens of milliseconds.
bool HostExecutor::yieldCore() {
  constexpr auto kTooLong = std::chrono::microseconds(500);
  constexpr auto kLongestPause = std::chrono::milliseconds(1280);
  // Longer than a yield to nobody, or to a rank that only looks and yields again.
  constexpr auto kSomebodyRan = std::chrono::microseconds(20);
  constexpr auto kSharedFor = std::chrono::milliseconds(100);
  const auto before = Clock::now();
  if (before < noYieldBefore_) return false;
  ::sched_yield();
  const auto after = Clock::now();
  if (after - before > kSomebodyRan) sharedUntil_ = after + kSharedFor;
  if (after - before <= kTooLong) {
    yieldPause_ = kFirstYieldPause;
  } else {
    noYieldBefore_ = after + yieldPause_;
    // Until then nobody asks; without a spin the next wait yields, which tells whether it is still shared.
    sharedUntil_ = noYieldBefore_ + kSharedFor;
    yieldPause_ = std::min<std::chrono::milliseconds>(2 * yieldPause_, kLongestPause);
  }
  return true;
}

Status HostExecutor::finish(HostRun& run) {
  const auto state = drive([&run] { return run.advance(); });
  return state == HostRun::State::done ? Status::ok() : run.status();
}

HostRun::State HostExecutor::drive(const std::function<HostRun::State()>& advance) {
  const WaitPolicy& policy = options_.wait;
  Doorbell* bell = endpoint_.bell(endpoint_.rank());
  const auto limit = static_cast<uint32_t>(policy.sleep.count());
  IdleTimer idle;
  for (;;) {
    const HostRun::State state = advance();
    switch (state) {
      case HostRun::State::done:
      case HostRun::State::failed:
        returnConnections();
        return state;
      case HostRun::State::progressed:
        idle.restart();
        continue;
      case HostRun::State::waiting:
        break;
    }
    const auto waited = idle.elapsed();
    // No spin on a core that others use, not even the polls of one look at the clock: each asks the kernel
    // about the sockets.
    const auto spin = idle.since() < sharedUntil_ ? std::chrono::microseconds(0) : policy.spin;
    if (waited < spin) {
      relax();
    } else if (waited < spin + policy.yield && yieldCore()) {
      // A rank that shares this core could run: perhaps the one that we wait for.
    } else {
      const uint32_t ticket = bell->prepare();
      const HostRun::State again = advance();
      if (again == HostRun::State::waiting) {
        if (!endpoint_.sleepOnConnections(ticket, limit)) {
          returnConnections();
          bell->sleep(ticket, limit);
        }
      } else {
        idle.restart();
      }
      bell->finish();
      if (again == HostRun::State::done || again == HostRun::State::failed) {
        returnConnections();
        return again;
      }
    }
  }
}

size_t advanceAll(std::span<HostRun* const> runs, std::chrono::microseconds budget) {
  constexpr size_t kBytesPerTurn = 256 * 1024;
  const auto end = Clock::now() + budget;
  size_t unfinished = 0;
  for (int polls = 1;; ++polls) {
    unfinished = 0;
    bool moved = false;
    for (HostRun* run : runs) {
      const HostRun::State state = run->advance(kBytesPerTurn);
      if (state == HostRun::State::progressed) moved = true;
      if (state == HostRun::State::progressed || state == HostRun::State::waiting) ++unfinished;
    }
    if (unfinished == 0) break;
    if (!moved) relax();
    if ((moved || polls % kPollsPerClock == 0) && Clock::now() >= end) break;
  }
  for (HostRun* run : runs) run->executor().returnConnections();
  return unfinished;
}

}  // namespace tutti
