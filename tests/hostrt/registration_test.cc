#include <cstring>

#include "hostrt/support.h"

// As nvcc declares them.
extern "C" {
void** __cudaRegisterFatBinary(void*);
void __cudaRegisterFatBinaryEnd(void**);
void __cudaUnregisterFatBinary(void**);
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*, dim3*, int*);
void __cudaRegisterManagedVar(void**, void**, char*, const char*, int, size_t, int, int);
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, cudaStream_t);
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*);
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*);
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t);
}

namespace {

char stub;  // its address stands for the host stub of a kernel
char image;

}  // namespace

TEST(Registration, AKernelIsKnownUntilItsModuleGoes) {
  void** module = __cudaRegisterFatBinary(&image);
  ASSERT_TRUE(module);
  char name[] = "_Z6kernelPi";
  __cudaRegisterFunction(module, &stub, name, name, -1, nullptr, nullptr, nullptr, nullptr, nullptr);
  __cudaRegisterFatBinaryEnd(module);
  cudaKernel_t kernel = nullptr;
  ASSERT_CUDA(__cudaGetKernel(&kernel, &stub));
  const char* found = nullptr;
  ASSERT_CUDA(cudaFuncGetName(&found, &stub));
  EXPECT_STREQ(found, "_Z6kernelPi");

  testing::internal::CaptureStderr();
  EXPECT_EQ(__cudaLaunchKernel(kernel, dim3(1), dim3(1), nullptr, 0, nullptr), cudaErrorNotSupported);
  EXPECT_EQ(cudaLaunchKernel(static_cast<const void*>(&stub), dim3(1), dim3(1), nullptr, 0, nullptr),
            cudaErrorNotSupported);
  const std::string message = testing::internal::GetCapturedStderr();
  EXPECT_NE(message.find("launch of kernel(int*) refused"), std::string::npos) << message;
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotSupported);

  __cudaUnregisterFatBinary(module);
  EXPECT_EQ(__cudaGetKernel(&kernel, &stub), cudaErrorInvalidDeviceFunction);
  EXPECT_EQ(cudaLaunchKernel(static_cast<const void*>(&stub), dim3(1), dim3(1), nullptr, 0, nullptr),
            cudaErrorInvalidDeviceFunction);
  cudaGetLastError();
}

TEST(Registration, CallConfigurationsNest) {
  dim3 grid;
  dim3 block;
  size_t shared = 0;
  cudaStream_t stream = nullptr;
  EXPECT_EQ(__cudaPushCallConfiguration(dim3(2, 3, 4), dim3(5), 6, cudaStreamLegacy), 0u);
  EXPECT_EQ(__cudaPushCallConfiguration(dim3(7), dim3(8), 9, cudaStreamPerThread), 0u);
  ASSERT_CUDA(__cudaPopCallConfiguration(&grid, &block, &shared, &stream));
  EXPECT_EQ(grid.x, 7u);
  EXPECT_EQ(stream, cudaStreamPerThread);
  ASSERT_CUDA(__cudaPopCallConfiguration(&grid, &block, &shared, &stream));
  EXPECT_EQ(grid.z, 4u);
  EXPECT_EQ(block.x, 5u);
  EXPECT_EQ(shared, 6u);
  EXPECT_EQ(stream, cudaStreamLegacy);
  EXPECT_EQ(__cudaPopCallConfiguration(&grid, &block, &shared, &stream), cudaErrorMissingConfiguration);
  cudaGetLastError();
}

TEST(Registration, ManagedVariablesGetZeroedMemory) {
  void* variable = nullptr;
  __cudaRegisterManagedVar(nullptr, &variable, nullptr, "counter", 0, 64, 0, 0);
  ASSERT_TRUE(variable);
  const char zero[64] = {};
  EXPECT_EQ(std::memcmp(variable, zero, sizeof zero), 0);
  EXPECT_CUDA(cudaFree(variable));
}

TEST(Registration, ThereIsNoDriverApi) {
  void* function = &stub;
  cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSuccess;
  EXPECT_CUDA(cudaGetDriverEntryPointByVersion("cuMemCreate", &function, 12000, 0, &status));
  EXPECT_EQ(status, cudaDriverEntryPointSymbolNotFound);
  EXPECT_EQ(function, nullptr);
  EXPECT_EQ(cudaGetDriverEntryPoint("cuMemCreate", &function, 0, nullptr), cudaErrorSymbolNotFound);
  cudaGetLastError();
}
