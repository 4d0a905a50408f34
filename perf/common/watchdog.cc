#include "common/watchdog.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "common/device.h"

namespace tutti::perf {
namespace {

using namespace std::chrono_literals;

constexpr auto kPoll = 50ms;
constexpr auto kSectionGrace = 2s;
constexpr auto kExitGrace = 10s;
constexpr int kGaveUp = 3;  // exit status

}  // namespace

void Watchdog::start(std::vector<Watched> comms) {
  comms_ = std::move(comms);
  thread_ = std::thread([this] { run(); });
}

void Watchdog::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::limit(std::chrono::seconds time, const std::string& what) {
  const std::lock_guard lock(mutex_);
  deadline_ = time > 0s ? Clock::now() + time : Clock::time_point::max();
  limited_ = what + " took longer than " + std::to_string(time.count()) + " s (--timeout)";
}

void Watchdog::fail(const std::string& message) {
  {
    const std::lock_guard lock(mutex_);
    if (message_.empty()) message_ = message;
    failed_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
}

std::string Watchdog::message() const {
  const std::lock_guard lock(mutex_);
  return message_;
}

bool Watchdog::enter() {
  const std::lock_guard lock(mutex_);
  if (failed_.load(std::memory_order_relaxed)) return false;
  ++sections_;
  return true;
}

void Watchdog::leave() {
  const std::lock_guard lock(mutex_);
  if (--sections_ == 0 && failed_.load(std::memory_order_relaxed)) changed_.notify_all();
}

std::string Watchdog::check() {
  {
    const std::lock_guard lock(mutex_);
    if (Clock::now() > deadline_) return limited_ + ": " + unfinished();
  }
  for (const Watched& watched : comms_) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t result = ncclCommGetAsyncError(watched.comm, &state);
    if (result == ncclSuccess && (state == ncclSuccess || state == ncclInProgress)) continue;
    const std::string who = "rank " + std::to_string(watched.rank);
    return checkNccl(result == ncclSuccess ? state : result, who, watched.comm).message();
  }
  return {};
}

std::string Watchdog::unfinished() const {
  std::string waiting;
  std::string done;
  for (const Watched& watched : comms_) {
    cudaSetDevice(watched.device);  // the null stream's device, of this thread
    std::string& ranks = cudaStreamQuery(watched.stream) == cudaErrorNotReady ? waiting : done;
    ranks += (ranks.empty() ? "" : ", ") + std::to_string(watched.rank);
  }
  if (waiting.empty()) return "rank " + done + " is done and waits for another process";
  return "rank " + waiting + " does not finish" + (done.empty() ? "" : "; rank " + done + " is done");
}

void Watchdog::abortAll() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kSectionGrace, [this] { return sections_ == 0 || stopping_; });
    // Whoever stops us knows that nobody waits any more; then there is nothing to free by force.
    if (stopping_) return;
    aborted_.store(true, std::memory_order_release);
  }
  for (const Watched& watched : comms_) ncclCommAbort(watched.comm);
}

void Watchdog::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_ && !failed()) {
    changed_.wait_for(lock, kPoll, [this] { return stopping_ || failed(); });
    if (stopping_ || failed()) break;
    lock.unlock();
    const std::string problem = check();
    if (!problem.empty()) fail(problem);
    lock.lock();
  }
  if (stopping_) return;
  lock.unlock();
  abortAll();
  lock.lock();
  if (changed_.wait_for(lock, kExitGrace, [this] { return stopping_; })) return;
  std::fprintf(stderr,
               "%s\nSome operations did not end although their communicators were aborted: giving up.\n",
               message_.c_str());
  std::fflush(nullptr);
  _exit(kGaveUp);
}

}  // namespace tutti::perf
