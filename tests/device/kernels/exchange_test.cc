// Messages between ranks: counters, places, sizes, chained calls.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "device/kernels/rig.h"

namespace tutti::device {
namespace {

class ExchangeKernels : public testing::TestWithParam<Protocol> {};
std::vector<float> ascending(size_t count, float first) {
  std::vector<float> result(count);
  std::iota(result.begin(), result.end(), first);
  return result;
}
void put(const DeviceBytes& memory, const std::vector<float>& values) {
  std::memcpy(memory.data(), values.data(), values.size() * sizeof(float));
}
std::vector<float> get(const DeviceBytes& memory, size_t count) {
  std::vector<float> result(count);
  std::memcpy(result.data(), memory.data(), count * sizeof(float));
  return result;
}

/// Both ranks send their input and keep what they get.
const Program* swapProgram(Rig& rig, int32_t rank, int32_t pieces) {
  ProgramText text(rank, 2);
  text.head.parts = pieces;
  LaneText& lane = text.lane();
  lane.send(1 - rank, placeIn(BufferKind::input, {}, pieces), pieces);
  lane.receive(1 - rank, placeIn(BufferKind::output, {}, pieces), pieces);
  return rig.upload(text);
}

}  // namespace

TEST_P(ExchangeKernels, MoreMessagesThanPlacesArriveInOrder) {
  Rig rig({.channels = 2});
  constexpr size_t kCount = 20'011;  // more than 8 slices a channel
  std::vector<std::unique_ptr<DeviceBytes>> memory;
  for (int i = 0; i < 4; ++i) memory.push_back(std::make_unique<DeviceBytes>(kCount * sizeof(float)));
  const Program* programs[] = {swapProgram(rig, 0, 1), swapProgram(rig, 1, 1)};
  for (int round = 0; round < 3; ++round) {
    for (int32_t rank = 0; rank < 2; ++rank) {
      put(*memory[static_cast<size_t>(rank)], ascending(kCount, static_cast<float>(1000 * round + rank)));
      const Call call = rig.call(programs[rank], memory[static_cast<size_t>(rank)]->data(),
                                 memory[static_cast<size_t>(2 + rank)]->data(), kCount, 1024, sizeof(float));
      ASSERT_GT(call.slices, kFifoDepth);
      rig.launch(rank, ncclFloat32, GetParam(), call);
    }
    ASSERT_EQ(rig.synchronize(), cudaSuccess);
    EXPECT_EQ(get(*memory[2], kCount), ascending(kCount, static_cast<float>(1000 * round + 1)));
    EXPECT_EQ(get(*memory[3], kCount), ascending(kCount, static_cast<float>(1000 * round)));
  }
}

TEST_P(ExchangeKernels, ThePiecesOfAMessageNeedNotBeFull) {
  Rig rig({});
  for (const int32_t pieces : {3, 40}) {
    for (const size_t count : {1u, 77u, 130u, 2000u}) {
      std::vector<std::unique_ptr<DeviceBytes>> memory;
      for (int i = 0; i < 4; ++i) memory.push_back(std::make_unique<DeviceBytes>(count * sizeof(float)));
      for (int32_t rank = 0; rank < 2; ++rank) {
        put(*memory[static_cast<size_t>(rank)], ascending(count, static_cast<float>(7 * rank)));
        rig.launch(rank, ncclFloat32, GetParam(),
                   rig.call(swapProgram(rig, rank, pieces), memory[static_cast<size_t>(rank)]->data(),
                            memory[static_cast<size_t>(2 + rank)]->data(), count, pieces == 3 ? 304 : 16,
                            sizeof(float)));
      }
      ASSERT_EQ(rig.synchronize(), cudaSuccess);
      EXPECT_EQ(get(*memory[2], count), ascending(count, 7)) << pieces << " pieces, " << count << " elements";
      EXPECT_EQ(get(*memory[3], count), ascending(count, 0)) << pieces << " pieces, " << count << " elements";
    }
  }
}

TEST_P(ExchangeKernels, ProtocolsTakeTurnsOnAConnection) {
  Rig rig({});
  constexpr size_t kCount = 3000;
  DeviceBytes input(kCount * sizeof(float));
  DeviceBytes output(kCount * sizeof(float));
  const Program* programs[] = {swapProgram(rig, 0, 1), swapProgram(rig, 1, 1)};
  const Protocol turns[] = {GetParam(),      Protocol::simple, GetParam(),
                            Protocol::ll128, GetParam(),       Protocol::ll};
  float first = 1;
  for (const Protocol protocol : turns) {
    put(input, ascending(kCount, first));
    DeviceBytes sent(kCount * sizeof(float));
    DeviceBytes kept(kCount * sizeof(float));
    rig.launch(0, ncclFloat32, protocol,
               rig.call(programs[0], input.data(), kept.data(), kCount, 512, sizeof(float)));
    rig.launch(1, ncclFloat32, protocol,
               rig.call(programs[1], sent.data(), output.data(), kCount, 512, sizeof(float)));
    ASSERT_EQ(rig.synchronize(), cudaSuccess);
    EXPECT_EQ(get(output, kCount), ascending(kCount, first));
    first += 1;
  }
}

TEST_P(ExchangeKernels, ACallWithoutElementsStillExchangesMessages) {
  Rig rig({});
  DeviceBytes nothing(16);
  for (int32_t rank = 0; rank < 2; ++rank) {
    rig.launch(rank, ncclFloat32, GetParam(),
               rig.call(swapProgram(rig, rank, 1), nothing.data(), nothing.data(), 0, 512, sizeof(float)));
  }
  ASSERT_EQ(rig.synchronize(), cudaSuccess);
  const Comm& comm = rig.comm(0);
  EXPECT_EQ(*comm.senders[comm.linkIndex(0, 0, 1)].sent, 1u);
  EXPECT_EQ(*comm.receivers[comm.linkIndex(0, 0, 1)].received, 1u);
  EXPECT_EQ(*comm.senders[comm.linkIndex(0, 0, 1)].head, 1u);
}

TEST_P(ExchangeKernels, CallsOfAChainFollowEachOther) {
  Rig rig({});
  constexpr size_t kCount = 700;
  constexpr uint32_t kCalls = 12;  // more than the arguments hold
  DeviceBytes input(kCalls * kCount * sizeof(float));
  DeviceBytes output(kCalls * kCount * sizeof(float));
  put(input, ascending(kCalls * kCount, 1));
  for (int32_t rank = 0; rank < 2; ++rank) {
    ProgramText text(rank, 2);
    if (rank == 0) {
      text.lane().send(1, placeIn(BufferKind::input, {}));
    } else {
      text.lane().receive(0, placeIn(BufferKind::output, {}));
    }
    const Program* program = rig.upload(text);
    std::vector<Call> calls;
    for (uint32_t i = 0; i < kCalls; ++i) {
      const size_t offset = i * kCount * sizeof(float);
      calls.push_back(
          rig.call(program, input.data() + offset, output.data() + offset, kCount, 256, sizeof(float)));
      calls.back().next = i + 1 < kCalls ? i + 1 : 0;
    }
    LaunchArguments arguments = rig.arguments(rank, calls);
    arguments.heads = 1;
    rig.launch(rank, kernelTwin(ncclFloat32, GetParam()), arguments, 1);
  }
  ASSERT_EQ(rig.synchronize(), cudaSuccess);
  EXPECT_EQ(get(output, kCalls * kCount), ascending(kCalls * kCount, 1));
}

TEST_P(ExchangeKernels, CallsOfAGroupRunSideBySide) {
  Rig rig({});
  constexpr size_t kCount = 3000;
  std::vector<std::unique_ptr<DeviceBytes>> memory;
  for (int i = 0; i < 4; ++i) memory.push_back(std::make_unique<DeviceBytes>(kCount * sizeof(float)));
  for (int32_t rank = 0; rank < 2; ++rank) {
    put(*memory[static_cast<size_t>(rank)], ascending(kCount, static_cast<float>(rank)));
    ProgramText sends(rank, 2);
    sends.lane().send(1 - rank, placeIn(BufferKind::input, {}));
    ProgramText receives(rank, 2);
    receives.lane().receive(1 - rank, placeIn(BufferKind::output, {}));
    // Neither would end alone: more messages than places.
    const std::byte* in = memory[static_cast<size_t>(rank)]->data();
    std::byte* out = memory[static_cast<size_t>(2 + rank)]->data();
    const Call send = rig.call(rig.upload(sends), in, nullptr, kCount, 128, sizeof(float));
    const Call receive = rig.call(rig.upload(receives), nullptr, out, kCount, 128, sizeof(float));
    ASSERT_GT(send.slices, kFifoDepth);
    rig.launch(rank, kernelTwin(ncclFloat32, GetParam()), rig.arguments(rank, {send, receive}), 2);
  }
  ASSERT_EQ(rig.synchronize(), cudaSuccess);
  EXPECT_EQ(get(*memory[2], kCount), ascending(kCount, 1));
  EXPECT_EQ(get(*memory[3], kCount), ascending(kCount, 0));
}

TEST_P(ExchangeKernels, ALinkMayVaryWithTheIteration) {
  Rig rig({.ranks = 4});
  constexpr size_t kCount = 600;
  DeviceBytes input(kCount * sizeof(float));
  DeviceBytes output(3 * kCount * sizeof(float));
  put(input, ascending(kCount, 5));
  for (int32_t rank = 0; rank < 4; ++rank) {
    ProgramText text(rank, 4);
    text.head.blocksOfData = 3;
    text.head.outputHoldsAll = 1;
    LaneText& lane = text.lane();
    if (rank == 0) {
      lane.loop(3);
      Step& step = lane.step(StepKind::recv);
      lane.writesTo(step, placeIn(BufferKind::output, {0, 1, 3}, 3));
      lane.receivesFromEach(step, {3, 1, 2});
    } else {
      lane.send(0, placeIn(BufferKind::input, {}, 3));
    }
    rig.launch(rank, ncclFloat32, GetParam(),
               rig.call(rig.upload(text), input.data(), output.data(), kCount, 256, sizeof(float)));
  }
  ASSERT_EQ(rig.synchronize(), cudaSuccess);
  std::vector<float> expected;
  for (int i = 0; i < 3; ++i) {
    const auto part = ascending(kCount, 5);
    expected.insert(expected.end(), part.begin(), part.end());
  }
  EXPECT_EQ(get(output, 3 * kCount), expected);
}

INSTANTIATE_TEST_SUITE_P(, ExchangeKernels, testing::Values(Protocol::simple, Protocol::ll, Protocol::ll128),
                         nameOf);

TEST(ExchangeKernelsSimple, BlocksMayDiffer) {
  Rig rig({});
  // Rank 1 gathers blocks of 5 and 900 elements, at offsets 1000 and 3.
  const uint64_t sizes[] = {5, 900, 1000, 3};
  DeviceBytes table(sizeof sizes);
  std::memcpy(table.data(), sizes, sizeof sizes);
  DeviceBytes own(900 * sizeof(float));
  DeviceBytes sent(5 * sizeof(float));
  DeviceBytes output(1005 * sizeof(float));
  put(own, ascending(900, 100));
  put(sent, ascending(5, 1));
  for (int32_t rank = 0; rank < 2; ++rank) {
    ProgramText text(rank, 2);
    text.head.blocksOfData = 2;
    text.head.outputHoldsAll = 1;
    LaneText& lane = text.lane();
    if (rank == 0) {
      lane.send(1, placeIn(BufferKind::input, {0}, 2));
    } else {
      lane.receive(0, placeIn(BufferKind::output, {0}, 2));
      Step& copy = lane.step(StepKind::copy);
      lane.readsFrom(copy, placeIn(BufferKind::input, {1}, 2));
      lane.writesTo(copy, placeIn(BufferKind::output, {1}, 2));
    }
    Call call = rig.call(rig.upload(text), rank == 0 ? sent.data() : own.data(), output.data(), 900, 256,
                         sizeof(float));
    call.blockCounts = table.as<uint64_t>();
    call.blockOffsets = table.as<uint64_t>() + 2;
    rig.launch(rank, ncclFloat32, Protocol::simple, call);
  }
  ASSERT_EQ(rig.synchronize(), cudaSuccess);
  std::vector<float> expected(1005, 0.0f);
  for (size_t i = 0; i < 900; ++i) expected[3 + i] = static_cast<float>(100 + i);
  for (size_t i = 0; i < 5; ++i) expected[1000 + i] = static_cast<float>(1 + i);
  EXPECT_EQ(get(output, 1005), expected);
}

TEST(ExchangeKernelsSimple, AMessageOfUnknownSizeIsForwarded) {
  Rig rig({.ranks = 3});
  constexpr size_t kCount = 333;
  DeviceBytes input(kCount * sizeof(float));
  DeviceBytes output(kCount * sizeof(float));
  put(input, ascending(kCount, 2));
  for (int32_t rank = 0; rank < 3; ++rank) {
    ProgramText text(rank, 3);
    LaneText& lane = text.lane();
    if (rank == 0) lane.send(1, placeIn(BufferKind::input, {}));
    if (rank == 1) {
      Step& step = lane.step(StepKind::recvSend);
      step.sizeKnown = 0;
      lane.receivesFrom(step, 0);
      lane.sendsTo(step, 2);
      text.head.hasUnknownSizes = 1;
    }
    if (rank == 2) lane.receive(1, placeIn(BufferKind::output, {}));
    rig.launch(rank, ncclFloat32, Protocol::simple,
               rig.call(rig.upload(text), input.data(), output.data(), kCount, 1024, sizeof(float)));
  }
  ASSERT_EQ(rig.synchronize(), cudaSuccess);
  EXPECT_EQ(get(output, kCount), ascending(kCount, 2));
}

}  // namespace tutti::device
