#include <ctime>
#include <memory>
#include <vector>

#include "hostrt/support.h"

namespace {

/// Appends a number when the stream gets there.
struct Trace {
  std::mutex mutex;
  std::vector<int> seen;
  struct Mark {
    Trace* trace;
    int number;
  };
  std::vector<std::unique_ptr<Mark>> marks;
  void at(cudaStream_t stream, int number) {
    marks.push_back(std::make_unique<Mark>(Mark{this, number}));
    ASSERT_CUDA(cudaLaunchHostFunc(
        stream,
        [](void* data) {
          auto* mark = static_cast<Mark*>(data);
          const std::lock_guard lock(mark->trace->mutex);
          mark->trace->seen.push_back(mark->number);
        },
        marks.back().get()));
  }
  std::vector<int> get() {
    const std::lock_guard lock(mutex);
    return seen;
  }
};

cudaStream_t make(unsigned flags = cudaStreamDefault) {
  cudaStream_t stream = nullptr;
  EXPECT_CUDA(cudaStreamCreateWithFlags(&stream, flags));
  return stream;
}

using Numbers = std::vector<int>;

}  // namespace

TEST(Streams, RunTheirWorkInOrder) {
  cudaStream_t stream = make();
  Trace trace;
  Numbers expected;
  for (int i = 0; i < 500; ++i) {
    trace.at(stream, i);
    expected.push_back(i);
  }
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(trace.get(), expected);
  EXPECT_CUDA(cudaStreamQuery(stream));
  ASSERT_CUDA(cudaStreamDestroy(stream));
}

TEST(Streams, RunBesideEachOther) {
  cudaStream_t a = make();
  cudaStream_t b = make();
  Gate gateA;
  Gate gateB;
  block(a, gateA);
  block(b, gateB);
  gateA.awaitReached();
  gateB.awaitReached();  // both at once
  gateB.open();
  ASSERT_CUDA(cudaStreamSynchronize(b));
  EXPECT_EQ(cudaStreamQuery(a), cudaErrorNotReady);
  gateA.open();
  ASSERT_CUDA(cudaStreamSynchronize(a));
  for (cudaStream_t stream : {a, b}) ASSERT_CUDA(cudaStreamDestroy(stream));
}

TEST(LegacyStream, WaitsForBlockingStreamsAndTheyForIt) {
  cudaStream_t a = make();
  cudaStream_t b = make();
  Trace trace;
  Gate gate;
  block(a, gate);
  trace.at(a, 1);
  trace.at(nullptr, 2);  // after a's work
  trace.at(b, 3);        // after the legacy stream's
  settle();
  EXPECT_EQ(trace.get(), Numbers{});
  EXPECT_EQ(cudaStreamQuery(nullptr), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(b), cudaErrorNotReady);
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(b));
  EXPECT_EQ(trace.get(), (Numbers{1, 2, 3}));
  for (cudaStream_t stream : {a, b}) ASSERT_CUDA(cudaStreamDestroy(stream));
}

TEST(LegacyStream, LeavesNonBlockingStreamsAlone) {
  cudaStream_t free = make(cudaStreamNonBlocking);
  Trace trace;
  Gate gate;
  block(free, gate);
  trace.at(nullptr, 1);
  ASSERT_CUDA(cudaStreamSynchronize(nullptr));
  EXPECT_EQ(trace.get(), Numbers{1});
  EXPECT_EQ(cudaStreamQuery(free), cudaErrorNotReady);
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(free));
  Gate legacy;
  block(nullptr, legacy);
  trace.at(free, 2);
  ASSERT_CUDA(cudaStreamSynchronize(free));
  EXPECT_EQ(trace.get(), (Numbers{1, 2}));
  legacy.open();
  ASSERT_CUDA(cudaDeviceSynchronize());
  ASSERT_CUDA(cudaStreamDestroy(free));
}

TEST(LegacyStream, IsOneForEachDevice) {
  Gate gate;
  block(nullptr, gate);
  ASSERT_CUDA(cudaSetDevice(1));
  EXPECT_CUDA(cudaStreamQuery(nullptr));
  EXPECT_CUDA(cudaDeviceSynchronize());
  ASSERT_CUDA(cudaSetDevice(0));
  EXPECT_EQ(cudaStreamQuery(cudaStreamLegacy), cudaErrorNotReady);
  gate.open();
  ASSERT_CUDA(cudaDeviceSynchronize());
}

TEST(LegacyStream, SynchronousCopiesWaitForBlockingStreams) {
  cudaStream_t a = make();
  char* memory = nullptr;
  ASSERT_CUDA(cudaMalloc(&memory, 4096));
  Gate gate;
  block(a, gate);
  ASSERT_CUDA(cudaMemsetAsync(memory, 5, 4096, a));
  std::thread opener([&] {
    settle();
    gate.open();
  });
  char value = 0;
  ASSERT_CUDA(cudaMemcpy(&value, memory + 4095, 1, cudaMemcpyDeviceToHost));
  EXPECT_EQ(value, 5);
  opener.join();
  ASSERT_CUDA(cudaFree(memory));
  ASSERT_CUDA(cudaStreamDestroy(a));
}

TEST(LegacyStream, ManyStreamsTakingTurnsWithItNeitherHangNorMix) {
  std::vector<cudaStream_t> streams;
  for (int i = 0; i < 4; ++i) streams.push_back(make());
  Trace trace;
  Numbers expected;
  for (int i = 0; i < 100; ++i) {
    trace.at(streams[static_cast<size_t>(i % 4)], 2 * i);
    trace.at(nullptr, 2 * i + 1);
    expected.push_back(2 * i);
    expected.push_back(2 * i + 1);
  }
  ASSERT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(trace.get(), expected);
  for (cudaStream_t stream : streams) ASSERT_CUDA(cudaStreamDestroy(stream));
}

TEST(PerThreadStream, IsTheThreadsOwn) {
  Gate gate;
  block(cudaStreamPerThread, gate);
  EXPECT_EQ(cudaStreamQuery(cudaStreamPerThread), cudaErrorNotReady);
  std::thread([] {
    EXPECT_CUDA(cudaStreamQuery(cudaStreamPerThread));
    EXPECT_CUDA(cudaStreamSynchronize(cudaStreamPerThread));
  }).join();
  Trace trace;
  trace.at(nullptr, 1);  // the legacy stream waits for it
  settle();
  EXPECT_EQ(trace.get(), Numbers{});
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(nullptr));
  EXPECT_EQ(trace.get(), Numbers{1});
}

TEST(PerThreadStream, FinishesItsWorkAfterTheThread) {
  static std::atomic<int> done;
  done = 0;
  Gate gate;
  std::thread([&] {
    block(cudaStreamPerThread, gate);
    ASSERT_CUDA(cudaLaunchHostFunc(
        cudaStreamPerThread, [](void*) { ++done; }, nullptr));
  }).join();
  EXPECT_EQ(done, 0);
  gate.open();
  ASSERT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(done, 1);
}

TEST(Streams, DestroyReturnsAtOnceAndTheWorkFinishes) {
  cudaStream_t stream = make();
  Trace trace;
  Gate gate;
  block(stream, gate);
  trace.at(stream, 1);
  ASSERT_CUDA(cudaStreamDestroy(stream));
  EXPECT_EQ(trace.get(), Numbers{});
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaErrorInvalidResourceHandle);
  cudaStream_t next = make();  // not the one that still works
  EXPECT_CUDA(cudaStreamQuery(next));
  gate.open();
  ASSERT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(trace.get(), Numbers{1});
  ASSERT_CUDA(cudaStreamDestroy(next));
  cudaGetLastError();
}

TEST(Streams, AnOldHandleIsNotTheNextStream) {
  cudaStream_t first = make();
  ASSERT_CUDA(cudaStreamDestroy(first));
  cudaStream_t second = make();
  EXPECT_NE(first, second);
  EXPECT_EQ(cudaStreamSynchronize(first), cudaErrorInvalidResourceHandle);
  EXPECT_CUDA(cudaStreamSynchronize(second));
  ASSERT_CUDA(cudaStreamDestroy(second));
  EXPECT_EQ(cudaStreamDestroy(nullptr), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamDestroy(cudaStreamPerThread), cudaErrorInvalidResourceHandle);
  int onStack = 0;
  EXPECT_EQ(cudaStreamQuery(reinterpret_cast<cudaStream_t>(&onStack)), cudaErrorInvalidResourceHandle);
  cudaGetLastError();
}

TEST(Streams, TellWhatTheyWereMadeWith) {
  int least = -1;
  int greatest = 1;
  ASSERT_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  EXPECT_LT(greatest, least);
  ASSERT_CUDA(cudaSetDevice(2));
  cudaStream_t stream;
  ASSERT_CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest - 7));
  ASSERT_CUDA(cudaSetDevice(0));
  int value = 0;
  unsigned flags = 0;
  unsigned long long id = 0;
  unsigned long long legacyId = 0;
  EXPECT_CUDA(cudaStreamGetPriority(stream, &value));
  EXPECT_EQ(value, greatest);
  EXPECT_CUDA(cudaStreamGetDevice(stream, &value));
  EXPECT_EQ(value, 2);
  EXPECT_CUDA(cudaStreamGetFlags(stream, &flags));
  EXPECT_EQ(flags, static_cast<unsigned>(cudaStreamNonBlocking));
  EXPECT_CUDA(cudaStreamGetId(stream, &id));
  EXPECT_CUDA(cudaStreamGetId(nullptr, &legacyId));
  EXPECT_NE(id, legacyId);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusActive;
  EXPECT_CUDA(cudaStreamIsCapturing(stream, &capture));
  EXPECT_EQ(capture, cudaStreamCaptureStatusNone);
  ASSERT_CUDA(cudaStreamDestroy(stream));
  EXPECT_EQ(cudaStreamCreateWithFlags(&stream, 77), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamCreate(nullptr), cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST(Streams, CallbacksGetTheStreamAndItsStatus) {
  struct Seen {
    cudaStream_t stream;
    cudaError_t status;
  } seen{nullptr, cudaErrorUnknown};
  cudaStream_t stream = make();
  ASSERT_CUDA(cudaStreamAddCallback(
      stream,
      [](cudaStream_t s, cudaError_t status, void* data) {
        *static_cast<Seen*>(data) = {s, status};
      },
      &seen, 0));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(seen.stream, stream);
  EXPECT_EQ(seen.status, cudaSuccess);
  EXPECT_EQ(cudaLaunchHostFunc(stream, nullptr, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamAddCallback(stream, nullptr, nullptr, 0), cudaErrorInvalidValue);
  ASSERT_CUDA(cudaStreamDestroy(stream));
  cudaGetLastError();
}

TEST(Streams, WorkSeesItsDeviceAsCurrent) {
  ASSERT_CUDA(cudaSetDevice(5));
  cudaStream_t stream = make();
  ASSERT_CUDA(cudaSetDevice(0));
  int device = -1;
  ASSERT_CUDA(cudaLaunchHostFunc(
      stream, [](void* data) { cudaGetDevice(static_cast<int*>(data)); }, &device));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(device, 5);
  ASSERT_CUDA(cudaStreamDestroy(stream));
}

TEST(Streams, IdleOnesCostNoProcessorTime) {
  cudaStream_t stream = make();
  Trace trace;
  trace.at(stream, 1);
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 0.05);
  ASSERT_CUDA(cudaStreamDestroy(stream));
}

TEST(Streams, WakeWaitersForEachOfTheirMarks) {
  // A wake-up that is lost costs a second, because waiters look once in a second.
  cudaStream_t stream = make();
  const auto nap = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  constexpr int kWork = 12;
  std::vector<cudaEvent_t> events(kWork);
  const auto begin = std::chrono::steady_clock::now();
  for (cudaEvent_t& event : events) {
    ASSERT_CUDA(cudaEventCreate(&event));
    ASSERT_CUDA(cudaLaunchHostFunc(stream, nap, nullptr));
    ASSERT_CUDA(cudaEventRecord(event, stream));
  }
  // Threads that wait for late marks come first, so that earlier ones have to be told from them.
  std::vector<std::thread> waiters;
  for (int i = kWork - 1; i >= 0; i -= 3)
    waiters.emplace_back([&, i] { EXPECT_CUDA(cudaEventSynchronize(events[i])); });
  for (int i = 0; i < kWork; ++i) ASSERT_CUDA(cudaEventSynchronize(events[i]));
  for (std::thread& waiter : waiters) waiter.join();
  // And one for the last mark of all, after which nothing else happens.
  ASSERT_CUDA(cudaLaunchHostFunc(stream, nap, nullptr));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(900));
  for (cudaEvent_t event : events) EXPECT_CUDA(cudaEventDestroy(event));
  ASSERT_CUDA(cudaStreamDestroy(stream));
}

TEST(Streams, TakeWorkFromManyThreads) {
  cudaStream_t stream = make();
  static std::atomic<int> count;
  count = 0;
  std::vector<std::thread> all;
  for (int t = 0; t < 6; ++t) {
    all.emplace_back([&, t] {
      char* memory = nullptr;
      ASSERT_CUDA(cudaMalloc(&memory, 4096));
      for (int i = 0; i < 300; ++i) {
        ASSERT_CUDA(cudaLaunchHostFunc(
            stream, [](void*) { count.fetch_add(1, std::memory_order_relaxed); }, nullptr));
        ASSERT_CUDA(cudaMemsetAsync(memory, t, 64, i % 2 ? stream : nullptr));
        if (i % 50 == 0) {
          ASSERT_CUDA(cudaStreamSynchronize(stream));
        }
      }
      ASSERT_CUDA(cudaFree(memory));
    });
  }
  for (std::thread& thread : all) thread.join();
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(count, 1800);
  ASSERT_CUDA(cudaStreamDestroy(stream));
}
