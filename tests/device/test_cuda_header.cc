// Our declarations of libcuda's functions and constants against the toolkit's, where there is one.
#ifdef TUTTI_HAVE_CUDA_HEADERS

#include <cuda.h>
#include <cudaTypedefs.h>
#include <gtest/gtest.h>

#include <type_traits>

#include "device/cuda_api.h"

namespace tutti {
namespace {

/// Passed in the same way: numbers of the same size (enums are), or pointers.
template <typename A, typename B>
constexpr bool isAlike() {
  return sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>;
}

template <typename A, typename B>
struct Alike : std::false_type {};
template <typename A, typename... As, typename B, typename... Bs>
struct Alike<A (*)(As...), B (*)(Bs...)> {
  static constexpr bool check() {
    if constexpr (sizeof...(As) == sizeof...(Bs)) return isAlike<A, B>() && (isAlike<As, Bs>() && ...);
    return false;
  }
  static constexpr bool value = check();
};

TEST(CudaHeader, FunctionsHaveTheToolkitsParameters) {
#define CHECK_FUNCTION(name, version, parameters) \
  EXPECT_TRUE((Alike<decltype(cuda::Api::name), PFN_##name##_v##version>::value)) << #name;
  TUTTI_CUDA_FUNCTIONS(CHECK_FUNCTION)
  TUTTI_CUDA_OPTIONAL_FUNCTIONS(CHECK_FUNCTION)
#undef CHECK_FUNCTION
}

TEST(CudaHeader, ConstantsAreTheToolkits) {
  EXPECT_EQ(cuda::kNoDevice, CUDA_ERROR_NO_DEVICE);
  EXPECT_EQ(cuda::kNoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(cuda::kNotReady, CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuda::kPeerAccessAlreadyEnabled, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  EXPECT_EQ(cuda::kMultiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  EXPECT_EQ(cuda::kMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  EXPECT_EQ(cuda::kMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  EXPECT_EQ(cuda::kSharedOptin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  EXPECT_EQ(cuda::kRegisters, CU_FUNC_ATTRIBUTE_NUM_REGS);
  EXPECT_EQ(cuda::kMostDynamicShared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  EXPECT_EQ(cuda::kMemoryType, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
  EXPECT_EQ(cuda::kIsManaged, CU_POINTER_ATTRIBUTE_IS_MANAGED);
  EXPECT_EQ(cuda::kDeviceOrdinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
  EXPECT_EQ(cuda::kHostMemory, CU_MEMORYTYPE_HOST);
  EXPECT_EQ(cuda::kDeviceMemory, CU_MEMORYTYPE_DEVICE);
  EXPECT_EQ(cuda::kNonBlocking, CU_STREAM_NON_BLOCKING);
  EXPECT_EQ(cuda::kDisableTiming, CU_EVENT_DISABLE_TIMING);
  EXPECT_EQ(cuda::kPortable, unsigned{CU_MEMHOSTALLOC_PORTABLE});
  EXPECT_EQ(cuda::kMapped, unsigned{CU_MEMHOSTALLOC_DEVICEMAP});
  EXPECT_EQ(cuda::kCaptureNone, CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(cuda::kCaptureActive, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(cuda::kRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_EQ(cuda::kLegacyStream, uint64_t{CU_GET_PROC_ADDRESS_LEGACY_STREAM});
}

}  // namespace
}  // namespace tutti

#endif
