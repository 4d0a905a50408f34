// The driver of GPUs, on a fake libcuda.so.1 (device/fake_cuda).
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "device/cuda_driver.h"
#include "device/fake_cuda/fake_cuda.h"

namespace tutti {
namespace {

using test::FakeCuda;
using test::FakeStream;
using testing::HasSubstr;

const std::string kLibrary = TUTTI_BINARY_DIR "/lib/tests/libtest_fake_cuda.so";
constexpr const char* kImage = "image";

std::string kernelNameOf(ncclDataType_t type, device::Protocol protocol) {
  return fmt::format("kernel_{}_{}", static_cast<int>(type), static_cast<int>(protocol));
}

GpuKernels kernels() {
  return {std::as_bytes(std::span(kImage, std::strlen(kImage) + 1)), kernelNameOf, 100 << 10};
}

class CudaDriverTest : public testing::Test {
 protected:
  void SetUp() override {
    void* library = ::dlopen(kLibrary.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << ::dlerror();
    fake = reinterpret_cast<test::FakeCudaGet>(::dlsym(library, "fakeCuda"))();
    *fake = {};
  }
  void TearDown() override {
    EXPECT_EQ(fake->stack, callersStack) << "the caller's context stays current";
    EXPECT_EQ(fake->captureMode, 0) << "the caller's capture mode stays";
    EXPECT_EQ(fake->forbiddenCalls, 0) << "calls that a capture forbids are made in relaxed mode";
    EXPECT_EQ(fake->copyStreams.count(nullptr), 0u) << "nothing of ours is on the legacy stream";
    for (void* stream : fake->copyStreams) EXPECT_EQ(static_cast<FakeStream*>(stream)->flags, 1u);
    fake->errors.clear();
    driver.reset();
    EXPECT_EQ(fake->stack, callersStack);
    EXPECT_TRUE(fake->memory.empty()) << "the driver's own memory goes with it";
    for (const test::FakeContext& context : fake->contexts) EXPECT_FALSE(context.isRetained);
  }
  /// The driver, with a context of the caller's current.
  Driver& open() {
    auto opened = openCudaDriver(kLibrary, kernels());
    EXPECT_TRUE(opened.isOk()) << opened.status().message();
    driver = std::move(opened).value();
    callersStack = fake->stack = {&fake->contexts[7]};
    return *driver;
  }
  Status openError() { return openCudaDriver(kLibrary, kernels()).status(); }

  FakeCuda* fake = nullptr;
  std::unique_ptr<Driver> driver;
  std::vector<test::FakeContext*> callersStack;
};

TEST_F(CudaDriverTest, ALibraryThatIsMissingIsNamed) {
  const Status status = openCudaDriver("/nowhere/libcuda.so.1", kernels()).status();
  EXPECT_THAT(status.message(), HasSubstr("no CUDA driver"));
  EXPECT_THAT(status.message(), HasSubstr("/nowhere/libcuda.so.1"));
}

TEST_F(CudaDriverTest, AnOldDriverIsRefusedWithBothVersions) {
  fake->version = 11080;
  EXPECT_THAT(openError().message(), HasSubstr("too old, of CUDA 11.8; 12.0 or newer is needed"));
  fake->version = 12000;
  EXPECT_TRUE(openError().isOk()) << openError().message();
}

TEST_F(CudaDriverTest, ADriverWithoutDevicesIsRefused) {
  fake->devices = 0;
  EXPECT_THAT(openError().message(), HasSubstr("finds no GPU"));
  fake->errors["cuInit"] = 100;
  EXPECT_THAT(openError().message(), HasSubstr("finds no GPU"));
  fake->errors["cuInit"] = 999;
  EXPECT_THAT(openError().message(), HasSubstr("does not start: as the test wants it (CUDA_ERROR_FAKE)"));
}

TEST_F(CudaDriverTest, AMissingFunctionIsNamed) {
  fake->missing = {"cuStreamGetCaptureInfo"};
  EXPECT_THAT(openError().message(), HasSubstr("no function cuStreamGetCaptureInfo of CUDA 10.1"));
}

TEST_F(CudaDriverTest, ALibraryWithoutKernelsSaysSoAndStartsNothing) {
  GpuKernels none = kernels();
  none.image = {};
  EXPECT_THAT(openCudaDriver(kLibrary, none).status().message(), HasSubstr("built without kernels for GPUs"));
  EXPECT_EQ(fake->called("cuInit"), 0);
}

TEST_F(CudaDriverTest, DescribesDevices) {
  Driver& cuda = open();
  EXPECT_FALSE(cuda.isVirtual());
  EXPECT_EQ(*cuda.deviceCount(), 2);
  const auto facts = cuda.facts(1);
  ASSERT_TRUE(facts.isOk());
  EXPECT_EQ(facts->name, "Fake 1");
  EXPECT_EQ(facts->busId, "0000:1b:01.0");
  EXPECT_EQ(facts->major, 9);
  EXPECT_EQ(facts->minor, 1);
  EXPECT_EQ(facts->multiprocessors, 132);
  EXPECT_EQ(fake->called("cuDevicePrimaryCtxRetain"), 0) << "questions start no device";
  EXPECT_THAT(cuda.facts(2).status().message(), HasSubstr("no GPU 2"));
}

TEST_F(CudaDriverTest, AllKernelsAreLoadedAtOnceAndOnce) {
  Driver& cuda = open();
  ASSERT_TRUE(cuda.loadKernels(1).isOk());
  ASSERT_TRUE(cuda.loadKernels(1).isOk());
  EXPECT_EQ(fake->called("cuModuleLoadData"), 1);
  EXPECT_EQ(fake->functions.size(), 36u);
  for (const auto& [key, function] : fake->functions) {
    EXPECT_TRUE(function.isLoaded) << key;
    EXPECT_EQ(function.mostShared, 100 << 10) << key;
    EXPECT_EQ(key.substr(0, 2), "1/");
  }
  EXPECT_EQ(fake->called("cuFuncLoad"), 0) << "this driver, of 12.2, has none";
}

TEST_F(CudaDriverTest, NewerDriversAreToldToLoad) {
  fake->version = 13000;
  ASSERT_TRUE(open().loadKernels(0).isOk());
  EXPECT_EQ(fake->called("cuFuncLoad"), 36);
}

TEST_F(CudaDriverTest, KernelsThatDoNotFitTheGpuSayWhichItIs) {
  Driver& cuda = open();
  fake->errors["cuModuleLoadData"] = 209;
  EXPECT_THAT(
      cuda.loadKernels(0).message(),
      HasSubstr("GPU 0 (Fake 0, compute capability 9.1): this library was built without kernels for it"));
  EXPECT_FALSE(cuda.launch(0, nullptr, {}).isOk()) << "before they are loaded";
  fake->errors.clear();
  fake->errors["cuModuleGetFunction"] = 500;
  EXPECT_THAT(cuda.loadKernels(0).message(), HasSubstr("kernel kernel_0_0 on GPU 0"));
}

TEST_F(CudaDriverTest, ALaunchArrivesAsItWasAskedFor) {
  Driver& cuda = open();
  ASSERT_TRUE(cuda.loadKernels(0).isOk());
  ASSERT_TRUE(cuda.loadKernels(1).isOk());
  FakeStream stream;
  device::LaunchArguments arguments;
  arguments.calls = 3;
  arguments.inlineCalls[2].count = 77;
  KernelLaunch launch;
  launch.type = ncclFloat16;
  launch.protocol = device::Protocol::ll128;
  launch.blocks = 5;
  launch.threads = 96;
  launch.sharedBytes = 1234;
  launch.arguments = &arguments;
  ASSERT_TRUE(cuda.launch(1, &stream, launch).isOk());
  ASSERT_EQ(fake->launches.size(), 1u);
  const test::FakeLaunch& seen = fake->launches[0];
  EXPECT_EQ(seen.kernel, kernelNameOf(ncclFloat16, device::Protocol::ll128));
  EXPECT_EQ(seen.device, 1);
  EXPECT_EQ(seen.stream, &stream);
  EXPECT_THAT(seen.grid, testing::ElementsAre(5, 1, 1));
  EXPECT_THAT(seen.block, testing::ElementsAre(96, 1, 1));
  EXPECT_EQ(seen.sharedBytes, 1234u);
  EXPECT_EQ(seen.arguments.calls, 3u);
  EXPECT_EQ(seen.arguments.inlineCalls[2].count, 77u);
  EXPECT_EQ(*cuda.residentBlocks(1, ncclFloat16, device::Protocol::ll128, 512, 0), 4u * 132);
  fake->errors["cuLaunchKernel"] = 700;
  const Status failed = cuda.launch(1, &stream, launch);
  EXPECT_EQ(failed.code(), ncclUnhandledCudaError);
  EXPECT_THAT(failed.message(), HasSubstr("LL128 kernel for half on GPU 1 (5 blocks of 96 threads)"));
  EXPECT_THAT(failed.message(), HasSubstr("cuLaunchKernel: as the test wants it (CUDA_ERROR_FAKE)"));
}

TEST_F(CudaDriverTest, MemoryIsZeroedCopiedAndFreed) {
  Driver& cuda = open();
  constexpr size_t kBytes = 600001;  // more than the memory that copies go through
  const auto memory = cuda.allocate(1, kBytes);
  ASSERT_TRUE(memory.isOk()) << memory.status().message();
  EXPECT_EQ(fake->memory.at(*memory).device, 1);
  EXPECT_EQ(cuda.pointerFacts(*memory + 5).kind, PointerFacts::Kind::device);
  EXPECT_EQ(cuda.pointerFacts(*memory + 5).device, 1);
  std::vector<char> back(kBytes, 'x');
  ASSERT_TRUE(cuda.copyFromDevice(1, back.data(), *memory, kBytes).isOk());
  EXPECT_EQ(back, std::vector<char>(kBytes, 0));
  std::vector<char> sent(kBytes);
  for (size_t i = 0; i < kBytes; ++i) sent[i] = static_cast<char>(i * 31 % 251);
  ASSERT_TRUE(cuda.copyToDevice(1, *memory, sent.data(), kBytes).isOk());
  ASSERT_TRUE(cuda.copyFromDevice(1, back.data(), *memory, kBytes).isOk());
  EXPECT_EQ(back, sent);
  EXPECT_TRUE(cuda.free(1, *memory).isOk());
  EXPECT_EQ(fake->memory.count(*memory), 0u);
  EXPECT_TRUE(cuda.free(1, nullptr).isOk());
  EXPECT_EQ(fake->copyStreams.size(), 1u);
}

TEST_F(CudaDriverTest, PinnedMemoryIsForAllDevices) {
  Driver& cuda = open();
  const auto memory = cuda.allocateHost(100);
  ASSERT_TRUE(memory.isOk()) << memory.status().message();
  EXPECT_EQ(fake->memory.at(*memory).flags, 3u) << "portable and mapped";
  EXPECT_EQ((*memory)[99], std::byte{0});
  EXPECT_EQ(cuda.pointerFacts(*memory + 5).kind, PointerFacts::Kind::host);
  EXPECT_TRUE(cuda.freeHost(*memory).isOk());
  EXPECT_EQ(cuda.pointerFacts(*memory + 5).kind, PointerFacts::Kind::unknown);
}

TEST_F(CudaDriverTest, ErrorsOfMemoryNameFunctionAndReason) {
  Driver& cuda = open();
  fake->errors["cuMemAlloc"] = 2;
  EXPECT_EQ(cuda.allocate(1, 12345).status().message(),
            "12345 bytes on GPU 1: cuMemAlloc: out of memory (CUDA_ERROR_OUT_OF_MEMORY)");
  fake->errors.clear();
  fake->errors["cuMemsetD8Async"] = 999;
  EXPECT_THAT(cuda.allocate(1, 5).status().message(), HasSubstr("cuMemsetD8Async"));
  for (const auto& [at, memory] : fake->memory) EXPECT_TRUE(memory.isHost) << "what was not zeroed is freed";
}

TEST_F(CudaDriverTest, PeerAccessMayBeEnabledAgain) {
  Driver& cuda = open();
  EXPECT_TRUE(*cuda.canAccessPeer(0, 1));
  EXPECT_TRUE(*cuda.canAccessPeer(1, 1));
  EXPECT_TRUE(cuda.enablePeerAccess(0, 1).isOk());
  EXPECT_TRUE(cuda.enablePeerAccess(0, 1).isOk());
  EXPECT_TRUE(cuda.enablePeerAccess(1, 1).isOk());
  EXPECT_EQ(fake->peers, (std::set<std::pair<int, int>>{{0, 1}}));
  fake->errors["cuCtxEnablePeerAccess"] = 711;
  EXPECT_THAT(cuda.enablePeerAccess(1, 0).message(), HasSubstr("let GPU 1 use memory of GPU 0"));
}

TEST_F(CudaDriverTest, TheCurrentDeviceIsThatOfTheCallersContext) {
  Driver& cuda = open();
  fake->contexts[7].device = 1;
  EXPECT_EQ(*cuda.currentDevice(), 1);
  fake->stack.clear();
  EXPECT_EQ(*cuda.currentDevice(), 0);
  fake->stack = callersStack;
}

TEST_F(CudaDriverTest, StreamsKnowTheirDeviceAndCapture) {
  Driver& cuda = open();
  FakeStream stream;
  stream.context = &fake->contexts[6];
  fake->contexts[6].device = 1;
  EXPECT_EQ(*cuda.streamDevice(&stream, 0), 1);
  EXPECT_EQ(*cuda.streamDevice(nullptr, 0), 0);
  EXPECT_EQ(*cuda.captureOf(1, &stream), 0u);
  stream.captureState = 1;
  stream.captureId = 42;
  EXPECT_EQ(*cuda.captureOf(1, &stream), 42u);
  stream.captureState = 2;
  EXPECT_EQ(cuda.captureOf(1, &stream).status().code(), ncclInvalidUsage);
}

TEST_F(CudaDriverTest, EventsHaveNoTimingAndTellWhenTheyAreDone) {
  Driver& cuda = open();
  FakeStream stream;
  stream.isBusy = true;
  EXPECT_FALSE(*cuda.isIdle(0, &stream));
  const auto event = cuda.createEvent(0);
  ASSERT_TRUE(event.isOk());
  EXPECT_EQ(static_cast<test::FakeEvent*>(*event)->flags, 2u);
  EXPECT_TRUE(*cuda.isDone(0, *event));
  ASSERT_TRUE(cuda.recordEvent(0, *event, &stream).isOk());
  EXPECT_FALSE(*cuda.isDone(0, *event));
  EXPECT_TRUE(cuda.waitEvent(1, nullptr, *event).isOk());
  stream.isBusy = false;
  EXPECT_TRUE(*cuda.isDone(0, *event));
  EXPECT_TRUE(*cuda.isIdle(0, &stream));
  EXPECT_TRUE(cuda.synchronize(0, &stream).isOk());
  EXPECT_TRUE(cuda.destroyEvent(0, *event).isOk());
  fake->errors["cuStreamQuery"] = 700;
  EXPECT_THAT(cuda.isIdle(0, &stream).status().message(), HasSubstr("cuStreamQuery"));
}

TEST_F(CudaDriverTest, ADeviceThatDoesNotStartLeavesTheCallerAlone) {
  Driver& cuda = open();
  fake->errors["cuDevicePrimaryCtxRetain"] = 2;
  EXPECT_THAT(cuda.allocate(1, 5).status().message(), HasSubstr("start GPU 1: cuDevicePrimaryCtxRetain"));
  fake->errors.clear();
  fake->errors["cuCtxPushCurrent"] = 201;
  EXPECT_THAT(cuda.createEvent(1).status().message(), HasSubstr("cuCtxPushCurrent"));
}

}  // namespace
}  // namespace tutti
