// Ranks as threads of the test process: each with its device, stream and communicator.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "nccl.h"

namespace tutti::test {

#define EXPECT_NCCL_OK(call) EXPECT_EQ(call, ncclSuccess) << ncclGetLastError(nullptr)
#define ASSERT_NCCL_OK(call) ASSERT_EQ(call, ncclSuccess) << ncclGetLastError(nullptr)

/// One rank of a test.
struct Rank {
  int rank = 0;
  int ranks = 1;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  void sync() const { ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess); }
};

/// Runs `body` once for each rank, on a thread of its own, with a fresh communicator that is destroyed
/// afterwards.
inline void runRanks(int ranks, const std::function<void(Rank&)>& body) {
  ncclUniqueId id;
  ASSERT_NCCL_OK(ncclGetUniqueId(&id));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      Rank rank{.rank = r, .ranks = ranks};
      ASSERT_EQ(cudaSetDevice(r % 8), cudaSuccess);
      ASSERT_EQ(cudaStreamCreate(&rank.stream), cudaSuccess);
      ASSERT_NCCL_OK(ncclCommInitRank(&rank.comm, ranks, id, r));
      body(rank);
      EXPECT_NCCL_OK(ncclCommDestroy(rank.comm));
      EXPECT_EQ(cudaStreamDestroy(rank.stream), cudaSuccess);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// One communicator a device, made and used by a single thread: calls for several ranks go into groups.
class OneThread {
 public:
  explicit OneThread(int ranks) : comms(static_cast<size_t>(ranks)), streams(static_cast<size_t>(ranks)) {
    EXPECT_NCCL_OK(ncclCommInitAll(comms.data(), ranks, nullptr));
    for (int r = 0; r < ranks; ++r) {
      EXPECT_EQ(cudaSetDevice(r), cudaSuccess);
      EXPECT_EQ(cudaStreamCreate(&streams[static_cast<size_t>(r)]), cudaSuccess);
    }
  }
  ~OneThread() {
    for (ncclComm_t comm : comms) {
      if (comm == nullptr) continue;
      EXPECT_NCCL_OK(ncclCommDestroy(comm));
    }
    for (cudaStream_t stream : streams) EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

  void sync() const {
    for (cudaStream_t stream : streams) EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  }

  std::vector<ncclComm_t> comms;
  std::vector<cudaStream_t> streams;
};

}  // namespace tutti::test
