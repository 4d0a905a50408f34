// Ranks of one process on virtual GPUs: how they meet, and what they share then.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "device/host_table.h"
#include "device/virtual_driver.h"
#include "transport/p2p/device_group.h"

namespace tutti {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using Group = std::shared_ptr<DeviceGroup>;

Driver& driver() {
  static Driver* one = [] {
    const auto noKernels = [](ncclDataType_t, device::Protocol) -> const shim::KernelTwin* {
      return nullptr;
    };
    return makeVirtualDriver(**hostTable(), noKernels).value().release();
  }();
  return *one;
}

uint64_t nextKey() {
  static std::atomic<uint64_t> key{1};
  return key++;
}

DeviceGroupOptions optionsOf(int ranks) {
  DeviceGroupOptions options;
  options.layout.ranks = static_cast<uint32_t>(ranks);
  options.layout.channels = 2;
  options.layout.scratchHalfBytes = 4096;
  options.slotBytes = 8192;
  options.linesOfSlotLL = 64;
  options.linesOfSlotLL128 = 16;
  return options;
}

/// All ranks, each in a thread of its own, on devices rank % devices.
std::vector<Group> meet(int ranks, int devices, const DeviceGroupOptions& options) {
  const uint64_t key = nextKey();
  std::vector<Group> groups(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      auto joined = DeviceGroup::join(driver(), key, rank, ranks, rank % devices, options, nullptr,
                                      Deadline::after(seconds(60)));
      EXPECT_TRUE(joined.isOk()) << joined.status().message();
      if (joined.isOk()) groups[static_cast<size_t>(rank)] = *joined;
    });
  for (std::thread& thread : threads) thread.join();
  return groups;
}
std::vector<Group> meet(int ranks, int devices) { return meet(ranks, devices, optionsOf(ranks)); }

int deviceOf(const void* pointer) { return driver().pointerFacts(pointer).device; }
PointerFacts::Kind kindOf(const void* pointer) { return driver().pointerFacts(pointer).kind; }

TEST(DeviceGroup, AllRanksGetTheSameGroup) {
  const std::vector<Group> groups = meet(4, 4);
  for (const Group& group : groups) EXPECT_EQ(group, groups[0]);
  EXPECT_EQ(groups[0]->ranks(), 4);
  EXPECT_FALSE(groups[0]->isStaged());
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(groups[0]->device(rank), rank);
    EXPECT_EQ(deviceOf(groups[0]->segment(rank)), rank);
    EXPECT_EQ(kindOf(groups[0]->segment(rank)), PointerFacts::Kind::device);
  }
}

TEST(DeviceGroup, CountsRanksThatShareADevice) {
  const Group group = meet(5, 2)[0];
  EXPECT_EQ(group->ranksOn(0), 3);
  EXPECT_EQ(group->ranksOn(1), 2);
  EXPECT_EQ(group->ranksOn(7), 0);
}

TEST(DeviceGroup, ARankAloneWaitsForNobody) {
  const auto joined = DeviceGroup::join(driver(), nextKey(), 0, 1, 3, optionsOf(1), nullptr,
                                        Deadline::after(milliseconds(0)));
  ASSERT_TRUE(joined.isOk());
  EXPECT_EQ((*joined)->device(0), 3);
}

TEST(DeviceGroup, RanksOfSeveralCommunicatorsMeetAtOnce) {
  constexpr int kCommunicators = 4, kRanks = 3;
  std::vector<uint64_t> keys;
  for (int c = 0; c < kCommunicators; ++c) keys.push_back(nextKey());
  std::vector<std::vector<Group>> groups(kCommunicators, std::vector<Group>(kRanks));
  std::vector<std::thread> threads;
  for (int c = 0; c < kCommunicators; ++c)
    for (int rank = 0; rank < kRanks; ++rank)
      threads.emplace_back([&, c, rank] {
        auto joined = DeviceGroup::join(driver(), keys[static_cast<size_t>(c)], rank, kRanks, rank,
                                        optionsOf(kRanks), nullptr, Deadline::after(seconds(60)));
        ASSERT_TRUE(joined.isOk()) << joined.status().message();
        groups[static_cast<size_t>(c)][static_cast<size_t>(rank)] = *joined;
      });
  for (std::thread& thread : threads) thread.join();
  std::set<DeviceGroup*> distinct;
  for (const auto& ofOne : groups) {
    for (const Group& group : ofOne) EXPECT_EQ(group, ofOne[0]);
    distinct.insert(ofOne[0].get());
  }
  EXPECT_EQ(distinct.size(), static_cast<size_t>(kCommunicators));
}

TEST(DeviceGroup, AMissingRankIsNamedAtTheDeadline) {
  const auto joined = DeviceGroup::join(driver(), nextKey(), 1, 3, 0, optionsOf(3), nullptr,
                                        Deadline::after(milliseconds(20)));
  EXPECT_THAT(joined.status().message(), HasSubstr("missing: 0, 2"));
  EXPECT_EQ(joined.status().code(), kTimeoutResult);
}

TEST(DeviceGroup, AFaultEndsTheWaitOfAll) {
  const uint64_t key = nextKey();
  FaultState faults;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      // Only rank 0 sees the fault; rank 1 hears of it.
      const auto joined = DeviceGroup::join(driver(), key, rank, 3, rank, optionsOf(3),
                                            rank == 0 ? &faults : nullptr, Deadline::after(seconds(60)));
      EXPECT_THAT(joined.status().message(), HasSubstr("rank 2 died"));
    });
  std::this_thread::sleep_for(milliseconds(20));
  faults.raise(remoteError("rank 2 died"));
  for (std::thread& thread : threads) thread.join();
}

TEST(DeviceGroup, AKeyCanBeUsedAgainAfterAFailure) {
  const uint64_t key = nextKey();
  ASSERT_FALSE(
      DeviceGroup::join(driver(), key, 0, 2, 0, optionsOf(2), nullptr, Deadline::after(milliseconds(1)))
          .isOk());
  std::thread other([&] {
    EXPECT_TRUE(DeviceGroup::join(driver(), key, 1, 2, 1, optionsOf(2), nullptr, Deadline::after(seconds(60)))
                    .isOk());
  });
  EXPECT_TRUE(
      DeviceGroup::join(driver(), key, 0, 2, 0, optionsOf(2), nullptr, Deadline::after(seconds(60))).isOk());
  other.join();
}

TEST(DeviceGroup, RanksThatDoNotFitTogetherAllFail) {
  const uint64_t key = nextKey();
  std::thread other([&] {
    DeviceGroupOptions options = optionsOf(2);
    options.slotBytes *= 2;
    EXPECT_THAT(DeviceGroup::join(driver(), key, 1, 2, 1, options, nullptr, Deadline::after(seconds(60)))
                    .status()
                    .message(),
                HasSubstr("other sizes"));
  });
  EXPECT_THAT(DeviceGroup::join(driver(), key, 0, 2, 0, optionsOf(2), nullptr, Deadline::after(seconds(60)))
                  .status()
                  .message(),
              HasSubstr("other sizes"));
  other.join();
}

TEST(DeviceGroup, ASegmentThatCannotBeHadIsEverybodysError) {
  DeviceGroupOptions options = optionsOf(2);
  options.layout.scratchHalfBytes = uint64_t{1} << 50;
  const uint64_t key = nextKey();
  const auto tryIt = [&](int rank) {
    const auto joined =
        DeviceGroup::join(driver(), key, rank, 2, rank, options, nullptr, Deadline::after(seconds(60)));
    EXPECT_THAT(joined.status().message(), HasSubstr("the segment of rank 0"));
  };
  std::thread other([&] { tryIt(1); });
  tryIt(0);
  other.join();
}

TEST(DeviceGroup, AConnectionLiesWhereTheContractSays) {
  const Group group = meet(3, 3)[0];
  const auto made = group->connect(1, 2, 1, 0);
  ASSERT_TRUE(made.isOk()) << made.status().message();
  const auto& [sender, receiver] = *made;
  for (const void* ofReceiver :
       {static_cast<const void*>(sender.slots), static_cast<const void*>(sender.linesLL),
        static_cast<const void*>(sender.linesLL128), static_cast<const void*>(sender.tail),
        static_cast<const void*>(receiver.received)})
    EXPECT_EQ(deviceOf(ofReceiver), 2);
  EXPECT_EQ(deviceOf(sender.head), 1);
  EXPECT_EQ(deviceOf(sender.sent), 1);
  EXPECT_EQ(receiver.slots, sender.slots);
  EXPECT_EQ(receiver.linesLL, sender.linesLL);
  EXPECT_EQ(receiver.linesLL128, sender.linesLL128);
  EXPECT_EQ(receiver.tail, sender.tail);
  EXPECT_EQ(receiver.head, sender.head);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(sender.slots) % 512, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(sender.linesLL128) % 128, 0u);
  const auto again = group->connect(1, 2, 1, 0);
  EXPECT_EQ(again->sender.slots, sender.slots);
  EXPECT_NE(group->connect(2, 1, 1, 0)->sender.slots, sender.slots);
  EXPECT_NE(group->connect(1, 2, 0, 0)->sender.slots, sender.slots);
  EXPECT_NE(group->connect(1, 2, 1, 1)->sender.slots, sender.slots);
  EXPECT_FALSE(group->connect(1, 3, 0, 0).isOk());
}

TEST(DeviceGroup, ConnectionsDoNotOverlapAndAreZeroed) {
  const Group group = meet(2, 1)[0];
  const DeviceGroupOptions options = optionsOf(2);
  std::vector<std::pair<std::byte*, size_t>> parts;
  for (uint32_t channel = 0; channel < 40; ++channel) {  // more than one chunk
    const auto made = group->connect(0, 1, channel, 0);
    ASSERT_TRUE(made.isOk());
    parts.emplace_back(made->sender.slots, device::kFifoDepth * options.slotBytes);
    parts.emplace_back(reinterpret_cast<std::byte*>(made->sender.linesLL),
                       device::kFifoDepth * options.linesOfSlotLL * sizeof(device::LineLL));
    parts.emplace_back(reinterpret_cast<std::byte*>(made->sender.linesLL128),
                       device::kFifoDepth * options.linesOfSlotLL128 * sizeof(device::LineLL128));
    parts.emplace_back(reinterpret_cast<std::byte*>(made->sender.tail), sizeof(device::MessageTail));
    parts.emplace_back(reinterpret_cast<std::byte*>(made->receiver.head), sizeof(uint64_t));
    parts.emplace_back(reinterpret_cast<std::byte*>(made->sender.sent), sizeof(uint64_t));
    parts.emplace_back(reinterpret_cast<std::byte*>(made->receiver.received), sizeof(uint64_t));
  }
  for (const auto& [at, bytes] : parts) {
    EXPECT_TRUE(std::all_of(at, at + bytes, [](std::byte b) { return b == std::byte{0}; }));
    std::fill(at, at + bytes, std::byte{1});  // a part that overlaps is not zero any more
  }
}

TEST(DeviceGroup, MadeFromBothEndsAtOnceAConnectionIsTheSame) {
  const Group group = meet(2, 2)[0];
  std::vector<std::vector<std::byte*>> seen(4);
  std::vector<std::thread> threads;
  for (auto& mine : seen)
    threads.emplace_back([&] {
      for (uint32_t channel = 0; channel < 64; ++channel)
        mine.push_back(group->connect(0, 1, channel, channel % device::kPorts)->sender.slots);
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& other : seen) EXPECT_EQ(other, seen[0]);
  EXPECT_EQ(std::set<std::byte*>(seen[0].begin(), seen[0].end()).size(), 64u);
}

TEST(DeviceGroup, AForbiddenPairMakesTheGroupStaged) {
  DeviceGroupOptions options = optionsOf(3);
  options.mayReach = [](int rank, int peer, std::string* why) {
    if (rank + peer != 3) return true;
    *why = "NCCL_P2P_LEVEL forbids it";
    return false;
  };
  const Group group = meet(3, 3, options)[0];
  EXPECT_TRUE(group->isStaged());
  EXPECT_EQ(group->stagedWhy(), "rank 1 (device 1) and rank 2 (device 2): NCCL_P2P_LEVEL forbids it");
  EXPECT_THAT(group->transportName(0, 2), HasSubstr("P2P/staged (device 0 -> 2)"));
  EXPECT_EQ(kindOf(group->segment(0)), PointerFacts::Kind::host);
  const auto made = group->connect(0, 2, 0, 0);
  ASSERT_TRUE(made.isOk());
  EXPECT_EQ(kindOf(made->sender.slots), PointerFacts::Kind::host);
  EXPECT_EQ(kindOf(made->sender.tail), PointerFacts::Kind::host);
  EXPECT_EQ(kindOf(made->sender.head), PointerFacts::Kind::host);
  EXPECT_EQ(kindOf(made->sender.sent), PointerFacts::Kind::device);
  EXPECT_EQ(deviceOf(made->sender.sent), 0);
  EXPECT_EQ(deviceOf(made->receiver.received), 2);
}

TEST(DeviceGroup, AllMemoryIsFreedWithTheLastHolder) {
  std::byte* segment = nullptr;
  std::byte* slots = nullptr;
  {
    std::vector<Group> groups = meet(2, 2);
    segment = groups[0]->segment(1);
    slots = groups[0]->connect(0, 1, 0, 0)->sender.slots;
    groups[0].reset();
    EXPECT_EQ(kindOf(segment), PointerFacts::Kind::device);
  }
  EXPECT_EQ(kindOf(segment), PointerFacts::Kind::unknown);
  EXPECT_EQ(kindOf(slots), PointerFacts::Kind::unknown);
}

TEST(DeviceGroup, CallsThatDoNotMatchNameBothRanks) {
  const Group group = meet(3, 3)[0];
  EXPECT_TRUE(group->compareCall(0, 1, 11, "AllReduce of 4 float").isOk());
  EXPECT_TRUE(group->compareCall(0, 2, 12, "Broadcast of 4 float").isOk());
  EXPECT_TRUE(group->compareCall(2, 1, 11, "AllReduce of 4 float").isOk());
  const Status status = group->compareCall(2, 2, 13, "Broadcast of 8 float");
  EXPECT_EQ(status.code(), ncclInvalidUsage);
  EXPECT_THAT(status.message(), HasSubstr("call 2 of rank 2 is Broadcast of 8 float"));
  EXPECT_THAT(status.message(), HasSubstr("rank 0 is Broadcast of 4 float"));
  EXPECT_TRUE(group->compareCall(1, 1, 11, "AllReduce of 4 float").isOk());
  EXPECT_TRUE(group->compareCall(1, 2, 12, "Broadcast of 4 float").isOk());
}

TEST(DeviceGroup, ARankFarAheadIsStillCompared) {
  const Group group = meet(2, 2)[0];
  constexpr uint64_t kCalls = 10000;
  for (uint64_t number = 1; number <= kCalls; ++number)
    ASSERT_TRUE(group->compareCall(0, number, number * 7, "call").isOk());
  for (uint64_t number = 1; number < kCalls; ++number)
    ASSERT_TRUE(group->compareCall(1, number, number * 7, "call").isOk());
  EXPECT_THAT(group->compareCall(1, kCalls, 1, "another").message(), HasSubstr("it came long before"));
}

TEST(DeviceGroup, RanksCompareCallsAtTheSameTime) {
  constexpr int kRanks = 4;
  const Group group = meet(kRanks, kRanks)[0];
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      for (uint64_t number = 1; number <= 500; ++number)
        EXPECT_TRUE(group->compareCall(rank, number, number % 5, "call").isOk());
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tutti
