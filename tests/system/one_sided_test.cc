// One-sided communication between processes: through mapped windows, and by messages.
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "support/scale.h"
#include "system/ranks.h"

namespace tutti::system_test {
namespace {

using namespace std::chrono_literals;

struct WindowCase {
  Path path;
  bool mappable;  // the windows are of ncclMemAlloc
};

class OneSided : public testing::TestWithParam<WindowCase> {};

/// Every rank writes its part of everyone's window, over and over, and checks what it was given.
int exchange(Rank& self, const ChildSide& parent, bool mappable) {
  const size_t count = test::scaled<size_t>(300'000, 70'000);  // of each part: more than one message
  const size_t bytes = count * sizeof(int) * static_cast<size_t>(self.ranks);
  void* memory = nullptr;
  std::vector<char> plain(mappable ? 0 : bytes);
  if (mappable) {
    must(ncclMemAlloc(&memory, bytes), "ncclMemAlloc", parent);
  } else {
    memory = plain.data();
  }
  cudaStream_t stream = nullptr;
  must(cudaStreamCreate(&stream), "cudaStreamCreate", parent);
  ncclWindow_t window = nullptr;
  must(ncclCommWindowRegister(self.comm, memory, bytes, &window, NCCL_WIN_DEFAULT), "ncclCommWindowRegister",
       parent);
  std::vector<int> mine(count);
  std::vector<ncclWaitSignalDesc_t> waits;
  for (int peer = 0; peer < self.ranks; ++peer) waits.push_back({1, peer, 0, 0});
  for (int round = 1; round <= 5; ++round) {
    std::fill(mine.begin(), mine.end(), 100 * round + self.rank);
    for (int peer = 0; peer < self.ranks; ++peer)
      must(ncclPutSignal(mine.data(), count, ncclInt, peer, window,
                         static_cast<size_t>(self.rank) * count * sizeof(int), 0, 0, 0, self.comm, stream),
           "ncclPutSignal", parent);
    must(ncclWaitSignal(self.ranks, waits.data(), self.comm, stream), "ncclWaitSignal", parent);
    must(cudaStreamSynchronize(stream), "cudaStreamSynchronize", parent);
    for (int peer = 0; peer < self.ranks; ++peer)
      for (size_t i = 0; i < count; ++i)
        if (static_cast<int*>(memory)[static_cast<size_t>(peer) * count + i] != 100 * round + peer) return 2;
    for (int peer = 0; peer < self.ranks; ++peer)
      must(ncclSignal(peer, 0, 0, 0, self.comm, stream), "ncclSignal", parent);
    must(ncclWaitSignal(self.ranks, waits.data(), self.comm, stream), "ncclWaitSignal", parent);
  }
  must(cudaStreamSynchronize(stream), "cudaStreamSynchronize", parent);
  must(ncclCommWindowDeregister(self.comm, window), "ncclCommWindowDeregister", parent);
  must(ncclCommDestroy(self.comm), "ncclCommDestroy", parent, self.comm);
  if (mappable) must(ncclMemFree(memory), "ncclMemFree", parent);
  cudaStreamDestroy(stream);
  return 0;
}

TEST_P(OneSided, PutsBetweenProcessesArriveBeforeTheirSignals) {
  RankProcesses ranks(3, GetParam().path,
                      [mappable = GetParam().mappable](Rank& self, const ChildSide& parent) {
                        return exchange(self, parent, mappable);
                      });
  ranks.expectSuccess(60s);
}

INSTANTIATE_TEST_SUITE_P(Paths, OneSided,
                         testing::Values(WindowCase{Path::sharedMemory, true},
                                         WindowCase{Path::sharedMemory, false},
                                         WindowCase{Path::sockets, true}),
                         [](const auto& each) {
                           return std::string(nameOf(each.param.path)) +
                                  (each.param.mappable ? "Mapped" : "Plain");
                         });

}  // namespace
}  // namespace tutti::system_test
