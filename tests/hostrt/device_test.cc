#include <cstring>

#include "hostrt/support.h"

TEST(Devices, AreEightByDefault) {
  int count = 0;
  ASSERT_CUDA(cudaGetDeviceCount(&count));
  EXPECT_EQ(count, 8);
}

TEST(Devices, TheCurrentOneBelongsToTheThread) {
  ASSERT_CUDA(cudaSetDevice(3));
  int device = -1;
  std::thread([&] { cudaGetDevice(&device); }).join();
  EXPECT_EQ(device, 0);
  EXPECT_CUDA(cudaGetDevice(&device));
  EXPECT_EQ(device, 3);
  EXPECT_EQ(cudaSetDevice(8), cudaErrorInvalidDevice);
  EXPECT_CUDA(cudaGetDevice(&device));
  EXPECT_EQ(device, 3);
  ASSERT_CUDA(cudaSetDevice(0));
}

TEST(Devices, PropertiesDescribeTheMachine) {
  cudaDeviceProp first;
  cudaDeviceProp second;
  ASSERT_CUDA(cudaGetDeviceProperties(&first, 0));
  ASSERT_CUDA(cudaGetDeviceProperties(&second, 1));
  EXPECT_STREQ(first.name, "Tutti host device");
  EXPECT_GT(first.totalGlobalMem, size_t{64} << 20);
  EXPECT_GE(first.multiProcessorCount, 1);
  EXPECT_EQ(first.warpSize, 32);
  EXPECT_TRUE(first.unifiedAddressing);
  EXPECT_NE(std::memcmp(&first.uuid, &second.uuid, sizeof first.uuid), 0);
  EXPECT_NE(first.pciBusID, second.pciBusID);
  EXPECT_EQ(cudaGetDeviceProperties(&first, 8), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetDeviceProperties(nullptr, 0), cudaErrorInvalidValue);
}

TEST(Devices, AttributesAgreeWithProperties) {
  cudaDeviceProp prop;
  ASSERT_CUDA(cudaGetDeviceProperties(&prop, 2));
  int value = -1;
  EXPECT_CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrPciBusId, 2));
  EXPECT_EQ(value, prop.pciBusID);
  EXPECT_CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 2));
  EXPECT_EQ(value, prop.major);
  EXPECT_CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 2));
  EXPECT_EQ(value, prop.multiProcessorCount);
  EXPECT_CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrMaxBlockDimZ, 2));
  EXPECT_EQ(value, prop.maxThreadsDim[2]);
  EXPECT_CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrMaxGridDimX, 2));
  EXPECT_EQ(value, prop.maxGridSize[0]);
  EXPECT_CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlock, 2));
  EXPECT_EQ(value, static_cast<int>(prop.sharedMemPerBlock));
  EXPECT_CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrMemoryPoolsSupported, 2));
  EXPECT_EQ(value, 1);
  EXPECT_EQ(cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(100000), 2), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, -1), cudaErrorInvalidDevice);
}

TEST(Devices, AreFoundByTheirPciBusId) {
  for (int device = 0; device < 8; ++device) {
    char id[16];
    ASSERT_CUDA(cudaDeviceGetPCIBusId(id, sizeof id, device));
    int found = -1;
    EXPECT_CUDA(cudaDeviceGetByPCIBusId(&found, id));
    EXPECT_EQ(found, device) << id;
  }
  int found = -1;
  char tooShort[12];
  EXPECT_EQ(cudaDeviceGetByPCIBusId(&found, "0000:01:00.0"), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaDeviceGetByPCIBusId(&found, "nonsense"), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceGetPCIBusId(tooShort, sizeof tooShort, 0), cudaErrorInvalidValue);
}

TEST(Devices, PeerAccessIsSwitchedOnceEachWay) {
  int can = -1;
  EXPECT_CUDA(cudaDeviceCanAccessPeer(&can, 0, 1));
  EXPECT_EQ(can, 1);
  EXPECT_CUDA(cudaDeviceCanAccessPeer(&can, 1, 1));
  EXPECT_EQ(can, 0);
  EXPECT_EQ(cudaDeviceDisablePeerAccess(1), cudaErrorPeerAccessNotEnabled);
  EXPECT_CUDA(cudaDeviceEnablePeerAccess(1, 0));
  EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(2, 1), cudaErrorInvalidValue);
  EXPECT_CUDA(cudaDeviceDisablePeerAccess(1));
  EXPECT_CUDA(cudaDeviceEnablePeerAccess(1, 0));
  EXPECT_CUDA(cudaDeviceReset());
  EXPECT_EQ(cudaDeviceDisablePeerAccess(1), cudaErrorPeerAccessNotEnabled);
}

TEST(Devices, ResetFreesTheMemoryOfThisDeviceAlone) {
  void* here = nullptr;
  void* there = nullptr;
  void* pinned = nullptr;
  ASSERT_CUDA(cudaSetDevice(4));
  ASSERT_CUDA(cudaMalloc(&here, 100));
  ASSERT_CUDA(cudaMallocHost(&pinned, 100));
  ASSERT_CUDA(cudaSetDevice(5));
  ASSERT_CUDA(cudaMalloc(&there, 100));
  ASSERT_CUDA(cudaSetDevice(4));
  ASSERT_CUDA(cudaDeviceReset());
  EXPECT_EQ(cudaFree(here), cudaErrorInvalidValue);
  EXPECT_CUDA(cudaFree(there));
  EXPECT_CUDA(cudaFreeHost(pinned));
  ASSERT_CUDA(cudaSetDevice(0));
}

TEST(Devices, MemoryInfoIsThatOfTheMachine) {
  size_t free = 0;
  size_t total = 0;
  ASSERT_CUDA(cudaMemGetInfo(&free, &total));
  EXPECT_GT(free, 0u);
  EXPECT_LE(free, total);
  cudaDeviceProp prop;
  ASSERT_CUDA(cudaGetDeviceProperties(&prop, 0));
  EXPECT_EQ(total, prop.totalGlobalMem);
}
