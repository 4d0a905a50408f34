// A rank dies in the middle of a collective: the others say so, soon, and nothing is left.
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
using Clock = std::chrono::steady_clock;

constexpr int kRanks = 4;
constexpr int kVictim = 2;

double millisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// AllReduce without end; when the communicator fails: "error MESSAGE", then abort, then "aborted
/// MILLISECONDS".
int reduceUntilFailure(Rank& self, const ChildSide& parent, size_t count) {
  cudaStream_t stream = nullptr;
  void* data = nullptr;
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate", parent);
  must(cudaMalloc(&data, count * sizeof(float)), "cudaMalloc", parent);
  ncclResult_t state = ncclSuccess;
  for (int call = 0; state == ncclSuccess; ++call) {
    const ncclResult_t result = ncclAllReduce(data, data, count, ncclFloat, ncclSum, self.comm, stream);
    if (call == 20) parent.say("running");
    while (result == ncclSuccess && state == ncclSuccess && cudaStreamQuery(stream) == cudaErrorNotReady) {
      must(ncclCommGetAsyncError(self.comm, &state), "ncclCommGetAsyncError", parent);
      std::this_thread::sleep_for(100us);
    }
    must(ncclCommGetAsyncError(self.comm, &state), "ncclCommGetAsyncError", parent);
    if (result != ncclSuccess && state == ncclSuccess) state = result;
  }
  parent.say(std::string("error ") + ncclGetErrorString(state) + ": " + ncclGetLastError(self.comm));
  const Clock::time_point start = Clock::now();
  must(ncclCommAbort(self.comm), "ncclCommAbort", parent);
  parent.say("aborted " + std::to_string(millisecondsSince(start)));
  const cudaError_t drained = cudaStreamSynchronize(stream);
  parent.say(std::string("drained ") + cudaGetErrorString(drained));
  cudaFree(data);
  cudaStreamDestroy(stream);
  return 0;
}

struct Case {
  Path path;
  size_t count;
};

class KilledRank : public testing::TestWithParam<Case> {};

TEST_P(KilledRank, IsNamedByTheOthersWithinFiveSecondsAndAbortReturns) {
  const auto [path, count] = GetParam();
  const auto before = sharedMemoryFiles();
  {
    RankProcesses ranks(kRanks, path, [count = count](Rank& self, const ChildSide& parent) {
      return reduceUntilFailure(self, parent, count);
    });
    for (int rank = 0; rank < kRanks; ++rank) ranks[rank].expectLine("running", in(20s));
    std::this_thread::sleep_for(50ms);
    ranks[kVictim].kill(SIGKILL);
    const Clock::time_point killed = Clock::now();
    const auto deadline = killed + (underSanitizer() ? 15s : 5s);
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == kVictim) continue;
      const std::string message = ranks[rank].expectLine("error ", deadline);
      EXPECT_THAT(message, testing::HasSubstr("rank " + std::to_string(kVictim))) << "said by rank " << rank;
      const std::string took = ranks[rank].expectLine("aborted ", in(5s));
      if (!took.empty()) {
        EXPECT_LT(std::stod(took), 5000);
      }
      ranks[rank].expectLine("drained ", in(5s));
    }
    ranks[kVictim].wait(in(1s));
    for (int rank = 0; rank < kRanks; ++rank)
      if (rank != kVictim) {
        EXPECT_EQ(ranks[rank].wait(in(5s)), 0) << "rank " << rank;
      }
  }
  EXPECT_EQ(sharedMemoryFiles(), before);
}

INSTANTIATE_TEST_SUITE_P(Paths, KilledRank,
                         testing::Values(Case{Path::sharedMemory, 2}, Case{Path::sharedMemory, 4u << 20},
                                         Case{Path::sockets, 2}, Case{Path::sockets, 1u << 20},
                                         Case{Path::hosts, 1u << 20}),
                         [](const auto& each) {
                           return std::string(nameOf(each.param.path)) +
                                  (each.param.count > 100 ? "Large" : "Small");
                         });

TEST(LastRank, ThatNeverComesMakesAbortReturnAllTheSame) {
  // Rank 1 does not take part in the collective; rank 0 gives up.
  RankProcesses ranks(2, Path::sharedMemory, [](Rank& self, const ChildSide& parent) {
    if (self.rank == 1) {
      char go = 0;
      parent.receive(&go, 1);
      return ncclCommAbort(self.comm) == ncclSuccess ? 0 : 1;
    }
    void* data = nullptr;
    must(cudaMalloc(&data, 1 << 20), "cudaMalloc", parent);
    must(ncclAllReduce(data, data, 1 << 18, ncclFloat, ncclSum, self.comm, nullptr), "ncclAllReduce", parent);
    std::this_thread::sleep_for(100ms);
    const bool running = cudaStreamQuery(nullptr) == cudaErrorNotReady;
    must(ncclCommAbort(self.comm), "ncclCommAbort", parent);
    cudaStreamSynchronize(nullptr);
    parent.say(running ? "returned" : "was done before");
    return 0;
  });
  ranks[0].expectLine("returned", in(10s));
  ranks[1].send("x", 1);
  ranks.expectSuccess(10s);
}

// Rank 1 never calls, so that rank 0's ncclCommDestroy waits.
TEST(Destroy, ThatWaitsForAnOperationEndsWhenAnotherThreadAborts) {
  Child child([](const ChildSide& parent) {
    ncclComm_t comms[2];
    must(ncclCommInitAll(comms, 2, nullptr), "ncclCommInitAll", parent);
    void* data = nullptr;
    must(cudaMalloc(&data, 400), "cudaMalloc", parent);
    must(ncclAllReduce(data, data, 100, ncclFloat, ncclSum, comms[0], nullptr), "ncclAllReduce", parent);
    std::thread destroyer([&] { (void)ncclCommDestroy(comms[0]); });
    std::this_thread::sleep_for(100ms);
    const Clock::time_point start = Clock::now();
    must(ncclCommAbort(comms[0]), "ncclCommAbort", parent);
    destroyer.join();
    parent.say("ended " + std::to_string(millisecondsSince(start)));
    must(ncclCommAbort(comms[1]), "ncclCommAbort", parent);
    return 0;
  });
  const std::string took = child.expectLine("ended ", in(10s));
  if (!took.empty()) {
    EXPECT_LT(std::stod(took), 5000);
  }
  EXPECT_EQ(child.wait(in(10s)), 0);
}

}  // namespace
}  // namespace tutti::system_test
