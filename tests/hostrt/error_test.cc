#include <set>
#include <string>

#include "hostrt/support.h"

TEST(Errors, TheLastOneIsKeptUntilItIsFetched) {
  cudaGetLastError();
  EXPECT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
  int device = -1;
  EXPECT_CUDA(cudaGetDevice(&device));  // a success does not clear it
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(Errors, BelongToTheThread) {
  cudaGetLastError();
  int onStack = 0;
  EXPECT_EQ(cudaFree(&onStack), cudaErrorInvalidValue);
  std::thread([] { EXPECT_EQ(cudaGetLastError(), cudaSuccess); }).join();
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
}

TEST(Errors, NotReadyIsAnAnswerAndNotAnError) {
  cudaGetLastError();
  cudaStream_t stream;
  ASSERT_CUDA(cudaStreamCreate(&stream));
  Gate gate;
  block(stream, gate);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  gate.open();
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_CUDA(cudaStreamDestroy(stream));
}

TEST(Errors, HaveNamesAndTexts) {
  EXPECT_STREQ(cudaGetErrorName(cudaSuccess), "cudaSuccess");
  EXPECT_STREQ(cudaGetErrorString(cudaSuccess), "no error");
  EXPECT_STREQ(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
  EXPECT_STREQ(cudaGetErrorName(cudaErrorUnknown), "cudaErrorUnknown");
  EXPECT_STREQ(cudaGetErrorName(static_cast<cudaError_t>(123456)), "unrecognized error code");
  EXPECT_STREQ(cudaGetErrorString(static_cast<cudaError_t>(-1)), "unrecognized error code");
  std::set<std::string> names;
  for (int code = 0; code <= 10000; ++code) {
    const std::string name = cudaGetErrorName(static_cast<cudaError_t>(code));
    if (name == "unrecognized error code") continue;
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_STRNE(cudaGetErrorString(static_cast<cudaError_t>(code)), "");
  }
  EXPECT_EQ(names.size(), 134u);
}

TEST(Errors, VersionsAreThatOfTheApi) {
  int version = 0;
  EXPECT_CUDA(cudaRuntimeGetVersion(&version));
  EXPECT_EQ(version, 13000);
  EXPECT_CUDA(cudaDriverGetVersion(&version));
  EXPECT_EQ(version, 13000);
  EXPECT_EQ(cudaRuntimeGetVersion(nullptr), cudaErrorInvalidValue);
  cudaGetLastError();
}
