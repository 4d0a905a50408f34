// Calls that are captured: every launch of the graph runs them again, with the data of that moment.
#include <algorithm>
#include <cstdint>
#include <memory>

#include "api/ranks.h"

namespace tutti::test {
namespace {

constexpr int kLaunches = 5;

/// Device memory of one rank.
class Values {
 public:
  explicit Values(size_t count) : count_(count) {
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(int32_t)), cudaSuccess);
  }
  ~Values() { EXPECT_EQ(cudaFree(data_), cudaSuccess); }
  Values(const Values&) = delete;
  Values& operator=(const Values&) = delete;

  void fill(int32_t value) { std::fill_n(data_, count_, value); }
  bool are(int32_t value) const {
    return std::all_of(data_, data_ + count_, [&](int32_t one) { return one == value; });
  }
  int32_t* data() { return data_; }
  size_t count() const { return count_; }

 private:
  const size_t count_;
  int32_t* data_ = nullptr;
};

class Executable {
 public:
  /// Ends the capture of the stream.
  explicit Executable(cudaStream_t stream) {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&exec_, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }
  ~Executable() { EXPECT_EQ(cudaGraphExecDestroy(exec_), cudaSuccess); }
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;
  cudaError_t launch(cudaStream_t stream) { return cudaGraphLaunch(exec_, stream); }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

void begin(cudaStream_t stream) {
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
}

int32_t sumOfRanks(int ranks, int32_t plus) { return ranks * (ranks - 1) / 2 + ranks * plus; }

TEST(CapturedCalls, RunAtEachLaunchWithTheDataOfThatMoment) {
  // Small (through slots) and large (direct, negotiated at each launch).
  for (const size_t count : {size_t{1}, size_t{1000}, size_t{300000}}) {
    runRanks(3, [&](Rank& rank) {
      Values send(count);
      Values recv(count);
      recv.fill(-1);
      begin(rank.stream);
      ASSERT_NCCL_OK(
          ncclAllReduce(send.data(), recv.data(), count, ncclInt32, ncclSum, rank.comm, rank.stream));
      Executable graph(rank.stream);
      EXPECT_TRUE(recv.are(-1)) << "nothing runs while it is captured";
      for (int launch = 0; launch < kLaunches; ++launch) {
        send.fill(rank.rank + launch);
        ASSERT_EQ(graph.launch(rank.stream), cudaSuccess);
        rank.sync();
        ASSERT_TRUE(recv.are(sumOfRanks(3, launch))) << "launch " << launch << ", count " << count;
      }
    });
  }
}

TEST(CapturedCalls, RunInTheOrderOfLaunchesAndOtherCalls) {
  // value -> sum -> ... on every launch; an ordinary call between, on another stream, takes its turn.
  constexpr int kRanks = 2;
  runRanks(kRanks, [&](Rank& rank) {
    Values value(100);
    Values other(100);
    value.fill(1);
    other.fill(1);
    cudaStream_t second = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking), cudaSuccess);
    begin(rank.stream);
    for (int i = 0; i < 2; ++i) {
      ASSERT_NCCL_OK(
          ncclAllReduce(value.data(), value.data(), 100, ncclInt32, ncclSum, rank.comm, rank.stream));
    }
    Executable graph(rank.stream);
    for (int launch = 0; launch < kLaunches; ++launch) {
      ASSERT_EQ(graph.launch(rank.stream), cudaSuccess);
      ASSERT_NCCL_OK(ncclAllReduce(other.data(), other.data(), 100, ncclInt32, ncclSum, rank.comm, second));
    }
    rank.sync();
    ASSERT_EQ(cudaStreamSynchronize(second), cudaSuccess);
    EXPECT_TRUE(value.are(1 << (2 * kLaunches)));
    EXPECT_TRUE(other.are(1 << kLaunches));
    ASSERT_EQ(cudaStreamDestroy(second), cudaSuccess);
  });
}

TEST(CapturedCalls, GroupsOfDifferentOperationsAreOneNode) {
  constexpr int kRanks = 3;
  runRanks(kRanks, [&](Rank& rank) {
    Values reduced(64);
    Values gathered(64 * kRanks);
    Values sent(8);
    Values received(8);
    const int next = (rank.rank + 1) % kRanks;
    const int previous = (rank.rank + kRanks - 1) % kRanks;
    begin(rank.stream);
    ASSERT_NCCL_OK(ncclGroupStart());
    ASSERT_NCCL_OK(
        ncclAllReduce(reduced.data(), reduced.data(), 64, ncclInt32, ncclSum, rank.comm, rank.stream));
    ASSERT_NCCL_OK(ncclAllGather(sent.data(), gathered.data(), 8, ncclInt32, rank.comm, rank.stream));
    ASSERT_NCCL_OK(ncclSend(sent.data(), 8, ncclInt32, next, rank.comm, rank.stream));
    ASSERT_NCCL_OK(ncclRecv(received.data(), 8, ncclInt32, previous, rank.comm, rank.stream));
    ASSERT_NCCL_OK(ncclGroupEnd());
    Executable graph(rank.stream);
    for (int launch = 0; launch < kLaunches; ++launch) {
      reduced.fill(rank.rank + launch);
      sent.fill(rank.rank + 10 * launch);
      received.fill(-1);
      ASSERT_EQ(graph.launch(rank.stream), cudaSuccess);
      rank.sync();
      ASSERT_TRUE(reduced.are(sumOfRanks(kRanks, launch)));
      ASSERT_TRUE(received.are(previous + 10 * launch));
      for (int r = 0; r < kRanks; ++r) ASSERT_EQ(gathered.data()[8 * r + 7], r + 10 * launch);
    }
  });
}

TEST(CapturedCalls, OneThreadCapturesAllItsRanks) {
  // A graph for each rank's stream, as nccl-tests -G has it.
  OneThread group(3);
  std::vector<std::unique_ptr<Values>> values;
  for (int r = 0; r < 3; ++r) {
    values.push_back(std::make_unique<Values>(5000));
    values.back()->fill(1);
  }
  for (cudaStream_t stream : group.streams) begin(stream);
  for (int call = 0; call < 2; ++call) {
    ASSERT_NCCL_OK(ncclGroupStart());
    for (size_t r = 0; r < 3; ++r)
      ASSERT_NCCL_OK(ncclAllReduce(values[r]->data(), values[r]->data(), 5000, ncclInt32, ncclSum,
                                   group.comms[r], group.streams[r]));
    ASSERT_NCCL_OK(ncclGroupEnd());
  }
  std::vector<std::unique_ptr<Executable>> graphs;
  for (cudaStream_t stream : group.streams) graphs.push_back(std::make_unique<Executable>(stream));
  for (int launch = 0; launch < kLaunches; ++launch)
    for (size_t r = 0; r < 3; ++r) ASSERT_EQ(graphs[r]->launch(group.streams[r]), cudaSuccess);
  group.sync();
  for (const auto& one : values) EXPECT_TRUE(one->are(59049)) << "3^10";
}

TEST(CapturedCalls, RanksMayBeBranchesOfOneGraph) {
  // Each rank's call waits for the other's: branches must run side by side.
  OneThread group(2);
  Values a(5000);
  Values b(5000);
  a.fill(1);
  b.fill(2);
  cudaEvent_t fork = nullptr;
  cudaEvent_t join = nullptr;
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&join, cudaEventDisableTiming), cudaSuccess);
  begin(group.streams[0]);
  ASSERT_EQ(cudaEventRecord(fork, group.streams[0]), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(group.streams[1], fork), cudaSuccess);
  ASSERT_NCCL_OK(ncclGroupStart());
  ASSERT_NCCL_OK(
      ncclAllReduce(a.data(), a.data(), 5000, ncclInt32, ncclSum, group.comms[0], group.streams[0]));
  ASSERT_NCCL_OK(
      ncclAllReduce(b.data(), b.data(), 5000, ncclInt32, ncclSum, group.comms[1], group.streams[1]));
  ASSERT_NCCL_OK(ncclGroupEnd());
  ASSERT_EQ(cudaEventRecord(join, group.streams[1]), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(group.streams[0], join), cudaSuccess);
  Executable graph(group.streams[0]);
  for (int launch = 0; launch < 3; ++launch) ASSERT_EQ(graph.launch(group.streams[0]), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(group.streams[0]), cudaSuccess);
  EXPECT_TRUE(a.are(12));
  EXPECT_TRUE(b.are(12));
  EXPECT_EQ(cudaEventDestroy(fork), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(join), cudaSuccess);
}

TEST(CapturedCalls, OfRanksThatShareAStreamDoNotWaitForEachOther) {
  constexpr int kRanks = 3;
  constexpr size_t kCount = 300000;
  OneThread ranks(kRanks);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  const cudaStream_t stream = ranks.streams[0];
  std::vector<std::unique_ptr<Values>> data;
  for (int r = 0; r < kRanks; ++r) data.push_back(std::make_unique<Values>(kCount));
  begin(stream);
  ASSERT_NCCL_OK(ncclGroupStart());
  for (int r = 0; r < kRanks; ++r) {
    const auto i = static_cast<size_t>(r);
    ASSERT_NCCL_OK(
        ncclAllReduce(data[i]->data(), data[i]->data(), kCount, ncclInt32, ncclSum, ranks.comms[i], stream));
  }
  ASSERT_NCCL_OK(ncclGroupEnd());
  Executable graph(stream);
  for (int launch = 0; launch < kLaunches; ++launch) {
    for (int r = 0; r < kRanks; ++r) data[static_cast<size_t>(r)]->fill(r + launch);
    ASSERT_EQ(graph.launch(stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    for (const auto& one : data) EXPECT_TRUE(one->are(sumOfRanks(kRanks, launch)));
  }
}

TEST(CapturedCalls, AGroupIsCapturedWhollyOrNotAtAll) {
  runRanks(1, [&](Rank& rank) {
    Values value(10);
    value.fill(3);
    cudaStream_t second = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking), cudaSuccess);
    begin(rank.stream);
    ASSERT_NCCL_OK(ncclGroupStart());
    ASSERT_NCCL_OK(ncclAllReduce(value.data(), value.data(), 10, ncclInt32, ncclSum, rank.comm, rank.stream));
    ASSERT_NCCL_OK(ncclAllReduce(value.data(), value.data(), 10, ncclInt32, ncclSum, rank.comm, second));
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("captured into the same graph"), std::string::npos);
    // The default stream waits for blocking streams, so it cannot be used now.
    EXPECT_EQ(ncclAllReduce(value.data(), value.data(), 10, ncclInt32, ncclSum, rank.comm, nullptr),
              ncclInvalidUsage);
    EXPECT_EQ(ncclAllReduce(value.data(), value.data(), 10, ncclInt32, ncclSum, rank.comm, rank.stream),
              ncclInvalidUsage)
        << "that invalidated the capture";
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(rank.stream, &graph), cudaErrorStreamCaptureInvalidated);
    ASSERT_NCCL_OK(ncclAllReduce(value.data(), value.data(), 10, ncclInt32, ncclSum, rank.comm, rank.stream));
    rank.sync();
    EXPECT_TRUE(value.are(3)) << "the communicator is as good as before";
    ASSERT_EQ(cudaStreamDestroy(second), cudaSuccess);
  });
}

TEST(CapturedCalls, LaunchesFailOnceTheCommunicatorIsGone) {
  cudaStream_t stream = nullptr;
  Values value(10);
  value.fill(3);
  ncclComm_t comm = nullptr;
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_NCCL_OK(ncclCommInitAll(&comm, 1, nullptr));
  begin(stream);
  ASSERT_NCCL_OK(ncclAllReduce(value.data(), value.data(), 10, ncclInt32, ncclSum, comm, stream));
  Executable graph(stream);
  ASSERT_EQ(graph.launch(stream), cudaSuccess);
  ASSERT_NCCL_OK(ncclCommDestroy(comm));
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess) << "what was launched has ended";
  EXPECT_EQ(graph.launch(stream), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

}  // namespace
}  // namespace tutti::test
