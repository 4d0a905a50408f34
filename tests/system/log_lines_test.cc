// Lines of the log that people and scripts look for.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "system/log.h"
#include "system/ranks.h"

namespace tutti::system_test {
namespace {

using namespace std::chrono_literals;

size_t occurrences(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

std::string logOfThreeRanks(const char* level, size_t count) {
  const Log log;
  const Settings said{{"NCCL_DEBUG", level}};
  RankProcesses ranks(3, Path::sharedMemory, [count](Rank& self, const ChildSide& parent) {
    void* data = nullptr;
    must(cudaMalloc(&data, count * sizeof(float)), "cudaMalloc", parent);
    must(ncclAllReduce(data, data, count, ncclFloat, ncclSum, self.comm, nullptr), "ncclAllReduce", parent);
    must(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", parent);
    must(ncclCommDestroy(self.comm), "ncclCommDestroy", parent);
    return 0;
  });
  ranks.expectSuccess(30s);
  return log.text();
}

TEST(LogLines, NameTheVersionOnceForTheJobAndForEachProcessWhenThereIsMore) {
  EXPECT_EQ(occurrences(logOfThreeRanks("VERSION", 8), "Tutti version"), 1u);
  EXPECT_EQ(occurrences(logOfThreeRanks("INFO", 8), "Tutti version"), 3u);
}

TEST(LogLines, NameThePairsThatWorkOnEachOthersBuffers) {
  const std::string text = logOfThreeRanks("INFO", 4 << 20);
  for (const char* pair : {" : 0 -> 1 [", " : 1 -> 0 [", " : 2 -> 1 ["})
    EXPECT_EQ(occurrences(text, std::string("Channel 00") + pair + "buffers] via P2P/direct"), 1u) << text;
}

}  // namespace
}  // namespace tutti::system_test
