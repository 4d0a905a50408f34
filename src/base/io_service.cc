#include "base/io_service.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <deque>
#include <iterator>
#include <map>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/affinity.h"
#include "base/event.h"
#include "base/log.h"
#include "base/params.h"
#include "base/unique_fd.h"

namespace tutti {

using Clock = std::chrono::steady_clock;

/// One life of the service thread. Everything in it is guarded by IoService::mutex_.
struct IoService::Loop {
  struct Entry {
    int fd = -1;                            // -1: timer or posted function
    std::function<void(uint32_t)> handler;  // of a descriptor
    std::function<void()> once;             // of a timer or posted function
    std::multimap<Clock::time_point, Id>::iterator timer;
    bool isTimer = false;
  };

  UniqueFd epoll;
  UniqueFd wake;
  std::thread thread;
  std::unordered_map<Id, std::shared_ptr<Entry>> entries;
  std::multimap<Clock::time_point, Id> timers;
  std::deque<Id> posted;
  Id running = 0;  // the handler that the thread is in
  Event ranOne;
  bool stop = false;

  void signal() const {
    const uint64_t one = 1;
    while (::write(wake.get(), &one, sizeof one) < 0 && errno == EINTR) continue;
  }
};

namespace {
thread_local void* currentLoop = nullptr;  // in a service thread: its Loop

int pollTimeoutMs(const std::multimap<Clock::time_point, IoService::Id>& timers, bool posted) {
  if (posted) return 0;
  if (timers.empty()) return -1;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(timers.begin()->first - Clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left, 0, 60000));
}
}  // namespace

/// The service thread's work; a class so that it may see IoService's parts.
struct IoServiceThread {
  IoService& service;
  std::shared_ptr<IoService::Loop> loop;
  bool named;

  void run() {
    currentLoop = loop.get();
    if (named) ::pthread_setname_np(::pthread_self(), "tutti service");
    epoll_event events[64];
    for (;;) {
      int timeout = 0;
      {
        const std::lock_guard lock(service.mutex_);
        if (finished()) return;
        timeout = pollTimeoutMs(loop->timers, !loop->posted.empty());
      }
      const int ready = ::epoll_wait(loop->epoll.get(), events, 64, timeout);
      for (int i = 0; i < ready; ++i) {
        if (events[i].data.u64 == 0) {
          uint64_t count = 0;
          (void)!::read(loop->wake.get(), &count, sizeof count);
        } else {
          runHandler(events[i].data.u64, events[i].events);
        }
      }
      runOnces();
    }
  }

  /// Nothing is registered any more, or somebody is waiting to join this thread.
  bool finished() {
    if (loop->stop) return true;
    if (!loop->entries.empty()) return false;
    loop->stop = true;
    if (service.loop_ == loop) service.loop_.reset();
    loop->thread.detach();  // ended by its own last handler: nobody is there to join it
    return true;
  }

  void runHandler(IoService::Id id, uint32_t events) {
    std::shared_ptr<IoService::Loop::Entry> entry;
    {
      const std::lock_guard lock(service.mutex_);
      const auto found = loop->entries.find(id);
      if (found == loop->entries.end()) return;  // removed after epoll_wait had seen it
      entry = found->second;
      loop->running = id;
    }
    call([&] { entry->handler(events); });
    ended(entry);
  }

  void runOnces() {
    // Those that are due now; what they add waits for the next round, so that descriptors get their turn.
    std::vector<IoService::Id> due;
    {
      const std::lock_guard lock(service.mutex_);
      const auto now = Clock::now();
      for (const auto& [when, id] : loop->timers) {
        if (when > now) break;
        due.push_back(id);
      }
      due.insert(due.end(), loop->posted.begin(), loop->posted.end());
      loop->posted.clear();
    }
    for (const IoService::Id id : due) {
      std::shared_ptr<IoService::Loop::Entry> entry;
      {
        const std::lock_guard lock(service.mutex_);
        const auto found = loop->entries.find(id);
        if (found == loop->entries.end()) continue;  // removed by one that ran before it
        entry = found->second;
        if (entry->isTimer) loop->timers.erase(entry->timer);
        loop->entries.erase(found);
        loop->running = id;
      }
      call([&] { entry->once(); });
      ended(entry);
    }
  }

  void ended(std::shared_ptr<IoService::Loop::Entry>& entry) {
    entry.reset();  // what the function holds is destroyed while remove() still waits
    {
      const std::lock_guard lock(service.mutex_);
      loop->running = 0;
    }
    loop->ranOne.notify();
  }

  template <typename F>
  static void call(F&& function) noexcept {
    try {
      function();
    } catch (const std::exception& error) {
      logWarn("service thread: a handler failed: {}", error.what());
    } catch (...) {
      logWarn("service thread: a handler failed");
    }
  }
};

IoService::IoService() { ::pthread_atfork(&beforeFork, &afterForkInParent, &afterForkInChild); }

IoService& IoService::instance() {
  static IoService* const kService = new IoService;  // never destroyed: usable in static destructors
  return *kService;
}

void IoService::beforeFork() { instance().mutex_.lock(); }
void IoService::afterForkInParent() { instance().mutex_.unlock(); }

void IoService::afterForkInChild() {
  IoService& service = instance();
  if (service.loop_) {
    // The parent's thread does not exist here. Its connections must not be kept open by this process, but
    // objects copied by fork still own the numbers and may close them: keep the numbers, drop what is behind.
    const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) {
      for (const auto& [id, entry] : service.loop_->entries)
        if (entry->fd >= 0) ::dup3(null, entry->fd, O_CLOEXEC);
      ::dup3(null, service.loop_->epoll.get(), O_CLOEXEC);
      ::dup3(null, service.loop_->wake.get(), O_CLOEXEC);
      ::close(null);
    }
  }
  // Kept for ever: a std::thread whose thread is elsewhere can be neither joined nor destroyed.
  struct Kept {
    std::shared_ptr<Loop> loop;
    Kept* before;
  };
  static Kept* kept = nullptr;
  kept = new Kept{std::move(service.loop_), kept};
  service.loop_.reset();
  currentLoop = nullptr;
  service.mutex_.unlock();
}

bool IoService::onServiceThread() const { return currentLoop != nullptr; }

size_t IoService::registered() const {
  const std::lock_guard lock(mutex_);
  return loop_ ? loop_->entries.size() : 0;
}

/// The running loop; starts one when there is none. mutex_ is held.
Result<std::shared_ptr<IoService::Loop>> IoService::current() {
  if (loop_) return loop_;
  auto loop = std::make_shared<Loop>();
  loop->epoll.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!loop->epoll) return systemError(errno, "service thread: epoll_create");
  loop->wake.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!loop->wake) return systemError(errno, "service thread: eventfd");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = 0;
  if (::epoll_ctl(loop->epoll.get(), EPOLL_CTL_ADD, loop->wake.get(), &event) != 0)
    return systemError(errno, "service thread: epoll_ctl");
  // Read here: the parameters are loaded under a lock, and a fork while the new thread held it would leave it
  // locked in the child for ever.
  const bool named = params().setThreadName();
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  Status status;
  try {
    loop->thread = std::thread([this, loop, named] { IoServiceThread{*this, loop, named}.run(); });
  } catch (const std::system_error& error) {
    status = threadError(error.code().value(), "start the service thread");
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!status.isOk()) return status;
  loop_ = loop;
  placeThread();
  return loop;
}

/// Best effort: the thread works anywhere. mutex_ is held.
void IoService::placeThread() {
  if (loop_ && !cpus_.empty()) setThreadCpus(loop_->thread.native_handle(), cpus_).ignore();
}

void IoService::runOn(const std::vector<int32_t>& cpus) {
  const std::lock_guard lock(mutex_);
  std::vector<int32_t> all;
  std::ranges::set_union(cpus_, cpus, std::back_inserter(all));
  if (all == cpus_) return;
  cpus_ = std::move(all);
  placeThread();
}

Result<IoService::Id> IoService::add(int fd, uint32_t events, std::function<void(uint32_t)> handler) {
  std::unique_lock lock(mutex_);
  TUTTI_ASSIGN(const std::shared_ptr<Loop> loop, current());
  const Id id = nextId_++;
  auto entry = std::make_shared<Loop::Entry>();
  entry->fd = fd;
  entry->handler = std::move(handler);
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  loop->entries.emplace(id, std::move(entry));  // before epoll knows it: it may be ready at once
  if (::epoll_ctl(loop->epoll.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    Status status = systemError(errno, "service thread: watch descriptor {}", fd);
    loop->entries.erase(id);
    drop(lock, loop);
    return status;
  }
  return id;
}

Result<IoService::Id> IoService::guardOverFork(int fd) {
  std::unique_lock lock(mutex_);
  TUTTI_ASSIGN(const std::shared_ptr<Loop> loop, current());
  const Id id = nextId_++;
  auto entry = std::make_shared<Loop::Entry>();
  entry->fd = fd;
  loop->entries.emplace(id, std::move(entry));
  return id;
}

void IoService::modify(Id id, uint32_t events) {
  const std::lock_guard lock(mutex_);
  if (!loop_) return;
  const auto found = loop_->entries.find(id);
  if (found == loop_->entries.end() || found->second->fd < 0) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  (void)::epoll_ctl(loop_->epoll.get(), EPOLL_CTL_MOD, found->second->fd, &event);
}

Result<IoService::Id> IoService::addTimer(std::chrono::microseconds delay, std::function<void()> handler) {
  std::unique_lock lock(mutex_);
  TUTTI_ASSIGN(const std::shared_ptr<Loop> loop, current());
  const Id id = nextId_++;
  auto entry = std::make_shared<Loop::Entry>();
  entry->once = std::move(handler);
  entry->isTimer = true;
  entry->timer = loop->timers.emplace(Clock::now() + delay, id);
  const bool first = entry->timer == loop->timers.begin();
  loop->entries.emplace(id, std::move(entry));
  if (first && currentLoop != loop.get()) loop->signal();
  return id;
}

Status IoService::post(std::function<void()> function) {
  std::unique_lock lock(mutex_);
  TUTTI_ASSIGN(const std::shared_ptr<Loop> loop, current());
  const Id id = nextId_++;
  auto entry = std::make_shared<Loop::Entry>();
  entry->once = std::move(function);
  loop->entries.emplace(id, std::move(entry));
  loop->posted.push_back(id);
  if (currentLoop != loop.get()) loop->signal();
  return Status::ok();
}

void IoService::remove(Id id) {
  if (id == 0) return;
  std::shared_ptr<Loop::Entry> entry;  // destroyed after the lock is gone: its function may own anything
  std::unique_lock lock(mutex_);
  const std::shared_ptr<Loop> loop = loop_;
  if (!loop) return;
  if (const auto found = loop->entries.find(id); found != loop->entries.end()) {
    entry = std::move(found->second);
    loop->entries.erase(found);
    if (entry->fd >= 0) (void)::epoll_ctl(loop->epoll.get(), EPOLL_CTL_DEL, entry->fd, nullptr);
    if (entry->isTimer) loop->timers.erase(entry->timer);
  }
  if (currentLoop != loop.get()) {
    while (loop->running == id) {
      const uint32_t ticket = loop->ranOne.ticket();
      lock.unlock();
      loop->ranOne.wait(ticket, std::chrono::milliseconds(100));
      lock.lock();
    }
  }
  drop(lock, loop);
}

/// Ends and joins the loop when nothing is registered in it.
void IoService::drop(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Loop>& loop) {
  // In the service thread itself the loop notices at the end of its round.
  if (loop_ != loop || !loop->entries.empty() || currentLoop == loop.get()) return;
  loop_.reset();
  loop->stop = true;
  lock.unlock();
  loop->signal();
  loop->thread.join();
  lock.lock();
}

}  // namespace tutti
