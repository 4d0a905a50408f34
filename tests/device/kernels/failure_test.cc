// What ends a kernel early, and what it says.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "device/kernels/rig.h"

namespace tutti::device {
namespace {

using Clock = std::chrono::steady_clock;

template <class Value>
Value peek(const Value& value) {
  return __atomic_load_n(&value, __ATOMIC_ACQUIRE);
}

class WaitingKernels : public testing::TestWithParam<Protocol> {};

}  // namespace

TEST(FailingKernels, AMessageOfAWrongSizeIsReported) {
  Rig rig({});
  DeviceBytes memory(4096);
  ProgramText sends(0, 2);
  sends.lane().send(1, placeIn(BufferKind::input, {}));
  ProgramText receives(1, 2);
  LaneText& lane = receives.lane();
  lane.signal({0}, 2);
  lane.receive(0, placeIn(BufferKind::output, {}));
  rig.launch(0, ncclFloat32, Protocol::simple,
             rig.call(rig.upload(sends), memory.data(), nullptr, 10, 512, 4));
  rig.launch(1, ncclFloat32, Protocol::simple,
             rig.call(rig.upload(receives), nullptr, memory.data(), 12, 512, 4));
  ASSERT_EQ(rig.synchronize(), cudaSuccess);
  const Report& report = rig.report(1);
  EXPECT_EQ(report.error, static_cast<uint32_t>(ErrorCode::wrongSize));
  EXPECT_EQ(report.peer, 0);
  EXPECT_EQ(report.got, 40u);
  EXPECT_EQ(report.expected, 48u);
  EXPECT_EQ(report.step, 2u);
  EXPECT_EQ(rig.report(0).error, static_cast<uint32_t>(ErrorCode::none));
}

TEST(FailingKernels, AForwardedMessageMustFitASlot) {
  Rig rig({.ranks = 3});
  DeviceBytes memory(4096);
  rig.comm(1).slotBytes = 64;  // smaller than the sender's
  ProgramText sends(0, 3);
  sends.lane().send(1, placeIn(BufferKind::input, {}));
  ProgramText forwards(1, 3);
  LaneText& lane = forwards.lane();
  Step& step = lane.step(StepKind::recvSend);
  step.sizeKnown = 0;
  lane.receivesFrom(step, 0);
  lane.sendsTo(step, 2);
  rig.launch(0, ncclFloat32, Protocol::simple,
             rig.call(rig.upload(sends), memory.data(), nullptr, 20, 512, 4));
  rig.launch(1, ncclFloat32, Protocol::simple, rig.call(rig.upload(forwards), nullptr, nullptr, 20, 512, 4));
  ASSERT_EQ(rig.synchronize(), cudaSuccess);
  EXPECT_EQ(rig.report(1).error, static_cast<uint32_t>(ErrorCode::wrongSize));
  EXPECT_EQ(rig.report(1).got, 80u);
  EXPECT_EQ(rig.report(1).expected, 64u);
}

/// Waits for a message, for room, or for a signal, says so after a while, and ends when it is told to.
TEST_P(WaitingKernels, SayWhereTheyStandAndEndWhenAborted) {
  for (const WaitFor what : {WaitFor::data, WaitFor::room, WaitFor::signal}) {
    Rig rig({});
    DeviceBytes memory(1 << 16);
    ProgramText text(0, 2);
    LaneText& lane = text.lane();
    if (what == WaitFor::data) lane.receive(1, placeIn(BufferKind::output, {}));
    if (what == WaitFor::room) lane.send(1, placeIn(BufferKind::input, {}));
    if (what == WaitFor::signal) lane.wait({1}, 7);
    const Call call = rig.call(rig.upload(text), memory.data(), memory.data(), 10 * 512, 512, 4);
    rig.launch(0, ncclFloat32, GetParam(), call);
    const Position& position = rig.report(0).positions[0];
    const auto begin = Clock::now();
    while (peek(position.waits) == 0 && Clock::now() - begin < std::chrono::seconds(20)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    EXPECT_EQ(peek(position.waits), static_cast<uint32_t>(what));
    EXPECT_EQ(peek(position.peer), 1);
    EXPECT_EQ(peek(position.step), 1u);
    EXPECT_EQ(peek(position.slice), what == WaitFor::room ? kFifoDepth : 0u);
    EXPECT_EQ(peek(position.flag), what == WaitFor::signal ? 7u : 0u);
    const auto abortBegin = Clock::now();
    rig.abort();
    ASSERT_EQ(rig.synchronize(), cudaSuccess);
    EXPECT_LT(Clock::now() - abortBegin, std::chrono::seconds(1));
  }
  // The device is as good as before.
  Rig rig({});
  DeviceBytes memory(64);
  ProgramText text(0, 2);
  LaneText& lane = text.lane();
  Step& copy = lane.step(StepKind::copy);
  lane.readsFrom(copy, placeIn(BufferKind::input, {}));
  lane.writesTo(copy, placeIn(BufferKind::output, {}));
  memory.as<uint32_t>()[0] = 77;
  rig.launch(0, ncclFloat32, GetParam(),
             rig.call(rig.upload(text), memory.data(), memory.data() + 32, 1, 64, 4));
  ASSERT_EQ(rig.synchronize(), cudaSuccess);
  EXPECT_EQ(memory.as<uint32_t>()[8], 77u);
}

TEST_P(WaitingKernels, ClearTheirPositionWhenTheyGoOn) {
  Rig rig({});
  DeviceBytes memory(1 << 16);
  ProgramText receives(0, 2);
  receives.lane().receive(1, placeIn(BufferKind::output, {}));
  ProgramText sends(1, 2);
  sends.lane().send(0, placeIn(BufferKind::input, {}));
  rig.launch(0, ncclFloat32, GetParam(), rig.call(rig.upload(receives), nullptr, memory.data(), 200, 512, 4));
  const Position& position = rig.report(0).positions[0];
  const auto begin = Clock::now();
  while (peek(position.waits) == 0 && Clock::now() - begin < std::chrono::seconds(20)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_EQ(peek(position.waits), static_cast<uint32_t>(WaitFor::data));
  rig.launch(1, ncclFloat32, GetParam(),
             rig.call(rig.upload(sends), memory.data() + 4096, nullptr, 200, 512, 4));
  ASSERT_EQ(rig.synchronize(), cudaSuccess);
  EXPECT_EQ(peek(position.waits), 0u);
}

INSTANTIATE_TEST_SUITE_P(, WaitingKernels, testing::Values(Protocol::simple, Protocol::ll, Protocol::ll128),
                         nameOf);

}  // namespace tutti::device
