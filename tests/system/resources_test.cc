// What a communicator holds goes away with it, and what it does not need it does not use.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "system/process_probe.h"
#include "system/ranks.h"

namespace tutti::system_test {
namespace {

using namespace std::chrono_literals;

struct Holdings {
  int threads;
  int descriptors;
  long kilobytes;
};

Holdings holdings() {
  // Threads that were joined or told to end may need a moment to leave /proc.
  std::this_thread::sleep_for(20ms);
  return {countThreads(), countDescriptors(), privateKilobytes()};
}

/// One communicator over all ranks of this process: init, a collective on each rank, destroy.
void oneCycle(int ranks, const ChildSide& parent) {
  constexpr size_t kCount = 10000;
  std::vector<ncclComm_t> comms(static_cast<size_t>(ranks));
  std::vector<void*> data(static_cast<size_t>(ranks));
  std::vector<cudaStream_t> streams(static_cast<size_t>(ranks));
  must(ncclCommInitAll(comms.data(), ranks, nullptr), "ncclCommInitAll", parent);
  for (int i = 0; i < ranks; ++i) {
    must(cudaSetDevice(i), "cudaSetDevice", parent);
    must(cudaStreamCreate(&streams[i]), "cudaStreamCreate", parent);
    must(cudaMalloc(&data[i], kCount * sizeof(float)), "cudaMalloc", parent);
  }
  must(ncclGroupStart(), "ncclGroupStart", parent);
  for (int i = 0; i < ranks; ++i)
    must(ncclAllReduce(data[i], data[i], kCount, ncclFloat, ncclSum, comms[i], streams[i]), "ncclAllReduce",
         parent);
  must(ncclGroupEnd(), "ncclGroupEnd", parent);
  for (int i = 0; i < ranks; ++i) {
    must(cudaStreamSynchronize(streams[i]), "cudaStreamSynchronize", parent);
    must(ncclCommDestroy(comms[i]), "ncclCommDestroy", parent);
    must(cudaFree(data[i]), "cudaFree", parent);
    must(cudaStreamDestroy(streams[i]), "cudaStreamDestroy", parent);
  }
}

std::string differences(const Holdings& before, const Holdings& after) {
  std::string text;
  if (after.threads > before.threads)
    text += " threads " + std::to_string(before.threads) + " -> " + std::to_string(after.threads);
  // Fewer is no leak: the process may have let go of something only after `before` was taken.
  if (after.descriptors > before.descriptors)
    text += " descriptors " + std::to_string(before.descriptors) + " -> " + std::to_string(after.descriptors);
  // Some slack for the allocator; a cycle that leaked a page would show as 400 KiB.
  if (!underSanitizer() && after.kilobytes > before.kilobytes + 300)
    text += " private KiB " + std::to_string(before.kilobytes) + " -> " + std::to_string(after.kilobytes);
  return text;
}

/// Waits for threads and descriptors that are on their way out; "" when nothing is left over.
std::string leftOver(const Holdings& before) {
  std::string text;
  for (int i = 0; i < 100; ++i) {
    text = differences(before, holdings());
    if (text.empty()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return text;
}

/// The host runtime keeps the worker thread of a stream that had queued work once; whether a cycle queues any
/// depends on timing. Counted from the start, it makes no difference.
void startWorker(const ChildSide& parent) {
  const auto nothing = [](void*) {};
  must(cudaLaunchHostFunc(nullptr, nothing, nullptr), "cudaLaunchHostFunc", parent);
  must(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", parent);
}

TEST(HundredCycles, OfOneProcessLeaveEverythingAsItWas) {
  const auto files = sharedMemoryFiles();
  Child child([](const ChildSide& parent) {
    for (int i = 0; i < 50; ++i) oneCycle(4, parent);  // until the allocator has its arenas
    const Holdings before = holdings();
    for (int i = 0; i < 100; ++i) oneCycle(4, parent);
    parent.say("left:" + leftOver(before));
    return 0;
  });
  EXPECT_EQ(child.expectLine("left:", in(60s)), "");
  EXPECT_EQ(child.wait(in(10s)), 0);
  EXPECT_EQ(sharedMemoryFiles(), files);
}

class BetweenProcesses : public testing::TestWithParam<Path> {};

TEST_P(BetweenProcesses, HundredCyclesLeaveEverythingAsItWas) {
  // Ids of later cycles travel by the communicator before: rank 0 broadcasts the next one.
  const auto files = sharedMemoryFiles();
  RankProcesses ranks(2, GetParam(), [](Rank& self, const ChildSide& parent) {
    void* data = nullptr;
    must(cudaMalloc(&data, sizeof(ncclUniqueId)), "cudaMalloc", parent);
    startWorker(parent);
    Holdings before{};
    for (int cycle = 0; cycle < 110; ++cycle) {
      if (cycle == 10) before = holdings();
      ncclUniqueId id{};
      if (self.rank == 0) must(ncclGetUniqueId(&id), "ncclGetUniqueId", parent);
      must(cudaMemcpy(data, &id, sizeof id, cudaMemcpyHostToDevice), "cudaMemcpy", parent);
      must(ncclBroadcast(data, data, sizeof id, ncclChar, 0, self.comm, nullptr), "ncclBroadcast", parent);
      must(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", parent);
      must(cudaMemcpy(&id, data, sizeof id, cudaMemcpyDeviceToHost), "cudaMemcpy", parent);
      ncclComm_t next = nullptr;
      must(ncclCommInitRank(&next, self.ranks, id, self.rank), "ncclCommInitRank", parent);
      must(ncclCommDestroy(self.comm), "ncclCommDestroy", parent);
      self.comm = next;
    }
    parent.say("left:" + leftOver(before));
    must(ncclCommDestroy(self.comm), "ncclCommDestroy", parent);
    cudaFree(data);
    return 0;
  });
  for (int rank = 0; rank < ranks.size(); ++rank)
    EXPECT_EQ(ranks[rank].expectLine("left:", in(60s)), "") << rank;
  ranks.expectSuccess(10s);
  EXPECT_EQ(sharedMemoryFiles(), files);
}

TEST_P(BetweenProcesses, AnIdleCommunicatorUsesNoProcessorTime) {
  RankProcesses ranks(3, GetParam(), [](Rank& self, const ChildSide& parent) {
    void* data = nullptr;
    must(cudaMalloc(&data, 1 << 20), "cudaMalloc", parent);
    for (int i = 0; i < 10; ++i)
      must(ncclAllReduce(data, data, 1 << 18, ncclFloat, ncclSum, self.comm, nullptr), "ncclAllReduce",
           parent);
    must(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", parent);
    std::this_thread::sleep_for(300ms);  // spinning after the last operation is bounded, and over by now
    const double before = processorSeconds();
    std::this_thread::sleep_for(1000ms);
    parent.say("used " + std::to_string(1000 * (processorSeconds() - before)));
    must(ncclAllReduce(data, data, 1 << 18, ncclFloat, ncclSum, self.comm, nullptr), "ncclAllReduce", parent);
    must(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", parent);
    must(ncclCommDestroy(self.comm), "ncclCommDestroy", parent);
    return 0;
  });
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const std::string milliseconds = ranks[rank].expectLine("used ", in(20s));
    if (!milliseconds.empty()) {
      EXPECT_LT(std::stod(milliseconds), 5) << "of 1000 ms, rank " << rank;
    }
  }
  ranks.expectSuccess(10s);
}

INSTANTIATE_TEST_SUITE_P(Paths, BetweenProcesses,
                         testing::Values(Path::sharedMemory, Path::sockets, Path::hosts),
                         [](const auto& each) { return std::string(nameOf(each.param)); });

}  // namespace
}  // namespace tutti::system_test
