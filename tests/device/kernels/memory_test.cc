// Steps in memory: flags, peers' buffers, scratch, teams, copies in place.
#include <gtest/gtest.h>

#include <cstring>

#include "device/kernels/rig.h"

namespace tutti::device {
namespace {

constexpr size_t kCount = 5000;

struct Vectors {
  explicit Vectors(size_t number) {
    for (size_t i = 0; i < number; ++i) {
      memory.push_back(std::make_unique<DeviceBytes>(kCount * sizeof(int32_t)));
      for (size_t k = 0; k < kCount; ++k) memory[i]->as<int32_t>()[k] = static_cast<int32_t>(1000 * i + k);
    }
  }
  int32_t* operator[](size_t i) const { return memory[i]->as<int32_t>(); }
  std::vector<std::unique_ptr<DeviceBytes>> memory;
};

std::vector<int32_t> others(int32_t rank, int32_t ranks) {
  std::vector<int32_t> result;
  for (int32_t i = 0; i < ranks; ++i) {
    if (i != rank) result.push_back(i);
  }
  return result;
}

/// Every rank adds all inputs, where they lie, and then waits until all have done so.
const Program* directSum(Rig& rig, int32_t rank, int32_t ranks) {
  ProgramText text(rank, ranks);
  text.head.usesPeerBuffers = 1;
  LaneText& lane = text.lane();
  lane.signal(others(rank, ranks), 0);
  lane.wait(others(rank, ranks), 0);
  Step& step = lane.step(StepKind::reduceTeam);
  lane.readsFrom(step, placeIn(BufferKind::input, {}));
  std::vector<int32_t> team;
  for (int32_t i = 0; i < ranks; ++i) team.push_back(i);
  lane.readsTeam(step, team);
  lane.writesTo(step, placeIn(BufferKind::output, {}));
  lane.signal(others(rank, ranks), 1);
  lane.wait(others(rank, ranks), 1);
  return rig.upload(text);
}

}  // namespace

TEST(MemoryKernels, RanksFindEachOthersBuffersOfTheRunningCall) {
  constexpr int32_t kRanks = 3;
  Rig rig({.ranks = kRanks, .channels = 2});
  const Program* programs[kRanks];
  for (int32_t rank = 0; rank < kRanks; ++rank) programs[rank] = directSum(rig, rank, kRanks);
  for (size_t round = 0; round < 3; ++round) {  // other buffers each time
    const Vectors inputs(kRanks + round);
    const Vectors outputs(kRanks);
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      const auto r = static_cast<size_t>(rank);
      rig.launch(rank, ncclInt32, Protocol::simple,
                 rig.call(programs[rank], inputs[r + round], outputs[r], kCount, 512, sizeof(int32_t)));
    }
    ASSERT_EQ(rig.synchronize(), cudaSuccess);
    for (size_t rank = 0; rank < kRanks; ++rank) {
      for (size_t k = 0; k < kCount; ++k) {
        ASSERT_EQ(outputs[rank][k], static_cast<int32_t>(3 * k + 1000 * (0 + 1 + 2 + 3 * round)))
            << rank << " " << k;
      }
    }
  }
  // each flag was raised and consumed once a slice
  const SegmentLayout& layout = rig.comm(0).layout;
  const auto at = [&](uint64_t offset) { return *reinterpret_cast<uint64_t*>(rig.segment(0) + offset); };
  EXPECT_GT(at(layout.raised(0, 1, 2)), 3u);
  EXPECT_EQ(at(layout.flag(0, 1, 2)), at(layout.raised(0, 1, 2)));
  EXPECT_EQ(at(layout.consumed(0, 1, 2)), at(layout.raised(0, 1, 2)));
}

TEST(MemoryKernels, SharedScratchAlternatesOverAllCallsAndLanes) {
  Rig rig({});
  // Lane 0 puts the input into the peer's scratch; lane 1 waits for the peer's and keeps it.
  const Program* programs[2];
  for (int32_t rank = 0; rank < 2; ++rank) {
    const int32_t peer = 1 - rank;
    ProgramText text(rank, 2);
    text.head.sharedScratch = 1;
    text.head.usesScratch = 1;
    text.head.scratchSegments = 1;
    LaneText& puts = text.lane();
    Step& put = puts.step(StepKind::copy);
    puts.readsFrom(put, placeIn(BufferKind::input, {}));
    puts.writesTo(put, placeIn(BufferKind::scratch, {}, 1, {peer, 0, 0}));
    puts.signal({peer}, 0);
    puts.wait({peer}, 1);  // nobody is more than a slice ahead
    LaneText& keeps = text.lane();
    keeps.wait({peer}, 0);
    Step& keep = keeps.step(StepKind::copy);
    keeps.readsFrom(keep, placeIn(BufferKind::scratch, {}));
    keeps.writesTo(keep, placeIn(BufferKind::output, {}));
    keep.size = put.size;
    keeps.signal({peer}, 1);
    programs[rank] = rig.upload(text);
  }
  uint64_t slices = 0;
  for (const size_t count : {kCount, size_t{100}, kCount}) {
    const Vectors inputs(2);
    const Vectors outputs(2);
    for (int32_t rank = 0; rank < 2; ++rank) {
      const auto r = static_cast<size_t>(rank);
      const Call call = rig.call(programs[rank], inputs[r], outputs[r], count, 1024, sizeof(int32_t));
      if (rank == 0) slices += call.slices;
      rig.launch(rank, ncclInt32, Protocol::simple, call);
    }
    ASSERT_EQ(rig.synchronize(), cudaSuccess);
    for (size_t k = 0; k < count; ++k) {
      ASSERT_EQ(outputs[0][k], static_cast<int32_t>(1000 + k));
      ASSERT_EQ(outputs[1][k], static_cast<int32_t>(k));
    }
    for (int32_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(rig.channelState(rank, 0).sharedSlices, slices);
      EXPECT_EQ(rig.channelState(rank, 0).lanesEnded, 0u);
    }
  }
  EXPECT_EQ(slices % 2, 1u);  // calls began in both halves
}

TEST(MemoryKernels, ALaneMaySignalAnotherOfItsRank) {
  Rig rig({});
  ProgramText text(0, 2);
  LaneText& first = text.lane();
  Step& copy = first.step(StepKind::copy);
  first.readsFrom(copy, placeIn(BufferKind::input, {}));
  first.writesTo(copy, placeIn(BufferKind::scratch, {}));
  first.signal({0}, 3);
  first.wait({0}, 4);
  LaneText& second = text.lane();
  second.wait({0}, 3);
  Step& back = second.step(StepKind::copy);
  second.readsFrom(back, placeIn(BufferKind::scratch, {}));
  second.writesTo(back, placeIn(BufferKind::output, {}));
  back.size = copy.size;
  second.signal({0}, 4);
  text.head.usesScratch = 1;
  text.head.scratchSegments = 1;
  const Vectors vectors(2);
  rig.launch(0, ncclInt32, Protocol::ll,
             rig.call(rig.upload(text), vectors[0], vectors[1], kCount, 512, sizeof(int32_t)));
  ASSERT_EQ(rig.synchronize(), cudaSuccess);
  EXPECT_EQ(std::memcmp(vectors[0], vectors[1], kCount * sizeof(int32_t)), 0);
}

TEST(MemoryKernels, ASignalMayVaryWithTheIteration) {
  Rig rig({.ranks = 3});
  for (int32_t rank = 0; rank < 3; ++rank) {
    ProgramText text(rank, 3);
    LaneText& lane = text.lane();
    if (rank == 0) {
      lane.loop(2);
      lane.signal({2, 1}, 5).flagVaries = 1;
      lane.wait({2, 1}, 6).flagVaries = 1;
    } else {
      lane.wait({0}, 5);
      lane.signal({0}, 6);
    }
    rig.launch(rank, ncclInt32, Protocol::simple, rig.call(rig.upload(text), nullptr, nullptr, 0, 64, 4));
  }
  ASSERT_EQ(rig.synchronize(), cudaSuccess);
  const SegmentLayout& layout = rig.comm(0).layout;
  for (const uint32_t peer : {1u, 2u}) {
    EXPECT_EQ(*reinterpret_cast<uint64_t*>(rig.segment(0) + layout.raised(0, 5, peer)), 1u);
    EXPECT_EQ(*reinterpret_cast<uint64_t*>(rig.segment(0) + layout.consumed(0, 6, peer)), 1u);
  }
}

TEST(MemoryKernels, ACopyOntoItselfDoesNothingUnlessItScales) {
  Rig rig({});
  const Vectors vectors(1);
  for (const bool scales : {false, true}) {
    ProgramText text(0, 2);
    LaneText& lane = text.lane();
    Step& copy = lane.step(StepKind::copy);
    lane.readsFrom(copy, placeIn(BufferKind::input, {}));
    lane.writesTo(copy, placeIn(BufferKind::output, {}));
    copy.scaled = ScaledSources::first;
    DeviceBytes scalar(sizeof(int32_t));
    *scalar.as<int32_t>() = 3;
    Call call = rig.call(rig.upload(text), vectors[0], vectors[0], kCount, 512, sizeof(int32_t));
    call.hasScale = scales;
    call.scalar = scales ? scalar.data() : nullptr;
    rig.launch(0, ncclInt32, Protocol::simple, call);
    ASSERT_EQ(rig.synchronize(), cudaSuccess);
    for (size_t k = 0; k < kCount; ++k) ASSERT_EQ(vectors[0][k], static_cast<int32_t>((scales ? 3 : 1) * k));
  }
}

TEST(MemoryKernels, ALocalReductionKeepsTheDestinationFirst) {
  Rig rig({});
  DeviceBytes source(2 * sizeof(float));
  DeviceBytes destination(2 * sizeof(float));
  source.as<float>()[0] = 3;
  destination.as<float>()[0] = 4;
  ProgramText text(0, 2);
  LaneText& lane = text.lane();
  Step& step = lane.step(StepKind::reduceLocal);
  lane.readsFrom(step, placeIn(BufferKind::input, {}));
  lane.writesTo(step, placeIn(BufferKind::output, {}));
  step.scaled = ScaledSources::rest;
  Call call = rig.call(rig.upload(text), source.data(), destination.data(), 1, 512, sizeof(float));
  call.hasScale = 1;
  const double scale = 10;
  std::memcpy(&call.scale, &scale, sizeof scale);
  rig.launch(0, ncclFloat32, Protocol::simple, call);
  ASSERT_EQ(rig.synchronize(), cudaSuccess);
  EXPECT_EQ(destination.as<float>()[0], 34.0f);
  EXPECT_EQ(destination.as<float>()[1], 0.0f);
}

}  // namespace tutti::device
