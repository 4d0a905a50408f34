#include "base/io_service.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <vector>

#include "base/base_test.h"
#include "base/unique_fd.h"

namespace tutti::testing {
namespace {

UniqueFd counter() { return UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }
void raise(const UniqueFd& fd) {
  const uint64_t one = 1;
  EXPECT_EQ(::write(fd.get(), &one, sizeof one), 8);
}
void lower(int fd) {
  uint64_t value = 0;
  (void)!::read(fd, &value, sizeof value);
}
size_t threads() {
  // ThreadSanitizer adds a thread of its own when the first one is made: let that happen before anything is
  // counted.
  static const bool kWarm = (std::thread([] {}).join(), true);
  static_cast<void>(kWarm);
  return entriesOf("/proc/self/task");
}

TEST(IoService, RunsHandlersOnItsThreadAndEndsWithTheLast) {
  const size_t before = threads(), descriptors = entriesOf("/proc/self/fd");
  {
    const UniqueFd fd = counter();
    std::atomic<int> calls{0};
    std::atomic<bool> onThread{false};
    const auto id = ioService().add(fd.get(), EPOLLIN, [&, raw = fd.get()](uint32_t events) {
      EXPECT_NE(events & EPOLLIN, 0u);
      lower(raw);
      onThread = ioService().onServiceThread();
      ++calls;
    });
    ASSERT_TRUE(id.isOk());
    EXPECT_EQ(threads(), before + 1);
    raise(fd);
    EXPECT_TRUE(eventually([&] { return calls == 1; }));
    EXPECT_TRUE(onThread);
    EXPECT_FALSE(ioService().onServiceThread());
    ioService().remove(*id);
    raise(fd);
    std::this_thread::sleep_for(10ms);
    EXPECT_EQ(calls, 1);
  }
  EXPECT_EQ(ioService().registered(), 0u);
  EXPECT_EQ(threads(), before);
  EXPECT_EQ(entriesOf("/proc/self/fd"), descriptors);
}

TEST(IoService, RemoveWaitsForTheRunningHandler) {
  for (int i = 0; i < 20; ++i) {
    const UniqueFd fd = counter();
    std::atomic<bool> started{false}, ended{false};
    const auto id = ioService().add(fd.get(), EPOLLIN, [&, raw = fd.get()](uint32_t) {
      lower(raw);
      started = true;
      std::this_thread::sleep_for(5ms);
      ended = true;
    });
    raise(fd);
    ASSERT_TRUE(eventually([&] { return started.load(); }));
    ioService().remove(*id);
    EXPECT_TRUE(ended);
  }
}

TEST(IoService, HandlersMayRemoveThemselvesAndOthers) {
  const UniqueFd a = counter(), b = counter();
  std::atomic<int> aCalls{0}, bCalls{0};
  IoService::Id idA = 0, idB = 0;
  std::atomic<bool> ready{false};
  idA = *ioService().add(a.get(), EPOLLIN, [&](uint32_t) {
    if (!ready) return;
    ++aCalls;
    ioService().remove(idB);
    ioService().remove(idA);
  });
  idB = *ioService().add(b.get(), EPOLLIN, [&](uint32_t) { ++bCalls; });
  ready = true;
  raise(a);
  EXPECT_TRUE(eventually([] { return ioService().registered() == 0; }));
  raise(b);
  std::this_thread::sleep_for(10ms);
  EXPECT_EQ(aCalls, 1);
  EXPECT_EQ(bCalls, 0);
}

TEST(IoService, ModifyChangesTheEvents) {
  const UniqueFd fd = counter();
  std::atomic<int> calls{0};
  const auto id = ioService().add(fd.get(), 0, [&, raw = fd.get()](uint32_t) { lower(raw), ++calls; });
  raise(fd);
  std::this_thread::sleep_for(10ms);
  EXPECT_EQ(calls, 0);
  ioService().modify(*id, EPOLLIN);
  EXPECT_TRUE(eventually([&] { return calls == 1; }));
  ioService().remove(*id);
  ioService().modify(*id, EPOLLIN);  // gone: ignored
}

TEST(IoService, TimersFireOnceInOrderAndCanBeRemoved) {
  std::vector<int> order;
  std::atomic<int> fired{0};
  const auto at = [&](int ms, int mark) {
    return *ioService().addTimer(std::chrono::milliseconds(ms), [&order, &fired, mark] {
      order.push_back(mark);
      ++fired;
    });
  };
  at(60, 3);
  const auto removed = at(40, 9);
  at(20, 1);
  at(30, 2);
  ioService().remove(removed);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(eventually([&] { return fired == 3; }));
  EXPECT_GE(std::chrono::steady_clock::now() - start, 50ms);
  EXPECT_TRUE(eventually([] { return ioService().registered() == 0; }));
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST(IoService, PostedFunctionsRunInOrderAlsoFromHandlers) {
  std::vector<int> order;
  std::atomic<bool> done{false};
  ASSERT_TRUE(ioService()
                  .post([&] {
                    order.push_back(1);
                    ioService().post([&] { order.push_back(3), done = true; }).ignore();
                    order.push_back(2);
                  })
                  .isOk());
  EXPECT_TRUE(eventually([&] { return done.load(); }));
  EXPECT_TRUE(eventually([] { return ioService().registered() == 0; }));
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST(IoService, AHandlerThatThrowsDoesNotEndTheProcess) {
  std::atomic<bool> after{false};
  ioService().post([] { throw std::runtime_error("oops"); }).ignore();
  ioService().post([&] { after = true; }).ignore();
  EXPECT_TRUE(eventually([&] { return after.load(); }));
}

TEST(IoService, StartsAndEndsUnderContention) {
  const size_t before = threads();
  std::vector<std::thread> users;
  for (int t = 0; t < 4; ++t)
    users.emplace_back([] {
      for (int i = 0; i < 200; ++i) {
        const UniqueFd fd = counter();
        std::atomic<int> calls{0};
        const auto id =
            ioService().add(fd.get(), EPOLLIN, [&, raw = fd.get()](uint32_t) { lower(raw), ++calls; });
        ASSERT_TRUE(id.isOk());
        raise(fd);
        if (i % 3 == 0) {
          EXPECT_TRUE(eventually([&] { return calls > 0; }));
        }
        ioService().remove(*id);
      }
    });
  for (auto& user : users) user.join();
  EXPECT_EQ(ioService().registered(), 0u);
  EXPECT_TRUE(eventually([&] { return threads() == before; }));
}

TEST(IoService, BlocksAllSignalsInItsThread) {
  std::atomic<int> blocked{-1};
  ioService()
      .post([&] {
        sigset_t set;
        ::pthread_sigmask(SIG_SETMASK, nullptr, &set);
        blocked = sigismember(&set, SIGALRM) + sigismember(&set, SIGINT) + sigismember(&set, SIGUSR1);
      })
      .ignore();
  EXPECT_TRUE(eventually([&] { return blocked == 3; }));
  sigset_t mine;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mine);
  EXPECT_EQ(sigismember(&mine, SIGALRM), 0) << "the caller's mask is as before";
}

TEST(IoService, AForkedChildStartsAnewAndLetsGoOfTheParentsDescriptors) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "tsan cannot follow threads that are started after such a fork";
#endif
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  UniqueFd reader(ends[0]), writer(ends[1]);
  const auto id = ioService().add(writer.get(), 0, [](uint32_t) {});
  ASSERT_TRUE(id.isOk());
  // AddressSanitizer's allocator is not safe for fork: the service thread must be at rest, not starting.
  std::atomic<bool> started{false};
  ASSERT_TRUE(ioService().post([&] { started = true; }).isOk());
  ASSERT_TRUE(eventually([&] { return started.load(); }));
  std::this_thread::sleep_for(50ms);
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (ioService().registered() != 0) ::_exit(1);
    std::atomic<bool> ran{false};
    if (!ioService().post([&] { ran = true; }).isOk()) ::_exit(2);
    if (!eventually([&] { return ran.load(); })) ::_exit(3);
    ioService().remove(*id);  // the parent's: unknown here
    ::sleep(2);
    ::_exit(0);
  }
  ioService().remove(*id);
  writer.reset();
  // Were the child's copy of the write end still open, this would wait for two seconds.
  char byte;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(::read(reader.get(), &byte, 1), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 1s);
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace tutti::testing
