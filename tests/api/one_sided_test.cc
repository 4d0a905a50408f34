// Windows; put, signal and wait; growing.
#include <gmock/gmock.h>

#include <barrier>
#include <cstring>

#include "api/ranks.h"

namespace tutti::test {
namespace {

using testing::HasSubstr;

/// A buffer of the runtime, which peers can map, or of malloc, which they cannot when in other processes.
struct WindowBuffer {
  explicit WindowBuffer(size_t bytes) { EXPECT_NCCL_OK(ncclMemAlloc(&data, bytes)); }
  ~WindowBuffer() { EXPECT_NCCL_OK(ncclMemFree(data)); }
  int* ints() const { return static_cast<int*>(data); }
  void* data = nullptr;
};

TEST(OneSided, PutsArriveBeforeTheirSignals) {
  runRanks(4, [](Rank& rank) {
    constexpr int kCount = 5000;
    constexpr int kRounds = 20;
    WindowBuffer buffer(4 * kCount * sizeof(int));
    ncclWindow_t window = nullptr;
    ASSERT_NCCL_OK(
        ncclCommWindowRegister(rank.comm, buffer.data, 4 * kCount * sizeof(int), &window, NCCL_WIN_DEFAULT));
    void* pointer = nullptr;
    ASSERT_NCCL_OK(ncclWinGetUserPtr(rank.comm, window, &pointer));
    EXPECT_EQ(pointer, buffer.data);
    std::vector<int> mine(kCount);
    for (int round = 0; round < kRounds; ++round) {
      std::fill(mine.begin(), mine.end(), 1000 * round + rank.rank);
      for (int peer = 0; peer < 4; ++peer)
        ASSERT_NCCL_OK(ncclPutSignal(mine.data(), kCount, ncclInt32, peer, window,
                                     static_cast<size_t>(rank.rank) * kCount * sizeof(int), 0, 0, 0,
                                     rank.comm, rank.stream));
      ncclWaitSignalDesc_t waits[4];
      for (int peer = 0; peer < 4; ++peer) waits[peer] = {1, peer, 0, 0};
      ASSERT_NCCL_OK(ncclWaitSignal(4, waits, rank.comm, rank.stream));
      rank.sync();
      for (int peer = 0; peer < 4; ++peer)
        for (int i = 0; i < kCount; ++i)
          ASSERT_EQ(buffer.ints()[peer * kCount + i], 1000 * round + peer)
              << round << ' ' << peer << ' ' << i;
      // Everyone has read before anyone writes again: signals of another number, one to each.
      for (int peer = 0; peer < 4; ++peer) ASSERT_NCCL_OK(ncclSignal(peer, 3, 0, 0, rank.comm, rank.stream));
      for (int peer = 0; peer < 4; ++peer) waits[peer] = {1, peer, 3, 0};
      ASSERT_NCCL_OK(ncclWaitSignal(4, waits, rank.comm, rank.stream));
      rank.sync();
    }
    ASSERT_NCCL_OK(ncclCommWindowDeregister(rank.comm, window));
    EXPECT_EQ(ncclCommWindowDeregister(rank.comm, window), ncclInvalidArgument);
  });
}

TEST(OneSided, AWaitOnOneStreamDoesNotHoldUpAPutOnAnother) {
  std::barrier registered(2);
  runRanks(2, [&](Rank& rank) {
    int value = 7 + rank.rank;
    WindowBuffer buffer(sizeof(int));
    ncclWindow_t window = nullptr;
    ASSERT_NCCL_OK(ncclCommWindowRegister(rank.comm, buffer.data, sizeof(int), &window, NCCL_WIN_DEFAULT));
    cudaStream_t other = nullptr;
    ASSERT_EQ(cudaStreamCreate(&other), cudaSuccess);
    ncclWaitSignalDesc_t wait{1, 1 - rank.rank, 0, 0};
    ASSERT_NCCL_OK(ncclWaitSignal(1, &wait, rank.comm, other));
    registered.arrive_and_wait();
    ASSERT_NCCL_OK(
        ncclPutSignal(&value, 1, ncclInt32, 1 - rank.rank, window, 0, 0, 0, 0, rank.comm, rank.stream));
    ASSERT_EQ(cudaStreamSynchronize(other), cudaSuccess);
    EXPECT_EQ(*buffer.ints(), 8 - rank.rank);
    rank.sync();
    ASSERT_EQ(cudaStreamDestroy(other), cudaSuccess);
    registered.arrive_and_wait();
  });
}

TEST(OneSided, AWaitThatIsHalfMetDoesNotHoldUpTheCaller) {
  runRanks(1, [](Rank& rank) {
    WindowBuffer buffer(64);
    ncclWindow_t window = nullptr;
    ASSERT_NCCL_OK(ncclCommWindowRegister(rank.comm, buffer.data, 64, &window, NCCL_WIN_DEFAULT));
    cudaStream_t other = nullptr;
    ASSERT_EQ(cudaStreamCreate(&other), cudaSuccess);
    ASSERT_NCCL_OK(ncclSignal(0, 0, 0, 0, rank.comm, other));
    ASSERT_EQ(cudaStreamSynchronize(other), cudaSuccess);
    ncclWaitSignalDesc_t twice[] = {{1, 0, 0, 0}, {1, 0, 0, 0}};
    ASSERT_NCCL_OK(ncclWaitSignal(2, twice, rank.comm, rank.stream));
    EXPECT_EQ(cudaStreamQuery(rank.stream), cudaErrorNotReady);
    ASSERT_NCCL_OK(ncclSignal(0, 0, 0, 0, rank.comm, other));
    rank.sync();
    EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
  });
}

TEST(OneSided, WorksInGroupsOfOneThread) {
  OneThread all(3);
  WindowBuffer buffers[3] = {WindowBuffer(12), WindowBuffer(12), WindowBuffer(12)};
  ncclWindow_t windows[3];
  ASSERT_NCCL_OK(ncclGroupStart());
  for (int r = 0; r < 3; ++r)
    ASSERT_NCCL_OK(
        ncclCommWindowRegister(all.comms[r], buffers[r].data, 12, &windows[r], NCCL_WIN_COLL_SYMMETRIC));
  ASSERT_NCCL_OK(ncclGroupEnd());
  int values[3] = {10, 20, 30};
  ASSERT_NCCL_OK(ncclGroupStart());
  for (int r = 0; r < 3; ++r) {
    ncclWaitSignalDesc_t waits[3] = {{1, 0, 0, 0}, {1, 1, 0, 0}, {1, 2, 0, 0}};
    for (int peer = 0; peer < 3; ++peer)
      ASSERT_NCCL_OK(ncclPutSignal(&values[r], 1, ncclInt32, peer, windows[r], static_cast<size_t>(r) * 4, 0,
                                   0, 0, all.comms[r], all.streams[r]));
    ASSERT_NCCL_OK(ncclWaitSignal(3, waits, all.comms[r], all.streams[r]));
  }
  ASSERT_NCCL_OK(ncclGroupEnd());
  all.sync();
  for (const WindowBuffer& buffer : buffers)
    EXPECT_THAT(std::vector<int>(buffer.ints(), buffer.ints() + 3), testing::ElementsAre(10, 20, 30));
}

TEST(OneSided, RefusesWhatCannotBe) {
  runRanks(2, [](Rank& rank) {
    ncclWindow_t window = nullptr;
    int value = 0;
    EXPECT_EQ(ncclCommWindowRegister(rank.comm, nullptr, 8, &window, 0), ncclInvalidArgument);
    EXPECT_EQ(ncclCommWindowRegister(rank.comm, &value, 0, &window, 0), ncclInvalidArgument);
    EXPECT_EQ(ncclCommWindowRegister(rank.comm, &value, 4, nullptr, 0), ncclInvalidArgument);
    EXPECT_EQ(ncclCommWindowRegister(rank.comm, &value, 4, &window, 64), ncclInvalidArgument);
    WindowBuffer buffer(rank.rank == 0 ? 64 : 16);
    ASSERT_NCCL_OK(ncclCommWindowRegister(rank.comm, buffer.data, rank.rank == 0 ? 64 : 16, &window, 0));
    const auto put = [&](size_t count, int peer, ncclWindow_t win, size_t offset, int signal, int ctx,
                         unsigned flags) {
      return ncclPutSignal(&value, count, ncclInt32, peer, win, offset, signal, ctx, flags, rank.comm,
                           rank.stream);
    };
    EXPECT_EQ(put(1, 1, window, 13, 0, 0, 0), ncclInvalidArgument);
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("window of rank 1, which has 16 bytes"));
    EXPECT_EQ(put(SIZE_MAX / 8, 1, window, 8, 0, 0, 0), ncclInvalidArgument);
    EXPECT_EQ(put(1, 2, window, 0, 0, 0, 0), ncclInvalidArgument);
    EXPECT_EQ(put(1, 1, nullptr, 0, 0, 0, 0), ncclInvalidArgument);
    EXPECT_EQ(put(1, 1, window, 0, 99, 0, 0), ncclInvalidArgument);
    EXPECT_EQ(put(1, 1, window, 0, 0, 1, 0), ncclInvalidArgument);
    EXPECT_EQ(put(1, 1, window, 0, 0, 0, 1), ncclInvalidArgument);
    EXPECT_EQ(ncclWaitSignal(1, nullptr, rank.comm, rank.stream), ncclInvalidArgument);
    EXPECT_EQ(ncclSignal(-1, 0, 0, 0, rank.comm, rank.stream), ncclInvalidArgument);
  });
}

TEST(OneSided, AWaitThatNothingEndsIsEndedByAbort) {
  ncclComm_t comms[2];
  ASSERT_NCCL_OK(ncclCommInitAll(comms, 2, nullptr));
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  ncclWaitSignalDesc_t wait{1, 1, 0, 0};
  ASSERT_NCCL_OK(ncclWaitSignal(1, &wait, comms[0], stream));
  EXPECT_NCCL_OK(ncclCommAbort(comms[0]));
  cudaStreamSynchronize(stream);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_NCCL_OK(ncclCommAbort(comms[1]));
}

TEST(Grow, AddsRanksThatComeWithTheId) {
  ncclUniqueId first, grown;
  ASSERT_NCCL_OK(ncclGetUniqueId(&first));
  std::barrier made(4);
  std::vector<std::thread> threads;
  for (int r = 0; r < 4; ++r) {
    threads.emplace_back([&, r] {
      ASSERT_EQ(cudaSetDevice(r), cudaSuccess);
      ncclComm_t old = nullptr;
      if (r < 2) {
        ASSERT_NCCL_OK(ncclCommInitRank(&old, 2, first, r));
      }
      if (r == 1) {
        ASSERT_NCCL_OK(ncclCommGetUniqueId(old, &grown));
      }
      made.arrive_and_wait();
      ncclComm_t comm = nullptr;
      if (r < 2) {
        EXPECT_EQ(ncclCommGrow(old, 2, nullptr, -1, &comm, nullptr), ncclInvalidArgument);
        EXPECT_EQ(ncclCommGrow(old, 4, nullptr, 1 - r, &comm, nullptr), ncclInvalidArgument);
        ASSERT_NCCL_OK(ncclCommGrow(old, 4, r == 1 ? &grown : nullptr, -1, &comm, nullptr));
      } else {
        EXPECT_EQ(ncclCommGrow(nullptr, 4, nullptr, r, &comm, nullptr), ncclInvalidArgument);
        ASSERT_NCCL_OK(ncclCommGrow(nullptr, 4, &grown, r, &comm, nullptr));
      }
      int rank = -1;
      EXPECT_NCCL_OK(ncclCommUserRank(comm, &rank));
      EXPECT_EQ(rank, r);
      int data = r;
      ASSERT_NCCL_OK(ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, comm, nullptr));
      ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
      EXPECT_EQ(data, 6);
      EXPECT_NCCL_OK(ncclCommDestroy(comm));
      if (old != nullptr) {
        EXPECT_NCCL_OK(ncclCommDestroy(old));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tutti::test
