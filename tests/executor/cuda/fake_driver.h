// A driver without devices: it hands out memory, and keeps what it was asked for. What a launch refers to
// must lie in memory that it handed out.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "device/driver.h"

namespace tutti::test {

class FakeDriver : public Driver {
 public:
  struct Launched {
    int device = 0;
    DeviceStream stream = nullptr;
    KernelLaunch launch;
    device::LaunchArguments arguments;
    std::vector<device::Call> calls;
  };

  bool isGpu = true;           // not a virtual one
  uint32_t residentOf = 1000;  // blocks of any kernel, with the fewest threads
  uint32_t fewestThreads = 32;
  bool reaches = true;
  std::map<DeviceStream, uint64_t> captures;
  std::set<DeviceEvent> unfinished;  // isDone() says no
  bool allUnfinished = false;
  Status nextLaunch;  // what the next launch gives

  std::vector<Launched> launches;
  std::vector<std::string> order;  // "launch s1", "record s1", "wait s2", ...
  size_t copies = 0;

  ~FakeDriver() override {
    for (const auto& [memory, bytes] : memory_) std::free(memory);
  }

  bool holds(const void* pointer, size_t bytes) const {
    const auto* first = static_cast<const std::byte*>(pointer);
    auto found = memory_.upper_bound(const_cast<std::byte*>(first));
    if (found == memory_.begin()) return false;
    --found;
    return first + bytes <= found->first + found->second;
  }
  size_t allocations() const { return memory_.size(); }

  bool isVirtual() const override { return !isGpu; }
  Result<int> deviceCount() override { return 8; }
  Result<int> currentDevice() override { return 0; }
  Result<DeviceFacts> facts(int) override { return DeviceFacts{}; }
  Status loadKernels(int) override { return Status::ok(); }
  Result<uint32_t> residentBlocks(int, ncclDataType_t, device::Protocol, uint32_t threads,
                                  uint32_t) override {
    return residentOf * fewestThreads / threads;
  }
  Status launch(int device, DeviceStream stream, const KernelLaunch& launch) override {
    const Status outcome = std::exchange(nextLaunch, Status::ok());
    if (!outcome.isOk()) return outcome;
    const device::LaunchArguments& arguments = *launch.arguments;
    const device::Call* calls = arguments.moreCalls != nullptr ? arguments.moreCalls : arguments.inlineCalls;
    launches.push_back({device, stream, launch, arguments, {calls, calls + arguments.calls}});
    expectValid(launches.back());
    note("launch", stream);
    return Status::ok();
  }

  Result<std::byte*> allocate(int, size_t bytes) override {
    const std::lock_guard lock(mutex_);
    auto* memory = static_cast<std::byte*>(std::aligned_alloc(512, (bytes + 511) / 512 * 512));
    std::memset(memory, 0, bytes);
    memory_[memory] = bytes;
    return memory;
  }
  Status free(int, std::byte* memory) override {
    const std::lock_guard lock(mutex_);
    if (memory_.erase(memory) == 0) return internalError("unknown memory is freed");
    std::free(memory);
    return Status::ok();
  }
  Result<std::byte*> allocateHost(size_t bytes) override { return allocate(-1, bytes); }
  Status freeHost(std::byte* memory) override { return free(-1, memory); }
  Status copyToDevice(int, void* destination, const void* source, size_t bytes) override {
    EXPECT_TRUE(holds(destination, bytes));
    std::memcpy(destination, source, bytes);
    ++copies;
    return Status::ok();
  }
  Status copyFromDevice(int, void* destination, const void* source, size_t bytes) override {
    std::memcpy(destination, source, bytes);
    return Status::ok();
  }
  PointerFacts pointerFacts(const void*) override { return {}; }
  Result<bool> canAccessPeer(int, int) override { return reaches; }
  Status enablePeerAccess(int, int) override { return Status::ok(); }
  Result<int> streamDevice(DeviceStream, int current) override { return current; }
  Result<uint64_t> captureOf(int, DeviceStream stream) override { return captures[stream]; }
  Result<bool> isIdle(int, DeviceStream) override { return true; }
  Status synchronize(int, DeviceStream) override { return Status::ok(); }

  Result<DeviceEvent> createEvent(int) override {
    return static_cast<DeviceEvent>(static_cast<char*>(nullptr) + 16 * ++events_);
  }
  Status destroyEvent(int, DeviceEvent) override { return Status::ok(); }
  Status recordEvent(int, DeviceEvent, DeviceStream stream, bool inGraph) override {
    EXPECT_EQ(captures[stream] != 0, inGraph) << "an event of a captured stream";
    note("record", stream);
    return Status::ok();
  }
  Status waitEvent(int, DeviceStream stream, DeviceEvent, bool inGraph) override {
    EXPECT_EQ(captures[stream] != 0, inGraph) << "a wait in a captured stream";
    note("wait", stream);
    return Status::ok();
  }
  Result<bool> isDone(int, DeviceEvent event) override {
    return !allUnfinished && !unfinished.contains(event);
  }
  std::string kernelReport() override { return {}; }

 private:
  void note(const char* what, DeviceStream stream) {
    order.push_back(fmt::format("{} {}", what, reinterpret_cast<uintptr_t>(stream)));
  }

  /// Everything that the kernel would follow.
  void expectValid(const Launched& launched) {
    const device::LaunchArguments& arguments = launched.arguments;
    ASSERT_TRUE(holds(arguments.comm, sizeof(device::Comm)));
    const device::Comm& comm = *arguments.comm;
    ASSERT_TRUE(holds(comm.abort, sizeof(uint32_t)));
    ASSERT_TRUE(holds(comm.report, sizeof(device::Report)));
    for (int32_t rank = 0; rank < comm.ranks; ++rank)
      ASSERT_TRUE(holds(comm.segments[rank], comm.layout.bytes()));
    if (arguments.moreCalls != nullptr)
      ASSERT_TRUE(holds(arguments.moreCalls, arguments.calls * sizeof(device::Call)));
    else
      ASSERT_LE(arguments.calls, device::kInlineCalls);
    ASSERT_LE(arguments.heads, arguments.calls);
    uint32_t blocks = 0;
    std::set<uint32_t> seen;
    for (uint32_t head = 0; head < arguments.heads; ++head) {
      ASSERT_EQ(launched.calls[head].firstBlock, blocks);
      uint32_t widest = 0;
      for (uint32_t c = head; c != 0 || widest == 0; c = launched.calls[c].next) {
        ASSERT_LT(c, arguments.calls);
        ASSERT_TRUE(seen.insert(c).second) << "call " << c << " is in two chains";
        const device::Call& call = launched.calls[c];
        widest = std::max<uint32_t>(widest, call.channels * uint32_t{call.lanes});
        expectValid(comm, call);
        if (call.next == 0) break;
      }
      blocks += widest;
    }
    EXPECT_EQ(seen.size(), arguments.calls);
    EXPECT_EQ(blocks, launched.launch.blocks);
  }

  void expectValid(const device::Comm& comm, const device::Call& call) {
    ASSERT_TRUE(holds(call.program, sizeof(device::Program)));
    ASSERT_TRUE(holds(call.program, call.program->bytes));
    ASSERT_EQ(call.lanes, call.program->laneCount);
    ASSERT_LE(call.channels, comm.layout.channels);
    ASSERT_GT(call.sliceElements, 0u);
    const auto blocks = static_cast<size_t>(call.program->blocksOfData);
    if (call.blockCounts != nullptr) {
      ASSERT_TRUE(holds(call.blockCounts, blocks * sizeof(uint64_t)));
      ASSERT_TRUE(holds(call.blockOffsets, blocks * sizeof(uint64_t)));
    }
    for (uint32_t l = 0; l < call.program->laneCount; ++l) {
      const device::Lane& lane = call.program->lanes()[l];
      for (uint32_t n = lane.firstLink; n < lane.firstLink + lane.linkCount; ++n) {
        const device::Link& link = call.program->links()[n];
        for (uint32_t channel = 0; channel < call.channels; ++channel) {
          const uint64_t at = comm.linkIndex(channel, link.port, static_cast<uint32_t>(link.peer));
          if (link.sends != 0) {
            ASSERT_TRUE(holds(comm.senders[at].slots, device::kFifoDepth * comm.slotBytes));
            ASSERT_TRUE(holds(comm.senders[at].sent, sizeof(uint64_t)));
          } else {
            ASSERT_TRUE(holds(comm.receivers[at].slots, device::kFifoDepth * comm.slotBytes));
            ASSERT_TRUE(holds(comm.receivers[at].received, sizeof(uint64_t)));
          }
        }
      }
    }
  }

  std::mutex mutex_;
  std::map<std::byte*, size_t> memory_;
  size_t events_ = 0;
};

}  // namespace tutti::test
