// Streams, graphs and failures of the executor on virtual GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "device_team.h"

namespace tutti {
namespace {

using test::Call;
using test::CallBuffers;
using test::DeviceTeam;
using test::kProtocols;
using testing::HasSubstr;

Call callOf(const char* algorithm, size_t count, size_t salt, int channels = 2) {
  Call call;
  call.algorithm = algorithm;
  call.count = count;
  call.salt = salt;
  call.channels = channels;
  return call;
}

TEST(DeviceOrder, CallsOnTwoStreamsRunInTheOrderInWhichTheyWereEnqueued) {
  DeviceTeam team({.ranks = 3});
  // Each call's input is the output of the one before, on the other stream.
  const size_t count = 900;
  CallBuffers first(3, callOf("ring", count, 1));
  team.enqueue(first, Protocol::ll, 0);
  std::vector<std::vector<float>> outputs(3);
  std::vector<std::vector<float>> last(3);
  for (auto& output : outputs) output.resize(count);
  for (auto& output : last) output.resize(count);
  for (int step = 0; step < 2; ++step) {
    for (int r = 0; r < 3; ++r) {
      const auto rank = static_cast<size_t>(r);
      CudaCall call = team.call(first, r, kProtocols[step + 1]);
      call.input = step == 0 ? static_cast<const void*>(first.output(r)) : outputs[rank].data();
      call.output = step == 0 ? outputs[rank].data() : last[rank].data();
      ASSERT_TRUE(team.executor(r).enqueue(call, team.stream(r, (step + 1) % 2)).isOk());
    }
  }
  team.synchronize();
  first.expectRight();
  for (int r = 0; r < 3; ++r) {
    const auto* sums = reinterpret_cast<const float*>(first.output(r));
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(last[static_cast<size_t>(r)][i], 9 * sums[i]);
  }
}

TEST(DeviceOrder, AStreamMayBeDestroyedRightAfterItsCall) {
  DeviceTeam team({.ranks = 2});
  std::vector<CallBuffers> calls;
  for (size_t n = 0; n < 6; ++n) {
    calls.emplace_back(2, callOf("ring", 5000, n));
    for (int r = 0; r < 2; ++r) {
      cudaStream_t stream = nullptr;
      ASSERT_EQ(cudaSetDevice(team.device(r)), cudaSuccess);
      ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
      ASSERT_TRUE(team.executor(r).enqueue(team.call(calls.back(), r, kProtocols[n % 3]), stream).isOk());
      ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    }
  }
  for (int r = 0; r < 2; ++r) {
    while (!team.executor(r).isIdle().value()) std::this_thread::yield();
  }
  for (const auto& call : calls) call.expectRight();
}

// ---- graphs

class DeviceGraphs : public testing::TestWithParam<Protocol> {};
INSTANTIATE_TEST_SUITE_P(Protocols, DeviceGraphs, testing::ValuesIn(kProtocols));

TEST_P(DeviceGraphs, ReplayCollectivesAndMessagesBetweenOtherCalls) {
  constexpr int kRanks = 3;
  DeviceTeam team({.ranks = kRanks});
  std::vector<CallBuffers> captured;
  captured.emplace_back(kRanks, callOf("ring", 1200, 1));
  captured.emplace_back(kRanks, callOf("oneshot", 700, 2));
  captured.emplace_back(kRanks, callOf("direct", 1000, 3));
  captured.emplace_back(kRanks, callOf("tree", 800, 4));
  std::array<std::byte, kRanks * kRanks * 500> sent{};
  std::array<std::byte, kRanks * kRanks * 500> received{};
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 11 + i / 255);

  std::vector<cudaGraphExec_t> graphs;
  for (int r = 0; r < kRanks; ++r) {
    ASSERT_EQ(cudaSetDevice(team.device(r)), cudaSuccess);
    cudaStream_t stream = team.stream(r);
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    for (const CallBuffers& buffers : captured) {
      auto facts = team.executor(r).enqueue(team.call(buffers, r, GetParam()), stream);
      ASSERT_TRUE(facts.isOk()) << facts.status().message();
    }
    std::vector<CudaCall> messages;  // more than fit into a launch's arguments
    for (int peer = 0; peer < kRanks; ++peer) {
      for (int part = 0; part < 2; ++part) {
        const auto bytesOf = [&](auto& all, int from, int to) {
          return all.data() + (from * kRanks + to) * 500 + part * 250;
        };
        messages.push_back(team.message(r, r, peer, bytesOf(sent, r, peer), 250, 1, GetParam()));
        messages.back().output = bytesOf(received, r, peer);
        if (peer != r)
          messages.push_back(team.message(r, peer, r, bytesOf(received, peer, r), 250, 1, GetParam()));
      }
    }
    auto facts = team.executor(r).enqueueMessages(messages, stream);
    ASSERT_TRUE(facts.isOk()) << facts.status().message();
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    cudaGraphExec_t instance = nullptr;
    ASSERT_EQ(cudaGraphInstantiate(&instance, graph, 0), cudaSuccess);
    ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    graphs.push_back(instance);
  }
  for (size_t replay = 0; replay < 3; ++replay) {
    for (auto& buffers : captured) buffers.restore();
    received.fill({});
    for (int r = 0; r < kRanks; ++r)
      ASSERT_EQ(cudaGraphLaunch(graphs[static_cast<size_t>(r)], team.stream(r)), cudaSuccess);
    CallBuffers between(kRanks, callOf("oneshot", 333, 10 + replay));
    team.enqueue(between, Protocol::simple);  // moves the parity of shared scratch
    team.synchronize();
    between.expectRight();
    for (const auto& buffers : captured) buffers.expectRight();
    EXPECT_EQ(received, sent);
    if (HasFailure()) break;
  }
  for (cudaGraphExec_t graph : graphs) EXPECT_EQ(cudaGraphExecDestroy(graph), cudaSuccess);
}

// ---- failures

TEST(DeviceFailures, AMessageOfTheWrongSizeIsReported) {
  DeviceTeam team({.ranks = 2});
  std::vector<std::byte> memory(4096);
  ASSERT_TRUE(
      team.executor(0)
          .enqueueMessages(std::vector<CudaCall>{team.message(0, 0, 1, memory.data(), 400)}, team.stream(0))
          .isOk());
  ASSERT_TRUE(team.executor(1)
                  .enqueueMessages(std::vector<CudaCall>{team.message(1, 0, 1, memory.data() + 2048, 800)},
                                   team.stream(1))
                  .isOk());
  team.synchronize();
  EXPECT_TRUE(team.executor(0).reportedError().isOk());
  const Status reported = team.executor(1).reportedError();
  EXPECT_EQ(reported.code(), ncclInvalidUsage);
  EXPECT_THAT(reported.message(),
              HasSubstr("rank 1: rank 0 sent 400 bytes where 800 were expected: the ranks' "
                        "calls do not match (channel 0 lane 0 step 1)"));
  EXPECT_FALSE(
      team.executor(1)
          .enqueueMessages(std::vector<CudaCall>{team.message(1, 0, 1, memory.data(), 4)}, team.stream(1))
          .isOk());
}

class DeviceAborts : public testing::TestWithParam<Protocol> {};
INSTANTIATE_TEST_SUITE_P(Protocols, DeviceAborts, testing::ValuesIn(kProtocols));

TEST_P(DeviceAborts, EndKernelsThatWaitForARankThatDoesNotCome) {
  DeviceTeam team({.ranks = 3});
  std::vector<CallBuffers> calls;
  calls.emplace_back(3, callOf("ring", 2000, 1));
  calls.emplace_back(3, callOf("oneshot", 2000, 2));
  for (const CallBuffers& buffers : calls) {
    for (int r = 0; r < 2; ++r)
      ASSERT_TRUE(team.executor(r).enqueue(team.call(buffers, r, GetParam()), team.stream(r)).isOk());
  }
  // A wait that lasts is told.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (team.executor(0).position().empty() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_THAT(team.executor(0).position(), HasSubstr("channel 0 lane 0 slice 0 step "));
  EXPECT_THAT(team.executor(0).position(), HasSubstr(" waits for data from rank 2"));
  EXPECT_FALSE(team.isIdle());
  EXPECT_FALSE(team.executor(0).isIdle().value());
  for (int r = 0; r < 2; ++r) team.executor(r).abort();
  EXPECT_TRUE(team.isIdleWithin(std::chrono::seconds(5)));
  EXPECT_TRUE(team.executor(0).isIdle().value());
  EXPECT_TRUE(team.executor(0).reportedError().isOk());
  EXPECT_FALSE(team.executor(0).enqueue(team.call(calls[0], 0, GetParam()), team.stream(0)).isOk());
}

TEST(DeviceLimits, MoreBlocksThanADeviceRunsAreRefusedBeforeAnythingWaits) {
  DeviceTeam team({.ranks = 8, .devices = 1, .channels = 32});  // 16 multiprocessors with 32 blocks
  CallBuffers buffers(8, callOf("tree", 100, 1, 32));           // four lanes
  EXPECT_THAT(team.executor(3)
                  .supports(*team.schedule("tree", Collective::allReduce, 0, 3), Protocol::simple, 32)
                  .message(),
              HasSubstr("for each of its 8 ranks"));
  EXPECT_FALSE(team.executor(3).enqueue(team.call(buffers, 3, Protocol::simple), team.stream(3)).isOk());
  CallBuffers fewer(8, callOf("tree", 100, 1, 2));
  team.enqueue(fewer, Protocol::simple);
  team.synchronize();
  fewer.expectRight();
}

}  // namespace
}  // namespace tutti
