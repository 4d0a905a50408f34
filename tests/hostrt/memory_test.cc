#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "hostrt/support.h"

namespace {

const tuttiHostRuntime_v1& runtimeTable() { return *tuttiHostRuntime_v1_get(); }

tuttiMemoryFileRef fileOf(const void* pointer) {
  tuttiMemoryFileRef ref{};
  EXPECT_EQ(runtimeTable().memoryFileOf(pointer, &ref), 0);
  return ref;
}

}  // namespace

TEST(Memory, IsAlignedAndUsable) {
  std::vector<char*> pointers(50);
  for (size_t i = 0; i < pointers.size(); ++i) {
    ASSERT_CUDA(cudaMalloc(&pointers[i], 1 + i * 777));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(pointers[i]) % 4096, 0u);
    std::memset(pointers[i], static_cast<int>(i), 1 + i * 777);
  }
  for (size_t i = 0; i < pointers.size(); ++i) {
    EXPECT_EQ(std::count(pointers[i], pointers[i] + 1 + i * 777, static_cast<char>(i)),
              static_cast<long>(1 + i * 777));
    EXPECT_CUDA(cudaFree(pointers[i]));
  }
}

TEST(Memory, OfZeroBytesIsNull) {
  void* pointer = &pointer;
  EXPECT_CUDA(cudaMalloc(&pointer, 0));
  EXPECT_EQ(pointer, nullptr);
  EXPECT_CUDA(cudaFree(nullptr));
  EXPECT_CUDA(cudaFreeHost(nullptr));
  EXPECT_EQ(cudaMalloc(static_cast<void**>(nullptr), 8), cudaErrorInvalidValue);
}

TEST(Memory, BeyondTheMachineIsRefused) {
  void* pointer = nullptr;
  EXPECT_EQ(cudaMalloc(&pointer, size_t{1} << 50), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMalloc(&pointer, SIZE_MAX), cudaErrorMemoryAllocation);
  EXPECT_EQ(pointer, nullptr);
  // Also in pieces.
  size_t free = 0;
  size_t total = 0;
  ASSERT_CUDA(cudaMemGetInfo(&free, &total));
  void* pieces[3] = {};
  for (void*& piece : pieces) cudaMalloc(&piece, total / 2 - 4096);
  EXPECT_TRUE(pieces[0] && pieces[1]);
  EXPECT_FALSE(pieces[2]);
  for (void* piece : pieces) cudaFree(piece);
  cudaGetLastError();
}

TEST(Memory, TakesFewDescriptorsAndGivesThemBack) {
  const int before = openDescriptors();
  std::vector<void*> pointers(2000);
  for (void*& pointer : pointers) ASSERT_CUDA(cudaMalloc(&pointer, 64 << 10));  // 125 MiB
  EXPECT_LE(openDescriptors(), before + 6);
  for (void* pointer : pointers) ASSERT_CUDA(cudaFree(pointer));
  EXPECT_EQ(openDescriptors(), before);
  for (void*& pointer : pointers) ASSERT_CUDA(cudaMalloc(&pointer, 9 << 20));  // 17.6 GiB, untouched
  EXPECT_LE(openDescriptors(), before + 120);
  for (void* pointer : pointers) ASSERT_CUDA(cudaFree(pointer));
  EXPECT_EQ(openDescriptors(), before);
}

TEST(Memory, IsNotTouchedWhenItIsAllocated) {
  void* pointer = nullptr;
  ASSERT_CUDA(cudaMalloc(&pointer, 512 << 20));
  struct stat file {};
  ASSERT_EQ(::fstat(fileOf(pointer).fd, &file), 0);
  EXPECT_EQ(file.st_blocks, 0);
  ASSERT_CUDA(cudaFree(pointer));
}

TEST(Memory, FreedSpaceIsUsedAgainAndMerged) {
  void* anchor = nullptr;  // keeps the arena
  ASSERT_CUDA(cudaMalloc(&anchor, 4096));
  const uint64_t file = fileOf(anchor).fileId;
  void* a = nullptr;
  void* b = nullptr;
  void* c = nullptr;
  ASSERT_CUDA(cudaMalloc(&a, 1 << 20));
  ASSERT_CUDA(cudaMalloc(&b, 1 << 20));
  ASSERT_CUDA(cudaMalloc(&c, 1 << 20));
  // In an order that needs merging with the hole before and the hole behind.
  ASSERT_CUDA(cudaFree(a));
  ASSERT_CUDA(cudaFree(c));
  ASSERT_CUDA(cudaFree(b));
  void* whole = nullptr;
  ASSERT_CUDA(cudaMalloc(&whole, 3 << 20));
  EXPECT_EQ(whole, a);
  EXPECT_EQ(fileOf(whole).fileId, file);
  ASSERT_CUDA(cudaFree(whole));
  ASSERT_CUDA(cudaFree(anchor));
}

TEST(Memory, OfTheTableIsZeroAlsoWhenUsedAgain) {
  for (const size_t bytes : {size_t{5000}, size_t{3} << 20, size_t{9} << 20}) {
    void* anchor = nullptr;
    ASSERT_EQ(runtimeTable().memoryAllocate(1, 4096, &anchor), 0);
    for (int round = 0; round < 2; ++round) {
      void* pointer = nullptr;
      ASSERT_EQ(runtimeTable().memoryAllocate(1, bytes, &pointer), 0);
      auto* content = static_cast<char*>(pointer);
      EXPECT_TRUE(isFilled(content, bytes, 0));
      std::memset(pointer, 0x5a, bytes);
      ASSERT_EQ(runtimeTable().memoryFree(pointer), 0);
    }
    ASSERT_EQ(runtimeTable().memoryFree(anchor), 0);
  }
}

TEST(Memory, LargeFreedBlocksGiveTheirPagesBack) {
  void* anchor = nullptr;
  void* pointer = nullptr;
  ASSERT_CUDA(cudaMalloc(&anchor, 4096));
  ASSERT_CUDA(cudaMalloc(&pointer, 4 << 20));
  std::memset(pointer, 1, 4 << 20);
  const int fd = fileOf(anchor).fd;
  struct stat file {};
  ASSERT_EQ(::fstat(fd, &file), 0);
  EXPECT_GE(file.st_blocks * 512, 4 << 20);
  ASSERT_CUDA(cudaFree(pointer));
  ASSERT_EQ(::fstat(fd, &file), 0);
  EXPECT_LT(file.st_blocks * 512, 3 << 20);
  ASSERT_CUDA(cudaFree(anchor));
}

TEST(Memory, CanBeMappedThroughItsFile) {
  ASSERT_CUDA(cudaSetDevice(3));
  char* pointer = nullptr;
  ASSERT_CUDA(cudaMalloc(&pointer, 10000));
  ASSERT_CUDA(cudaSetDevice(0));
  const tuttiMemoryFileRef ref = fileOf(pointer + 5000);
  EXPECT_EQ(ref.device, 3);
  EXPECT_EQ(static_cast<char*>(ref.base) + ref.offset, pointer + 5000);
  void* view = ::mmap(nullptr, ref.fileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, ref.fd, 0);
  ASSERT_NE(view, MAP_FAILED);
  std::strcpy(pointer + 5000, "seen through the file");
  EXPECT_STREQ(static_cast<char*>(view) + ref.offset, "seen through the file");
  // Shortening it would make every access of others fault.
  EXPECT_NE(::ftruncate(ref.fd, 0), 0);
  ::munmap(view, ref.fileBytes);
  tuttiMemoryFileRef none{};
  EXPECT_EQ(runtimeTable().memoryFileOf(pointer + 10000, &none), ENOENT) << "behind the last byte";
  ASSERT_CUDA(cudaFree(pointer));
  EXPECT_EQ(runtimeTable().memoryFileOf(pointer, &none), ENOENT);
  EXPECT_EQ(runtimeTable().memoryFileOf(&none, &none), ENOENT);
}

TEST(Memory, FileIdsAreNeverUsedAgain) {
  uint64_t last = 0;
  for (int i = 0; i < 5; ++i) {
    void* pointer = nullptr;
    ASSERT_EQ(runtimeTable().memoryAllocate(7, 4096, &pointer), 0);
    const uint64_t id = fileOf(pointer).fileId;
    EXPECT_GT(id, last);
    last = id;
    ASSERT_EQ(runtimeTable().memoryFree(pointer), 0);
  }
}

TEST(Memory, WrongFreesAreRefusedAndHarmless) {
  char* pointer = nullptr;
  void* pinned = nullptr;
  ASSERT_CUDA(cudaMalloc(&pointer, 8192));
  ASSERT_CUDA(cudaMallocHost(&pinned, 8192));
  EXPECT_EQ(cudaFree(pointer + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(pointer + 4096), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(pointer), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(pinned), cudaErrorInvalidValue);
  EXPECT_EQ(runtimeTable().memoryFree(pinned), EINVAL);
  std::memset(pointer, 1, 8192);
  std::memset(pinned, 1, 8192);
  EXPECT_CUDA(cudaFree(pointer));
  EXPECT_CUDA(cudaFreeHost(pinned));
  EXPECT_EQ(cudaFree(pointer), cudaErrorInvalidValue) << "freed twice";
}

TEST(Memory, FreeWaitsForTheDevice) {
  cudaStream_t stream;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  void* pointer = nullptr;
  ASSERT_CUDA(cudaMalloc(&pointer, 4096));
  Gate gate;
  block(stream, gate);
  ASSERT_CUDA(cudaMemsetAsync(pointer, 1, 4096, stream));
  std::atomic<bool> freed{false};
  std::thread thread([&] {
    EXPECT_CUDA(cudaFree(pointer));
    freed = true;
  });
  settle();
  EXPECT_FALSE(freed);
  gate.open();
  thread.join();
  ASSERT_CUDA(cudaStreamDestroy(stream));
}

TEST(Memory, AsyncAllocationsAreFreedInTheStreamsOrder) {
  cudaStream_t stream;
  ASSERT_CUDA(cudaStreamCreate(&stream));
  Gate gate;
  block(stream, gate);
  char* pointer = nullptr;
  ASSERT_CUDA(cudaMallocAsync(&pointer, 4096, stream));
  ASSERT_CUDA(cudaMemsetAsync(pointer, 1, 4096, stream));
  ASSERT_CUDA(cudaFreeAsync(pointer, stream));
  tuttiMemoryFileRef ref{};
  EXPECT_EQ(runtimeTable().memoryFileOf(pointer, &ref), 0) << "freed before its turn";
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(runtimeTable().memoryFileOf(pointer, &ref), ENOENT);
  EXPECT_EQ(cudaFreeAsync(pointer, stream), cudaErrorInvalidValue);
  ASSERT_CUDA(cudaStreamDestroy(stream));
}

TEST(PointerAttributes, TellTheKindsOfMemoryApart) {
  ASSERT_CUDA(cudaSetDevice(2));
  char* device = nullptr;
  char* pinned = nullptr;
  char* managed = nullptr;
  ASSERT_CUDA(cudaMalloc(&device, 100));
  ASSERT_CUDA(cudaHostAlloc(&pinned, 100, cudaHostAllocPortable));
  ASSERT_CUDA(cudaMallocManaged(&managed, 100));
  ASSERT_CUDA(cudaSetDevice(0));
  cudaPointerAttributes a;
  ASSERT_CUDA(cudaPointerGetAttributes(&a, device + 99));
  EXPECT_EQ(a.type, cudaMemoryTypeDevice);
  EXPECT_EQ(a.device, 2);
  EXPECT_EQ(a.devicePointer, device + 99);
  EXPECT_EQ(a.hostPointer, nullptr);
  ASSERT_CUDA(cudaPointerGetAttributes(&a, pinned + 5));
  EXPECT_EQ(a.type, cudaMemoryTypeHost);
  EXPECT_EQ(a.device, 2);
  EXPECT_EQ(a.hostPointer, pinned + 5);
  EXPECT_EQ(a.devicePointer, pinned + 5);
  ASSERT_CUDA(cudaPointerGetAttributes(&a, managed));
  EXPECT_EQ(a.type, cudaMemoryTypeManaged);
  ASSERT_CUDA(cudaPointerGetAttributes(&a, &a));
  EXPECT_EQ(a.type, cudaMemoryTypeUnregistered);
  EXPECT_EQ(a.device, cudaInvalidDeviceId);
  EXPECT_EQ(a.devicePointer, nullptr);
  ASSERT_CUDA(cudaPointerGetAttributes(&a, nullptr));
  EXPECT_EQ(a.type, cudaMemoryTypeUnregistered);
  EXPECT_CUDA(cudaFree(managed));
  EXPECT_CUDA(cudaFreeHost(pinned));
  EXPECT_CUDA(cudaFree(device));
  ASSERT_CUDA(cudaPointerGetAttributes(&a, device));
  EXPECT_EQ(a.type, cudaMemoryTypeUnregistered);
}

TEST(HostRegistration, MakesOwnMemoryPinnedUntilItEnds) {
  std::vector<char> memory(10000);
  ASSERT_CUDA(cudaHostRegister(memory.data(), 4000, cudaHostRegisterPortable));
  EXPECT_EQ(cudaHostRegister(memory.data() + 3999, 10, 0), cudaErrorHostMemoryAlreadyRegistered);
  EXPECT_EQ(cudaHostRegister(memory.data(), 10, 0), cudaErrorHostMemoryAlreadyRegistered);
  ASSERT_CUDA(cudaHostRegister(memory.data() + 4000, 6000, 0));
  cudaPointerAttributes a;
  ASSERT_CUDA(cudaPointerGetAttributes(&a, memory.data() + 3999));
  EXPECT_EQ(a.type, cudaMemoryTypeHost);
  unsigned flags = 0;
  ASSERT_CUDA(cudaHostGetFlags(&flags, memory.data()));
  EXPECT_EQ(flags, static_cast<unsigned>(cudaHostRegisterPortable | cudaHostRegisterMapped));
  void* onDevice = nullptr;
  ASSERT_CUDA(cudaHostGetDevicePointer(&onDevice, memory.data() + 8, 0));
  EXPECT_EQ(onDevice, memory.data() + 8);
  ASSERT_CUDA(cudaHostUnregister(memory.data()));
  EXPECT_EQ(cudaHostUnregister(memory.data()), cudaErrorHostMemoryNotRegistered);
  ASSERT_CUDA(cudaPointerGetAttributes(&a, memory.data()));
  EXPECT_EQ(a.type, cudaMemoryTypeUnregistered);
  ASSERT_CUDA(cudaHostUnregister(memory.data() + 4000));
  EXPECT_EQ(cudaHostRegister(nullptr, 10, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaHostRegister(memory.data(), 0, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaHostGetDevicePointer(&onDevice, memory.data(), 0), cudaErrorInvalidValue);
}

TEST(Memory, SurvivesManyThreads) {
  std::vector<std::thread> all;
  for (int t = 0; t < 6; ++t) {
    all.emplace_back([t] {
      ASSERT_CUDA(cudaSetDevice(t % 3));
      for (int i = 0; i < 300; ++i) {
        char* pointer = nullptr;
        const size_t bytes = 100 + static_cast<size_t>(i * 977 % 50000);
        ASSERT_CUDA(cudaMalloc(&pointer, bytes));
        std::memset(pointer, t, bytes);
        cudaPointerAttributes a;
        ASSERT_CUDA(cudaPointerGetAttributes(&a, pointer + bytes - 1));
        ASSERT_EQ(a.device, t % 3);
        ASSERT_EQ(pointer[bytes - 1], t);
        ASSERT_CUDA(cudaFree(pointer));
      }
    });
  }
  for (std::thread& thread : all) thread.join();
}
