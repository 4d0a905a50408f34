// Helpers of the bootstrap tests: ranks as threads, ranks as processes, counts of what a process holds.
#pragma once

#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/io_service.h"
#include "base/params.h"
#include "bootstrap/control.h"
#include "bootstrap/unique_id.h"

namespace tutti::testing {

using namespace std::chrono_literals;

inline Deadline within(std::chrono::milliseconds limit) { return Deadline::after(limit); }

/// Sets an environment variable for a test's life and reads the parameters again.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old, had_ = true;
    ::setenv(name, value.c_str(), 1);
    params().reload();
  }
  ~ScopedEnv() {
    had_ ? ::setenv(name_, old_.c_str(), 1) : ::unsetenv(name_);
    params().reload();
  }

 private:
  const char* name_;
  std::string old_;
  bool had_ = false;
};

inline size_t entriesOf(const char* folder) {
  size_t count = 0;
  if (DIR* dir = ::opendir(folder)) {
    while (::readdir(dir) != nullptr) ++count;
    ::closedir(dir);
  }
  return count;
}
inline size_t openDescriptors() { return entriesOf("/proc/self/fd"); }
inline size_t runningThreads() {
  // ThreadSanitizer adds a thread of its own when the first one is made: let that happen before anything is
  // counted.
  static const bool kWarm = (std::thread([] {}).join(), true);
  static_cast<void>(kWarm);
  return entriesOf("/proc/self/task");
}

inline bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds limit = 3000ms) {
  for (const Deadline deadline = Deadline::after(limit); !deadline.passed(); std::this_thread::sleep_for(2ms))
    if (condition()) return true;
  return condition();
}

/// Before a fork: waits until the service thread of earlier tests has ended, as far as it does (ids that
/// nobody used keep it). A sanitizer that follows threads needs that.
inline void waitForQuiet(std::chrono::milliseconds limit) {
  const bool quiet = eventually([] { return ioService().registered() == 0; }, limit);
  std::this_thread::sleep_for(5ms);  // the thread itself ends a moment later
#ifdef __SANITIZE_THREAD__
  if (!quiet) GTEST_SKIP() << "threads of other tests are alive: run this test by itself";
#else
  (void)quiet;
#endif
}

/// One rank of a test.
struct Rank {
  JoinRequest request;
  std::unique_ptr<Control> control;
  Status status;
  std::atomic<int> faultCalls{0};
  const FaultState& faults() const { return *request.faults; }
};

inline std::unique_ptr<Rank> makeRank(const ncclUniqueId& id, int rank, int nranks) {
  auto result = std::make_unique<Rank>();
  result->request.id = id;
  result->request.rank = rank;
  result->request.nranks = nranks;
  result->request.faults = std::make_shared<FaultState>();
  result->request.onFault = [r = result.get()] { ++r->faultCalls; };
  return result;
}

inline void join(Rank& rank, std::chrono::milliseconds limit = 20000ms) {
  auto control = Control::join(rank.request, within(limit));
  if (control.isOk()) {
    rank.control = std::move(*control);
  } else {
    rank.status = control.status();
  }
}

inline ncclUniqueId newId() {
  auto id = createUniqueId();
  EXPECT_TRUE(id.isOk()) << id.status().message();
  return *id;
}

/// Runs `body` once for each rank, on threads of their own.
inline void onThreads(std::vector<std::unique_ptr<Rank>>& ranks, const std::function<void(Rank&)>& body) {
  std::vector<std::thread> threads;
  for (auto& rank : ranks) threads.emplace_back([&body, r = rank.get()] { body(*r); });
  for (auto& thread : threads) thread.join();
}

/// All ranks of a communicator in this process, joined.
inline std::vector<std::unique_ptr<Rank>> joinedRanks(int nranks) {
  const ncclUniqueId id = newId();
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int i = 0; i < nranks; ++i) ranks.push_back(makeRank(id, i, nranks));
  onThreads(ranks, [](Rank& rank) { join(rank); });
  for (auto& rank : ranks) EXPECT_TRUE(rank->control) << rank->status.message();
  return ranks;
}

/// A forked process that runs `body` and exits with its result, without gtest's or atexit's work.
inline pid_t inProcess(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  return pid;
}

inline int exitCode(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

}  // namespace tutti::testing
