// Kernels and blocks that wait for each other. On a machine with two cores they all must get on.
#include "base/kernel_shim/kernel_shim.h"
#include "hostrt/kernels/support.cuh"

namespace {

/// Passes a number back and forth with another kernel, through release and acquire.
__global__ void pingPong(int* mine, int* theirs, int* data, int rounds, int first) {
  for (int round = 0; round < rounds; ++round) {
    if (threadIdx.x == 0) {
      const int turn = 2 * round + first;
      while (tutti::shim::loadAcquire(mine) < turn) __nanosleep(100);
    }
    __syncthreads();
    data[threadIdx.x] += 1;
    __syncthreads();
    if (threadIdx.x == 0) tutti::shim::storeRelease(theirs, 2 * round + first + 1);
  }
}

/// Waits by plain volatile loads in a loop with a body: nothing tells the engine that it waits.
__global__ void passToken(volatile int* flags, int rank, int ranks, int rounds, long long* spins) {
  for (int round = 1; round <= rounds; ++round) {
    long long spun = 0;
    if (rank != 0 || round > 1) {
      const int wanted = rank == 0 ? round - 1 : round;
      while (flags[(rank + ranks - 1) % ranks] < wanted) {
        ++spun;
      }
    }
    *spins += spun;
    __threadfence_system();
    flags[rank] = round;
  }
}

/// A barrier across the grid: every block must be resident.
__global__ void gridBarrier(int* arrived, int* seen, int rounds) {
  for (int round = 1; round <= rounds; ++round) {
    __syncthreads();
    if (threadIdx.x == 0) {
      atomicAdd(arrived, 1);
      while (atomicAdd(arrived, 0) < round * static_cast<int>(gridDim.x)) {
      }
    }
    __syncthreads();
    if (threadIdx.x == 1) seen[blockIdx.x] = tutti::shim::loadAcquire(arrived);
  }
}

/// The same with a loop of which the engine learns nothing.
__global__ void silentGridBarrier(int* arrived, volatile int* flag, long long* spins) {
  long long spun = 0;
  if (atomicAdd(arrived, 1) == static_cast<int>(gridDim.x) - 1) *flag = 1;
  while (*flag == 0) {
    ++spun;
  }
  spins[blockIdx.x] = spun;
}

__global__ void increment(int* value) { *value += 1; }

}  // namespace

TEST(KernelConcurrency, KernelsOfTwoStreamsExchangeThroughFlags) {
  constexpr int kRounds = kIsThreadSanitizer ? 50 : 500;
  cudaStream_t streams[2];
  for (auto& stream : streams) ASSERT_CUDA(cudaStreamCreate(&stream));
  const Buffer<int> flags(64);  // on cache lines of their own
  const Buffer<int> data(32);
  int* ping = flags.get();
  int* pong = flags.get() + 32;
  pingPong<<<1, 32, 0, streams[0]>>>(ping, pong, data.get(), kRounds, 0);
  pingPong<<<1, 32, 0, streams[1]>>>(pong, ping, data.get(), kRounds, 1);
  EXPECT_CUDA(cudaGetLastError());
  for (const auto stream : streams) {
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    EXPECT_CUDA(cudaStreamDestroy(stream));
  }
  EXPECT_EQ(data.values(), std::vector<int>(32, 2 * kRounds));
}

#if !defined(__SANITIZE_THREAD__)  // volatile is no synchronisation
TEST(KernelConcurrency, SpinningKernelsOfEightDevicesAllGetOn) {
  int devices = 0;
  ASSERT_CUDA(cudaGetDeviceCount(&devices));
  if (devices < 8) GTEST_SKIP() << "needs eight devices (TUTTI_HOST_DEVICES)";
  constexpr int kRounds = 3;
  volatile int* flags = nullptr;
  long long* spins = nullptr;
  ASSERT_CUDA(cudaMallocHost(const_cast<int**>(&flags), 8 * sizeof(int)));
  ASSERT_CUDA(cudaMallocHost(&spins, 8 * sizeof(long long)));
  std::fill_n(const_cast<int*>(flags), 8, 0);
  std::fill_n(spins, 8, 0);
  for (int device = 0; device < 8; ++device) {
    ASSERT_CUDA(cudaSetDevice(device));
    passToken<<<1, 1>>>(flags, device, 8, kRounds, spins + device);
    ASSERT_CUDA(cudaGetLastError());
  }
  for (int device = 0; device < 8; ++device) {
    ASSERT_CUDA(cudaSetDevice(device));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(flags[device], kRounds);
  }
  ASSERT_CUDA(cudaSetDevice(0));
  ASSERT_CUDA(cudaFreeHost(const_cast<int*>(flags)));
  ASSERT_CUDA(cudaFreeHost(spins));
}

TEST(KernelConcurrency, BlocksThatWaitSilentlyAreJoinedByTheOthers) {
  constexpr unsigned kBlocks = 24;
  const Buffer<int> arrived(1);
  const Buffer<int> flag(1);
  const Buffer<long long> spins(kBlocks);
  silentGridBarrier<<<kBlocks, 1>>>(arrived.get(), flag.get(), spins.get());
  expectFinishes();
  EXPECT_EQ(arrived.values()[0], static_cast<int>(kBlocks));
}
#endif

TEST(KernelConcurrency, ACooperativeGridMeetsAtABarrier) {
  constexpr unsigned kBlocks = kIsThreadSanitizer ? 8 : 64;
  constexpr int kRounds = 3;
  const Buffer<int> arrived(1);
  const Buffer<int> seen(kBlocks);
  int* counter = arrived.get();
  int* result = seen.get();
  int rounds = kRounds;
  void* arguments[] = {&counter, &result, &rounds};
  ASSERT_CUDA(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(gridBarrier), dim3(kBlocks), dim3(64),
                                          arguments, 0, nullptr));
  expectFinishes();
  EXPECT_EQ(arrived.values()[0], static_cast<int>(kBlocks) * kRounds);
  for (const int value : seen.values()) EXPECT_EQ(value, static_cast<int>(kBlocks) * kRounds);
}

TEST(KernelConcurrency, ACooperativeGridThatCannotBeResidentIsRefused) {
  int perMultiprocessor = 0;
  cudaDeviceProp properties;
  ASSERT_CUDA(cudaGetDeviceProperties(&properties, 0));
  ASSERT_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&perMultiprocessor, gridBarrier, 1024, 0));
  EXPECT_EQ(perMultiprocessor, 2);
  EXPECT_EQ(properties.cooperativeLaunch, 1);
  const auto most = static_cast<unsigned>(perMultiprocessor * properties.multiProcessorCount);
  int* pointer = nullptr;
  int rounds = 0;
  void* arguments[] = {&pointer, &pointer, &rounds};
  const auto kernel = reinterpret_cast<const void*>(gridBarrier);
  EXPECT_EQ(cudaLaunchCooperativeKernel(kernel, dim3(most + 1), dim3(1024), arguments, 0, nullptr),
            cudaErrorCooperativeLaunchTooLarge);
  EXPECT_EQ(cudaGetLastError(), cudaErrorCooperativeLaunchTooLarge);
}

TEST(KernelConcurrency, LaunchesOfAStreamRunInOrder) {
  constexpr int kLaunches = 500;
  cudaStream_t stream;
  ASSERT_CUDA(cudaStreamCreate(&stream));
  const Buffer<int> value(1);
  for (int i = 0; i < kLaunches; ++i) increment<<<1, 1, 0, stream>>>(value.get());
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(value.values()[0], kLaunches);
  ASSERT_CUDA(cudaStreamDestroy(stream));
}

TEST(KernelConcurrency, ALaunchReturnsBeforeTheKernelRuns) {
  Gate gate;
  cudaStream_t stream;
  ASSERT_CUDA(cudaStreamCreate(&stream));
  const Buffer<int> value(1);
  block(stream, gate);
  increment<<<1, 1, 0, stream>>>(value.get());
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  gate.open();
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(value.values()[0], 1);
  ASSERT_CUDA(cudaStreamDestroy(stream));
}
