#include <gmock/gmock.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>

#include "base/backoff.h"
#include "base/base_test.h"
#include "base/event.h"
#include "base/identity.h"

namespace tutti::testing {
namespace {

TEST(Event, WakesSleepersAndForgetsNothing) {
  Event event;
  std::atomic<bool> flag{false};
  std::thread waker([&] {
    std::this_thread::sleep_for(20ms);
    flag = true;
    event.notify();
  });
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    const uint32_t ticket = event.ticket();
    if (flag) break;
    event.wait(ticket, 10s);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
  waker.join();
  const uint32_t ticket = event.ticket();
  event.notify();
  event.wait(ticket, 10s);  // notified after the ticket was taken: returns at once
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
}

TEST(Event, ReturnsAtItsLimit) {
  Event event;
  const auto start = std::chrono::steady_clock::now();
  event.wait(event.ticket(), 20ms);
  event.wait(event.ticket(), 0ms);
  EXPECT_GE(std::chrono::steady_clock::now() - start, 15ms);
}

TEST(Backoff, SaysWhenSpinningMakesNoSense) {
  Backoff backoff(3, 2);
  for (int i = 0; i < 4; ++i) backoff.pause();
  EXPECT_FALSE(backoff.exhausted());
  backoff.pause();
  EXPECT_TRUE(backoff.exhausted());
  backoff.reset();
  EXPECT_FALSE(backoff.exhausted());
}

TEST(Identity, HostNameIsShort) {
  EXPECT_FALSE(hostName().empty());
  EXPECT_EQ(hostName().find('.'), std::string::npos);
}

/// Exit status of a forked child that runs this.
int inChild(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Identity, AForkedChildIsAnotherProcessEvenWithTheSameProcessId) {
  if (inChild([] { return ::unshare(CLONE_NEWPID); }) != 0) GTEST_SKIP() << "may not make PID namespaces";
  EXPECT_EQ(inChild([] {
              ::unshare(CLONE_NEWPID);
              return inChild([] {
                const auto mine = processToken();
                const pid_t pid = ::getpid();
                ::unshare(CLONE_NEWPID);
                return inChild([&] {
                  if (::getpid() != pid) return 2;
                  return *processToken() != *mine && *processToken() == *processToken() ? 0 : 3;
                });
              });
            }),
            0);
}

}  // namespace
}  // namespace tutti::testing
