// Communicators: made, used wrongly, aborted, ended.
#include <atomic>
#include <chrono>
#include <cstring>

#include "api/ranks.h"
#include "tutti/tutti.h"

namespace tutti::test {
namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

TEST(Library, TellsItsVersionAndItsErrors) {
  int version = 0;
  ASSERT_NCCL_OK(ncclGetVersion(&version));
  EXPECT_EQ(version, NCCL_VERSION_CODE);
  EXPECT_EQ(ncclGetVersion(nullptr), ncclInvalidArgument);
  EXPECT_NE(std::strstr(ncclGetLastError(nullptr), "ncclGetVersion: version is null"), nullptr);
  EXPECT_STREQ(ncclGetErrorString(ncclSuccess), "no error");
}

TEST(Communicator, KnowsItsRankCountAndDevice) {
  runRanks(3, [](Rank& rank) {
    int value = -1;
    ASSERT_NCCL_OK(ncclCommCount(rank.comm, &value));
    EXPECT_EQ(value, 3);
    ASSERT_NCCL_OK(ncclCommUserRank(rank.comm, &value));
    EXPECT_EQ(value, rank.rank);
    ASSERT_NCCL_OK(ncclCommCuDevice(rank.comm, &value));
    EXPECT_EQ(value, rank.rank);
  });
}

TEST(Communicator, InitInAGroupOfOneThreadMakesAllRanks) {
  ncclUniqueId id;
  ASSERT_NCCL_OK(ncclGetUniqueId(&id));
  ncclComm_t comms[4];
  ASSERT_NCCL_OK(ncclGroupStart());
  for (int r = 0; r < 4; ++r) {
    ASSERT_EQ(cudaSetDevice(r), cudaSuccess);
    ASSERT_NCCL_OK(ncclCommInitRank(&comms[r], 4, id, r));
    ncclResult_t state = ncclSuccess;
    ASSERT_NCCL_OK(ncclCommGetAsyncError(comms[r], &state));
    EXPECT_EQ(state, ncclInProgress);
  }
  ASSERT_NCCL_OK(ncclGroupEnd());
  for (ncclComm_t comm : comms) EXPECT_NCCL_OK(ncclCommDestroy(comm));
}

TEST(Communicator, RefusesWrongArguments) {
  ncclUniqueId id;
  ASSERT_NCCL_OK(ncclGetUniqueId(&id));
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRank(&comm, 0, id, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(&comm, 2, id, 2), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(&comm, 2, id, -1), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(nullptr, 1, id, 0), ncclInvalidArgument);
  ncclUniqueId zero{};
  EXPECT_EQ(ncclCommInitRank(&comm, 1, zero, 0), ncclInvalidArgument);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.magic = 1;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument);
  EXPECT_NE(std::strstr(ncclGetLastError(nullptr), "NCCL_CONFIG_INITIALIZER"), nullptr);
  const int twice[] = {1, 1};
  ncclComm_t two[2];
  EXPECT_EQ(ncclCommInitAll(two, 2, twice), ncclInvalidUsage);
  // The id was never used up by the failures.
  ASSERT_NCCL_OK(ncclCommInitRank(&comm, 1, id, 0));
  EXPECT_NCCL_OK(ncclCommDestroy(comm));
}

TEST(Communicator, OfAFailedInitMayBeDestroyedOrAborted) {
  const ncclUniqueId zero{};
  for (const auto end : {ncclCommDestroy, ncclCommAbort}) {
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclCommInitRank(&comm, 1, zero, 0), ncclInvalidArgument);
    ASSERT_NE(comm, nullptr);
    ncclResult_t state = ncclSuccess;
    ASSERT_NCCL_OK(ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclInvalidArgument);
    EXPECT_NCCL_OK(end(comm));
    EXPECT_EQ(end(comm), ncclInvalidArgument);
  }
}

TEST(Communicator, RefusesWrongCalls) {
  runRanks(2, [](Rank& rank) {
    float value = 0;
    EXPECT_EQ(ncclAllReduce(nullptr, &value, 1, ncclFloat32, ncclSum, rank.comm, rank.stream),
              ncclInvalidArgument);
    EXPECT_EQ(
        ncclAllReduce(&value, &value, 1, static_cast<ncclDataType_t>(12), ncclSum, rank.comm, rank.stream),
        ncclInvalidArgument);
    EXPECT_EQ(
        ncclAllReduce(&value, &value, 1, ncclFloat32, static_cast<ncclRedOp_t>(9), rank.comm, rank.stream),
        ncclInvalidArgument);
    EXPECT_EQ(ncclAllReduce(&value, &value, SIZE_MAX / 2, ncclFloat32, ncclSum, rank.comm, rank.stream),
              ncclInvalidArgument);
    EXPECT_EQ(ncclBroadcast(&value, &value, 1, ncclFloat32, 2, rank.comm, rank.stream), ncclInvalidArgument);
    EXPECT_EQ(ncclSend(&value, 1, ncclFloat32, -1, rank.comm, rank.stream), ncclInvalidArgument);
    EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, nullptr, rank.stream),
              ncclInvalidArgument);
    EXPECT_NCCL_OK(ncclAllReduce(nullptr, nullptr, 0, ncclFloat32, ncclSum, rank.comm, rank.stream));
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    alignas(64) static char nothing[4096] = {};
    int count = 0;
    EXPECT_EQ(ncclCommCount(reinterpret_cast<ncclComm_t>(nothing), &count), ncclInvalidArgument);
    EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("is not a communicator"), std::string::npos);
    // Nothing of the above has harmed the communicator.
    value = 1;
    ASSERT_NCCL_OK(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, rank.comm, rank.stream));
    rank.sync();
    EXPECT_EQ(value, 2);
  });
}

TEST(Communicator, IsATombstoneAfterDestroy) {
  ncclComm_t comm = nullptr;
  ncclUniqueId id;
  ASSERT_NCCL_OK(ncclGetUniqueId(&id));
  ASSERT_NCCL_OK(ncclCommInitRank(&comm, 1, id, 0));
  ASSERT_NCCL_OK(ncclCommDestroy(comm));
  int value = 0;
  EXPECT_EQ(ncclCommCount(comm, &value), ncclInvalidArgument);
  EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidArgument);
  EXPECT_EQ(ncclCommAbort(comm), ncclInvalidArgument);
  EXPECT_NCCL_OK(ncclCommDestroy(nullptr));
}

TEST(Communicator, AnErrorInsideAGroupIsReturnedByItsEndAndNothingIsLaunched) {
  runRanks(2, [](Rank& rank) {
    float value = 1;
    ASSERT_NCCL_OK(ncclGroupStart());
    EXPECT_NCCL_OK(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, rank.comm, rank.stream));
    EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, nullptr, rank.stream),
              ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    rank.sync();
    EXPECT_EQ(value, 1);
  });
}

TEST(Communicator, AbortFromAnotherThreadEndsAWaitingCollective) {
  ncclUniqueId id;
  ASSERT_NCCL_OK(ncclGetUniqueId(&id));
  ncclComm_t comms[2];
  ASSERT_NCCL_OK(ncclGroupStart());
  for (int r = 0; r < 2; ++r) {
    ASSERT_EQ(cudaSetDevice(r), cudaSuccess);
    ASSERT_NCCL_OK(ncclCommInitRank(&comms[r], 2, id, r));
  }
  ASSERT_NCCL_OK(ncclGroupEnd());
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  std::vector<float> data(1000, 1);
  ASSERT_NCCL_OK(ncclAllReduce(data.data(), data.data(), 1000, ncclFloat32, ncclSum, comms[1],
                               stream));  // rank 0 never comes
  const auto start = Clock::now();
  std::thread aborter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_NCCL_OK(ncclCommAbort(comms[1]));
  });
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  aborter.join();
  EXPECT_LT(secondsSince(start), 5);
  EXPECT_NCCL_OK(ncclCommAbort(comms[0]));
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST(Communicator, OneGroupWithSeveralStreamsIsOneSynchronisationPoint) {
  runRanks(2, [](Rank& rank) {
    cudaStream_t other = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
    std::vector<float> a(100000, 1);
    std::vector<float> b(100000, 2);
    std::vector<float> copy(100000, 0);
    ASSERT_NCCL_OK(ncclGroupStart());
    ASSERT_NCCL_OK(ncclAllReduce(a.data(), a.data(), a.size(), ncclFloat32, ncclSum, rank.comm, rank.stream));
    ASSERT_NCCL_OK(ncclAllReduce(b.data(), b.data(), b.size(), ncclFloat32, ncclSum, rank.comm, other));
    ASSERT_NCCL_OK(ncclGroupEnd());
    // Enqueued on the second stream, but the group's work on the first one is also done by then.
    ASSERT_EQ(cudaMemcpyAsync(copy.data(), a.data(), a.size() * sizeof(float), cudaMemcpyDefault, other),
              cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(other), cudaSuccess);
    EXPECT_EQ(copy.back(), 2);
    EXPECT_EQ(b.back(), 4);
    rank.sync();
    ASSERT_EQ(cudaStreamDestroy(other), cudaSuccess);
  });
}

TEST(Communicator, CallsOnDifferentStreamsRunInCallOrder) {
  runRanks(2, [](Rank& rank) {
    cudaStream_t other = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
    std::vector<int> data(1000, 1);
    for (int i = 0; i < 20; ++i) {
      ASSERT_NCCL_OK(ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclSum, rank.comm,
                                   i % 2 == 0 ? rank.stream : other));
    }
    rank.sync();
    ASSERT_EQ(cudaStreamSynchronize(other), cudaSuccess);
    EXPECT_EQ(data.front(), 1 << 20);
    ASSERT_EQ(cudaStreamDestroy(other), cudaSuccess);
  });
}

TEST(Communicator, ADestroyedStreamIsRefusedAndHarmsNothing) {
  runRanks(2, [](Rank& rank) {
    cudaStream_t gone = nullptr;
    ASSERT_EQ(cudaStreamCreate(&gone), cudaSuccess);
    ASSERT_EQ(cudaStreamDestroy(gone), cudaSuccess);
    int value = 1;
    EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, rank.comm, gone), ncclInvalidArgument);
    ASSERT_NCCL_OK(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, rank.comm, rank.stream));
    rank.sync();
    EXPECT_EQ(value, 2);
  });
}

TEST(Memory, OfNcclMemAllocIsZeroedAndFreedOnce) {
  void* pointer = nullptr;
  ASSERT_NCCL_OK(ncclMemAlloc(&pointer, 1000));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(pointer) % 4096, 0u);
  EXPECT_EQ(static_cast<char*>(pointer)[999], 0);
  EXPECT_NCCL_OK(ncclMemFree(pointer));
  EXPECT_EQ(ncclMemFree(pointer), ncclInvalidArgument);
  EXPECT_NCCL_OK(ncclMemFree(nullptr));
  int local = 0;
  EXPECT_EQ(ncclMemFree(&local), ncclInvalidArgument);
}

TEST(Memory, RegistrationGivesAHandleThatIsValidOnce) {
  runRanks(1, [](Rank& rank) {
    std::vector<float> data(100);
    void* handle = nullptr;
    ASSERT_NCCL_OK(ncclCommRegister(rank.comm, data.data(), 400, &handle));
    EXPECT_NE(handle, nullptr);
    EXPECT_NCCL_OK(ncclCommDeregister(rank.comm, handle));
    EXPECT_EQ(ncclCommDeregister(rank.comm, handle), ncclInvalidArgument);
    EXPECT_EQ(ncclCommRegister(rank.comm, nullptr, 4, &handle), ncclInvalidArgument);
  });
}

TEST(Extensions, StreamSynchronizeWaitsForEnqueuedWork) {
  runRanks(2, [](Rank& rank) {
    std::vector<int> data(1000000, 1);
    ASSERT_NCCL_OK(
        ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclSum, rank.comm, rank.stream));
    ASSERT_NCCL_OK(tuttiStreamSynchronize(rank.stream));
    EXPECT_EQ(data.back(), 2);
    EXPECT_EQ(tuttiStreamSynchronize(reinterpret_cast<cudaStream_t>(&data)), ncclInvalidArgument);
  });
}

TEST(Group, RanksThatShareADeviceAndAStreamDoNotWaitForEachOther) {
  ncclUniqueId id;
  ASSERT_NCCL_OK(ncclGetUniqueId(&id));
  ncclComm_t comms[3];
  ASSERT_NCCL_OK(ncclGroupStart());
  for (int r = 0; r < 3; ++r) ASSERT_NCCL_OK(ncclCommInitRank(&comms[r], 3, id, r));
  ASSERT_NCCL_OK(ncclGroupEnd());
  constexpr size_t kCount = 200003;  // longer than the calling thread spins
  std::vector<std::vector<int>> data(3, std::vector<int>(kCount, 1));
  for (int call = 0; call < 3; ++call) {
    ASSERT_NCCL_OK(ncclGroupStart());
    for (int r = 0; r < 3; ++r)
      ASSERT_NCCL_OK(
          ncclAllReduce(data[r].data(), data[r].data(), kCount, ncclInt32, ncclSum, comms[r], nullptr));
    ASSERT_NCCL_OK(ncclGroupEnd());
  }
  ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  for (const auto& each : data) EXPECT_EQ(each, std::vector<int>(kCount, 27));
  // And one that waits for ever ends with abort.
  ASSERT_NCCL_OK(ncclGroupStart());
  for (int r = 0; r < 2; ++r)
    ASSERT_NCCL_OK(
        ncclAllReduce(data[r].data(), data[r].data(), kCount, ncclInt32, ncclSum, comms[r], nullptr));
  ASSERT_NCCL_OK(ncclGroupEnd());
  for (ncclComm_t comm : comms) EXPECT_NCCL_OK(ncclCommAbort(comm));
  cudaStreamSynchronize(nullptr);
}

TEST(SimulateEnd, EstimatesAGroupAndLaunchesNothing) {
  runRanks(2, [](Rank& rank) {
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    EXPECT_EQ(ncclGroupSimulateEnd(&info), ncclInvalidUsage);
    std::vector<float> data(1 << 20, 1.0f);
    float times[2] = {0, 0};
    const size_t counts[] = {16, data.size()};
    for (int i = 0; i < 2; ++i) {
      ASSERT_NCCL_OK(ncclGroupStart());
      ASSERT_NCCL_OK(
          ncclAllReduce(data.data(), data.data(), counts[i], ncclFloat32, ncclSum, rank.comm, rank.stream));
      ASSERT_NCCL_OK(ncclGroupSimulateEnd(&info));
      times[i] = info.estimatedTime;
    }
    EXPECT_GT(times[0], 0);
    EXPECT_GT(times[1], 5 * times[0]);
    rank.sync();
    EXPECT_EQ(data[0], 1.0f);
    ASSERT_NCCL_OK(ncclGroupStart());
    info.magic = 1;
    EXPECT_EQ(ncclGroupSimulateEnd(&info), ncclInvalidArgument);
    ASSERT_NCCL_OK(ncclGroupStart());
    ASSERT_NCCL_OK(ncclAllReduce(data.data(), data.data(), 16, ncclFloat32, ncclSum, rank.comm, rank.stream));
    EXPECT_EQ(ncclGroupSimulateEnd(nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage) << "the group has ended";
    ASSERT_NCCL_OK(ncclAllReduce(data.data(), data.data(), 16, ncclFloat32, ncclSum, rank.comm, rank.stream));
    rank.sync();
    EXPECT_EQ(data[0], 2.0f) << "once: what was simulated never runs";
  });
}

}  // namespace
}  // namespace tutti::test
