// What the threads of a block do together, against oracles.
#include <algorithm>
#include <numeric>

#include "hostrt/kernels/support.cuh"

namespace {

__global__ void addVectors(const float* a, const float* b, float* sum, size_t count) {
  const size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
  if (i < count) sum[i] = a[i] + b[i];
}

template <class T>
__device__ __forceinline__ T warpSum(T value) {
  for (int delta = 16; delta > 0; delta /= 2) value += __shfl_down_sync(0xffffffffu, value, delta);
  return value;
}

/// One sum a block: shuffles in warps, shared memory between them.
template <class T, int kThreads>
__global__ void __launch_bounds__(kThreads) sumBlocks(const T* input, T* sums, int perBlock) {
  __shared__ T partial[kThreads / 32];
  T mine = 0;
  for (int i = threadIdx.x; i < perBlock; i += kThreads) mine += input[blockIdx.x * perBlock + i];
  mine = warpSum(mine);
  if (threadIdx.x % warpSize == 0) partial[threadIdx.x / warpSize] = mine;
  __syncthreads();
  if (threadIdx.x < 32) {
    mine = threadIdx.x < kThreads / 32 ? partial[threadIdx.x] : T(0);
    mine = warpSum(mine);
    if (threadIdx.x == 0) sums[blockIdx.x] = mine;
  }
}

/// Reverses each block's part through dynamic shared memory, `rounds` times.
__global__ void reverse(int* data, int rounds) {
  extern __shared__ int copy[];
  int* mine = data + blockIdx.x * blockDim.x;
  for (int round = 0; round < rounds; ++round) {
    copy[threadIdx.x] = mine[threadIdx.x];
    __syncthreads();
    mine[threadIdx.x] = copy[blockDim.x - 1 - threadIdx.x];
    __syncthreads();
  }
}

__global__ void vote(int* counts, int* alls, int* anys) {
  const int odd = threadIdx.x % 2;
  counts[threadIdx.x] = __syncthreads_count(odd);
  alls[threadIdx.x] = __syncthreads_and(threadIdx.x < 40) * 2 + __syncthreads_and(1);
  anys[threadIdx.x] = __syncthreads_or(threadIdx.x == 3) * 2 + __syncthreads_or(0);
}

/// Every other thread ends before the barrier: it waits for those alone that have not.
__global__ void leaveEarly(int* result) {
  __shared__ int sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  if (threadIdx.x % 2) return;
  atomicAdd(&sum, 1);
  __syncthreads();
  result[threadIdx.x] = sum;
}

__global__ void coordinates(uint3* threads, uint3* blocks) {
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned all = blockDim.x * blockDim.y * blockDim.z;
  threads[block * all + thread] = threadIdx;
  blocks[block * all + thread] = blockIdx;
}

/// Warp 1 writes what warp 0 waits for, in shared memory and with a loop that has no body.
__global__ void pollShared(int* result) {
  __shared__ volatile int flag;
  if (threadIdx.x == 0) flag = 0;
  __syncthreads();
  if (threadIdx.x == 0) {
    while (flag == 0)
      ;
    *result = flag;
  }
  if (threadIdx.x == 32) flag = 7;
}

/// Two halves of the block exchange through barriers of their own number of threads.
__global__ void halves(int* result) {
  __shared__ int box[64];
  const unsigned half = threadIdx.x / 64;
  for (int round = 0; round < 10; ++round) {
    if (half == 0) {
      box[threadIdx.x] = round * 100 + static_cast<int>(threadIdx.x);
      tutti::shim::namedBarrier(1, 128);
      tutti::shim::namedBarrier(2, 128);
    } else {
      tutti::shim::namedBarrier(1, 128);
      result[round * 64 + threadIdx.x - 64] = box[127 - threadIdx.x];
      tutti::shim::namedBarrier(2, 128);
    }
  }
}

template <class T>
void expectSums(int blocks, int perBlock) {
  std::vector<T> input(static_cast<size_t>(blocks) * static_cast<size_t>(perBlock));
  for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<T>(static_cast<int>(i * 37 % 101) - 50);
  std::vector<T> expected;
  for (int b = 0; b < blocks; ++b)
    expected.push_back(std::accumulate(input.begin() + b * perBlock, input.begin() + (b + 1) * perBlock, T(0)));
  const Buffer<T> in(input);
  const Buffer<T> out(static_cast<size_t>(blocks));
  constexpr int kThreads = kIsThreadSanitizer ? 64 : 256;
  sumBlocks<T, kThreads><<<blocks, kThreads>>>(in.get(), out.get(), perBlock);
  expectFinishes();
  EXPECT_EQ(out.values(), expected);
}

}  // namespace

TEST(Kernels, AddVectorsOfAnyLength) {
  for (const size_t count : {size_t{1}, size_t{1023}, size_t{kIsThreadSanitizer ? 2000 : 100000}}) {
    std::vector<float> a(count);
    std::vector<float> b(count);
    std::vector<float> expected(count);
    for (size_t i = 0; i < count; ++i) {
      a[i] = static_cast<float>(i);
      b[i] = static_cast<float>(i * 3);
      expected[i] = static_cast<float>(i * 4);
    }
    const Buffer<float> x(a);
    const Buffer<float> y(b);
    const Buffer<float> sum(count);
    constexpr unsigned kThreads = kIsThreadSanitizer ? 32 : 256;
    addVectors<<<static_cast<unsigned>((count + kThreads - 1) / kThreads), kThreads>>>(x.get(), y.get(), sum.get(), count);
    expectFinishes();
    EXPECT_EQ(sum.values(), expected);
  }
}

TEST(Kernels, ReduceWithShufflesAndSharedMemory) {
  expectSums<int>(7, 1000);
  expectSums<double>(3, 257);
  expectSums<long long>(40, 31);
}

TEST(Kernels, SynchroniseThousandsOfBlocks) {
  constexpr int kBlocks = kIsThreadSanitizer ? 60 : 2000;
  constexpr int kThreads = 64;
  std::vector<int> values(kBlocks * kThreads);
  std::iota(values.begin(), values.end(), 0);
  const Buffer<int> data(values);
  reverse<<<kBlocks, kThreads, kThreads * sizeof(int)>>>(data.get(), 3);
  expectFinishes();
  for (size_t block = 0; block < kBlocks; ++block)
    std::reverse(values.begin() + static_cast<long>(block * kThreads),
                 values.begin() + static_cast<long>((block + 1) * kThreads));
  EXPECT_EQ(data.values(), values);
}

TEST(Kernels, UseTheLargestBlockAndItsSharedMemory) {
  constexpr unsigned kThreads = kIsThreadSanitizer ? 128 : 1024;
  std::vector<int> values(kThreads);
  std::iota(values.begin(), values.end(), 0);
  const Buffer<int> data(values);
  reverse<<<1, kThreads, 48 << 10>>>(data.get(), 1);
  expectFinishes();
  std::reverse(values.begin(), values.end());
  EXPECT_EQ(data.values(), values);
}

TEST(Kernels, VoteAtBarriers) {
  const Buffer<int> counts(48);
  const Buffer<int> alls(48);
  const Buffer<int> anys(48);
  vote<<<1, 48>>>(counts.get(), alls.get(), anys.get());
  expectFinishes();
  EXPECT_EQ(counts.values(), std::vector<int>(48, 24));
  EXPECT_EQ(alls.values(), std::vector<int>(48, 1));
  EXPECT_EQ(anys.values(), std::vector<int>(48, 2));
}

TEST(Kernels, PassBarriersWithoutThreadsThatHaveEnded) {
  const Buffer<int> result(64);
  leaveEarly<<<1, 64>>>(result.get());
  expectFinishes();
  const auto values = result.values();
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(values[i], i % 2 ? 0 : 32) << i;
}

TEST(Kernels, KnowTheirCoordinates) {
  const dim3 grid(3, 2, 2);
  const dim3 block(5, 4, 3);
  constexpr size_t kThreads = 60;
  const Buffer<uint3> threads(12 * kThreads);
  const Buffer<uint3> blocks(12 * kThreads);
  coordinates<<<grid, block>>>(threads.get(), blocks.get());
  expectFinishes();
  const auto t = threads.values();
  const auto b = blocks.values();
  for (size_t i = 0; i < t.size(); ++i) {
    EXPECT_EQ(t[i].x + 5 * (t[i].y + 4 * t[i].z), i % kThreads);
    EXPECT_EQ(b[i].x + 3 * (b[i].y + 2 * b[i].z), i / kThreads);
    EXPECT_LT(t[i].y, 4u);
    EXPECT_LT(b[i].y, 2u);
  }
}

#if !defined(__SANITIZE_THREAD__)  // volatile is no synchronisation
TEST(Kernels, PollForThreadsOfTheSameBlock) {
  const Buffer<int> result(1);
  pollShared<<<1, 64>>>(result.get());
  expectFinishes();
  EXPECT_EQ(result.values()[0], 7);
}
#endif

TEST(Kernels, UseBarriersOfPartOfTheBlock) {
  const Buffer<int> result(640);
  halves<<<1, 128>>>(result.get());
  expectFinishes();
  const auto values = result.values();
  for (int round = 0; round < 10; ++round)
    for (int i = 0; i < 64; ++i) EXPECT_EQ(values[static_cast<size_t>(round * 64 + i)], round * 100 + 63 - i);
}
