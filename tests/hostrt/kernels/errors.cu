// What goes wrong, and what the program is told.
#undef NDEBUG
#include <cassert>
#include <thread>

#include "base/kernel_shim/kernel_shim.h"
#include "hostrt/kernels/support.cuh"

namespace {

__global__ void nothing() {}
__global__ void __launch_bounds__(64) bounded(int* out) { *out = 1; }
__global__ void traps(int* out) {
  if (threadIdx.x == 3) __trap();
  __syncthreads();
  *out = 1;
}
__global__ void asserts(int value) { assert(value < 7 && "too large"); }
__global__ void write(int* out) { *out = 9; }

__global__ void waitApart() {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __shfl_sync(~0u, 1, 0);
    if (threadIdx.x == 32) __syncwarp(3);
    if (threadIdx.x == 33) __syncwarp(1u << 1 | 1u << 2);
  }
}
__global__ void waitForTheDead() {
  if (threadIdx.x == 7) return;
  __syncwarp();
}
__global__ void mixVotes(int* out) {
  *out = threadIdx.x == 0 ? __syncthreads_count(1) : __syncthreads_or(1);
}
__global__ void spinUntil(int* flag) {
  tutti::shim::note("step", 17);
  while (tutti::shim::loadAcquire(flag) == 0) __nanosleep(1000);
}

/// The launch's own error, or that of the device when it is done.
class KernelErrors : public testing::Test {
 protected:
  void SetUp() override { testing::internal::CaptureStderr(); }
  void TearDown() override {
    if (!isRead_) testing::internal::GetCapturedStderr();
    EXPECT_CUDA(cudaDeviceReset());
    EXPECT_CUDA(cudaDeviceSynchronize());
    cudaGetLastError();
  }
  std::string messages() {
    isRead_ = true;
    return testing::internal::GetCapturedStderr();
  }
  bool isRead_ = false;
};

cudaError_t launchEmpty(dim3 grid, dim3 block, size_t shared = 0) {
  nothing<<<grid, block, shared>>>();
  return cudaGetLastError();
}

}  // namespace

TEST_F(KernelErrors, SizesAreChecked) {
  EXPECT_EQ(launchEmpty(dim3(0), dim3(1)), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launchEmpty(dim3(1), dim3(1, 0)), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launchEmpty(dim3(1), dim3(1025)), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launchEmpty(dim3(1), dim3(1, 1, 65)), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launchEmpty(dim3(1), dim3(64, 64)), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launchEmpty(dim3(1, 65536), dim3(1)), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launchEmpty(dim3(1), dim3(1), (48 << 10) + 1), cudaErrorInvalidValue);
  EXPECT_EQ(launchEmpty(dim3(1, 2, 3), dim3(1, kIsThreadSanitizer ? 1 : 16, 64), 48 << 10), cudaSuccess);
  EXPECT_CUDA(cudaDeviceSynchronize());
}

TEST_F(KernelErrors, MoreSharedMemoryIsForThoseWhoAskForIt) {
  EXPECT_EQ(cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 << 10),
            cudaErrorInvalidValue);
  EXPECT_CUDA(cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10));
  cudaGetLastError();
  EXPECT_EQ(launchEmpty(dim3(2), dim3(1), 200 << 10), cudaSuccess);
  cudaFuncAttributes attributes;
  EXPECT_CUDA(cudaFuncGetAttributes(&attributes, nothing));
  EXPECT_EQ(attributes.maxDynamicSharedSizeBytes, 200 << 10);
  EXPECT_CUDA(cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 0));
}

TEST_F(KernelErrors, LaunchBoundsHold) {
  int* out = nullptr;
  bounded<<<1, 65>>>(out);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  cudaFuncAttributes attributes;
  EXPECT_CUDA(cudaFuncGetAttributes(&attributes, bounded));
  EXPECT_EQ(attributes.maxThreadsPerBlock, 64);
  int blocks = -1;
  EXPECT_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, bounded, 65, 0));
  EXPECT_EQ(blocks, 0);
  EXPECT_EQ(cudaFuncGetAttributes(&attributes, static_cast<const void*>(&out)), cudaErrorInvalidDeviceFunction);
}

TEST_F(KernelErrors, ATrapStaysUntilTheDeviceIsReset) {
  int* out = nullptr;
  ASSERT_CUDA(cudaMallocHost(&out, sizeof *out));
  *out = 0;
  traps<<<3, 64>>>(out);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  EXPECT_EQ(*out, 0);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure) << "it cannot be cleared";
  write<<<1, 1>>>(out);
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaErrorLaunchFailure);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 16), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaMemset(out, 1, 4), cudaErrorLaunchFailure);
  EXPECT_EQ(*out, 0);
  const std::string text = messages();
  EXPECT_NE(text.find("traps(int*) failed: __trap: block ("), std::string::npos) << text;
  EXPECT_NE(text.find("thread (3,0,0)"), std::string::npos) << text;
  EXPECT_NE(text.find("errors.cu:"), std::string::npos) << text;
  EXPECT_CUDA(cudaDeviceReset());
  cudaGetLastError();
  write<<<1, 1>>>(out);
  expectFinishes();
  EXPECT_EQ(*out, 9);
  EXPECT_CUDA(cudaFreeHost(out));
}

TEST_F(KernelErrors, AnAssertionFailsTheKernelAndNotTheProcess) {
  asserts<<<1, 1>>>(6);
  EXPECT_CUDA(cudaDeviceSynchronize());
  asserts<<<dim3(2, 1), 1>>>(7);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorAssert);
  const std::string text = messages();
  EXPECT_NE(text.find("thread: [0,0,0] Assertion `value < 7 && \"too large\"` failed."), std::string::npos) << text;
}

TEST_F(KernelErrors, ADeadlockIsReportedWithThreadsAndLines) {
  waitApart<<<1, 64>>>();
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  const std::string text = messages();
  EXPECT_NE(text.find("waitApart() is deadlocked"), std::string::npos) << text;
  EXPECT_NE(text.find("block (0,0,0)"), std::string::npos) << text;
  EXPECT_NE(text.find("threads 0 to 31: wait at __syncthreads, "), std::string::npos) << text;
  EXPECT_NE(text.find("thread 32: wait at __syncwarp, "), std::string::npos) << text;
  EXPECT_NE(text.find("with mask 0x3"), std::string::npos) << text;
  EXPECT_NE(text.find("threads 34 to 63: have ended"), std::string::npos) << text;
}

TEST_F(KernelErrors, AWarpThatWaitsForAnEndedThreadIsDeadlocked) {
  waitForTheDead<<<1, 32>>>();
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  const std::string text = messages();
  EXPECT_NE(text.find("thread 7: have ended"), std::string::npos) << text;
}

TEST_F(KernelErrors, DifferentVotesAtOneBarrierAreRefused) {
  int* out = nullptr;
  ASSERT_CUDA(cudaMalloc(&out, sizeof *out));
  mixVotes<<<1, 2>>>(out);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  const std::string text = messages();
  EXPECT_NE(text.find("in another form"), std::string::npos) << text;
}

TEST_F(KernelErrors, AReportSaysWhereRunningKernelsStand) {
  int* flag = nullptr;
  ASSERT_CUDA(cudaMallocHost(&flag, sizeof *flag));
  *flag = 0;
  spinUntil<<<1, 2>>>(flag);
  char text[4096] = "";
  for (int i = 0; i < 2000 && !std::strstr(text, "poll in"); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    table().kernelReport(text, sizeof text);
  }
  EXPECT_NE(std::strstr(text, "spinUntil(int*) on device 0: 1 blocks of 2 threads"), nullptr) << text;
  EXPECT_NE(std::strstr(text, "poll in __nanosleep, "), nullptr) << text;
  EXPECT_NE(std::strstr(text, "(step 17)"), nullptr) << text;
  char little[8];
  EXPECT_GT(table().kernelReport(little, sizeof little), sizeof little);
  __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
  EXPECT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(table().kernelReport(text, sizeof text), 0u);
  EXPECT_CUDA(cudaFreeHost(flag));
}

TEST_F(KernelErrors, AFailedKernelEndsThoseThatSpinOnTheDevice) {
  int* flag = nullptr;
  ASSERT_CUDA(cudaMallocHost(&flag, sizeof *flag));
  *flag = 0;
  cudaStream_t stream;
  ASSERT_CUDA(cudaStreamCreate(&stream));
  spinUntil<<<4, 64, 0, stream>>>(flag);
  asserts<<<1, 1>>>(7);
  cudaStream_t other;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  asserts<<<1, 1, 0, other>>>(7);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorAssert);
  EXPECT_CUDA(cudaDeviceReset());
  cudaGetLastError();
  EXPECT_CUDA(cudaStreamDestroy(stream));
  EXPECT_CUDA(cudaStreamDestroy(other));
  EXPECT_CUDA(cudaFreeHost(flag));
}
