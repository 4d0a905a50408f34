// Captured calls between processes: all ranks launch, several times in a row.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "system/ranks.h"

namespace tutti::system_test {
namespace {

using namespace std::chrono_literals;

class CapturedBetweenProcesses : public testing::TestWithParam<Path> {};

TEST_P(CapturedBetweenProcesses, RunsAtEachLaunch) {
  constexpr int kProcesses = 3;
  constexpr int kLaunches = 5;
  constexpr size_t kCount = 50000;
  RankProcesses ranks(kProcesses, GetParam(), [](Rank& self, const ChildSide& parent) {
    cudaStream_t stream = nullptr;
    int* input = nullptr;
    int* output = nullptr;
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate", parent);
    must(cudaMalloc(reinterpret_cast<void**>(&input), kCount * sizeof(int)), "cudaMalloc", parent);
    must(cudaMalloc(reinterpret_cast<void**>(&output), kCount * sizeof(int)), "cudaMalloc", parent);
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "begin", parent);
    // One launch multiplies the input by the number of ranks.
    must(ncclAllReduce(input, output, kCount, ncclInt32, ncclSum, self.comm, stream), "ncclAllReduce",
         parent);
    must(cudaMemcpyAsync(input, output, kCount * sizeof(int), cudaMemcpyDeviceToDevice, stream), "copy",
         parent);
    must(ncclBroadcast(input, input, kCount, ncclInt32, 1, self.comm, stream), "ncclBroadcast", parent);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    must(cudaStreamEndCapture(stream, &graph), "end", parent);
    must(cudaGraphInstantiate(&exec, graph, 0), "instantiate", parent);
    must(cudaGraphDestroy(graph), "destroy", parent);
    std::fill_n(input, kCount, 1);
    for (int launch = 0; launch < kLaunches; ++launch) must(cudaGraphLaunch(exec, stream), "launch", parent);
    must(cudaStreamSynchronize(stream), "synchronize", parent);
    const bool right = std::all_of(input, input + kCount, [](int one) { return one == 243; });  // 3^5
    must(cudaGraphExecDestroy(exec), "destroy", parent);
    must(ncclCommDestroy(self.comm), "ncclCommDestroy", parent);
    return right ? 0 : 3;
  });
  ranks.expectSuccess(30s);
}

INSTANTIATE_TEST_SUITE_P(Paths, CapturedBetweenProcesses,
                         testing::Values(Path::sharedMemory, Path::sockets, Path::hosts),
                         [](const auto& each) { return nameOf(each.param); });

}  // namespace
}  // namespace tutti::system_test
