// The driver of virtual GPUs, on the real host runtime. (In a process these come after the tests that look
// for a host runtime themselves: what is found first is kept.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "device/host_table.h"
#include "device/kernel_table.h"
#include "device/kernels/counting.h"
#include "device/virtual_driver.h"

namespace tutti {
namespace {

using testing::HasSubstr;

class VirtualDriverTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto table = hostTable();
    ASSERT_TRUE(table.isOk()) << table.status().message();
    runtime = *table;
    auto made = makeVirtualDriver(*runtime, test::countingTwin);
    ASSERT_TRUE(made.isOk()) << made.status().message();
    driver = std::move(*made);
    counter = reinterpret_cast<uint64_t*>(*driver->allocate(0, 4096));
    comm.abort = &mayGo;
  }
  void TearDown() override {
    if (!driver) return;
    open();
    for (int device = 0; device < 2; ++device) EXPECT_TRUE(driver->synchronize(device, nullptr).isOk());
    EXPECT_TRUE(driver->free(0, reinterpret_cast<std::byte*>(counter)).isOk());
  }

  /// Lets kernels go on that were launched with `waits`.
  void open() { std::atomic_ref(mayGo).store(1); }

  Status launch(int device, uint32_t blocks, uint32_t threads, uint64_t count, bool waits = false) {
    device::LaunchArguments arguments;
    if (waits) arguments.comm = &comm;
    arguments.inlineCalls[0].output = reinterpret_cast<std::byte*>(counter);
    arguments.inlineCalls[0].count = count;
    KernelLaunch request;
    request.type = ncclFloat32;
    request.blocks = blocks;
    request.threads = threads;
    request.sharedBytes = threads * 4;
    request.arguments = &arguments;
    const Status status = driver->launch(device, nullptr, request);
    arguments = {};  // the launch has its own copy
    return status;
  }

  const tuttiHostRuntime_v1* runtime = nullptr;
  std::unique_ptr<Driver> driver;
  uint64_t* counter = nullptr;
  uint32_t mayGo = 0;
  device::Comm comm;
};

TEST_F(VirtualDriverTest, LaunchesAGridWithItsArguments) {
  ASSERT_TRUE(launch(1, 3, 64, 5).isOk());
  ASSERT_TRUE(driver->synchronize(1, nullptr).isOk());
  EXPECT_EQ(*counter, 3u * 64 * 5);
}

TEST_F(VirtualDriverTest, KnowsWhetherAStreamAndAnEventAreDone) {
  const auto event = driver->createEvent(1);
  ASSERT_TRUE(event.isOk());
  EXPECT_TRUE(*driver->isDone(1, *event)) << "nothing was recorded";
  ASSERT_TRUE(launch(1, 1, 32, 1, true).isOk());
  ASSERT_TRUE(driver->recordEvent(1, *event, nullptr).isOk());
  EXPECT_FALSE(*driver->isIdle(1, nullptr));
  EXPECT_FALSE(*driver->isDone(1, *event));
  EXPECT_TRUE(*driver->isIdle(0, nullptr)) << "another device's default stream";
  open();
  ASSERT_TRUE(driver->synchronize(1, nullptr).isOk());
  EXPECT_TRUE(*driver->isDone(1, *event));
  EXPECT_TRUE(*driver->isIdle(1, nullptr));
  EXPECT_TRUE(driver->destroyEvent(1, *event).isOk());
  EXPECT_FALSE(driver->destroyEvent(1, *event).isOk());
}

TEST_F(VirtualDriverTest, AStreamWaitsForAnEventOfAnotherDevice) {
  const auto event = driver->createEvent(1);
  ASSERT_TRUE(launch(1, 1, 32, 1, true).isOk());
  ASSERT_TRUE(driver->recordEvent(1, *event, nullptr).isOk());
  ASSERT_TRUE(driver->waitEvent(0, nullptr, *event).isOk());
  ASSERT_TRUE(launch(0, 1, 32, 1).isOk());
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_FALSE(*driver->isIdle(0, nullptr));
  EXPECT_EQ(std::atomic_ref(*counter).load(), 0u);
  open();
  ASSERT_TRUE(driver->synchronize(0, nullptr).isOk());
  EXPECT_EQ(std::atomic_ref(*counter).load(), 64u);
  EXPECT_TRUE(driver->destroyEvent(1, *event).isOk());
}

TEST_F(VirtualDriverTest, LeavesTheCurrentDeviceAsItWas) {
  ASSERT_EQ(runtime->setCurrentDevice(3), 0);
  ASSERT_TRUE(launch(1, 1, 32, 1).isOk());
  ASSERT_TRUE(driver->isIdle(1, nullptr).isOk());
  ASSERT_TRUE(driver->captureOf(1, nullptr).isOk());
  ASSERT_TRUE(driver->synchronize(1, nullptr).isOk());
  EXPECT_EQ(*driver->currentDevice(), 3);
  EXPECT_EQ(*driver->streamDevice(nullptr, 5), 5);
  ASSERT_EQ(runtime->setCurrentDevice(0), 0);
}

TEST_F(VirtualDriverTest, ResidencyFollowsThreadsAndSharedMemory) {
  const auto resident = [&](uint32_t threads, uint32_t sharedBytes) {
    return *driver->residentBlocks(0, ncclFloat32, device::Protocol::simple, threads, sharedBytes);
  };
  const uint32_t whole = resident(1024, 0);
  EXPECT_GT(whole, 0u);
  EXPECT_EQ(resident(512, 0), 2 * whole);
  EXPECT_EQ(resident(512, 200 << 10), whole / 2) << "one block a multiprocessor";
  EXPECT_EQ(resident(512, 1 << 20), 0u);
  EXPECT_EQ(resident(2048, 0), 0u);
}

TEST_F(VirtualDriverTest, MemoryIsZeroedAndKnown) {
  const auto pinned = driver->allocateHost(100);
  ASSERT_TRUE(pinned.isOk());
  EXPECT_EQ((*pinned)[99], std::byte{0});
  EXPECT_EQ(driver->pointerFacts(*pinned + 50).kind, PointerFacts::Kind::host);
  const auto memory = driver->allocate(2, 100);
  ASSERT_TRUE(memory.isOk());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(*memory) % 512, 0u);
  const PointerFacts facts = driver->pointerFacts(*memory + 50);
  EXPECT_EQ(facts.kind, PointerFacts::Kind::device);
  EXPECT_EQ(facts.device, 2);
  int onStack = 7;
  EXPECT_EQ(driver->pointerFacts(&onStack).kind, PointerFacts::Kind::unknown);
  EXPECT_EQ(driver->pointerFacts(nullptr).kind, PointerFacts::Kind::unknown);
  ASSERT_TRUE(driver->copyToDevice(2, *memory, &onStack, 4).isOk());
  int back = 0;
  ASSERT_TRUE(driver->copyFromDevice(2, &back, *memory, 4).isOk());
  EXPECT_EQ(back, 7);
  EXPECT_TRUE(driver->free(2, *memory).isOk());
  EXPECT_TRUE(driver->freeHost(*pinned).isOk());
  EXPECT_FALSE(driver->freeHost(*pinned).isOk());
}

TEST_F(VirtualDriverTest, DevicesAreDescribed) {
  EXPECT_EQ(*driver->deviceCount(), 8);
  const auto facts = driver->facts(1);
  ASSERT_TRUE(facts.isOk());
  EXPECT_EQ(facts->busId, "7e00:01:00.0");
  EXPECT_EQ(facts->major, 9);
  EXPECT_EQ(facts->multiprocessors, 16);
  EXPECT_TRUE(*driver->canAccessPeer(0, 1));
  EXPECT_TRUE(*driver->canAccessPeer(1, 1));
  EXPECT_TRUE(driver->enablePeerAccess(0, 1).isOk());
  EXPECT_TRUE(driver->enablePeerAccess(0, 1).isOk());
}

TEST_F(VirtualDriverTest, ErrorsNameDeviceAndReason) {
  const Status launched = launch(0, 1, 4096, 1);
  EXPECT_THAT(launched.message(), HasSubstr("4096 threads"));
  EXPECT_THAT(launched.message(), HasSubstr("float"));
  EXPECT_THAT(driver->facts(77).status().message(), HasSubstr("virtual GPU 77"));
  EXPECT_THAT(driver->allocate(77, 5).status().message(), HasSubstr("no such device"));
  EXPECT_THAT(driver->loadKernels(0).message(), HasSubstr("f8e5m2")) << "the kernel that is missing";
}

TEST_F(VirtualDriverTest, LoadsWhenAllKernelsAreThere) {
  auto complete = makeVirtualDriver(*runtime, test::completeTwins);
  EXPECT_TRUE((*complete)->loadKernels(0).isOk());
  EXPECT_THAT((*complete)->loadKernels(99).message(), HasSubstr("virtual GPU 99"));
}

TEST_F(VirtualDriverTest, AnEarlierReleasesRuntimeIsRefused) {
  tuttiHostRuntime_v1 old = *runtime;
  old.size = offsetof(tuttiHostRuntime_v1, deviceFacts);
  EXPECT_THAT(makeVirtualDriver(old, test::countingTwin).status().message(), HasSubstr("earlier release"));
}

TEST_F(VirtualDriverTest, ReportsWhereKernelsAre) {
  ASSERT_TRUE(launch(0, 1, 32, 1, true).isOk());
  std::string report;
  for (int i = 0; i < 1000 && report.find("countingKernel") == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    report = driver->kernelReport();
  }
  EXPECT_THAT(report, HasSubstr("countingKernel"));
}

// The process's two drivers, with the library's own kernels.

TEST(Drivers, OfVirtualGpusHasAllKernels) {
  const auto driver = virtualDriver();
  ASSERT_TRUE(driver.isOk()) << driver.status().message();
  EXPECT_TRUE((*driver)->isVirtual());
  const Status loaded = (*driver)->loadKernels(1);
  EXPECT_TRUE(loaded.isOk()) << loaded.message();
  EXPECT_EQ(*virtualDriver(), *driver);
  for (const auto protocol : {device::Protocol::simple, device::Protocol::ll, device::Protocol::ll128}) {
    const auto blocks =
        (*driver)->residentBlocks(1, ncclFloat32, protocol, kMostThreads, sharedBytesFor(device::kMostLinks));
    ASSERT_TRUE(blocks.isOk()) << blocks.status().message();
    EXPECT_GE(*blocks, 16u) << "one a multiprocessor at least";
  }
}

TEST(Drivers, OfGpusIsThereOrSaysWhyNot) {
  const auto driver = cudaDriver();
  EXPECT_EQ(cudaDriver().isOk(), driver.isOk());
  if (driver.isOk()) {
    EXPECT_FALSE((*driver)->isVirtual());
    EXPECT_GT(*(*driver)->deviceCount(), 0);
    const Status loaded = (*driver)->loadKernels(0);
    EXPECT_TRUE(loaded.isOk()) << loaded.message();
  } else {
    EXPECT_EQ(cudaDriver().status().message(), driver.status().message()) << "the answer is kept";
    EXPECT_NE(driver.status().message(), "");
  }
}

}  // namespace
}  // namespace tutti
