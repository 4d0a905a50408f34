// Users' buffers that peers work on: their life, and the settings that switch such work off.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <vector>

#include "system/surroundings.h"

namespace tutti::system_test {
namespace {

constexpr auto kLimit = std::chrono::seconds(30);

TEST(MappedBuffers, MayBeFreedAsSoonAsTheirOwnRanksCallHasEnded) {
  RankProcesses ranks(4, Path::sharedMemory, [](Rank& self, const ChildSide& parent) {
    constexpr size_t kCount = 300000;
    for (int call = 0; call < 40; ++call) {
      int* data = nullptr;
      must(cudaMalloc(reinterpret_cast<void**>(&data), kCount * sizeof(int)), "cudaMalloc", parent);
      if (self.rank == call % self.ranks) data[kCount - 1] = call + 1;
      must(ncclBroadcast(data, data, kCount, ncclInt32, call % self.ranks, self.comm, nullptr),
           "ncclBroadcast", parent, self.comm);
      must(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", parent);
      ncclResult_t state = ncclSuccess;
      must(ncclCommGetAsyncError(self.comm, &state), "ncclCommGetAsyncError", parent);
      must(state, "Broadcast", parent, self.comm);
      if (data[kCount - 1] != call + 1) return 2;
      must(cudaFree(data), "cudaFree", parent);
    }
    must(ncclCommDestroy(self.comm), "ncclCommDestroy", parent);
    return 0;
  });
  ranks.expectSuccess(kLimit);
}

TEST(DirectAccess, CanBeSwitchedOffBetweenThreadsOfOneProcess) {
  const Settings off{{"NCCL_P2P_DISABLE", "1"}};
  Child child([](const ChildSide& parent) {
    ncclComm_t comms[2];
    must(ncclCommInitAll(comms, 2, nullptr), "ncclCommInitAll", parent);
    std::vector<std::vector<int>> data(2, std::vector<int>(1000000, 1));
    must(ncclGroupStart(), "ncclGroupStart", parent);
    for (size_t r = 0; r < 2; ++r) {
      must(ncclAllReduce(data[r].data(), data[r].data(), data[r].size(), ncclInt32, ncclSum, comms[r],
                         nullptr),
           "ncclAllReduce", parent, comms[r]);
    }
    must(ncclGroupEnd(), "ncclGroupEnd", parent);
    for (ncclComm_t comm : comms) must(ncclCommFinalize(comm), "ncclCommFinalize", parent, comm);
    for (ncclComm_t comm : comms) must(ncclCommDestroy(comm), "ncclCommDestroy", parent);
    return data[0].back() == 2 && data[1].front() == 2 ? 0 : 2;
  });
  EXPECT_EQ(child.wait(std::chrono::steady_clock::now() + kLimit), 0);
}

TEST(AlgorithmDemand, ThatCannotBeMetIsRefusedByTheCallItself) {
  const Settings tree{{"NCCL_ALGO", "tree"}};
  RankProcesses ranks(2, Path::sharedMemory, [](Rank& self, const ChildSide& parent) {
    std::vector<int> data(1000, 1), gathered(2000);
    if (ncclAllGather(data.data(), gathered.data(), 1000, ncclInt32, self.comm, nullptr) != ncclInvalidUsage)
      return 2;
    // The communicator is none the worse for it, and the tree serves what it can.
    must(ncclAllReduce(data.data(), data.data(), 1000, ncclInt32, ncclSum, self.comm, nullptr),
         "ncclAllReduce", parent, self.comm);
    must(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", parent);
    must(ncclCommDestroy(self.comm), "ncclCommDestroy", parent);
    return data[999] == 2 ? 0 : 3;
  });
  ranks.expectSuccess(kLimit);
}

}  // namespace
}  // namespace tutti::system_test
