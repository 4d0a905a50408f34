#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <vector>

#include "transport/doorbell.h"

namespace tutti {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// Waits for *counter to reach target, sleeping on the bell only (long limit: a lost wake-up shows as time).
void awaitCounter(Doorbell* bell, std::atomic<uint64_t>* counter, uint64_t target) {
  while (counter->load(std::memory_order_acquire) < target) {
    const uint32_t ticket = bell->prepare();
    if (counter->load(std::memory_order_acquire) < target) bell->sleep(ticket, 5000000);
    bell->finish();
  }
}

struct Shared {
  Doorbell bells[2];
  std::atomic<uint64_t> counters[2];
};

void pingPong(Shared* shared, int me, uint64_t rounds) {
  for (uint64_t i = 1; i <= rounds; ++i) {
    if (me == 0) {
      shared->counters[0].store(i, std::memory_order_release);
      shared->bells[1].ring();
      awaitCounter(&shared->bells[0], &shared->counters[1], i);
    } else {
      awaitCounter(&shared->bells[1], &shared->counters[0], i);
      shared->counters[1].store(i, std::memory_order_release);
      shared->bells[0].ring();
    }
  }
}

TEST(Doorbell, WakesAThreadThatSleeps) {
  Shared shared{};
  const auto start = steady_clock::now();
  std::thread other([&] { pingPong(&shared, 1, 2000); });
  pingPong(&shared, 0, 2000);
  other.join();
  EXPECT_LT(steady_clock::now() - start, milliseconds(4000)) << "one lost wake-up costs 5 s";
  EXPECT_EQ(shared.bells[0].sleepers.load(), 0U);
}

TEST(Doorbell, WakesAnotherProcess) {
  void* memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* shared = static_cast<Shared*>(memory);
  const auto start = steady_clock::now();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    pingPong(shared, 1, 1000);
    ::_exit(0);
  }
  pingPong(shared, 0, 1000);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_LT(steady_clock::now() - start, milliseconds(4000));
  ::munmap(memory, 4096);
}

/// As awaitCounter, for the bell whose line is `line`.
void awaitCounterPolling(Doorbell* bell, int line, std::atomic<uint64_t>* counter, uint64_t target) {
  while (counter->load(std::memory_order_acquire) < target) {
    const uint32_t ticket = bell->prepare();
    if (counter->load(std::memory_order_acquire) < target) bell->sleepPolling(ticket, 5000000, line, -1);
    bell->finish();
  }
}

TEST(Doorbell, WakesAThreadThatSleepsInPollAndAnotherThatDoesNot) {
  Doorbell bell;
  Doorbell answer;
  const UniqueFd line = *bell.openLine();
  std::atomic<uint64_t> asked{0};
  std::atomic<uint64_t> answers[2] = {};
  constexpr uint64_t kRounds = 1000;
  const auto start = steady_clock::now();
  const auto serve = [&](int which) {
    for (uint64_t i = 1; i <= kRounds; ++i) {
      if (which == 0) {
        awaitCounterPolling(&bell, line.get(), &asked, i);
      } else {
        awaitCounter(&bell, &asked, i);
      }
      answers[which].store(i, std::memory_order_release);
      answer.ring();
    }
  };
  std::thread polling(serve, 0);
  std::thread plain(serve, 1);
  for (uint64_t i = 1; i <= kRounds; ++i) {
    asked.store(i, std::memory_order_release);
    bell.ring();
    for (auto& one : answers) awaitCounter(&answer, &one, i);
  }
  polling.join();
  plain.join();
  EXPECT_LT(steady_clock::now() - start, milliseconds(4000)) << "one lost wake-up costs 5 s";
  EXPECT_EQ(bell.inPoll.load() + bell.inFutex.load() + bell.sleepers.load(), 0U);
}

TEST(Doorbell, WakesAnotherProcessThatSleepsInPoll) {
  void* memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* shared = static_cast<Shared*>(memory);
  constexpr uint64_t kRounds = 500;
  const auto start = steady_clock::now();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const UniqueFd line = *shared->bells[1].openLine();
    for (uint64_t i = 1; i <= kRounds; ++i) {
      awaitCounterPolling(&shared->bells[1], line.get(), &shared->counters[0], i);
      shared->counters[1].store(i, std::memory_order_release);
      shared->bells[0].ring();
    }
    ::_exit(0);
  }
  for (uint64_t i = 1; i <= kRounds; ++i) {
    shared->counters[0].store(i, std::memory_order_release);
    shared->bells[1].ring();
    awaitCounter(&shared->bells[0], &shared->counters[1], i);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_LT(steady_clock::now() - start, milliseconds(4000));
  ::munmap(memory, 4096);
}

TEST(Doorbell, WakesAThreadThatSleepsInPollThoughManyOthersDoNotTakeTheirBytes) {
  // Idle ranks leave bytes unread in their lines; all of them count against the sender's socket.
  constexpr size_t kIdle = 60;
  std::vector<Doorbell> idle(kIdle);
  std::vector<UniqueFd> lines;
  for (Doorbell& bell : idle) {
    lines.push_back(*bell.openLine());
    bell.sleepers = 1;
    bell.inPoll = 1;
    for (int i = 0; i < 12; ++i) bell.ring();
  }
  Doorbell bell;
  const UniqueFd line = *bell.openLine();
  std::atomic<bool> woken{false};
  std::thread sleeper([&] {
    const uint32_t ticket = bell.prepare();
    bell.sleepPolling(ticket, 5000000, line.get(), -1);
    bell.finish();
    woken = true;
  });
  while (bell.inPoll.load() == 0) std::this_thread::yield();
  std::this_thread::sleep_for(milliseconds(20));
  const auto start = steady_clock::now();
  bell.ring();
  sleeper.join();
  EXPECT_TRUE(woken);
  EXPECT_LT(steady_clock::now() - start, milliseconds(2000));
}

TEST(Doorbell, ASleepInPollEndsWhenItsDescriptorIsReadableOrAtItsLimit) {
  Doorbell bell;
  const UniqueFd line = *bell.openLine();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd in(ends[0]);
  const UniqueFd out(ends[1]);
  auto start = steady_clock::now();
  bell.sleepPolling(bell.prepare(), 20000, line.get(), in.get());
  bell.finish();
  EXPECT_GE(steady_clock::now() - start, milliseconds(10));
  ASSERT_EQ(::write(out.get(), "x", 1), 1);
  start = steady_clock::now();
  bell.sleepPolling(bell.prepare(), 3000000, line.get(), in.get());
  bell.finish();
  EXPECT_LT(steady_clock::now() - start, milliseconds(1000));
}

TEST(Doorbell, SleepEndsAtItsLimit) {
  Doorbell bell;
  const auto start = steady_clock::now();
  bell.sleep(bell.prepare(), 20000);
  bell.finish();
  EXPECT_GE(steady_clock::now() - start, milliseconds(10));
  EXPECT_LT(steady_clock::now() - start, milliseconds(2000));
}

TEST(Doorbell, ARingBetweenPrepareAndSleepIsNotLost) {
  Doorbell bell;
  const uint32_t ticket = bell.prepare();
  bell.ring();
  const auto start = steady_clock::now();
  bell.sleep(ticket, 3000000);
  bell.finish();
  EXPECT_LT(steady_clock::now() - start, milliseconds(1000));
}

TEST(Doorbell, ARingWithoutSleepersDoesNothing) {
  Doorbell bell;
  bell.ring();
  EXPECT_EQ(bell.sequence.load(), 0U);
}

}  // namespace
}  // namespace tutti
