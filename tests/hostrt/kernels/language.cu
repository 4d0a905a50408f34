// What CUDA C++ programs write: kernels of all kinds, variables, arguments.
#include <cstring>

#include "hostrt/kernels/same_name.h"
#include "hostrt/kernels/support.cuh"

__device__ int deviceCounter = 5;
__constant__ float weights[4];
namespace named {
__device__ double table[3];
}

extern "C" __global__ void plainName(int* out, int value) { *out = value + deviceCounter; }

namespace {

__global__ void sameName(int* out) { *out = 1; }  // same_name.cu has another

__device__ int quadruple(int x);

template <class T, int N = 2, class = void>
__global__ void scale(T* values, T factor) {
  values[threadIdx.x] = values[threadIdx.x] * factor * N;
}
template <>
__global__ void scale<short, 2, void>(short* values, short) {
  values[threadIdx.x] = -1;
}

template <class... Ts>
__global__ void sumAll(int* out, Ts... values) {
  *out = (0 + ... + values);
}

__global__ void overloaded(int* out) { *out = 100; }
__global__ void overloaded(float* out) { *out = 200; }

template <size_t kBytes>
struct Block {
  unsigned char bytes[kBytes];
};
template <size_t kBytes>
__global__ void copyArgument(Block<kBytes> argument, int tail, Block<kBytes>* out, int* outTail) {
  for (size_t i = threadIdx.x; i < kBytes; i += blockDim.x) out->bytes[i] = argument.bytes[i];
  if (threadIdx.x == 0) *outTail = tail;
}

struct alignas(32) Aligned {
  double x[4];
};
__global__ void mixed(char a, Aligned b, short c, const int* d, float4 e, bool f, double* out) {
  out[0] = a + b.x[3] + c + *d + static_cast<double>(e.w) + f;
}

__global__ void useVariables(float* out) {
  out[threadIdx.x] = weights[threadIdx.x] * 2 + static_cast<float>(named::table[threadIdx.x % 3]);
  if (threadIdx.x == 0) atomicAdd(&deviceCounter, 1);
}

__global__ void manyAtomics(int* ints, unsigned* wraps, float* floats, unsigned long long* longs, double* doubles) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  atomicAdd(&ints[0], i);
  atomicSub(&ints[1], 1);
  atomicMin(&ints[2], -i);
  atomicMax(&ints[3], i);
  atomicOr(&ints[4], 1 << (i % 31));
  atomicInc(&wraps[0], 9);
  atomicDec(&wraps[1], 9);
  atomicAdd(floats, 0.5f);
  atomicAdd(longs, 1ull << 33);
  atomicAdd(doubles, 0.25);
  const int seen = atomicAdd(&ints[5], 0);
  for (int expected = 0; atomicCAS(&ints[6], expected, expected + 1) != expected; ++expected) {
  }
  if (atomicExch(&ints[5], i) == seen) return;
}

__global__ void multidimensional(int (*matrix)[4]) {
  __shared__ int tile[4][4], edge;
  if (threadIdx.x + threadIdx.y == 0) edge = 100;
  tile[threadIdx.y][threadIdx.x] = static_cast<int>(10 * threadIdx.y + threadIdx.x);
  __syncthreads();
  matrix[threadIdx.x][threadIdx.y] = tile[threadIdx.y][threadIdx.x] + edge;
}

void launchThroughPointer(void (*kernel)(int*, int), int* out) { kernel<<<1, 1>>>(out, 3); }

__device__ int quadruple(int x) { return 4 * x; }
__global__ void callsForward(int* out) { *out = quadruple(*out); }

}  // namespace

TEST(KernelLanguage, TemplatesAndTheirSpecialisations) {
  const Buffer<int> ints(std::vector<int>{1, 2, 3});
  scale<<<1, 3>>>(ints.get(), 5);  // deduced
  scale<int, 7><<<dim3(1), dim3(3)>>>(ints.get(), 1);
  const Buffer<short> shorts(2);
  scale<short><<<1, 2>>>(shorts.get(), short{3});
  expectFinishes();
  EXPECT_EQ(ints.values(), (std::vector<int>{70, 140, 210}));
  EXPECT_EQ(shorts.values(), (std::vector<short>{-1, -1}));
}

TEST(KernelLanguage, PacksOverloadsAndPointers) {
  const Buffer<int> out(1);
  sumAll<<<1, 1>>>(out.get(), 1, 2l, short{3}, 4u);
  expectFinishes();
  EXPECT_EQ(out.values()[0], 10);
  overloaded<<<1, 1>>>(out.get());
  const Buffer<float> other(1);
  overloaded<<<1, 1>>>(other.get());
  expectFinishes();
  EXPECT_EQ(out.values()[0], 100);
  EXPECT_EQ(other.values()[0], 200.0f);
  launchThroughPointer(plainName, out.get());
  expectFinishes();
  EXPECT_GE(out.values()[0], 8);
  callsForward<<<1, 1>>>(out.get());
  expectFinishes();
}

TEST(KernelLanguage, KernelsOfTheSameNameInDifferentFiles) {
  const Buffer<int> out(1);
  sameName<<<1, 1>>>(out.get());
  expectFinishes();
  EXPECT_EQ(out.values()[0], 1);
  launchOtherSameName(out.get());
  expectFinishes();
  EXPECT_EQ(out.values()[0], 2);
}

TEST(KernelLanguage, LargeArgumentsAreCopiedAtTheLaunch) {
  const auto check = [](auto argument) {
    using Argument = decltype(argument);
    for (size_t i = 0; i < sizeof argument; ++i) argument.bytes[i] = static_cast<unsigned char>(i * 7);
    const Argument expected = argument;
    Gate gate;
    cudaStream_t stream;
    ASSERT_CUDA(cudaStreamCreate(&stream));
    const Buffer<Argument> out(1);
    const Buffer<int> tail(1);
    block(stream, gate);
    int value = 42;
    copyArgument<<<1, 64, 0, stream>>>(argument, value, out.get(), tail.get());
    std::memset(&argument, 0, sizeof argument);
    value = 0;
    gate.open();
    ASSERT_CUDA(cudaStreamSynchronize(stream));
    EXPECT_EQ(std::memcmp(out.values().data(), &expected, sizeof expected), 0);
    EXPECT_EQ(tail.values()[0], 42);
    ASSERT_CUDA(cudaStreamDestroy(stream));
  };
  check(Block<4096>{});
  check(Block<20000>{});
  check(Block<1>{});
}

TEST(KernelLanguage, ArgumentsOfManyKindsAndAlignments) {
  const Buffer<int> d(std::vector<int>{7});
  const Buffer<double> out(1);
  mixed<<<1, 1>>>('\x02', Aligned{{0, 0, 0, 0.5}}, short{-3}, d.get(), make_float4(0, 0, 0, 0.25f), true, out.get());
  expectFinishes();
  EXPECT_EQ(out.values()[0], 2 + 0.5 - 3 + 7 + 0.25 + 1);
}

TEST(KernelLanguage, VariablesOfDeviceCode) {
  const float values[4] = {1, 2, 3, 4};
  const double table[3] = {10, 20, 30};
  ASSERT_CUDA(cudaMemcpyToSymbol(weights, values, sizeof values));
  ASSERT_CUDA(cudaMemcpyToSymbol(named::table, table, 2 * sizeof(double), 0));
  ASSERT_CUDA(cudaMemcpyToSymbol(named::table, table + 2, sizeof(double), 2 * sizeof(double)));
  int before = 0;
  ASSERT_CUDA(cudaMemcpyFromSymbol(&before, deviceCounter, sizeof before));
  EXPECT_EQ(before, 5);
  const Buffer<float> out(4);
  useVariables<<<1, 4>>>(out.get());
  expectFinishes();
  EXPECT_EQ(out.values(), (std::vector<float>{12, 24, 36, 18}));
  int after = 0;
  ASSERT_CUDA(cudaMemcpyFromSymbol(&after, deviceCounter, sizeof after));
  EXPECT_EQ(after, 6);
  ASSERT_CUDA(cudaMemcpyToSymbol(deviceCounter, &before, sizeof before));
  size_t bytes = 0;
  void* address = nullptr;
  ASSERT_CUDA(cudaGetSymbolSize(&bytes, weights));
  EXPECT_EQ(bytes, sizeof values);
  ASSERT_CUDA(cudaGetSymbolAddress(&address, weights));
  EXPECT_EQ(std::memcmp(address, values, sizeof values), 0);
  EXPECT_EQ(cudaMemcpyToSymbol(weights, values, sizeof values, 4), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyToSymbol(before, values, 4), cudaErrorInvalidSymbol);
  cudaGetLastError();
}

TEST(KernelLanguage, Atomics) {
  constexpr int kThreads = 8 * 32;
  const Buffer<int> ints(7);
  const Buffer<unsigned> wraps(2);
  const Buffer<float> floats(1);
  const Buffer<unsigned long long> longs(1);
  const Buffer<double> doubles(1);
  manyAtomics<<<8, 32>>>(ints.get(), wraps.get(), floats.get(), longs.get(), doubles.get());
  expectFinishes();
  const auto i = ints.values();
  EXPECT_EQ(i[0], kThreads * (kThreads - 1) / 2);
  EXPECT_EQ(i[1], -kThreads);
  EXPECT_EQ(i[2], 1 - kThreads);
  EXPECT_EQ(i[3], kThreads - 1);
  EXPECT_EQ(i[4], 0x7fffffff);
  EXPECT_EQ(i[6], kThreads);
  EXPECT_EQ(wraps.values()[0], kThreads % 10u);
  EXPECT_EQ(wraps.values()[1], (10u - kThreads % 10u) % 10u);
  EXPECT_EQ(floats.values()[0], kThreads * 0.5f);
  EXPECT_EQ(longs.values()[0], kThreads * (1ull << 33));
  EXPECT_EQ(doubles.values()[0], kThreads * 0.25);
}

TEST(KernelLanguage, SharedArraysOfSeveralDimensions) {
  const Buffer<int[4][4]> matrix(1);
  multidimensional<<<1, dim3(4, 4)>>>(*matrix.get());
  expectFinishes();
  int values[4][4];
  ASSERT_CUDA(cudaMemcpy(values, matrix.get(), sizeof values, cudaMemcpyDeviceToHost));
  for (int x = 0; x < 4; ++x)
    for (int y = 0; y < 4; ++y) EXPECT_EQ(values[x][y], 100 + 10 * y + x);
}
