#include <vector>

#include "hostrt/support.h"

class Events : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_CUDA(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    ASSERT_CUDA(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    ASSERT_CUDA(cudaEventCreate(&start));
    ASSERT_CUDA(cudaEventCreate(&stop));
    ASSERT_CUDA(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
  }
  void TearDown() override {
    for (cudaStream_t stream : {a, b}) EXPECT_CUDA(cudaStreamDestroy(stream));
    for (cudaEvent_t event : {start, stop, untimed}) EXPECT_CUDA(cudaEventDestroy(event));
    cudaGetLastError();
  }
  cudaStream_t a = nullptr;
  cudaStream_t b = nullptr;
  cudaEvent_t start = nullptr;
  cudaEvent_t stop = nullptr;
  cudaEvent_t untimed = nullptr;
};

TEST_F(Events, ThatWereNeverRecordedAreReached) {
  EXPECT_CUDA(cudaEventQuery(start));
  EXPECT_CUDA(cudaEventSynchronize(start));
  EXPECT_CUDA(cudaStreamWaitEvent(a, start));
  EXPECT_CUDA(cudaStreamQuery(a));
  float ms = 0;
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, stop), cudaErrorInvalidResourceHandle);
}

TEST_F(Events, AreReachedWithTheWorkBeforeThem) {
  for (cudaEvent_t event : {start, untimed}) {
    Gate gate;
    block(a, gate);
    ASSERT_CUDA(cudaEventRecord(event, a));
    EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
    std::thread opener([&] {
      settle();
      gate.open();
    });
    ASSERT_CUDA(cudaEventSynchronize(event));
    EXPECT_CUDA(cudaEventQuery(event));
    opener.join();
  }
}

TEST_F(Events, MeasureTheTimeWhenTheStreamGetsThere) {
  ASSERT_CUDA(cudaEventRecord(start, a));
  ASSERT_CUDA(cudaLaunchHostFunc(
      a, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(40)); }, nullptr));
  ASSERT_CUDA(cudaEventRecord(stop, a));
  float ms = -1;
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, stop), cudaErrorNotReady);
  ASSERT_CUDA(cudaEventSynchronize(stop));
  ASSERT_CUDA(cudaEventElapsedTime(&ms, start, stop));
  EXPECT_GE(ms, 39.9f);
  EXPECT_LT(ms, 1000.0f);
  float back = 0;
  ASSERT_CUDA(cudaEventElapsedTime(&back, stop, start));
  EXPECT_FLOAT_EQ(back, -ms);
  ASSERT_CUDA(cudaEventRecord(untimed, a));
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, untimed), cudaErrorInvalidResourceHandle);
}

TEST_F(Events, ARecordThatWasOvertakenDoesNotSetTheTime) {
  Gate gate;
  block(a, gate);
  ASSERT_CUDA(cudaEventRecord(start, a));  // held up
  ASSERT_CUDA(cudaEventRecord(start, b));  // the record that counts
  ASSERT_CUDA(cudaEventRecord(stop, b));
  settle();
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(a));
  float ms = -1;
  ASSERT_CUDA(cudaEventElapsedTime(&ms, start, stop));
  EXPECT_GE(ms, 0.0f);
}

TEST_F(Events, OrderStreams) {
  static std::atomic<int> order;
  order = 0;
  for (cudaEvent_t event : {start, untimed}) {
    order = 0;
    Gate gate;
    block(a, gate);
    ASSERT_CUDA(cudaLaunchHostFunc(
        a,
        [](void*) {
          int expected = 0;
          order.compare_exchange_strong(expected, 1);
        },
        nullptr));
    ASSERT_CUDA(cudaEventRecord(event, a));
    ASSERT_CUDA(cudaStreamWaitEvent(b, event));
    ASSERT_CUDA(cudaLaunchHostFunc(
        b,
        [](void*) {
          int expected = 1;
          order.compare_exchange_strong(expected, 2);
        },
        nullptr));
    settle();
    EXPECT_EQ(order, 0);
    EXPECT_EQ(cudaStreamQuery(b), cudaErrorNotReady);
    gate.open();
    ASSERT_CUDA(cudaStreamSynchronize(b));
    EXPECT_EQ(order, 2);
  }
}

TEST_F(Events, AWaitMeansTheRecordBeforeItAlsoWhenRecordedAgain) {
  Gate first;
  Gate second;
  block(a, first);
  ASSERT_CUDA(cudaEventRecord(untimed, a));
  ASSERT_CUDA(cudaStreamWaitEvent(b, untimed));  // for the first record
  cudaStream_t c;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&c, cudaStreamNonBlocking));
  ASSERT_CUDA(cudaEventRecord(untimed, c));  // on an idle stream: reached at once
  EXPECT_CUDA(cudaEventQuery(untimed));
  settle();
  EXPECT_EQ(cudaStreamQuery(b), cudaErrorNotReady);
  block(a, second);
  ASSERT_CUDA(cudaEventRecord(untimed, a));  // and a later record does not hold b up
  first.open();
  ASSERT_CUDA(cudaStreamSynchronize(b));
  EXPECT_EQ(cudaEventQuery(untimed), cudaErrorNotReady);
  second.open();
  ASSERT_CUDA(cudaStreamSynchronize(a));
  ASSERT_CUDA(cudaStreamDestroy(c));
}

TEST_F(Events, MayBeDestroyedWhilePending) {
  Gate gate;
  block(a, gate);
  cudaEvent_t event;
  ASSERT_CUDA(cudaEventCreate(&event));
  ASSERT_CUDA(cudaEventRecord(event, a));
  ASSERT_CUDA(cudaStreamWaitEvent(b, event));
  ASSERT_CUDA(cudaEventDestroy(event));
  EXPECT_EQ(cudaEventQuery(event), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventDestroy(event), cudaErrorInvalidResourceHandle);
  // The next one takes its place, and the old record does not set its time.
  cudaEvent_t next;
  ASSERT_CUDA(cudaEventCreate(&next));
  EXPECT_NE(next, event);
  EXPECT_CUDA(cudaEventQuery(next));
  EXPECT_EQ(cudaStreamQuery(b), cudaErrorNotReady);
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(b));
  ASSERT_CUDA(cudaEventDestroy(next));
}

TEST_F(Events, BelongToADevice) {
  ASSERT_CUDA(cudaSetDevice(1));
  EXPECT_EQ(cudaEventRecord(start, nullptr), cudaErrorInvalidResourceHandle);
  cudaStream_t there;
  ASSERT_CUDA(cudaStreamCreate(&there));
  EXPECT_EQ(cudaEventRecord(start, there), cudaErrorInvalidResourceHandle);
  EXPECT_CUDA(cudaEventRecord(start, a));
  EXPECT_CUDA(cudaStreamWaitEvent(there, start));  // waiting across devices is what events are for
  ASSERT_CUDA(cudaStreamDestroy(there));
  ASSERT_CUDA(cudaSetDevice(0));
}

TEST_F(Events, OnABlockingStreamComeAfterLegacyWork) {
  cudaStream_t blocking;
  ASSERT_CUDA(cudaStreamCreate(&blocking));
  for (cudaEvent_t event : {start, untimed}) {
    Gate gate;
    block(cudaStreamLegacy, gate);
    ASSERT_CUDA(cudaEventRecord(event, blocking));
    EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
    gate.open();
    ASSERT_CUDA(cudaEventSynchronize(event));
  }
  ASSERT_CUDA(cudaStreamDestroy(blocking));
}

TEST_F(Events, FlagsAreChecked) {
  cudaEvent_t event;
  EXPECT_EQ(cudaEventCreateWithFlags(&event, 0x100), cudaErrorInvalidValue);
  EXPECT_EQ(cudaEventCreateWithFlags(&event, cudaEventInterprocess), cudaErrorInvalidValue);
  EXPECT_EQ(cudaEventCreate(static_cast<cudaEvent_t*>(nullptr)), cudaErrorInvalidValue);
  EXPECT_EQ(cudaEventQuery(reinterpret_cast<cudaEvent_t>(0x77)), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecordWithFlags(start, a, 8), cudaErrorInvalidValue);
}

TEST_F(Events, RecordedFromManyThreadsStayConsistent) {
  std::vector<std::thread> all;
  for (int t = 0; t < 4; ++t) {
    all.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        ASSERT_CUDA(cudaEventRecord(start, a));
        ASSERT_CUDA(cudaStreamWaitEvent(b, start));
        ASSERT_CUDA(cudaEventRecord(stop, b));
        if (i % 16 == 0) {
          ASSERT_CUDA(cudaEventSynchronize(stop));
        }
      }
    });
  }
  for (std::thread& thread : all) thread.join();
  ASSERT_CUDA(cudaStreamSynchronize(b));
  EXPECT_CUDA(cudaEventQuery(start));
  EXPECT_CUDA(cudaEventQuery(stop));
}
