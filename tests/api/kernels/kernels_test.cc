// Calls that kernels on virtual GPUs run (TUTTI_HOST_KERNELS=1): what the rest of the API's tests do not ask.
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "api/buffer.h"
#include "api/oracle.h"
#include "api/ranks.h"
#include "tutti/tutti.h"

namespace tutti::test {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

std::byte* at(Buffer& buffer, size_t bytes) { return buffer.data() + bytes; }

/// AllReduce (sum) of `count` ints that only the right answer passes.
void expectAllReduce(Rank& self, size_t count, int salt) {
  Buffer input(count * 4, true), output(count * 4, true);
  auto* in = reinterpret_cast<int32_t*>(input.data());
  auto* out = reinterpret_cast<int32_t*>(output.data());
  for (size_t i = 0; i < count; ++i) in[i] = static_cast<int32_t>(i) * (self.rank + 1) + salt;
  ASSERT_NCCL_OK(ncclAllReduce(in, out, count, ncclInt32, ncclSum, self.comm, self.stream));
  self.sync();
  const int32_t factor = self.ranks * (self.ranks + 1) / 2;
  size_t wrong = 0;
  for (size_t i = 0; i < count; ++i) wrong += out[i] != static_cast<int32_t>(i) * factor + salt * self.ranks;
  EXPECT_EQ(wrong, 0u) << count << " elements";
  EXPECT_EQ(*at(output, count * 4), std::byte{0xee});
}

TEST(Kernels, RunEveryAlgorithmByTheProtocolsThatItHas) {
  for (const int ranks : {2, 3, 8}) {
    runRanks(ranks, [](Rank& self) {
      for (const char* algorithm :
           {"ring", "tree", "doubling", "rabenseifner", "circulant", "oneshot", "twoshot", "direct"}) {
        for (const char* protocol : {"simple", "ll", "ll128"}) {
          ASSERT_NCCL_OK(tuttiCommSetAlgo(self.comm, algorithm, protocol, 0));
          tuttiPlan_t plan = TUTTI_PLAN_INITIALIZER;
          const bool sendsMessages =
              std::string(algorithm).find("shot") == std::string::npos && std::string(algorithm) != "direct";
          if (!sendsMessages && std::string(protocol) != "simple") {
            EXPECT_EQ(tuttiCommQueryPlan(self.comm, "allreduce", 777, ncclInt32, 1, &plan), ncclInvalidUsage);
            continue;
          }
          for (const size_t count : {1, 777, 20001}) expectAllReduce(self, count, 3);
          ASSERT_NCCL_OK(tuttiCommLastPlan(self.comm, &plan));
          EXPECT_STREQ(plan.algorithm, algorithm);
          EXPECT_STREQ(plan.protocol, protocol);
        }
      }
    });
  }
}

TEST(Kernels, RanksWhoseCallsDoNotMatchAreToldAtOnce) {
  std::atomic<int> told{0};
  runRanks(2, [&](Rank& self) {
    Buffer data(4096, true);
    const size_t count = self.rank == 0 ? 10 : 20;
    const ncclResult_t result =
        ncclAllReduce(data.data(), data.data(), count, ncclInt32, ncclSum, self.comm, self.stream);
    cudaStreamSynchronize(self.stream);
    ncclResult_t async = ncclSuccess;
    for (const auto end = Clock::now() + std::chrono::seconds(10);
         async == ncclSuccess && Clock::now() < end;)
      ASSERT_NCCL_OK(ncclCommGetAsyncError(self.comm, &async));
    EXPECT_EQ(async, result == ncclSuccess ? ncclRemoteError : ncclInvalidUsage);
    if (result == ncclSuccess) return;
    EXPECT_EQ(result, ncclInvalidUsage);
    EXPECT_THAT(
        ncclGetLastError(nullptr),
        testing::AllOf(HasSubstr("do not match"), HasSubstr("AllReduce of 10 x"), HasSubstr("of 20 x")));
    ++told;
  });
  EXPECT_EQ(told, 1);
}

TEST(Kernels, AbortEndsKernelsThatWaitWithinASecondAndDevicesWorkOn) {
  ncclUniqueId id;
  ASSERT_NCCL_OK(ncclGetUniqueId(&id));
  std::barrier seen(2);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      Rank self{.rank = r, .ranks = 2};
      ASSERT_EQ(cudaSetDevice(r), cudaSuccess);
      ASSERT_EQ(cudaStreamCreate(&self.stream), cudaSuccess);
      ASSERT_NCCL_OK(ncclCommInitRank(&self.comm, 2, id, r));
      Buffer data(1 << 20, true);
      if (r == 0) {
        ASSERT_NCCL_OK(
            ncclAllReduce(data.data(), data.data(), 1 << 18, ncclFloat32, ncclSum, self.comm, self.stream));
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        EXPECT_EQ(cudaStreamQuery(self.stream), cudaErrorNotReady);
      }
      seen.arrive_and_wait();  // a rank that aborts ends the others
      const auto begin = Clock::now();
      EXPECT_NCCL_OK(ncclCommAbort(self.comm));
      self.sync();
      EXPECT_LT(Clock::now() - begin, std::chrono::seconds(1));
      EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      EXPECT_EQ(cudaStreamDestroy(self.stream), cudaSuccess);
    });
  for (std::thread& thread : threads) thread.join();
  runRanks(2, [](Rank& self) { expectAllReduce(self, 1000, 1); });
}

TEST(Kernels, ThatBeginAfterAnAbortTouchNothingOfTheUsers) {
  OneThread job(2);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  std::atomic<bool> mayGoOn{false};
  ASSERT_EQ(cudaLaunchHostFunc(
                job.streams[0],
                [](void* flag) {
                  while (!*static_cast<std::atomic<bool>*>(flag)) std::this_thread::yield();
                },
                &mayGoOn),
            cudaSuccess);
  constexpr size_t kBytes = 1 << 16;
  void* memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  ASSERT_NCCL_OK(ncclAllReduce(memory, memory, kBytes / 4, ncclInt32, ncclSum, job.comms[0], job.streams[0]));
  for (ncclComm_t& comm : job.comms) {
    EXPECT_NCCL_OK(ncclCommAbort(comm));
    comm = nullptr;
  }
  ASSERT_EQ(::munmap(memory, kBytes), 0);
  mayGoOn = true;
  job.sync();
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST(Kernels, AlltoallWorksInPeersBuffersThatAreSymmetricWindows) {
  runRanks(4, [](Rank& self) {
    constexpr size_t kCount = 1000;
    ncclWindow_t windows[2];
    int32_t* buffers[2];
    for (int i = 0; i < 2; ++i) {
      ASSERT_NCCL_OK(ncclMemAlloc(reinterpret_cast<void**>(&buffers[i]), 4 * kCount * 4));
      ASSERT_NCCL_OK(ncclCommWindowRegister(self.comm, buffers[i], 4 * kCount * 4, &windows[i],
                                            NCCL_WIN_COLL_SYMMETRIC));
    }
    ASSERT_NCCL_OK(tuttiCommSetAlgo(self.comm, "alltoall:direct", nullptr, 0));
    for (size_t i = 0; i < 4 * kCount; ++i) buffers[0][i] = static_cast<int32_t>(i) + 100000 * self.rank;
    ASSERT_NCCL_OK(ncclAlltoAll(buffers[0], buffers[1], kCount, ncclInt32, self.comm, self.stream));
    self.sync();
    size_t wrong = 0;
    for (size_t i = 0; i < 4 * kCount; ++i)
      wrong += buffers[1][i] != static_cast<int32_t>(self.rank * kCount + i % kCount + 100000 * (i / kCount));
    EXPECT_EQ(wrong, 0u);
    Buffer elsewhere(4 * kCount * 4, true);
    EXPECT_EQ(ncclAlltoAll(buffers[0], elsewhere.data(), kCount, ncclInt32, self.comm, self.stream),
              ncclInvalidUsage);
    for (int i = 0; i < 2; ++i) {
      EXPECT_NCCL_OK(ncclCommWindowDeregister(self.comm, windows[i]));
      EXPECT_NCCL_OK(ncclMemFree(buffers[i]));
    }
  });
}

TEST(Kernels, AreCapturedAndReplayed) {
  runRanks(3, [](Rank& self) {
    constexpr size_t kCount = 5000;
    Buffer input(kCount * 4, true), output(kCount * 4, true);
    auto* in = reinterpret_cast<int32_t*>(input.data());
    auto* out = reinterpret_cast<int32_t*>(output.data());
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(self.stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    ASSERT_NCCL_OK(ncclAllReduce(in, out, kCount, ncclInt32, ncclSum, self.comm, self.stream));
    ASSERT_NCCL_OK(ncclAllReduce(out, out, kCount, ncclInt32, ncclMax, self.comm, self.stream));
    ASSERT_EQ(cudaStreamEndCapture(self.stream, &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    for (int round = 1; round <= 4; ++round) {
      for (size_t i = 0; i < kCount; ++i) in[i] = round * (self.rank + 1) + static_cast<int32_t>(i);
      ASSERT_EQ(cudaGraphLaunch(exec, self.stream), cudaSuccess);
      self.sync();
      size_t wrong = 0;
      for (size_t i = 0; i < kCount; ++i) wrong += out[i] != round * 6 + 3 * static_cast<int32_t>(i);
      EXPECT_EQ(wrong, 0u) << round;
      expectAllReduce(self, 100, round);  // calls between launches
    }
    EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  });
}

TEST(Kernels, GraphsAreNoCallsUntilTheyAreLaunched) {
  runRanks(2, [](Rank& self) {
    Buffer data(400, true);
    auto* values = reinterpret_cast<int32_t*>(data.data());
    cudaGraph_t graphs[2] = {};
    cudaGraphExec_t execs[2] = {};
    for (int i = 0; i < 2; ++i) {  // captured in different orders; the rank 1 captures one more, for nothing
      const bool isSum = (i + self.rank) % 2 == 0;
      for (int time = 0; time < 1 + self.rank; ++time) {
        ASSERT_EQ(cudaStreamBeginCapture(self.stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
        ASSERT_NCCL_OK(
            ncclAllReduce(values, values, 100, ncclInt32, isSum ? ncclSum : ncclMax, self.comm, self.stream));
        if (graphs[isSum ? 0 : 1] != nullptr) cudaGraphDestroy(graphs[isSum ? 0 : 1]);
        ASSERT_EQ(cudaStreamEndCapture(self.stream, &graphs[isSum ? 0 : 1]), cudaSuccess);
      }
    }
    for (int i = 0; i < 2; ++i) ASSERT_EQ(cudaGraphInstantiate(&execs[i], graphs[i], 0), cudaSuccess);
    std::fill_n(values, 100, self.rank + 1);
    for (const int i : {0, 1, 0}) ASSERT_EQ(cudaGraphLaunch(execs[i], self.stream), cudaSuccess);
    self.sync();
    EXPECT_EQ(std::count(values, values + 100, 6), 100);
    expectAllReduce(self, 50, 1);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(cudaGraphExecDestroy(execs[i]), cudaSuccess);
      EXPECT_EQ(cudaGraphDestroy(graphs[i]), cudaSuccess);
    }
  });
}

TEST(Kernels, ARankMayReplayWhatAnotherCalls) {
  runRanks(2, [](Rank& self) {
    Buffer data(400, true);
    auto* values = reinterpret_cast<int32_t*>(data.data());
    std::fill_n(values, 100, 1);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    const auto sum = [&] {
      ASSERT_NCCL_OK(ncclAllReduce(values, values, 100, ncclInt32, ncclSum, self.comm, self.stream));
    };
    if (self.rank == 0) {
      ASSERT_EQ(cudaStreamBeginCapture(self.stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
      sum();
      ASSERT_EQ(cudaStreamEndCapture(self.stream, &graph), cudaSuccess);
      ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    }
    for (int time = 0; time < 2; ++time) {
      if (self.rank == 0) {
        ASSERT_EQ(cudaGraphLaunch(exec, self.stream), cudaSuccess);
      } else {
        sum();
      }
    }
    ASSERT_NCCL_OK(ncclAllReduce(values, values, 100, ncclInt32, ncclMax, self.comm, self.stream));
    self.sync();
    EXPECT_EQ(std::count(values, values + 100, 4), 100);
    if (self.rank != 0) return;
    EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  });
}

TEST(Kernels, RanksMayNameCommunicatorsOfAGroupInDifferentOrders) {
  ncclUniqueId ids[2];
  for (ncclUniqueId& id : ids) ASSERT_NCCL_OK(ncclGetUniqueId(&id));
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      ASSERT_EQ(cudaSetDevice(r), cudaSuccess);
      ncclComm_t comms[2];
      for (int i = 0; i < 2; ++i) ASSERT_NCCL_OK(ncclCommInitRank(&comms[i], 2, ids[i], r));
      cudaStream_t stream = nullptr;
      ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
      Buffer a(400, true), b(400, true);
      Buffer* buffers[2] = {&a, &b};
      for (Buffer* buffer : buffers) std::fill_n(reinterpret_cast<int32_t*>(buffer->data()), 100, r + 1);
      ASSERT_NCCL_OK(ncclGroupStart());
      for (int i = 0; i < 2; ++i) {
        const int which = (i + r) % 2;
        std::byte* data = buffers[which]->data();
        ASSERT_NCCL_OK(ncclAllReduce(data, data, 100, ncclInt32, ncclSum, comms[which], stream));
      }
      ASSERT_NCCL_OK(ncclGroupEnd());
      ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      for (Buffer* buffer : buffers) {
        const auto* values = reinterpret_cast<int32_t*>(buffer->data());
        EXPECT_EQ(std::count(values, values + 100, 3), 100);
      }
      for (ncclComm_t comm : comms) EXPECT_NCCL_OK(ncclCommDestroy(comm));
      EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(Kernels, AMessageOfTheWrongSizeIsToldEvenIfNobodyAsks) {
  ncclUniqueId id;
  ASSERT_NCCL_OK(ncclGetUniqueId(&id));
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      Rank self{.rank = r, .ranks = 2};
      ASSERT_EQ(cudaSetDevice(r), cudaSuccess);
      ASSERT_EQ(cudaStreamCreate(&self.stream), cudaSuccess);
      ASSERT_NCCL_OK(ncclCommInitRank(&self.comm, 2, id, r));
      Buffer data(400, true);
      if (r == 0) {
        ASSERT_NCCL_OK(ncclSend(data.data(), 400, ncclInt8, 1, self.comm, self.stream));
      } else {
        ASSERT_NCCL_OK(ncclRecv(data.data(), 200, ncclInt8, 0, self.comm, self.stream));
      }
      self.sync();
      if (r == 1) {
        EXPECT_THAT(ncclCommDestroy(self.comm), AnyOf(ncclInvalidUsage, ncclSuccess));  // it may be known
      } else {
        ncclResult_t async = ncclSuccess;
        for (const auto end = Clock::now() + std::chrono::seconds(10);
             async == ncclSuccess && Clock::now() < end;)
          ASSERT_NCCL_OK(ncclCommGetAsyncError(self.comm, &async));
        EXPECT_EQ(async, ncclRemoteError);
        EXPECT_THAT(ncclGetLastError(self.comm), HasSubstr("rank 0 sent 400 bytes where 200 were expected"));
        EXPECT_NCCL_OK(ncclCommAbort(self.comm));
      }
      EXPECT_EQ(cudaStreamDestroy(self.stream), cudaSuccess);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(Kernels, AGroupOnSeveralStreamsIsDoneOnAllOfThem) {
  runRanks(2, [](Rank& self) {
    cudaStream_t second = nullptr;
    ASSERT_EQ(cudaStreamCreate(&second), cudaSuccess);
    constexpr size_t kCount = 4000;
    Buffer a(kCount * 4, true), b(kCount * 4, true);
    for (int round = 0; round < 20; ++round) {
      auto* x = reinterpret_cast<int32_t*>(a.data());
      auto* y = reinterpret_cast<int32_t*>(b.data());
      std::fill_n(x, kCount, round);
      std::fill_n(y, kCount, 10 * round);
      ASSERT_NCCL_OK(ncclGroupStart());
      ASSERT_NCCL_OK(ncclAllReduce(x, x, kCount, ncclInt32, ncclSum, self.comm, self.stream));
      ASSERT_NCCL_OK(ncclAllReduce(y, y, kCount, ncclInt32, ncclSum, self.comm, second));
      ASSERT_NCCL_OK(ncclGroupEnd());
      ASSERT_EQ(cudaStreamSynchronize(second), cudaSuccess);
      EXPECT_EQ(std::count(y, y + kCount, 20 * round), kCount);
      self.sync();
      EXPECT_EQ(std::count(x, x + kCount, 2 * round), kCount);
    }
    EXPECT_EQ(cudaStreamDestroy(second), cudaSuccess);
  });
}

TEST(Kernels, AStreamOfAnotherDeviceIsRefused) {
  OneThread job(2);
  Buffer data(64, true);
  EXPECT_EQ(ncclAllReduce(data.data(), data.data(), 1, ncclInt32, ncclSum, job.comms[0], job.streams[1]),
            ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("is of device 1"));
}

TEST(Kernels, RanksOfACommunicatorMustNotShareAStream) {
  ncclUniqueId id;
  ASSERT_NCCL_OK(ncclGetUniqueId(&id));
  ncclComm_t comms[2];
  ASSERT_NCCL_OK(ncclGroupStart());
  for (int r = 0; r < 2; ++r) ASSERT_NCCL_OK(ncclCommInitRank(&comms[r], 2, id, r));
  ASSERT_NCCL_OK(ncclGroupEnd());
  Buffer data(64, true);
  ASSERT_NCCL_OK(ncclGroupStart());
  for (const ncclComm_t comm : comms)
    ASSERT_NCCL_OK(ncclAllReduce(data.data(), data.data(), 1, ncclInt32, ncclSum, comm, nullptr));
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("were given the same stream"));
  for (const ncclComm_t comm : comms) EXPECT_NCCL_OK(ncclCommDestroy(comm));
}

TEST(Kernels, OneThreadCallsForAllRanks) {
  OneThread job(8);
  constexpr size_t kCount = 3001;
  std::vector<std::unique_ptr<Buffer>> data;
  for (int r = 0; r < 8; ++r) {
    data.push_back(std::make_unique<Buffer>(kCount * 4, true));
    std::fill_n(reinterpret_cast<int32_t*>(data.back()->data()), kCount, r);
  }
  ASSERT_NCCL_OK(ncclGroupStart());
  for (size_t r = 0; r < 8; ++r)
    ASSERT_NCCL_OK(ncclAllReduce(data[r]->data(), data[r]->data(), kCount, ncclInt32, ncclSum, job.comms[r],
                                 job.streams[r]));
  ASSERT_NCCL_OK(ncclGroupEnd());
  job.sync();
  for (size_t r = 0; r < 8; ++r) {
    const auto* values = reinterpret_cast<const int32_t*>(data[r]->data());
    EXPECT_EQ(std::count(values, values + kCount, 28), kCount);
  }
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  setenv("TUTTI_HOST_KERNELS", "1", 1);
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
