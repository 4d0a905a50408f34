// Notices that a communicator failed, or that a measurement takes too long, and gets everybody out.
#pragma once

#include <nccl.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/outcome.h"

namespace tutti::perf {

/// Threads that enqueue operations do so inside a `Section`; threads that wait for a stream are outside of
/// it. When a communicator reports an asynchronous error, or the time limit passes, the watchdog keeps
/// further sections from starting, lets the running ones end, and aborts all communicators, which ends the
/// waits. If that does not help within a few seconds, it ends the process: a perf program never hangs in
/// silence. All methods are thread-safe.
class Watchdog {
 public:
  struct Watched {
    ncclComm_t comm = nullptr;
    int rank = 0;
    cudaStream_t stream = nullptr;
    int device = 0;
  };

  Watchdog() = default;
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog() { stop(); }

  void start(std::vector<Watched> comms);
  /// No checks and no aborts afterwards; the communicators may be destroyed. Idempotent.
  void stop();

  /// A limit for what begins now; zero or less: none.
  void limit(std::chrono::seconds time, const std::string& what);

  /// Reports a failure seen by a thread itself. The first one counts.
  void fail(const std::string& message);
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  /// True when the communicators were aborted, and must not be destroyed any more.
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }
  std::string message() const;

  /// While it lives, the watchdog does not abort communicators (for at most two seconds). False: it failed,
  /// do not touch them.
  class Section {
   public:
    explicit Section(Watchdog& watchdog) : watchdog_(watchdog), entered_(watchdog.enter()) {}
    ~Section() {
      if (entered_) watchdog_.leave();
    }
    Section(const Section&) = delete;
    Section& operator=(const Section&) = delete;
    explicit operator bool() const { return entered_; }

   private:
    Watchdog& watchdog_;
    bool entered_;
  };

 private:
  using Clock = std::chrono::steady_clock;

  bool enter();
  void leave();
  void run();
  /// Empty when all is well.
  std::string check();
  /// Which of the ranks have work that is not done: the end of the sentence about a time limit.
  std::string unfinished() const;
  void abortAll();

  std::vector<Watched> comms_;
  std::thread thread_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  int sections_ = 0;
  Clock::time_point deadline_ = Clock::time_point::max();
  std::string limited_;
  std::string message_;
  std::atomic<bool> failed_{false};
  std::atomic<bool> aborted_{false};
};

}  // namespace tutti::perf
