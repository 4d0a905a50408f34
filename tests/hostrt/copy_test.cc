#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "hostrt/support.h"

/// A stream, a device buffer and a pinned one.
class Copies : public testing::Test {
 protected:
  static constexpr size_t kBytes = 1 << 20;  // more than is copied in the caller
  void SetUp() override {
    ASSERT_CUDA(cudaStreamCreate(&stream));
    ASSERT_CUDA(cudaMalloc(&device, kBytes));
    ASSERT_CUDA(cudaMalloc(&other, kBytes));
    ASSERT_CUDA(cudaMallocHost(&pinned, kBytes));
    std::memset(device, 0, kBytes);
    std::memset(other, 0, kBytes);
    std::memset(pinned, 0, kBytes);
    cudaGetLastError();
  }
  void TearDown() override {
    EXPECT_CUDA(cudaStreamDestroy(stream));
    EXPECT_CUDA(cudaFree(device));
    EXPECT_CUDA(cudaFree(other));
    EXPECT_CUDA(cudaFreeHost(pinned));
    cudaGetLastError();
  }
  cudaStream_t stream = nullptr;
  char* device = nullptr;
  char* other = nullptr;
  char* pinned = nullptr;
};

TEST_F(Copies, GoInEveryDirection) {
  std::vector<char> in(kBytes);
  std::vector<char> out(kBytes);
  std::iota(in.begin(), in.end(), 0);
  for (const size_t bytes : {size_t{1}, size_t{8}, size_t{4097}, kBytes}) {
    std::fill(out.begin(), out.end(), 0);
    ASSERT_CUDA(cudaMemcpy(device, in.data(), bytes, cudaMemcpyHostToDevice));
    ASSERT_CUDA(cudaMemcpy(other, device, bytes, cudaMemcpyDeviceToDevice));
    ASSERT_CUDA(cudaMemcpy(pinned, other, bytes, cudaMemcpyDefault));
    ASSERT_CUDA(cudaMemcpy(out.data(), pinned, bytes, cudaMemcpyHostToHost));
    EXPECT_EQ(std::memcmp(in.data(), out.data(), bytes), 0);
    std::fill(out.begin(), out.end(), 0);
    ASSERT_CUDA(cudaMemcpy(out.data(), other, bytes, cudaMemcpyDeviceToHost));
    EXPECT_EQ(std::memcmp(in.data(), out.data(), bytes), 0);
  }
}

TEST_F(Copies, OnAStreamKeepItsOrder) {
  // Large and small ones mixed, so that some would run in the caller if the stream were idle.
  std::vector<char> out(kBytes);
  for (int round = 1; round <= 40; ++round) {
    ASSERT_CUDA(cudaMemsetAsync(device, round, kBytes, stream));
    ASSERT_CUDA(cudaMemcpyAsync(other, device, kBytes, cudaMemcpyDeviceToDevice, stream));
    ASSERT_CUDA(cudaMemsetAsync(device, 0, 16, stream));
    ASSERT_CUDA(cudaMemcpyAsync(pinned, other, kBytes, cudaMemcpyDeviceToHost, stream));
    ASSERT_CUDA(cudaStreamSynchronize(stream));
    ASSERT_TRUE(isFilled(pinned, kBytes, static_cast<char>(round)));
  }
}

TEST_F(Copies, FromPageableMemoryMayBeChangedAtOnce) {
  Gate gate;
  block(stream, gate);
  int value = 1234;
  std::vector<char> large(kBytes, 7);
  ASSERT_CUDA(cudaMemcpyAsync(device, &value, sizeof value, cudaMemcpyHostToDevice, stream));
  ASSERT_CUDA(cudaMemcpyAsync(other, large.data(), kBytes, cudaMemcpyHostToDevice, stream));
  value = 0;
  std::fill(large.begin(), large.end(), 0);
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  ASSERT_CUDA(cudaMemcpy(&value, device, sizeof value, cudaMemcpyDeviceToHost));
  EXPECT_EQ(value, 1234);
  EXPECT_TRUE(isFilled(other, kBytes, 7));
}

TEST_F(Copies, FromPinnedMemoryAreReadInTheStreamsOrder) {
  Gate gate;
  block(stream, gate);
  pinned[0] = 1;
  ASSERT_CUDA(cudaMemcpyAsync(device, pinned, 1, cudaMemcpyHostToDevice, stream));
  pinned[0] = 2;
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(device[0], 2);
}

TEST_F(Copies, ToPageableMemoryReturnWhenTheyAreDone) {
  Gate gate;
  std::memset(device, 9, kBytes);
  block(stream, gate);
  std::thread opener([&] {
    settle();
    gate.open();
  });
  char value = 0;
  ASSERT_CUDA(cudaMemcpyAsync(&value, device, 1, cudaMemcpyDeviceToHost, stream));
  EXPECT_EQ(value, 9);
  opener.join();
}

TEST_F(Copies, ToPinnedMemoryReturnAtOnce) {
  Gate gate;
  std::memset(device, 9, kBytes);
  block(stream, gate);
  ASSERT_CUDA(cudaMemcpyAsync(pinned, device, 1, cudaMemcpyDeviceToHost, stream));
  EXPECT_EQ(pinned[0], 0);
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(pinned[0], 9);
}

TEST_F(Copies, OfPlanesTouchTheirRowsAlone) {
  constexpr size_t kPitch = 64;
  std::vector<unsigned char> in(10 * 24);
  std::iota(in.begin(), in.end(), 1);
  ASSERT_CUDA(cudaMemset(device, 0xee, kBytes));
  ASSERT_CUDA(cudaMemcpy2D(device, kPitch, in.data(), 24, 20, 10, cudaMemcpyHostToDevice));
  ASSERT_CUDA(cudaMemcpy2DAsync(pinned, 32, device, kPitch, 20, 10, cudaMemcpyDeviceToHost, stream));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  for (size_t row = 0; row < 10; ++row) {
    EXPECT_EQ(std::memcmp(device + row * kPitch, &in[row * 24], 20), 0);
    EXPECT_EQ(device[row * kPitch + 20], static_cast<char>(0xee));
    EXPECT_EQ(std::memcmp(pinned + row * 32, &in[row * 24], 20), 0);
    EXPECT_EQ(pinned[row * 32 + 20], 0);
  }
  ASSERT_CUDA(cudaMemset2D(device, kPitch, 3, 5, 10));
  EXPECT_EQ(std::count(device, device + 10 * kPitch, 3), 50);
  EXPECT_EQ(cudaMemcpy2D(device, 10, pinned, 32, 20, 10, cudaMemcpyHostToDevice), cudaErrorInvalidPitchValue);
  EXPECT_EQ(cudaMemset2D(device, 4, 3, 5, 10), cudaErrorInvalidPitchValue);
}

TEST_F(Copies, OfBoxesRespectPositionsAndSlices) {
  cudaPitchedPtr box;
  ASSERT_CUDA(cudaMalloc3D(&box, make_cudaExtent(20, 6, 4)));
  EXPECT_EQ(box.pitch % 512, 0u);
  ASSERT_CUDA(cudaMemset3D(box, 5, make_cudaExtent(20, 6, 4)));
  std::vector<char> out(3 * 2 * 2, 0);
  auto* bytes = static_cast<char*>(box.ptr);
  bytes[1 * box.pitch * 6 + 2 * box.pitch + 3] = 42;
  cudaMemcpy3DParms p{};
  p.srcPtr = box;
  p.srcPos = make_cudaPos(3, 2, 1);
  p.dstPtr = make_cudaPitchedPtr(out.data(), 3, 3, 2);
  p.extent = make_cudaExtent(3, 2, 2);
  p.kind = cudaMemcpyDeviceToHost;
  ASSERT_CUDA(cudaMemcpy3D(&p));
  EXPECT_EQ(out[0], 42);
  EXPECT_EQ(std::count(out.begin() + 1, out.end(), 5), 11);
  ASSERT_CUDA(cudaFree(box.ptr));
}

TEST_F(Copies, BetweenDevices) {
  ASSERT_CUDA(cudaSetDevice(1));
  char* there = nullptr;
  ASSERT_CUDA(cudaMalloc(&there, 4096));
  ASSERT_CUDA(cudaSetDevice(0));
  std::memset(device, 3, 4096);
  ASSERT_CUDA(cudaMemcpyPeer(there, 1, device, 0, 4096));
  EXPECT_EQ(there[4095], 3);
  std::memset(there, 4, 4096);
  ASSERT_CUDA(cudaMemcpyPeerAsync(device, 0, there, 1, 4096, stream));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(device[0], 4);
  EXPECT_EQ(cudaMemcpyPeer(there, 99, device, 0, 4096), cudaErrorInvalidDevice);
  ASSERT_CUDA(cudaFree(there));
}

TEST_F(Copies, WithWrongArgumentsAreRefused) {
  std::vector<char> pageable(100);
  EXPECT_EQ(cudaMemcpy(pageable.data(), pinned, 100, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(pinned, pageable.data(), 100, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device + kBytes - 10, pageable.data(), 100, cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(nullptr, device, 1, cudaMemcpyDefault), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device, pinned, 1, static_cast<cudaMemcpyKind>(9)), cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(cudaMemset(pageable.data(), 0, 10), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(device, 0, kBytes + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset2D(device, SIZE_MAX / 2, 0, 8, 9), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(device, pinned, 1, cudaMemcpyDefault, reinterpret_cast<cudaStream_t>(0x1234)),
            cudaErrorInvalidResourceHandle);
  EXPECT_CUDA(cudaMemcpy(device, pageable.data(), 0, cudaMemcpyHostToDevice));
}
