// Ranks that are killed while communicators are being made: at random times, so that over many tries all
// points of it are met. TEST_DEATHS says how many tries; a few hundred find what a few do not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>

#include "system/process_probe.h"
#include "system/ranks.h"

namespace tutti::system_test {
namespace {

using namespace std::chrono_literals;
using Clock = Child::Clock;

constexpr int kDeathRanks = 4;
/// In which a rank that has not even come to the rendezvous is reported as missing.
constexpr const char* kInitTimeout = "4";
/// A death that is noticed as such is told much sooner than that.
constexpr auto kNoticed = 3500ms;

int deathTries() {
  const char* count = std::getenv("TEST_DEATHS");
  return count != nullptr ? std::atoi(count) : 3;
}

ncclResult_t awaitError(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  const auto end = Clock::now() + 20s;
  while (state == ncclSuccess && Clock::now() < end) {
    ncclCommGetAsyncError(comm, &state);
    std::this_thread::sleep_for(1ms);
  }
  return state;
}

/// As must(), but the process lives on until the test has heard all: when it ended, it would be one more
/// death for the others.
void stays(ncclResult_t result, const char* what, const ChildSide& parent, ncclComm_t comm = nullptr) {
  if (result == ncclSuccess) return;
  parent.say(std::string("failed ") + what + ": " + ncclGetLastError(comm));
  char never = 0;
  parent.receive(&never, 1);
}

/// Kills one rank some time after `from`, `spread` at most, and looks at what the others say then.
void killOne(RankProcesses& ranks, int victim, std::chrono::microseconds spread) {
  static std::mt19937 random{std::random_device{}()};
  const auto delay = std::chrono::microseconds(random() % static_cast<unsigned>(spread.count()));
  std::this_thread::sleep_for(delay);
  ranks[victim].kill(SIGKILL);
  const auto killed = Clock::now();
  for (int rank = 0; rank < ranks.size(); ++rank) {
    if (rank == victim) continue;
    std::string line;
    while (ranks[rank].readLine(line, killed + 15s))
      if (line.starts_with("failed ")) break;
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - killed);
    const std::string who = "rank " + std::to_string(victim);
    // Who dies before the rendezvous knows of it is missed at the deadline; when it served the rendezvous
    // itself, no more can be known of it than that.
    const bool missed = line.find("did not join within") != std::string::npos;
    const bool maker = victim == 0 && line.find("process that made the unique id") != std::string::npos;
    EXPECT_TRUE(maker || line.find(who) != std::string::npos)
        << "rank " << rank << " after " << took.count() << " ms: " << line << "\nkilled: " << who << " after "
        << delay.count() << " us";
    EXPECT_TRUE(missed || took < (underSanitizer() ? 10s : kNoticed))
        << "rank " << rank << " after " << took.count() << " ms: " << line << "\nkilled: " << who << " after "
        << delay.count() << " us";
  }
}

class KilledInInit : public testing::TestWithParam<Path> {};

TEST_P(KilledInInit, IsNamedByTheOthers) {
  const Settings soon{{"TUTTI_INIT_TIMEOUT", kInitTimeout}};
  for (int round = 0; round < deathTries(); ++round) {
    RankProcesses ranks(kDeathRanks, GetParam(), [](Rank& self, const ChildSide& parent) {
      stays(awaitError(self.comm), "afterwards", parent, self.comm);
      return 1;
    });
    killOne(ranks, round % kDeathRanks, 12ms);
    if (testing::Test::HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, KilledInInit, testing::Values(Path::sharedMemory, Path::sockets, Path::hosts),
                         [](const auto& each) { return nameOf(each.param); });

/// Ranks make children of their communicator for ever.
void killOneAmongParents(int victims, const RankProcesses::Body& makeChildren) {
  const Settings soon{{"TUTTI_INIT_TIMEOUT", "20"}};
  for (int round = 0; round < deathTries(); ++round) {
    RankProcesses ranks(kDeathRanks, Path::sharedMemory, makeChildren);
    for (int rank = 0; rank < kDeathRanks; ++rank) ranks[rank].expectLine("ready", in(20s));
    killOne(ranks, round % victims, 20ms);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(KilledInSplit, IsNamedByTheOthers) {
  killOneAmongParents(kDeathRanks, [](Rank& self, const ChildSide& parent) {
    parent.say("ready");
    for (;;) {
      ncclComm_t child = nullptr;
      stays(ncclCommSplit(self.comm, 0, self.rank, &child, nullptr), "ncclCommSplit", parent);
      ncclCommDestroy(child);  // says when a rank has died meanwhile; the next round will say it, too
    }
    return 1;
  });
}

TEST(KilledInShrink, IsNamedByTheOthers) {
  killOneAmongParents(kDeathRanks - 1, [](Rank& self, const ChildSide& parent) {
    parent.say("ready");
    if (self.rank == kDeathRanks - 1) stays(awaitError(self.comm), "as the one left out", parent, self.comm);
    for (;;) {
      ncclComm_t child = nullptr;
      int excluded[] = {kDeathRanks - 1};
      stays(ncclCommShrink(self.comm, excluded, 1, &child, nullptr, NCCL_SHRINK_DEFAULT), "ncclCommShrink",
            parent);
      ncclCommDestroy(child);  // says when a rank has died meanwhile; the next round will say it, too
    }
    return 1;
  });
}

TEST(KilledInGrow, IsNamedByTheOthers) {
  const Settings soon{{"TUTTI_INIT_TIMEOUT", "4"}};
  for (int round = 0; round < deathTries(); ++round) {
    RankProcesses ranks(kDeathRanks, Path::sharedMemory, [](Rank& self, const ChildSide& parent) {
      // Ranks 0 to 2 have a communicator of their own, into which rank 3 comes.
      ncclComm_t three = nullptr;
      stays(ncclCommSplit(self.comm, self.rank < 3 ? 0 : 1, self.rank, &three, nullptr), "ncclCommSplit",
            parent);
      ncclUniqueId id{};
      if (self.rank == 0) {
        stays(ncclCommGetUniqueId(three, &id), "ncclCommGetUniqueId", parent);
        parent.say("grow " + toHex(id));
      } else if (self.rank == 3) {
        parent.receive(&id, sizeof id);
      }
      ncclComm_t four = nullptr;
      stays(self.rank == 3 ? ncclCommGrow(nullptr, 4, &id, 3, &four, nullptr)
                           : ncclCommGrow(three, 4, self.rank == 0 ? &id : nullptr, -1, &four, nullptr),
            "ncclCommGrow", parent);
      stays(awaitError(four), "afterwards", parent, four);
      return 1;
    });
    const ncclUniqueId id = fromHex(ranks[0].expectLine("grow ", in(20s)));
    ranks[3].send(&id, sizeof id);
    killOne(ranks, (round + 3) % kDeathRanks, 12ms);
    if (testing::Test::HasFailure()) return;
  }
}

/// The new rank 0 has given up the parent instead of shrinking it.
TEST(Shrink, DoesNotWaitForARankThatHasAborted) {
  for (const int absent : {0, 1}) {
    RankProcesses ranks(kDeathRanks, Path::sharedMemory, [absent](Rank& self, const ChildSide& parent) {
      if (self.rank == absent) {
        ncclCommAbort(self.comm);
        char go = 0;
        parent.receive(&go, 1);
        return 0;
      }
      if (self.rank != kDeathRanks - 1) {
        int excluded[] = {kDeathRanks - 1};
        ncclComm_t child = nullptr;
        must(ncclCommShrink(self.comm, excluded, 1, &child, nullptr, NCCL_SHRINK_ABORT), "ncclCommShrink",
             parent);
      }
      return 0;
    });
    const auto start = Clock::now();
    for (int rank = 0; rank < kDeathRanks - 1; ++rank) {
      if (rank == absent) continue;
      EXPECT_THAT(ranks[rank].expectLine("failed ncclCommShrink", in(20s)),
                  testing::HasSubstr("rank " + std::to_string(absent)));
    }
    EXPECT_LT(Clock::now() - start, underSanitizer() ? 12s : 5s);
    ranks[absent].send("x", 1);
  }
}

}  // namespace
}  // namespace tutti::system_test
