// Planted faults in kernels, each found by the sanitizer that is there to find it; the same kernel without the fault
// passes.
#include <cstdlib>

#include "base/kernel_shim/kernel_shim.h"
#include "hostrt/kernels/support.cuh"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)

namespace {

enum class Fault { none, planted };

class KernelSanitizers : public testing::Test {
 protected:
  // A process of its own, not a fork: this one has threads.
  void SetUp() override { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

/// In the process of a death test.
[[noreturn]] void finish() {
  const bool isWell = cudaGetLastError() == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess;
  std::exit(isWell ? 0 : 3);
}

}  // namespace

#endif

#if defined(__SANITIZE_THREAD__)

/// Each process would otherwise wait for a second when it ends.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() { return "atexit_sleep_ms=0"; }

namespace {

__global__ void neighbours(int* out, Fault fault) {
  __shared__ int values[64];
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (fault == Fault::none) __syncthreads();
  out[threadIdx.x] = values[(threadIdx.x + 1) % 64];
}

/// The second barrier keeps the next round's writes from the slow readers of this one.
__global__ void rounds(int* out, Fault fault) {
  __shared__ int value;
  for (int round = 0; round < 3; ++round) {
    if (threadIdx.x == 0) value = round;
    __syncthreads();
    out[threadIdx.x] = value;
    if (fault == Fault::none) __syncthreads();
  }
}

__global__ void warpNeighbours(int* out, Fault fault) {
  __shared__ int values[32];
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (fault == Fault::none) __syncwarp();
  out[threadIdx.x] = values[31 - threadIdx.x];
}

/// All blocks are there at once, on OS threads of their own, and not ordered by that.
__device__ void meet(int* arrived) {
  __atomic_fetch_add(arrived, 1, __ATOMIC_RELAXED);
  while (tutti::shim::loadRelaxed(arrived) < static_cast<int>(gridDim.x)) __nanosleep(100);
}

__global__ void countInBlocks(int* counter, Fault fault) {
  meet(counter + 1);
  if (fault == Fault::none) atomicAdd(counter, 1);
  else *counter += 1;
}

__global__ void lastBlockReads(int* data, int* arrived, int* out, Fault fault) {
  meet(arrived + 10);
  data[blockIdx.x] = static_cast<int>(blockIdx.x);
  if (fault == Fault::none) __threadfence();
  // Without the fence the counter must not order either.
  const int ticket = fault == Fault::none ? atomicAdd(arrived, 1) : __atomic_fetch_add(arrived, 1, __ATOMIC_RELAXED);
  if (ticket == static_cast<int>(gridDim.x) - 1)
    for (unsigned i = 0; i < gridDim.x; ++i) *out += data[i];
}

template <class Launch>
void expectRaceIsFound(const Launch& launch) {
  EXPECT_EXIT((launch(Fault::planted), finish()), testing::ExitedWithCode(66), "ThreadSanitizer: data race");
  EXPECT_EXIT((launch(Fault::none), finish()), testing::ExitedWithCode(0), "");
}

int* memory() {
  int* out = nullptr;
  cudaMalloc(&out, 256 * sizeof(int));
  cudaMemset(out, 0, 256 * sizeof(int));
  return out;
}

}  // namespace

TEST_F(KernelSanitizers, AMissingBarrierIsARace) {
  expectRaceIsFound([](Fault fault) { neighbours<<<1, 64>>>(memory(), fault); });
}
TEST_F(KernelSanitizers, AMissingBarrierBeforeTheNextRoundIsARace) {
  expectRaceIsFound([](Fault fault) { rounds<<<1, 64>>>(memory(), fault); });
}
TEST_F(KernelSanitizers, AMissingWarpBarrierIsARace) {
  expectRaceIsFound([](Fault fault) { warpNeighbours<<<1, 32>>>(memory(), fault); });
}
TEST_F(KernelSanitizers, UnorderedBlocksRace) {
  expectRaceIsFound([](Fault fault) { countInBlocks<<<8, 1>>>(memory(), fault); });
  expectRaceIsFound([](Fault fault) {
    int* out = memory();
    lastBlockReads<<<8, 1>>>(out, out + 100, out + 101, fault);
  });
}

#elif defined(__SANITIZE_ADDRESS__)

namespace {

constexpr int kCount = 25;  // not a whole number of pages

__global__ void beyondGlobal(int* out, Fault fault) {
  out[threadIdx.x + (fault == Fault::planted ? 1 : 0)] = 1;
}
__global__ void beyondShared(int* out, Fault fault) {
  __shared__ int before[kCount];
  __shared__ int values[kCount];
  before[threadIdx.x] = 1;
  int* const pointer = values;  // the compiler's own checks look at arrays
  pointer[threadIdx.x + (fault == Fault::planted ? 1 : 0)] = 2;
  __syncthreads();
  out[threadIdx.x] = values[threadIdx.x] + before[threadIdx.x];
}
__global__ void beyondDynamic(int* out, Fault fault) {
  extern __shared__ int dynamic[];
  dynamic[threadIdx.x + (fault == Fault::planted ? 1 : 0)] = 2;
  __syncthreads();
  out[threadIdx.x] = 1;
}
__global__ void beyondLocal(int* out, Fault fault) {
  volatile int local[8];
  const int length = fault == Fault::planted ? 9 : 8;
  for (int i = 0; i < length; ++i) local[i] = i;
  __syncthreads();
  out[threadIdx.x] = local[threadIdx.x % 8];
}

template <class Launch>
void expectFaultIsFound(const Launch& launch, const char* message) {
  EXPECT_DEATH((launch(Fault::planted), finish()), message);
  EXPECT_EXIT((launch(Fault::none), finish()), testing::ExitedWithCode(0), "");
}

int* memory() {
  int* out = nullptr;
  cudaMalloc(&out, kCount * sizeof(int));
  return out;
}

}  // namespace

TEST_F(KernelSanitizers, GlobalMemoryHasBounds) {
  expectFaultIsFound([](Fault fault) { beyondGlobal<<<1, kCount>>>(memory(), fault); }, "AddressSanitizer");
}
TEST_F(KernelSanitizers, FreedMemoryIsNotUsed) {
  expectFaultIsFound(
      [](Fault fault) {
        int* out = memory();
        memory();  // so that the memory file stays
        if (fault == Fault::planted) cudaFree(out);
        beyondGlobal<<<1, kCount>>>(out, Fault::none);
      },
      "AddressSanitizer");
}
TEST_F(KernelSanitizers, SharedMemoryHasBounds) {
  expectFaultIsFound([](Fault fault) { beyondShared<<<1, kCount>>>(memory(), fault); }, "AddressSanitizer");
  expectFaultIsFound(
      [](Fault fault) { beyondDynamic<<<1, kCount, kCount * sizeof(int)>>>(memory(), fault); }, "AddressSanitizer");
}
TEST_F(KernelSanitizers, LocalArraysHaveBounds) {
  expectFaultIsFound([](Fault fault) { beyondLocal<<<1, kCount>>>(memory(), fault); },
                     "AddressSanitizer|index .* out of bounds");
}

#endif
