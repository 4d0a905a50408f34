// Non-blocking communicators, finalize, and abort by other threads.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>

#include "api/ranks.h"
#include "support/scale.h"

namespace tutti::test {
namespace {

using Clock = std::chrono::steady_clock;
using testing::HasSubstr;

ncclConfig_t nonBlocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

/// Polls until the communicator is no longer in progress.
ncclResult_t settled(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  const auto end = Clock::now() + std::chrono::seconds(20);
  while (state == ncclInProgress && Clock::now() < end) {
    EXPECT_NCCL_OK(ncclCommGetAsyncError(comm, &state));
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return state;
}

TEST(NonBlocking, InitIsPolledAndCallsBeforeItsEndAreRefused) {
  ncclUniqueId id;
  ASSERT_NCCL_OK(ncclGetUniqueId(&id));
  ncclConfig_t config = nonBlocking();
  ncclComm_t comms[2];
  ASSERT_EQ(ncclCommInitRankConfig(&comms[0], 2, id, 0, &config), ncclInProgress);
  ncclResult_t state = ncclSuccess;
  ASSERT_NCCL_OK(ncclCommGetAsyncError(comms[0], &state));
  EXPECT_EQ(state, ncclInProgress);
  int data = 1;
  EXPECT_EQ(ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, comms[0], nullptr), ncclInvalidUsage);
  EXPECT_EQ(ncclCommDestroy(comms[0]), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("ncclCommAbort"));
  ASSERT_EQ(ncclCommInitRankConfig(&comms[1], 2, id, 1, &config), ncclInProgress);
  for (ncclComm_t comm : comms) EXPECT_EQ(settled(comm), ncclSuccess);
  for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommFinalize(comm), ncclInProgress);
  for (ncclComm_t comm : comms) EXPECT_EQ(settled(comm), ncclSuccess);
  for (ncclComm_t comm : comms) EXPECT_NCCL_OK(ncclCommDestroy(comm));
}

TEST(NonBlocking, GroupOfInitsIsInProgressAsAWhole) {
  ncclUniqueId id;
  ASSERT_NCCL_OK(ncclGetUniqueId(&id));
  ncclConfig_t config = nonBlocking();
  ncclComm_t comms[3];
  ASSERT_NCCL_OK(ncclGroupStart());
  for (int r = 0; r < 3; ++r) {
    ASSERT_EQ(cudaSetDevice(r), cudaSuccess);
    ASSERT_NCCL_OK(ncclCommInitRankConfig(&comms[r], 3, id, r, &config));
  }
  ASSERT_EQ(ncclGroupEnd(), ncclInProgress);
  for (ncclComm_t comm : comms) EXPECT_EQ(settled(comm), ncclSuccess);
  ncclComm_t children[3];
  for (int r = 0; r < 3; ++r)
    ASSERT_EQ(ncclCommSplit(comms[r], 0, -r, &children[r], nullptr), ncclInProgress);
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(settled(comms[r]), ncclSuccess);
    EXPECT_EQ(settled(children[r]), ncclSuccess);
  }
  int data[3] = {1, 2, 3};
  ASSERT_NCCL_OK(ncclGroupStart());
  for (int r = 0; r < 3; ++r)
    ASSERT_NCCL_OK(ncclAllReduce(&data[r], &data[r], 1, ncclInt32, ncclSum, children[r], nullptr));
  ASSERT_NCCL_OK(ncclGroupEnd());
  for (int r = 0; r < 3; ++r) {
    ASSERT_EQ(cudaSetDevice(r), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  }
  EXPECT_THAT(data, testing::Each(6));
  for (int r = 0; r < 3; ++r) {
    EXPECT_NCCL_OK(ncclCommDestroy(children[r]));
    EXPECT_NCCL_OK(ncclCommDestroy(comms[r]));
  }
}

TEST(NonBlocking, AbortEndsAnInitWhosePeerNeverComes) {
  ncclUniqueId id;
  ASSERT_NCCL_OK(ncclGetUniqueId(&id));
  ncclConfig_t config = nonBlocking();
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto start = Clock::now();
  EXPECT_NCCL_OK(ncclCommAbort(comm));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
  ncclResult_t state = ncclSuccess;
  EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclInvalidArgument);
}

TEST(NonBlocking, AbortOfTheParentEndsASplitWhosePeerNeverComes) {
  ncclUniqueId id;
  ASSERT_NCCL_OK(ncclGetUniqueId(&id));
  ncclConfig_t config = nonBlocking();
  ncclComm_t comms[2];
  for (int r = 0; r < 2; ++r) ASSERT_EQ(ncclCommInitRankConfig(&comms[r], 2, id, r, &config), ncclInProgress);
  for (ncclComm_t comm : comms) ASSERT_EQ(settled(comm), ncclSuccess);
  ncclComm_t child = nullptr;
  ASSERT_EQ(ncclCommSplit(comms[0], 0, 0, &child, nullptr), ncclInProgress);
  int data = 1;
  EXPECT_EQ(ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, comms[0], nullptr), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("in progress"));
  const auto start = Clock::now();
  EXPECT_NCCL_OK(ncclCommAbort(comms[0]));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
  EXPECT_EQ(settled(child), ncclRemoteError);
  EXPECT_NCCL_OK(ncclCommAbort(child));
  EXPECT_NCCL_OK(ncclCommAbort(comms[1]));
}

TEST(Blocking, InitIsEndedByAnAbortFromAnotherThread) {
  if (kThreadSanitizer) GTEST_SKIP() << "the other thread sees the handle by a plain load, as programs do";
  ncclUniqueId id;
  ASSERT_NCCL_OK(ncclGetUniqueId(&id));
  std::atomic<ncclComm_t> comm{nullptr};
  ncclComm_t raw = nullptr;
  std::thread init([&] { EXPECT_NE(ncclCommInitRank(&raw, 2, id, 0), ncclSuccess); });
  const volatile ncclComm_t* seen = &raw;
  while (*seen == nullptr) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_NCCL_OK(ncclCommAbort(*seen));
  init.join();
}

TEST(Finalize, EndsWorkAndOnlyDestroyFollows) {
  runRanks(2, [](Rank& rank) {
    int data = 1;
    ASSERT_NCCL_OK(ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, rank.comm, rank.stream));
    ASSERT_NCCL_OK(ncclCommFinalize(rank.comm));
    EXPECT_EQ(data, 2) << "finalize waits for what was enqueued";
    EXPECT_EQ(ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, rank.comm, rank.stream), ncclInvalidUsage);
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("finalized"));
    EXPECT_EQ(ncclCommFinalize(rank.comm), ncclInvalidUsage);
    ncclComm_t child = nullptr;
    EXPECT_EQ(ncclCommSplit(rank.comm, 0, 0, &child, nullptr), ncclInvalidUsage);
    int count = 0;
    EXPECT_NCCL_OK(ncclCommCount(rank.comm, &count));
  });
}

TEST(Abort, FromAnotherThreadEndsACallThatWaits) {
  ncclUniqueId id;
  ASSERT_NCCL_OK(ncclGetUniqueId(&id));
  std::atomic<bool> entered{false};
  ncclComm_t comms[2];
  ASSERT_NCCL_OK(ncclGroupStart());
  for (int r = 0; r < 2; ++r) ASSERT_NCCL_OK(ncclCommInitRank(&comms[r], 2, id, r));
  ASSERT_NCCL_OK(ncclGroupEnd());
  std::thread worker([&] {
    int data = 1;
    entered = true;
    for (int i = 0; i < 1000; ++i)  // of which the second finds the communicator aborted, or the first
      if (ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, comms[0], nullptr) != ncclSuccess) break;
    cudaStreamSynchronize(nullptr);
  });
  while (!entered) std::this_thread::yield();
  EXPECT_NCCL_OK(ncclCommAbort(comms[0]));
  worker.join();
  EXPECT_NCCL_OK(ncclCommAbort(comms[1]));
}

/// Two communicators whose operations sit one behind the other in a stream, and never end.
TEST(Abort, OfTwoCommunicatorsOneAfterTheOtherNeverWaitsForTheSecond) {
  ncclComm_t first[2], second[2];
  ASSERT_NCCL_OK(ncclCommInitAll(first, 2, nullptr));
  ASSERT_NCCL_OK(ncclCommInitAll(second, 2, nullptr));
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  int data[2] = {1, 1};
  // Rank 0 only: both wait for ever. The first in the queue belongs to the one that is aborted last.
  ASSERT_NCCL_OK(ncclAllReduce(&data[0], &data[0], 1, ncclInt32, ncclSum, second[0], stream));
  ASSERT_NCCL_OK(ncclAllReduce(&data[1], &data[1], 1, ncclInt32, ncclSum, first[0], stream));
  const auto start = Clock::now();
  EXPECT_NCCL_OK(ncclCommAbort(first[0]));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(4));
  EXPECT_NCCL_OK(ncclCommAbort(second[0]));
  cudaStreamSynchronize(stream);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_NCCL_OK(ncclCommAbort(first[1]));
  EXPECT_NCCL_OK(ncclCommAbort(second[1]));
}

TEST(Destroy, InDifferentOrdersOnDifferentRanks) {
  runRanks(3, [](Rank& rank) {
    ncclComm_t children[3];
    for (ncclComm_t& child : children)
      ASSERT_NCCL_OK(ncclCommSplit(rank.comm, 0, rank.rank, &child, nullptr));
    int data = 1;
    for (ncclComm_t child : children)
      ASSERT_NCCL_OK(ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, child, rank.stream));
    for (int i = 0; i < 3; ++i) EXPECT_NCCL_OK(ncclCommDestroy(children[(i + rank.rank) % 3]));
    EXPECT_EQ(data, 27);
  });
}

TEST(Destroy, WhileAGroupHoldsACallIsAnErrorOfTheGroup) {
  runRanks(1, [](Rank& rank) {
    ncclComm_t child = nullptr;
    ASSERT_NCCL_OK(ncclCommSplit(rank.comm, 0, 0, &child, nullptr));
    int data = 1;
    ASSERT_NCCL_OK(ncclGroupStart());
    ASSERT_NCCL_OK(ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, child, rank.stream));
    ASSERT_NCCL_OK(ncclCommDestroy(child));
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    ASSERT_NCCL_OK(ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, rank.comm, rank.stream));
  });
}

TEST(Config, OfOlderAndNewerCallersIsReadAsFarAsItGoes) {
  ncclUniqueId id;
  ncclComm_t comm = nullptr;
  // 2.14: blocking is the last member, garbage follows
  struct {
    ncclConfig_t config;
    char more[64];
  } newer;
  for (const int version :
       {NCCL_VERSION(2, 14, 0), NCCL_VERSION(2, 17, 0), NCCL_VERSION(2, 28, 9), NCCL_VERSION(2, 40, 0)}) {
    ASSERT_NCCL_OK(ncclGetUniqueId(&id));
    std::memset(&newer, 0x5a, sizeof newer);
    ncclConfig_t fresh = NCCL_CONFIG_INITIALIZER;
    if (version >= NCCL_VERSION(2, 28, 0)) newer.config = fresh;
    newer.config.size = version == NCCL_VERSION(2, 40, 0) ? sizeof newer : sizeof newer.config;
    if (version == NCCL_VERSION(2, 14, 0)) newer.config.size = offsetof(ncclConfig_t, cgaClusterSize);
    newer.config.magic = 0xcafebeef;
    newer.config.version = static_cast<unsigned>(version);
    newer.config.blocking = 1;
    if (version == NCCL_VERSION(2, 17, 0)) {
      newer.config.cgaClusterSize = 4;
      newer.config.minCTAs = 1;
      newer.config.maxCTAs = 4;
      newer.config.netName = nullptr;
    }
    ASSERT_NCCL_OK(ncclCommInitRankConfig(&comm, 1, id, 0, &newer.config)) << version;
    EXPECT_NCCL_OK(ncclCommDestroy(comm));
  }
  ASSERT_NCCL_OK(ncclGetUniqueId(&id));
  ncclConfig_t wrong = NCCL_CONFIG_INITIALIZER;
  wrong.netName = "Carrier pigeon";
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &wrong), ncclInvalidUsage);
}

}  // namespace
}  // namespace tutti::test
