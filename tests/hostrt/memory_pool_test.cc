// Stream-ordered allocation and memory pools; copies between devices; registration of ranges.
#include <cstdint>
#include <vector>

#include "hostrt/support.h"

namespace {

class MemoryPools : public testing::Test {
 protected:
  void SetUp() override { ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); }
  void TearDown() override {
    EXPECT_CUDA(cudaStreamDestroy(stream));
    cudaGetLastError();
  }
  static uint64_t attribute(cudaMemPool_t pool, cudaMemPoolAttr which) {
    uint64_t value = 0;
    EXPECT_CUDA(cudaMemPoolGetAttribute(pool, which, &value));
    return value;
  }
  static cudaMemPool_t create(int device, size_t maxBytes = 0) {
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.location = {cudaMemLocationTypeDevice, device};
    props.maxSize = maxBytes;
    cudaMemPool_t pool = nullptr;
    EXPECT_CUDA(cudaMemPoolCreate(&pool, &props));
    return pool;
  }
  cudaStream_t stream = nullptr;
};

TEST_F(MemoryPools, ADeviceSaysThatItHasThem) {
  cudaDeviceProp prop;
  ASSERT_CUDA(cudaGetDeviceProperties(&prop, 0));
  EXPECT_EQ(prop.memoryPoolsSupported, 1);
}

TEST_F(MemoryPools, AsynchronousAllocationsAreCountedUntilTheStreamFreesThem) {
  cudaMemPool_t pool = nullptr;
  ASSERT_CUDA(cudaDeviceGetDefaultMemPool(&pool, 0));
  const uint64_t before = attribute(pool, cudaMemPoolAttrUsedMemCurrent);
  void* memory = nullptr;
  ASSERT_CUDA(cudaMallocAsync(&memory, 100000, stream));
  EXPECT_GE(attribute(pool, cudaMemPoolAttrUsedMemCurrent), before + 100000);
  cudaPointerAttributes attributes;
  ASSERT_CUDA(cudaPointerGetAttributes(&attributes, memory));
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  Gate gate;
  block(stream, gate);
  ASSERT_CUDA(cudaFreeAsync(memory, stream));
  std::memset(memory, 1, 100000);  // the stream has not come to the free yet
  EXPECT_GE(attribute(pool, cudaMemPoolAttrUsedMemCurrent), before + 100000);
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(attribute(pool, cudaMemPoolAttrUsedMemCurrent), before);
  EXPECT_GE(attribute(pool, cudaMemPoolAttrUsedMemHigh), before + 100000);
  uint64_t zero = 0;
  ASSERT_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &zero));
  EXPECT_EQ(attribute(pool, cudaMemPoolAttrUsedMemHigh), before);
  uint64_t one = 1;
  EXPECT_EQ(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &one), cudaErrorInvalidValue);
  // cudaFree takes asynchronous memory too, and the other way round.
  ASSERT_CUDA(cudaMallocAsync(&memory, 10, stream));
  EXPECT_CUDA(cudaFree(memory));
  EXPECT_EQ(attribute(pool, cudaMemPoolAttrUsedMemCurrent), before);
  ASSERT_CUDA(cudaMalloc(&memory, 10));
  EXPECT_CUDA(cudaFreeAsync(memory, stream));
  EXPECT_EQ(cudaFreeAsync(&zero, stream), cudaErrorInvalidValue);
  EXPECT_CUDA(cudaFreeAsync(nullptr, stream));
}

TEST_F(MemoryPools, AreChosenByDeviceOrByCall) {
  cudaMemPool_t original = nullptr;
  cudaMemPool_t current = nullptr;
  ASSERT_CUDA(cudaDeviceGetDefaultMemPool(&original, 0));
  ASSERT_CUDA(cudaDeviceGetMemPool(&current, 0));
  EXPECT_EQ(current, original);
  const cudaMemPool_t own = create(0);
  ASSERT_CUDA(cudaDeviceSetMemPool(0, own));
  EXPECT_EQ(cudaDeviceSetMemPool(1, own), cudaErrorInvalidValue) << "of another device";
  ASSERT_CUDA(cudaDeviceGetMemPool(&current, 0));
  EXPECT_EQ(current, own);
  void* memory = nullptr;
  ASSERT_CUDA(cudaMallocAsync(&memory, 5000, stream));
  EXPECT_GE(attribute(own, cudaMemPoolAttrUsedMemCurrent), 5000u);
  // A pool may be destroyed before what came from it.
  ASSERT_CUDA(cudaMemPoolDestroy(own));
  EXPECT_EQ(cudaMemPoolDestroy(own), cudaErrorInvalidValue);
  uint64_t value = 0;
  EXPECT_EQ(cudaMemPoolGetAttribute(own, cudaMemPoolAttrUsedMemCurrent, &value), cudaErrorInvalidValue);
  ASSERT_CUDA(cudaDeviceGetMemPool(&current, 0));
  EXPECT_EQ(current, original) << "the device is back at its default pool";
  const cudaMemPool_t later = create(0);
  EXPECT_EQ(attribute(later, cudaMemPoolAttrUsedMemCurrent), 0u) << "not the one that still counts";
  std::memset(memory, 1, 5000);
  EXPECT_CUDA(cudaFreeAsync(memory, stream));

  ASSERT_CUDA(cudaMallocFromPoolAsync(&memory, 300, later, stream));
  EXPECT_GE(attribute(later, cudaMemPoolAttrUsedMemCurrent), 300u);
  EXPECT_EQ(cudaMallocFromPoolAsync(&memory, 300, own, stream), cudaErrorInvalidValue);
  EXPECT_CUDA(cudaFreeAsync(memory, stream));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_CUDA(cudaMemPoolTrimTo(later, 0));
  EXPECT_CUDA(cudaMemPoolDestroy(later));
  EXPECT_EQ(cudaMemPoolDestroy(original), cudaErrorInvalidValue) << "the default pool stays";
}

TEST_F(MemoryPools, KeepTheirSettings) {
  const cudaMemPool_t pool = create(3, 1 << 20);
  int reuse = 0;
  ASSERT_CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolReuseAllowOpportunistic, &reuse));
  EXPECT_EQ(reuse, 1);
  reuse = 0;
  ASSERT_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowOpportunistic, &reuse));
  reuse = 7;
  ASSERT_CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolReuseAllowOpportunistic, &reuse));
  EXPECT_EQ(reuse, 0);
  ASSERT_CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolReuseFollowEventDependencies, &reuse));
  EXPECT_EQ(reuse, 1);
  EXPECT_EQ(attribute(pool, cudaMemPoolAttrReleaseThreshold), 0u);
  uint64_t threshold = UINT64_MAX;
  ASSERT_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  EXPECT_EQ(attribute(pool, cudaMemPoolAttrReleaseThreshold), UINT64_MAX);
  EXPECT_EQ(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &threshold), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPoolGetAttribute(pool, static_cast<cudaMemPoolAttr>(99), &threshold),
            cudaErrorInvalidValue);

  void* memory = nullptr;
  EXPECT_EQ(cudaMallocFromPoolAsync(&memory, (1 << 20) + 1, pool, stream), cudaErrorMemoryAllocation)
      << "its limit";
  ASSERT_CUDA(cudaMallocFromPoolAsync(&memory, 1 << 20, pool, stream));
  void* more = nullptr;
  EXPECT_EQ(cudaMallocFromPoolAsync(&more, 1, pool, stream), cudaErrorMemoryAllocation);
  EXPECT_CUDA(cudaFreeAsync(memory, stream));
  EXPECT_CUDA(cudaStreamSynchronize(stream));

  cudaMemLocation here = {cudaMemLocationTypeDevice, 5};
  cudaMemAccessFlags access = cudaMemAccessFlagsProtNone;
  ASSERT_CUDA(cudaMemPoolGetAccess(&access, pool, &here));
  EXPECT_EQ(access, cudaMemAccessFlagsProtReadWrite);
  cudaMemAccessDesc desc = {here, cudaMemAccessFlagsProtReadWrite};
  EXPECT_CUDA(cudaMemPoolSetAccess(pool, &desc, 1));
  desc = {{cudaMemLocationTypeDevice, 3}, cudaMemAccessFlagsProtNone};
  EXPECT_EQ(cudaMemPoolSetAccess(pool, &desc, 1), cudaErrorInvalidValue) << "its own device";
  EXPECT_CUDA(cudaMemPoolDestroy(pool));
}

TEST_F(MemoryPools, WrongPropertiesAreRefused) {
  cudaMemPoolProps props = {};
  props.allocType = cudaMemAllocationTypePinned;
  props.location = {cudaMemLocationTypeDevice, 99};
  cudaMemPool_t pool = nullptr;
  EXPECT_EQ(cudaMemPoolCreate(&pool, &props), cudaErrorInvalidDevice);
  props.location.id = 0;
  EXPECT_EQ(cudaMemPoolCreate(nullptr, &props), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPoolCreate(&pool, nullptr), cudaErrorInvalidValue);
  props.handleTypes = cudaMemHandleTypePosixFileDescriptor;
  EXPECT_EQ(cudaMemPoolCreate(&pool, &props), cudaErrorNotSupported);
  props.handleTypes = cudaMemHandleTypeNone;
  props.allocType = cudaMemAllocationTypeInvalid;
  EXPECT_EQ(cudaMemPoolCreate(&pool, &props), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceGetDefaultMemPool(&pool, 99), cudaErrorInvalidDevice);
  int onStack = 0;
  EXPECT_EQ(cudaMemPoolTrimTo(reinterpret_cast<cudaMemPool_t>(&onStack), 0), cudaErrorInvalidValue);
}

TEST(PeerCopies, MoveBoxesBetweenDevices) {
  char* from = nullptr;
  char* to = nullptr;
  ASSERT_CUDA(cudaSetDevice(1));
  ASSERT_CUDA(cudaMalloc(&to, 4096));
  ASSERT_CUDA(cudaSetDevice(0));
  ASSERT_CUDA(cudaMalloc(&from, 4096));
  std::memset(to, 0, 4096);
  for (int i = 0; i < 4096; ++i) from[i] = static_cast<char>(i);
  cudaMemcpy3DPeerParms p = {};
  p.srcPtr = make_cudaPitchedPtr(from, 64, 64, 8);
  p.srcDevice = 0;
  p.srcPos = make_cudaPos(4, 1, 1);
  p.dstPtr = make_cudaPitchedPtr(to, 32, 32, 4);
  p.dstDevice = 1;
  p.extent = make_cudaExtent(8, 2, 2);
  ASSERT_CUDA(cudaMemcpy3DPeer(&p));
  for (size_t z = 0; z < 2; ++z)
    for (size_t y = 0; y < 2; ++y)
      EXPECT_EQ(std::memcmp(to + z * 128 + y * 32, from + (z + 1) * 512 + (y + 1) * 64 + 4, 8), 0) << z << y;
  EXPECT_EQ(to[8], 0);
  EXPECT_EQ(to[64], 0);
  std::memset(to, 0, 4096);
  ASSERT_CUDA(cudaMemcpy3DPeerAsync(&p, nullptr));
  ASSERT_CUDA(cudaStreamSynchronize(nullptr));
  EXPECT_EQ(std::memcmp(to, from + 512 + 64 + 4, 8), 0);
  p.dstDevice = 99;
  EXPECT_EQ(cudaMemcpy3DPeer(&p), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaMemcpy3DPeer(nullptr), cudaErrorInvalidValue);
  EXPECT_CUDA(cudaFree(from));
  EXPECT_CUDA(cudaFree(to));
  cudaGetLastError();
}

TEST(HostRegistration, OverlapsInEveryFormAreRefused) {
  std::vector<char> memory(1000);
  char* base = memory.data();
  ASSERT_CUDA(cudaHostRegister(base + 200, 200, cudaHostRegisterPortable | cudaHostRegisterReadOnly));
  const std::pair<int, size_t> overlaps[] = {{200, 200}, {200, 10}, {250, 10},
                                             {100, 101}, {399, 1},  {0, 1000}};
  for (const auto& [offset, bytes] : overlaps)
    EXPECT_EQ(cudaHostRegister(base + offset, bytes, 0), cudaErrorHostMemoryAlreadyRegistered) << offset;
  EXPECT_CUDA(cudaHostRegister(base + 400, 100, 0)) << "a neighbour";
  EXPECT_CUDA(cudaHostRegister(base + 100, 100, 0)) << "a neighbour";
  EXPECT_EQ(cudaHostRegister(base, 0, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaHostRegister(nullptr, 10, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaHostRegister(base, 10, 0x100), cudaErrorInvalidValue);
  EXPECT_EQ(cudaHostRegister(base + 600, SIZE_MAX, 0), cudaErrorInvalidValue)
      << "beyond the end of all memory";
  void* device = nullptr;
  EXPECT_CUDA(cudaHostGetDevicePointer(&device, base + 300, 0));
  EXPECT_EQ(device, base + 300);
  unsigned int flags = 0;
  EXPECT_CUDA(cudaHostGetFlags(&flags, base + 200));
  EXPECT_EQ(flags & cudaHostRegisterPortable, unsigned{cudaHostRegisterPortable});
  EXPECT_EQ(cudaHostUnregister(base + 300), cudaErrorHostMemoryNotRegistered) << "not its start";
  EXPECT_EQ(cudaHostUnregister(nullptr), cudaErrorInvalidValue);
  for (const int offset : {100, 200, 400}) EXPECT_CUDA(cudaHostUnregister(base + offset));
  EXPECT_EQ(cudaHostUnregister(base + 200), cudaErrorHostMemoryNotRegistered);
  EXPECT_EQ(cudaHostGetDevicePointer(&device, base + 300, 0), cudaErrorInvalidValue);
  // What the runtime allocated is registered from the start.
  void* pinned = nullptr;
  ASSERT_CUDA(cudaMallocHost(&pinned, 100));
  EXPECT_EQ(cudaHostRegister(pinned, 100, 0), cudaErrorHostMemoryAlreadyRegistered);
  EXPECT_CUDA(cudaFreeHost(pinned));
  cudaGetLastError();
}

TEST(PerThreadStream, AttributesCanBeCopied) {
  cudaStream_t stream = nullptr;
  ASSERT_CUDA(cudaStreamCreate(&stream));
  EXPECT_CUDA(cudaStreamCopyAttributes(stream, cudaStreamPerThread));
  EXPECT_EQ(cudaStreamCopyAttributes(stream, reinterpret_cast<cudaStream_t>(0x77)),
            cudaErrorInvalidResourceHandle);
  EXPECT_CUDA(cudaStreamDestroy(stream));
  cudaGetLastError();
}

}  // namespace
