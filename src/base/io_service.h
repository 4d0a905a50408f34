// The process's service thread: watches descriptors and timers for everyone.
//
// It starts when the first handler registers and ends with the last one: it has been joined when remove()
// returns, or ends by itself soon after, when the last one went away on the thread itself. All signals are
// blocked in it. Handlers run one at a time, on it; they must not block.
#pragma once

#include <sys/epoll.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.h"

namespace tutti {

class IoService {
 public:
  /// Names a handler or timer; 0 is none. Never used again, also not after fork.
  using Id = uint64_t;

  /// Calls `handler` with the ready events (EPOLLIN, EPOLLOUT; EPOLLERR and EPOLLHUP always).
  /// Level-triggered. The descriptor must stay open until remove() has returned.
  Result<Id> add(int fd, uint32_t events, std::function<void(uint32_t)> handler);
  /// Changes the events. Unknown ids (already removed) are ignored.
  void modify(Id id, uint32_t events);
  /// Calls `handler` once after `delay`; the id is gone then.
  Result<Id> addTimer(std::chrono::microseconds delay, std::function<void()> handler);
  /// Runs `function` once, soon. Keeps the thread alive until then.
  Status post(std::function<void()> function);

  /// After it returns, the handler or timer isn't running and will not run (when called from inside the very
  /// handler: will not run again). May wait for a handler, so hold no lock that handlers take. Ignores 0 and
  /// unknown ids.
  void remove(Id id);

  /// Includes a descriptor that is watched in another way (an epoll instance of its owner) in what happens to
  /// descriptors after fork, see instance(). Must stay open until remove(). Counts as a handler.
  Result<Id> guardOverFork(int fd);

  /// Lets the thread run on these CPUs, and on those of earlier calls: it serves ranks on several NUMA nodes.
  /// Without a call it runs where the thread runs that needs it first.
  void runOn(const std::vector<int32_t>& cpus);

  bool onServiceThread() const;
  /// Handlers, timers and posted functions that exist now: 0 means that there is no thread.
  size_t registered() const;

  /// The one of this process. After fork the child has a new, empty one; the descriptors that the parent had
  /// registered are replaced in the child by /dev/null under the same numbers, so that a child that lives on
  /// does not keep the parent's connections open.
  static IoService& instance();

 private:
  friend struct IoServiceThread;
  struct Loop;
  IoService();
  Result<std::shared_ptr<Loop>> current();
  void placeThread();
  void drop(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Loop>& loop);
  static void beforeFork();
  static void afterForkInParent();
  static void afterForkInChild();

  mutable std::mutex mutex_;
  std::shared_ptr<Loop> loop_;
  Id nextId_ = 1;
  std::vector<int32_t> cpus_;  // empty: nobody said
};

inline IoService& ioService() { return IoService::instance(); }

}  // namespace tutti
