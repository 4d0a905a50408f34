// Faults planted in copies of the kernels are found, each by who is there to find it; the kernels as they are
// pass.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "device/kernels/rig.h"

namespace tutti::device {

const shim::KernelTwin* plantedNoBarrierTwin();
const shim::KernelTwin* plantedEarlyTailTwin();
const shim::KernelTwin* plantedBehindEndTwin();
const shim::KernelTwin* plantedTornLineTwin();
const shim::KernelTwin* plantedLostRemainderTwin();

namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool kFindsRaces = true;
#else
constexpr bool kFindsRaces = false;
#endif
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kFindsBounds = true;
#else
constexpr bool kFindsBounds = false;
#endif

class PlantedFaults : public testing::Test {
 protected:
  // A process of its own, not a fork: this one has threads.
  void SetUp() override { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

constexpr size_t kElements = 3001;  // neither whole 16 bytes nor whole pages

/// Two ranks exchange and add; true when the results are right.
bool exchange(const shim::KernelTwin* kernel) {
  Rig rig({.slotBytes = 2048});
  std::vector<std::unique_ptr<DeviceBytes>> memory;
  for (int i = 0; i < 4; ++i) memory.push_back(std::make_unique<DeviceBytes>(kElements * sizeof(int32_t)));
  for (int round = 0; round < 3; ++round) {
    for (int32_t rank = 0; rank < 2; ++rank) {
      auto* input = memory[static_cast<size_t>(rank)]->as<int32_t>();
      for (size_t k = 0; k < kElements; ++k)
        input[k] = static_cast<int32_t>((round + 1) * 100'000 * (rank + 1) + k);
      ProgramText text(rank, 2);
      LaneText& lane = text.lane();
      lane.send(1 - rank, placeIn(BufferKind::input, {}));
      Step& step = lane.step(StepKind::recvReduce);
      lane.receivesFrom(step, 1 - rank);
      lane.readsFrom(step, placeIn(BufferKind::input, {}));
      lane.writesTo(step, placeIn(BufferKind::output, {}));
      const Call call = rig.call(rig.upload(text), input, memory[static_cast<size_t>(2 + rank)]->data(),
                                 kElements, 512, sizeof(int32_t));
      rig.launch(rank, kernel, rig.arguments(rank, {call}), 1);
    }
    if (rig.synchronize() != cudaSuccess) std::exit(3);
    for (size_t rank = 0; rank < 2; ++rank) {
      for (size_t k = 0; k < kElements; ++k) {
        if (memory[2 + rank]->as<int32_t>()[k] != static_cast<int32_t>((round + 1) * 300'000 + 2 * k))
          return false;
      }
    }
  }
  return true;
}

[[noreturn]] void exchangeAndExit(const shim::KernelTwin* kernel) { std::exit(exchange(kernel) ? 0 : 4); }

const shim::KernelTwin* sound(Protocol protocol) { return kernelTwin(ncclInt32, protocol); }

}  // namespace

TEST_F(PlantedFaults, TheKernelsHaveNone) {
  for (const Protocol protocol : {Protocol::simple, Protocol::ll, Protocol::ll128}) {
    EXPECT_EXIT(exchangeAndExit(sound(protocol)), testing::ExitedWithCode(0), "");
  }
}

TEST_F(PlantedFaults, ATornLineGivesAWrongResult) { EXPECT_FALSE(exchange(plantedTornLineTwin())); }

TEST_F(PlantedFaults, ALostRemainderGivesAWrongResult) { EXPECT_FALSE(exchange(plantedLostRemainderTwin())); }

TEST_F(PlantedFaults, AMissingBarrierIsARace) {
  if (!kFindsRaces) GTEST_SKIP() << "found by ThreadSanitizer";
  EXPECT_EXIT(exchangeAndExit(plantedNoBarrierTwin()), testing::ExitedWithCode(66),
              "ThreadSanitizer: data race");
}

TEST_F(PlantedFaults, AMessageAnnouncedWithoutReleaseIsARace) {
  if (!kFindsRaces) GTEST_SKIP() << "found by ThreadSanitizer";
  EXPECT_EXIT(exchangeAndExit(plantedEarlyTailTwin()), testing::ExitedWithCode(66),
              "ThreadSanitizer: data race");
}

TEST_F(PlantedFaults, AStoreBehindTheEndIsFound) {
  if (!kFindsBounds) GTEST_SKIP() << "found by AddressSanitizer";
  EXPECT_DEATH(exchangeAndExit(plantedBehindEndTwin()), "AddressSanitizer");
}

}  // namespace tutti::device

#if defined(__SANITIZE_THREAD__)
/// Each process would otherwise wait for a second when it ends.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() {  // NOLINT
  return "atexit_sleep_ms=0";
}
#endif
