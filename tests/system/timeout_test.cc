// Time-outs have a result of their own for callers that know NCCL 2.30's ncclTimeout; for others they are a
// remote error, or a system error during init.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "system/ranks.h"

namespace tutti::system_test {
namespace {

using namespace std::chrono_literals;

constexpr int kTimeoutCode = 8;

ncclConfig_t configOf(unsigned version) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.version = version;
  return config;
}

class TimeoutResult : public testing::TestWithParam<unsigned> {
 protected:
  int expected(ncclResult_t before) const {
    return GetParam() >= NCCL_VERSION(2, 30, 0) ? kTimeoutCode : before;
  }
};

TEST_P(TimeoutResult, IsThatOfTheCallersVersionOnEveryRank) {
  ::setenv("TUTTI_TIMEOUT", "0.3", 1);
  RankProcesses ranks(3, Path::sharedMemory, [version = GetParam()](Rank& self, const ChildSide& parent) {
    ncclConfig_t config = configOf(version);
    ncclComm_t child = nullptr;
    must(ncclCommSplit(self.comm, 0, self.rank, &child, &config), "ncclCommSplit", parent);
    ncclComm_t grandchild = nullptr;  // takes what its parent knows
    must(ncclCommSplit(child, 0, self.rank, &grandchild, nullptr), "ncclCommSplit", parent);
    void* data = nullptr;
    must(cudaMalloc(&data, 400), "cudaMalloc", parent);
    ncclResult_t state = ncclSuccess;
    if (self.rank == 0)
      must(ncclRecv(data, 100, ncclFloat, 1, grandchild, nullptr), "ncclRecv", parent, grandchild);
    while (state == ncclSuccess) {
      must(ncclCommGetAsyncError(grandchild, &state), "ncclCommGetAsyncError", parent);
      std::this_thread::sleep_for(1ms);
    }
    parent.say("result " + std::to_string(static_cast<int>(state)));
    for (ncclComm_t comm : {grandchild, child, self.comm}) must(ncclCommAbort(comm), "ncclCommAbort", parent);
    cudaStreamSynchronize(nullptr);
    return 0;
  });
  ::unsetenv("TUTTI_TIMEOUT");
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(ranks[rank].expectLine("result ", in(30s)), std::to_string(expected(ncclRemoteError)))
        << "rank " << rank;
  ranks.expectSuccess(30s);
}

// The ranks of a group on one stream are run by one piece of work.
TEST(Timeout, EndsRanksThatShareAStreamToo) {
  const Settings settings{{"TUTTI_TIMEOUT", "0.3"}};
  Child child([](const ChildSide& parent) {
    ncclComm_t comms[3];
    ncclUniqueId id{};
    must(ncclGetUniqueId(&id), "ncclGetUniqueId", parent);
    must(ncclGroupStart(), "ncclGroupStart", parent);
    for (int rank = 0; rank < 3; ++rank)
      must(ncclCommInitRank(&comms[rank], 3, id, rank), "ncclCommInitRank", parent);
    must(ncclGroupEnd(), "ncclGroupEnd", parent);
    void* data = nullptr;
    must(cudaMalloc(&data, 400), "cudaMalloc", parent);
    must(ncclGroupStart(), "ncclGroupStart", parent);
    for (int rank = 0; rank < 2; ++rank)  // and not rank 2
      must(ncclAllReduce(data, data, 100, ncclFloat, ncclSum, comms[rank], nullptr), "ncclAllReduce", parent);
    must(ncclGroupEnd(), "ncclGroupEnd", parent);
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess) {
      must(ncclCommGetAsyncError(comms[1], &state), "ncclCommGetAsyncError", parent);
      std::this_thread::sleep_for(1ms);
    }
    parent.say(std::string("error ") + ncclGetLastError(comms[1]));
    for (ncclComm_t comm : comms) must(ncclCommAbort(comm), "ncclCommAbort", parent);
    return 0;
  });
  EXPECT_THAT(child.expectLine("error ", in(10s)),
              testing::HasSubstr("timed out after 0.3 s without movement"));
  EXPECT_EQ(child.wait(in(10s)), 0);
}

TEST_P(TimeoutResult, OfAnInitWithAMissingRankIsThatOfTheCallersVersion) {
  Child child([version = GetParam()](const ChildSide& parent) {
    ::setenv("TUTTI_INIT_TIMEOUT", "1", 1);
    ncclUniqueId id{};
    must(ncclGetUniqueId(&id), "ncclGetUniqueId", parent);
    ncclConfig_t config = configOf(version);
    ncclComm_t comm = nullptr;
    const ncclResult_t result = ncclCommInitRankConfig(&comm, 2, id, 0, &config);
    parent.say("result " + std::to_string(static_cast<int>(result)) + " " + ncclGetErrorString(result));
    return 0;
  });
  EXPECT_EQ(child.expectLine("result ", in(30s)).substr(0, 1), std::to_string(expected(ncclSystemError)));
  EXPECT_EQ(child.wait(in(30s)), 0);
}

INSTANTIATE_TEST_SUITE_P(Versions, TimeoutResult,
                         testing::Values(NCCL_VERSION(2, 28, 9), NCCL_VERSION(2, 30, 0)));

}  // namespace
}  // namespace tutti::system_test
