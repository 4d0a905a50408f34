// Communicators made from others, and ended in every order: split, shrink, grow, revoke, scalable init.
#include <gmock/gmock.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <climits>
#include <cstring>
#include <map>
#include <mutex>

#include "api/ranks.h"

namespace tutti::test {
namespace {

using testing::HasSubstr;

/// Sum of (rank + 1) over the communicator, to see that it works and with whom.
int sumOfRanks(ncclComm_t comm, int value, cudaStream_t stream) {
  int data = value;
  EXPECT_NCCL_OK(ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, comm, stream));
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  return data;
}

int rankOf(ncclComm_t comm) {
  int rank = -1;
  EXPECT_NCCL_OK(ncclCommUserRank(comm, &rank));
  return rank;
}
int sizeOf(ncclComm_t comm) {
  int size = -1;
  EXPECT_NCCL_OK(ncclCommCount(comm, &size));
  return size;
}

/// Until what a peer did has come here.
void awaitFailure(ncclComm_t comm) {
  ncclResult_t failure = ncclSuccess;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (failure == ncclSuccess && std::chrono::steady_clock::now() < limit)
    EXPECT_NCCL_OK(ncclCommGetAsyncError(comm, &failure));
  EXPECT_EQ(failure, ncclRemoteError);
}

TEST(Split, MakesACommunicatorForEachColorOrderedByKeyThenRank) {
  runRanks(6, [](Rank& rank) {
    // keys: even ranks reversed, odd ranks all equal
    const int color = rank.rank % 2;
    const int key = color == 0 ? -rank.rank : 7;
    ncclComm_t child = nullptr;
    ASSERT_NCCL_OK(ncclCommSplit(rank.comm, color, key, &child, nullptr));
    ASSERT_NE(child, nullptr);
    EXPECT_EQ(sizeOf(child), 3);
    EXPECT_EQ(rankOf(child), color == 0 ? 2 - rank.rank / 2 : rank.rank / 2);
    EXPECT_EQ(sumOfRanks(child, rank.rank, rank.stream), color == 0 ? 6 : 9);
    EXPECT_EQ(sumOfRanks(rank.comm, 1, rank.stream), 6) << "the parent still works";
    EXPECT_NCCL_OK(ncclCommDestroy(child));
  });
}

TEST(Split, WithoutColorGivesNullAndTakesPartAllTheSame) {
  runRanks(4, [](Rank& rank) {
    ncclComm_t child = rank.comm;
    ASSERT_NCCL_OK(ncclCommSplit(rank.comm, rank.rank == 1 ? NCCL_SPLIT_NOCOLOR : 3, 0, &child, nullptr));
    if (rank.rank == 1) {
      EXPECT_EQ(child, nullptr);
    } else {
      EXPECT_EQ(sumOfRanks(child, 1, rank.stream), 3);
      EXPECT_NCCL_OK(ncclCommDestroy(child));
    }
    ASSERT_NCCL_OK(ncclCommSplit(rank.comm, NCCL_SPLIT_NOCOLOR, 0, &child, nullptr));
    EXPECT_EQ(child, nullptr) << "all without color";
  });
}

TEST(Split, TakesExtremeColorsAndKeysAndRefusesNegativeColors) {
  runRanks(3, [](Rank& rank) {
    ncclComm_t child = nullptr;
    EXPECT_EQ(ncclCommSplit(rank.comm, -2, 0, &child, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclCommSplit(rank.comm, 0, 0, nullptr, nullptr), ncclInvalidArgument);
    const int keys[] = {INT_MAX, INT_MIN, 0};
    ASSERT_NCCL_OK(ncclCommSplit(rank.comm, INT_MAX, keys[rank.rank], &child, nullptr));
    const int expected[] = {2, 0, 1};
    EXPECT_EQ(rankOf(child), expected[rank.rank]);
    EXPECT_NCCL_OK(ncclCommDestroy(child));
  });
}

TEST(Split, OfASplitOutlivesItsParents) {
  runRanks(4, [](Rank& rank) {
    ncclComm_t half = nullptr;
    ncclComm_t again = nullptr;
    ASSERT_NCCL_OK(ncclCommSplit(rank.comm, rank.rank / 2, rank.rank, &half, nullptr));
    ASSERT_NCCL_OK(ncclCommSplit(half, 0, -rank.rank, &again, nullptr));
    EXPECT_NCCL_OK(ncclCommDestroy(half));
    EXPECT_EQ(sumOfRanks(again, rank.rank, rank.stream), rank.rank < 2 ? 1 : 5);
    EXPECT_NCCL_OK(ncclCommDestroy(again));
  });
}

TEST(Derived, CommunicatorsOfAFailedParentFailAndCanBeDestroyedOrAborted) {
  runRanks(2, [](Rank& rank) {
    if (rank.rank == 1) {
      EXPECT_NCCL_OK(ncclCommAbort(rank.comm));
    } else {
      awaitFailure(rank.comm);
      for (const auto end : {ncclCommDestroy, ncclCommAbort}) {
        ncclComm_t child = nullptr;
        EXPECT_EQ(ncclCommSplit(rank.comm, 0, 0, &child, nullptr), ncclRemoteError);
        ASSERT_NE(child, nullptr);
        EXPECT_NCCL_OK(end(child));
      }
      EXPECT_NCCL_OK(ncclCommAbort(rank.comm));
    }
    rank.comm = nullptr;
  });
}

TEST(Derived, CommunicatorsOutliveTheFailureAndTheAbortOfTheirParent) {
  std::barrier made(3);
  runRanks(3, [&](Rank& rank) {
    ncclComm_t split = nullptr;
    ASSERT_NCCL_OK(ncclCommSplit(rank.comm, rank.rank / 2, 0, &split, nullptr));
    ncclComm_t shrunk = nullptr;
    int excluded = 2;
    if (rank.rank != excluded) {
      ASSERT_NCCL_OK(ncclCommShrink(rank.comm, &excluded, 1, &shrunk, nullptr, NCCL_SHRINK_DEFAULT));
    }
    const auto childrenWork = [&] {
      EXPECT_EQ(sumOfRanks(split, 1, rank.stream), rank.rank < 2 ? 2 : 1);
      if (shrunk != nullptr) {
        EXPECT_EQ(sumOfRanks(shrunk, 1, rank.stream), 2);
      }
    };
    childrenWork();
    made.arrive_and_wait();
    if (rank.rank != excluded) {  // the abort of rank 2 fails the parent here
      awaitFailure(rank.comm);
      childrenWork();
    }
    EXPECT_NCCL_OK(ncclCommAbort(rank.comm));
    rank.comm = nullptr;
    if (rank.rank != excluded) childrenWork();
    EXPECT_NCCL_OK(ncclCommDestroy(split));
    EXPECT_NCCL_OK(ncclCommDestroy(shrunk));
  });
}

TEST(Split, SeveralInOneGroupOfOneThreadServeAllRanksAndColors) {
  OneThread all(4);
  ncclComm_t first[4], second[4];
  ASSERT_NCCL_OK(ncclGroupStart());
  for (int r = 0; r < 4; ++r) {
    ASSERT_NCCL_OK(ncclCommSplit(all.comms[r], r / 2, 0, &first[r], nullptr));
    ASSERT_NCCL_OK(ncclCommSplit(all.comms[r], r % 2, 0, &second[r], nullptr));
  }
  ASSERT_NCCL_OK(ncclGroupEnd());
  for (ncclComm_t* children : {first, second}) {
    int data[4] = {1, 2, 4, 8};
    ASSERT_NCCL_OK(ncclGroupStart());
    for (int r = 0; r < 4; ++r)
      ASSERT_NCCL_OK(ncclAllReduce(&data[r], &data[r], 1, ncclInt32, ncclSum, children[r], all.streams[r]));
    ASSERT_NCCL_OK(ncclGroupEnd());
    all.sync();
    EXPECT_THAT(data,
                children == first ? testing::ElementsAre(3, 3, 12, 12) : testing::ElementsAre(5, 10, 5, 10));
    for (int r = 0; r < 4; ++r) EXPECT_NCCL_OK(ncclCommDestroy(children[r]));
  }
}

TEST(Shrink, LeavesOutTheExcludedRanksEvenTheFirst) {
  runRanks(4, [](Rank& rank) {
    int excluded[] = {2, 0};
    ncclComm_t child = nullptr;
    if (rank.rank % 2 == 0) {
      EXPECT_EQ(ncclCommShrink(rank.comm, excluded, 2, &child, nullptr, NCCL_SHRINK_DEFAULT),
                ncclInvalidUsage);
      return;
    }
    ASSERT_NCCL_OK(ncclCommShrink(rank.comm, excluded, 2, &child, nullptr, NCCL_SHRINK_DEFAULT));
    EXPECT_EQ(rankOf(child), rank.rank / 2);
    EXPECT_EQ(sumOfRanks(child, rank.rank, rank.stream), 4);
    // the same once more
    ncclComm_t other = nullptr;
    ASSERT_NCCL_OK(ncclCommShrink(rank.comm, excluded, 2, &other, nullptr, NCCL_SHRINK_DEFAULT));
    EXPECT_EQ(sumOfRanks(other, 1, rank.stream), 2);
    EXPECT_NCCL_OK(ncclCommDestroy(child));
    EXPECT_NCCL_OK(ncclCommDestroy(other));
  });
}

TEST(Shrink, RefusesListsThatMakeNoSense) {
  runRanks(3, [](Rank& rank) {
    ncclComm_t child = nullptr;
    int list[] = {(rank.rank + 1) % 3, (rank.rank + 1) % 3, 5};
    EXPECT_EQ(ncclCommShrink(rank.comm, nullptr, 1, &child, nullptr, 0), ncclInvalidArgument);
    EXPECT_EQ(ncclCommShrink(rank.comm, list, 0, &child, nullptr, 0), ncclInvalidArgument);
    EXPECT_EQ(ncclCommShrink(rank.comm, list, 3, &child, nullptr, 0), ncclInvalidArgument);
    EXPECT_EQ(ncclCommShrink(rank.comm, list, 2, &child, nullptr, 0), ncclInvalidArgument);
    EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("twice"), std::string::npos);
    EXPECT_EQ(ncclCommShrink(rank.comm, list + 2, 1, &child, nullptr, 0), ncclInvalidArgument);
    EXPECT_EQ(ncclCommShrink(rank.comm, list, 1, &child, nullptr, 8), ncclInvalidArgument);
    EXPECT_EQ(child, nullptr);
  });
}

TEST(Shrink, WithAbortEndsAnOperationThatWaitsForAnExcludedRank) {
  std::barrier called(2);
  runRanks(3, [&](Rank& rank) {
    if (rank.rank == 1) return;  // never calls AllReduce
    int data = 1;
    ASSERT_NCCL_OK(ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, rank.comm, rank.stream));
    called.arrive_and_wait();
    int excluded[] = {1};
    ncclComm_t child = nullptr;
    ASSERT_NCCL_OK(ncclCommShrink(rank.comm, excluded, 1, &child, nullptr, NCCL_SHRINK_ABORT));
    cudaStreamSynchronize(rank.stream);
    EXPECT_EQ(sumOfRanks(child, 1, rank.stream), 2);
    EXPECT_EQ(ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, rank.comm, rank.stream), ncclInvalidUsage);
    EXPECT_NCCL_OK(ncclCommDestroy(child));
  });
}

TEST(Revoke, EndsOperationsAndLeavesDestroySplitAndShrink) {
  std::barrier called(3);
  runRanks(3, [&](Rank& rank) {
    int data = 1;
    if (rank.rank != 1) {
      ASSERT_NCCL_OK(ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, rank.comm, rank.stream));
    }
    called.arrive_and_wait();
    EXPECT_EQ(ncclCommRevoke(rank.comm, 4), ncclInvalidArgument);
    ASSERT_NCCL_OK(ncclCommRevoke(rank.comm, 0));
    cudaStreamSynchronize(rank.stream);
    ncclResult_t state = ncclInProgress;
    ASSERT_NCCL_OK(ncclCommGetAsyncError(rank.comm, &state));
    EXPECT_EQ(state, ncclSuccess);
    EXPECT_EQ(ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, rank.comm, rank.stream), ncclInvalidUsage);
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("revoked"));
    EXPECT_EQ(ncclCommFinalize(rank.comm), ncclInvalidUsage);
    ncclComm_t child = nullptr;
    ASSERT_NCCL_OK(ncclCommSplit(rank.comm, 0, -rank.rank, &child, nullptr));
    EXPECT_EQ(rankOf(child), 2 - rank.rank);
    EXPECT_EQ(sumOfRanks(child, 1, rank.stream), 3);
    ncclComm_t again = nullptr;
    ASSERT_NCCL_OK(ncclCommSplit(rank.comm, rank.rank, 0, &again, nullptr));
    EXPECT_EQ(sizeOf(again), 1);
    EXPECT_NCCL_OK(ncclCommDestroy(child));
    EXPECT_NCCL_OK(ncclCommDestroy(again));
  });
}

TEST(Revoke, OfOneRankIsAnErrorThatNamesItOnTheOthers) {
  std::atomic<bool> revoked{false};
  runRanks(2, [&](Rank& rank) {
    if (rank.rank == 0) {
      ASSERT_NCCL_OK(ncclCommRevoke(rank.comm, 0));
      revoked = true;
      return;
    }
    ncclResult_t state = ncclSuccess;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (state == ncclSuccess && std::chrono::steady_clock::now() < end)
      ASSERT_NCCL_OK(ncclCommGetAsyncError(rank.comm, &state));
    EXPECT_EQ(state, ncclRemoteError);
    EXPECT_THAT(ncclGetLastError(rank.comm), HasSubstr("rank 0"));
    EXPECT_THAT(ncclGetLastError(rank.comm), HasSubstr("revoked"));
    while (!revoked) std::this_thread::yield();
  });
}

TEST(ScalableInit, TakesSeveralIdsAndUsesThemUp) {
  ncclUniqueId ids[3];
  for (ncclUniqueId& id : ids) ASSERT_NCCL_OK(ncclGetUniqueId(&id));
  std::vector<std::thread> threads;
  for (int r = 0; r < 4; ++r) {
    threads.emplace_back([&, r] {
      ncclComm_t comm = nullptr;
      ASSERT_EQ(cudaSetDevice(r), cudaSuccess);
      ASSERT_NCCL_OK(ncclCommInitRankScalable(&comm, 4, r, 3, ids, nullptr));
      EXPECT_EQ(sumOfRanks(comm, 1, nullptr), 4);
      EXPECT_NCCL_OK(ncclCommDestroy(comm));
    });
  }
  for (std::thread& thread : threads) thread.join();
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankScalable(&comm, 2, 0, 3, ids, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRankScalable(&comm, 2, 0, 0, ids, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRankScalable(&comm, 2, 0, 1, nullptr, nullptr), ncclInvalidArgument);
}

}  // namespace
}  // namespace tutti::test
