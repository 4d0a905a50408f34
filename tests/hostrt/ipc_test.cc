#include <algorithm>
#include <cstring>
#include <vector>

#include "hostrt/support.h"

namespace {

std::string hexOf(const cudaIpcMemHandle_t& handle) {
  std::string text;
  for (const char byte : handle.reserved) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(byte));
    text += digits;
  }
  return text;
}

}  // namespace

TEST(Ipc, MemoryIsSharedWithAnotherProgram) {
  for (const size_t bytes : {size_t{1000}, size_t{1} << 20, size_t{9} << 20}) {
    char* anchor = nullptr;  // so that the memory does not start at the beginning of its file
    char* pointer = nullptr;
    ASSERT_CUDA(cudaMalloc(&anchor, 4096));
    ASSERT_CUDA(cudaMalloc(&pointer, bytes));
    std::memset(anchor, 77, 4096);
    std::memset(pointer, 5, bytes);
    cudaIpcMemHandle_t handle;
    ASSERT_CUDA(cudaIpcGetMemHandle(&handle, pointer + bytes / 2));  // names the allocation
    const Outcome outcome = runHelper("ipc-open " + hexOf(handle) + " " + std::to_string(bytes) + " 5");
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    EXPECT_TRUE(isFilled(pointer, bytes, 6));
    EXPECT_TRUE(isFilled(anchor, 4096, 77));
    ASSERT_CUDA(cudaFree(pointer));
    ASSERT_CUDA(cudaFree(anchor));
  }
}

TEST(Ipc, AHandleOfFreedMemoryIsRefusedWithAReason) {
  char* pointer = nullptr;
  ASSERT_CUDA(cudaMalloc(&pointer, 64 << 20));  // a file of its own
  cudaIpcMemHandle_t handle;
  ASSERT_CUDA(cudaIpcGetMemHandle(&handle, pointer));
  ASSERT_CUDA(cudaFree(pointer));
  ASSERT_CUDA(cudaMalloc(&pointer, 65 << 20));  // takes the descriptor's number
  const Outcome outcome = runHelper("ipc-open " + hexOf(handle) + " 100 5", "NCCL_DEBUG=WARN");
  EXPECT_EQ(outcome.status, 3);
  EXPECT_NE(outcome.output.find("cudaErrorInvalidResourceHandle"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("the memory was freed"), std::string::npos) << outcome.output;
  ASSERT_CUDA(cudaFree(pointer));
}

TEST(Ipc, WrongHandlesAreRefused) {
  cudaIpcMemHandle_t handle{};
  EXPECT_NE(runHelper("ipc-open " + hexOf(handle) + " 100 5").output.find("cudaErrorInvalidResourceHandle"),
            std::string::npos);
  void* opened = nullptr;
  void* pointer = nullptr;
  void* pinned = nullptr;
  ASSERT_CUDA(cudaMalloc(&pointer, 100));
  ASSERT_CUDA(cudaMallocHost(&pinned, 100));
  ASSERT_CUDA(cudaIpcGetMemHandle(&handle, pointer));
  EXPECT_EQ(cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess),
            cudaErrorDeviceUninitialized)
      << "in the process that made it";
  EXPECT_EQ(cudaIpcOpenMemHandle(&opened, handle, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaIpcGetMemHandle(&handle, pinned), cudaErrorInvalidValue);
  EXPECT_EQ(cudaIpcGetMemHandle(&handle, &handle), cudaErrorInvalidValue);
  EXPECT_EQ(cudaIpcGetMemHandle(nullptr, pointer), cudaErrorInvalidValue);
  EXPECT_EQ(cudaIpcCloseMemHandle(pointer), cudaErrorInvalidValue);
  ASSERT_CUDA(cudaFree(pointer));
  ASSERT_CUDA(cudaFreeHost(pinned));
  cudaGetLastError();
}
