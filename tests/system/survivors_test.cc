// Ranks go on without those that died: shrink after a death, teardown when peers have left already.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <thread>

#include "system/process_probe.h"
#include "system/ranks.h"

namespace tutti::system_test {
namespace {

using namespace std::chrono_literals;

ncclResult_t awaitFailure(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  const auto end = Child::Clock::now() + 20s;
  while (state == ncclSuccess && Child::Clock::now() < end) {
    ncclCommGetAsyncError(comm, &state);
    std::this_thread::sleep_for(1ms);
  }
  return state;
}

struct Death {
  Path path;
  int victim;
};

class AfterADeath : public testing::TestWithParam<Death> {};

TEST_P(AfterADeath, TheOthersShrinkAndGoOn) {
  const auto [path, victim] = GetParam();
  RankProcesses ranks(4, path, [victim = victim](Rank& self, const ChildSide& parent) {
    int data = 1;
    must(ncclAllReduce(&data, &data, 1, ncclInt, ncclSum, self.comm, nullptr), "ncclAllReduce", parent);
    must(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", parent);
    parent.say("ready");
    if (self.rank == victim) {
      std::this_thread::sleep_for(60s);
      return 1;
    }
    if (awaitFailure(self.comm) != ncclRemoteError) return 2;
    int excluded[] = {victim};
    ncclComm_t child = nullptr;
    must(ncclCommShrink(self.comm, excluded, 1, &child, nullptr, NCCL_SHRINK_ABORT), "ncclCommShrink",
         parent);
    must(ncclCommDestroy(self.comm), "ncclCommDestroy of the parent", parent);
    data = self.rank;
    must(ncclAllReduce(&data, &data, 1, ncclInt, ncclSum, child, nullptr), "ncclAllReduce", parent, child);
    must(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", parent);
    must(ncclCommDestroy(child), "ncclCommDestroy", parent);
    parent.say("sum " + std::to_string(data));
    return 0;
  });
  for (int rank = 0; rank < ranks.size(); ++rank) ranks[rank].expectLine("ready", in(20s));
  ranks[victim].kill(SIGKILL);
  for (int rank = 0; rank < ranks.size(); ++rank) {
    if (rank == victim) continue;
    EXPECT_EQ(ranks[rank].expectLine("sum ", in(30s)), std::to_string(6 - victim));
    EXPECT_EQ(ranks[rank].wait(in(5s)), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, AfterADeath,
                         testing::Values(Death{Path::sharedMemory, 0}, Death{Path::sharedMemory, 2},
                                         Death{Path::sockets, 0}, Death{Path::sockets, 3}),
                         [](const auto& each) {
                           return std::string(nameOf(each.param.path)) + "Rank" +
                                  std::to_string(each.param.victim);
                         });

TEST(Split, FailsSoonWhenARankDiesInsteadOfCalling) {
  RankProcesses ranks(3, Path::sharedMemory, [](Rank& self, const ChildSide& parent) {
    parent.say("ready");
    if (self.rank == 1) {
      std::this_thread::sleep_for(60s);
      return 1;
    }
    ncclComm_t child = nullptr;
    const ncclResult_t result = ncclCommSplit(self.comm, 0, 0, &child, nullptr);
    parent.say(std::string("split ") + ncclGetLastError(nullptr));
    must(ncclCommAbort(self.comm), "ncclCommAbort", parent);
    return result == ncclSuccess ? 2 : 0;
  });
  for (int rank = 0; rank < 3; ++rank) ranks[rank].expectLine("ready", in(20s));
  std::this_thread::sleep_for(50ms);
  ranks[1].kill(SIGKILL);
  for (const int rank : {0, 2}) {
    EXPECT_THAT(ranks[rank].expectLine("split ", in(10s)), testing::HasSubstr("rank 1"));
    EXPECT_EQ(ranks[rank].wait(in(5s)), 0);
  }
}

TEST(Init, ThatFailsOnOneRankIsSoonAnErrorOnTheOthers) {
  RankProcesses ranks(
      3, Path::sharedMemory, [](Rank&, const ChildSide&) { return 0; },
      [](int rank) {
        if (rank == 1) ::setenv("TUTTI_SIMD_TARGET", "abacus", 1);
      });
  EXPECT_THAT(ranks[1].expectLine("failed ncclCommInitRank", in(20s)), testing::HasSubstr("abacus"));
  for (const int rank : {0, 2}) {
    EXPECT_THAT(ranks[rank].expectLine("failed ncclCommInitRank", in(10s)),
                AllOf(testing::HasSubstr("rank 1"), testing::HasSubstr("abacus")));
  }
}

TEST(Teardown, ReturnsWhenThePeersHaveExitedAlready) {
  for (const bool orderly : {true, false}) {
    RankProcesses ranks(3, Path::sharedMemory, [orderly](Rank& self, const ChildSide& parent) {
      if (self.rank != 1) {
        if (orderly) must(ncclCommDestroy(self.comm), "ncclCommDestroy", parent);
        return 0;
      }
      char go = 0;
      parent.receive(&go, 1);
      const auto start = Child::Clock::now();
      ncclCommDestroy(self.comm);
      return Child::Clock::now() - start < 5s ? 0 : 1;
    });
    EXPECT_EQ(ranks[0].wait(in(10s)), 0);
    EXPECT_EQ(ranks[2].wait(in(10s)), 0);
    ranks[1].send("x", 1);
    EXPECT_EQ(ranks[1].wait(in(10s)), 0);
  }
}

}  // namespace
}  // namespace tutti::system_test
