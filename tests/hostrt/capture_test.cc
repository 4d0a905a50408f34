// Stream capture: what becomes a node, how streams join, and every rule whose violation invalidates.
#include <vector>

#include "hostrt/support.h"

namespace {

using Numbers = std::vector<int>;

/// Host functions that note their number.
struct Note {
  Numbers* order;
  int number;
  static void run(void* data) {
    auto* self = static_cast<Note*>(data);
    self->order->push_back(self->number);
  }
};

class Capture : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    ASSERT_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    ASSERT_CUDA(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    ASSERT_CUDA(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    ASSERT_CUDA(cudaMalloc(&memory, kBytes));
  }
  void TearDown() override {
    EXPECT_CUDA(cudaEventDestroy(fork));
    EXPECT_CUDA(cudaEventDestroy(join));
    EXPECT_CUDA(cudaStreamDestroy(stream));
    EXPECT_CUDA(cudaStreamDestroy(other));
    EXPECT_CUDA(cudaFree(memory));
    cudaGetLastError();
  }

  static cudaStreamCaptureStatus statusOf(cudaStream_t which) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    EXPECT_CUDA(cudaStreamIsCapturing(which, &status));
    return status;
  }
  void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed) {
    ASSERT_CUDA(cudaStreamBeginCapture(stream, mode));
  }
  /// The stream `other` joins the capture.
  void forkOther() {
    ASSERT_CUDA(cudaEventRecord(fork, stream));
    ASSERT_CUDA(cudaStreamWaitEvent(other, fork));
  }
  void joinOther() {
    ASSERT_CUDA(cudaEventRecord(join, other));
    ASSERT_CUDA(cudaStreamWaitEvent(stream, join));
  }
  void note(cudaStream_t where, Note& what) { ASSERT_CUDA(cudaLaunchHostFunc(where, Note::run, &what)); }
  /// Ends a capture that must have been invalidated.
  void expectInvalidated() {
    EXPECT_EQ(statusOf(stream), cudaStreamCaptureStatusInvalidated);
    cudaGraph_t graph = reinterpret_cast<cudaGraph_t>(this);
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(statusOf(stream), cudaStreamCaptureStatusNone);
    cudaGetLastError();
  }
  /// Ends the capture, and launches its graph `times` times.
  void endAndLaunch(int times) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
    ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < times; ++i) ASSERT_CUDA(cudaGraphLaunch(exec, stream));
    ASSERT_CUDA(cudaStreamSynchronize(stream));
    EXPECT_CUDA(cudaGraphExecDestroy(exec));
    EXPECT_CUDA(cudaGraphDestroy(graph));
  }

  static constexpr size_t kBytes = 1 << 20;
  cudaStream_t stream = nullptr;
  cudaStream_t other = nullptr;
  cudaEvent_t fork = nullptr;
  cudaEvent_t join = nullptr;
  char* memory = nullptr;
  Numbers order;
};

TEST_F(Capture, DefersWorkToTheLaunches) {
  std::memset(memory, 1, kBytes);
  Note note1{&order, 1};
  begin();
  ASSERT_CUDA(cudaMemsetAsync(memory, 2, kBytes, stream));
  note(stream, note1);
  EXPECT_EQ(statusOf(stream), cudaStreamCaptureStatusActive);
  EXPECT_EQ(statusOf(other), cudaStreamCaptureStatusNone);
  settle();
  EXPECT_TRUE(isFilled(memory, kBytes, 1));
  EXPECT_TRUE(order.empty());
  endAndLaunch(3);
  EXPECT_TRUE(isFilled(memory, kBytes, 2));
  EXPECT_EQ(order, (Numbers{1, 1, 1}));
}

TEST_F(Capture, CopiesReadTheirSourceAtEachLaunch) {
  // Also pageable sources, which an ordinary copy reads at the call.
  std::vector<char> source(1000, 1);
  begin();
  ASSERT_CUDA(cudaMemcpyAsync(memory, source.data(), source.size(), cudaMemcpyHostToDevice, stream));
  std::fill(source.begin(), source.end(), 7);
  endAndLaunch(1);
  EXPECT_TRUE(isFilled(memory, source.size(), 7));
}

TEST_F(Capture, KeepsTheOrderOfItsStream) {
  std::vector<Note> notes;
  for (int i = 0; i < 10; ++i) notes.push_back({&order, i});
  begin();
  for (Note& one : notes) note(stream, one);
  endAndLaunch(2);
  EXPECT_EQ(order, (Numbers{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST_F(Capture, OtherStreamsJoinByEventsAndRunBesideIt) {
  // Each branch waits until the other has begun: a serial execution would hang here.
  Gate left;
  Gate right;
  struct Meeting {
    Gate* mine;
    Gate* theirs;
    static void run(void* data) {
      auto* self = static_cast<Meeting*>(data);
      self->mine->open();
      self->theirs->pass();
    }
  };
  Meeting a{&left, &right};
  Meeting b{&right, &left};
  Note before{&order, 1};
  Note after{&order, 2};
  begin();
  note(stream, before);
  forkOther();
  EXPECT_EQ(statusOf(other), cudaStreamCaptureStatusActive);
  ASSERT_CUDA(cudaLaunchHostFunc(stream, Meeting::run, &a));
  ASSERT_CUDA(cudaLaunchHostFunc(other, Meeting::run, &b));
  joinOther();
  note(stream, after);
  endAndLaunch(2);
  EXPECT_EQ(statusOf(other), cudaStreamCaptureStatusNone);
  EXPECT_EQ(order, (Numbers{1, 2, 1, 2}));
}

TEST_F(Capture, AJoinedBranchIsWaitedFor) {
  begin();
  forkOther();
  ASSERT_CUDA(cudaMemsetAsync(memory, 3, kBytes, other));
  joinOther();
  ASSERT_CUDA(cudaMemcpyAsync(memory, memory + kBytes / 2, kBytes / 2, cudaMemcpyDeviceToDevice, stream));
  cudaGraph_t graph = nullptr;
  ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  size_t count = 2;
  cudaGraphNode_t from[2];
  cudaGraphNode_t to[2];
  ASSERT_CUDA(cudaGraphGetEdges(graph, from, to, nullptr, &count));
  EXPECT_EQ(count, 1u) << "fill -> copy";
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  ASSERT_CUDA(cudaGraphNodeGetType(from[0], &type));
  EXPECT_EQ(type, cudaGraphNodeTypeMemset);
  ASSERT_CUDA(cudaGraphNodeGetType(to[0], &type));
  EXPECT_EQ(type, cudaGraphNodeTypeMemcpy);
  EXPECT_CUDA(cudaGraphDestroy(graph));
}

TEST_F(Capture, UnjoinedWorkIsAnError) {
  begin();
  forkOther();
  ASSERT_CUDA(cudaMemsetAsync(memory, 3, kBytes, other));
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(statusOf(other), cudaStreamCaptureStatusNone);
  EXPECT_EQ(statusOf(stream), cudaStreamCaptureStatusNone);
}

TEST_F(Capture, WorkAfterTheJoinIsUnjoinedToo) {
  begin();
  forkOther();
  joinOther();
  ASSERT_CUDA(cudaMemsetAsync(memory, 3, kBytes, other));
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureUnjoined);
}

TEST_F(Capture, AForkWithoutWorkNeedsNoJoin) {
  begin();
  forkOther();
  endAndLaunch(1);
}

TEST_F(Capture, ADestroyedBranchCountsAsUnjoinedWhenItIs) {
  for (const bool joined : {false, true}) {
    cudaStream_t temporary;
    ASSERT_CUDA(cudaStreamCreateWithFlags(&temporary, cudaStreamNonBlocking));
    begin();
    ASSERT_CUDA(cudaEventRecord(fork, stream));
    ASSERT_CUDA(cudaStreamWaitEvent(temporary, fork));
    ASSERT_CUDA(cudaMemsetAsync(memory, 3, kBytes, temporary));
    if (joined) {
      ASSERT_CUDA(cudaEventRecord(join, temporary));
      ASSERT_CUDA(cudaStreamWaitEvent(stream, join));
    }
    ASSERT_CUDA(cudaStreamDestroy(temporary));
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), joined ? cudaSuccess : cudaErrorStreamCaptureUnjoined);
    if (graph) {
      EXPECT_CUDA(cudaGraphDestroy(graph));
    }
  }
}

TEST_F(Capture, DestroyingTheOriginEndsIt) {
  cudaStream_t origin;
  ASSERT_CUDA(cudaStreamCreate(&origin));
  ASSERT_CUDA(cudaStreamBeginCapture(origin, cudaStreamCaptureModeGlobal));
  ASSERT_CUDA(cudaEventRecord(fork, origin));
  ASSERT_CUDA(cudaStreamWaitEvent(other, fork));
  ASSERT_CUDA(cudaStreamDestroy(origin));
  EXPECT_EQ(statusOf(other), cudaStreamCaptureStatusNone);
  void* pointer = nullptr;
  EXPECT_CUDA(cudaMalloc(&pointer, 10)) << "nothing is captured any more";
  EXPECT_CUDA(cudaFree(pointer));
  EXPECT_CUDA(cudaMemsetAsync(memory, 0, 10, nullptr));
}

TEST_F(Capture, BeginsOnlyWhereItCan) {
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamBeginCapture(cudaStreamLegacy, cudaStreamCaptureModeGlobal),
            cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamBeginCapture(stream, static_cast<cudaStreamCaptureMode>(3)), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamBeginCapture(reinterpret_cast<cudaStream_t>(0x123456), cudaStreamCaptureModeGlobal),
            cudaErrorInvalidResourceHandle);
  begin();
  EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), cudaErrorIllegalState);
  EXPECT_EQ(statusOf(stream), cudaStreamCaptureStatusActive);
  endAndLaunch(1);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorIllegalState);
  EXPECT_EQ(cudaStreamEndCapture(stream, nullptr), cudaErrorInvalidValue);
}

TEST_F(Capture, EndsOnItsOriginOnly) {
  begin();
  forkOther();
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(other, &graph), cudaErrorStreamCaptureUnmatched);
  expectInvalidated();
}

TEST_F(Capture, EndsOnItsThreadUnlessRelaxed) {
  for (const auto mode :
       {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed}) {
    begin(mode);
    cudaGraph_t graph = nullptr;
    cudaError_t result = cudaSuccess;
    std::thread([&] { result = cudaStreamEndCapture(stream, &graph); }).join();
    const bool isRelaxed = mode == cudaStreamCaptureModeRelaxed;
    EXPECT_EQ(result, isRelaxed ? cudaSuccess : cudaErrorStreamCaptureWrongThread);
    if (!isRelaxed) {
      ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
    }
    EXPECT_CUDA(cudaGraphDestroy(graph));
  }
}

TEST_F(Capture, PerThreadDefaultStreamsCanBeCaptured) {
  Note note1{&order, 1};
  ASSERT_CUDA(cudaStreamBeginCapture(cudaStreamPerThread, cudaStreamCaptureModeThreadLocal));
  note(cudaStreamPerThread, note1);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  ASSERT_CUDA(cudaStreamEndCapture(cudaStreamPerThread, &graph));
  ASSERT_CUDA(cudaGraphInstantiateWithFlags(&exec, graph, 0));
  ASSERT_CUDA(cudaGraphLaunch(exec, nullptr)) << "a graph may be launched anywhere";
  ASSERT_CUDA(cudaStreamSynchronize(nullptr));
  EXPECT_EQ(order, (Numbers{1}));
  EXPECT_CUDA(cudaGraphExecDestroy(exec));
  EXPECT_CUDA(cudaGraphDestroy(graph));
}

TEST_F(Capture, AskingACapturedStreamForItsStateInvalidates) {
  using Call = std::function<cudaError_t()>;
  const auto callback = [](cudaStream_t, cudaError_t, void*) {};
  const Call calls[] = {
      [&] { return cudaStreamSynchronize(stream); },
      [&] { return cudaStreamQuery(stream); },
      [&] { return cudaDeviceSynchronize(); },
      [&] { return cudaStreamAddCallback(stream, callback, nullptr, 0); },
      [&] { return cudaStreamAttachMemAsync(stream, memory, 0, cudaMemAttachSingle); },
  };
  for (const Call& call : calls) {
    begin();
    EXPECT_EQ(call(), cudaErrorStreamCaptureUnsupported) << &call - calls;
    EXPECT_EQ(cudaMemsetAsync(memory, 0, 10, stream), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(cudaEventRecord(fork, stream), cudaErrorStreamCaptureInvalidated);
    expectInvalidated();
  }
  EXPECT_CUDA(cudaStreamSynchronize(other)) << "a stream outside of a capture";
}

TEST_F(Capture, AskingACapturedEventForItsStateInvalidates) {
  begin();
  ASSERT_CUDA(cudaEventRecord(fork, stream));
  EXPECT_EQ(cudaEventQuery(fork), cudaErrorCapturedEvent);
  expectInvalidated();
  begin();
  ASSERT_CUDA(cudaEventRecord(fork, stream));
  EXPECT_EQ(cudaEventSynchronize(fork), cudaErrorCapturedEvent);
  expectInvalidated();
  // The mark outlives the capture.
  EXPECT_EQ(cudaEventQuery(fork), cudaErrorCapturedEvent);
  float ms = 0;
  EXPECT_EQ(cudaEventElapsedTime(&ms, fork, fork), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaStreamWaitEvent(other, fork), cudaErrorCapturedEvent);
  ASSERT_CUDA(cudaEventRecord(fork, stream));
  EXPECT_CUDA(cudaEventSynchronize(fork)) << "recorded anew outside of a capture";
}

TEST_F(Capture, TheLegacyStreamIsUnusableBesideACapturedBlockingStream) {
  cudaStream_t blocking;
  ASSERT_CUDA(cudaStreamCreate(&blocking));
  ASSERT_CUDA(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed));
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  EXPECT_EQ(cudaStreamIsCapturing(nullptr, &status), cudaErrorStreamCaptureImplicit);
  EXPECT_CUDA(cudaStreamIsCapturing(blocking, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusActive) << "the question alone does no harm";
  EXPECT_EQ(cudaMemsetAsync(memory, 0, 10, nullptr), cudaErrorStreamCaptureImplicit);
  EXPECT_CUDA(cudaStreamIsCapturing(blocking, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusInvalidated);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(blocking, &graph), cudaErrorStreamCaptureInvalidated);

  using Call = std::function<cudaError_t()>;
  const Call calls[] = {
      [&] { return cudaMemset(memory, 0, 10); },
      [&] { return cudaMemcpy(memory, memory + 10, 10, cudaMemcpyDeviceToDevice); },
      [&] { return cudaEventRecord(fork, nullptr); },
      [&] { return cudaLaunchHostFunc(nullptr, Note::run, this); },
      [&] { return cudaStreamSynchronize(nullptr); },
  };
  for (const Call& call : calls) {
    ASSERT_CUDA(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed));
    EXPECT_EQ(call(), cudaErrorStreamCaptureImplicit) << &call - calls;
    EXPECT_EQ(cudaStreamEndCapture(blocking, &graph), cudaErrorStreamCaptureInvalidated);
  }
  // Another device, or a stream that it does not synchronise with, is none of its business.
  ASSERT_CUDA(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed));
  ASSERT_CUDA(cudaSetDevice(1));
  EXPECT_CUDA(cudaStreamSynchronize(nullptr));
  ASSERT_CUDA(cudaSetDevice(0));
  EXPECT_CUDA(cudaStreamEndCapture(blocking, &graph));
  EXPECT_CUDA(cudaGraphDestroy(graph));
  begin();
  EXPECT_CUDA(cudaMemsetAsync(memory, 0, 10, nullptr));
  endAndLaunch(1);
  EXPECT_CUDA(cudaStreamDestroy(blocking));
}

TEST_F(Capture, TheLegacyStreamCannotJoin) {
  begin();
  ASSERT_CUDA(cudaEventRecord(fork, stream));
  EXPECT_EQ(cudaStreamWaitEvent(nullptr, fork), cudaErrorStreamCaptureImplicit);
  expectInvalidated();
}

TEST_F(Capture, AnEventFromOutsideCannotBeWaitedFor) {
  ASSERT_CUDA(cudaEventRecord(join, other));
  begin();
  EXPECT_EQ(cudaStreamWaitEvent(stream, join), cudaErrorStreamCaptureIsolation);
  expectInvalidated();
}

TEST_F(Capture, TwoCapturesCannotMerge) {
  begin();
  ASSERT_CUDA(cudaStreamBeginCapture(other, cudaStreamCaptureModeRelaxed));
  ASSERT_CUDA(cudaEventRecord(fork, stream));
  EXPECT_EQ(cudaStreamWaitEvent(other, fork), cudaErrorStreamCaptureMerge);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(other, &graph), cudaErrorStreamCaptureInvalidated);
  expectInvalidated();
}

TEST_F(Capture, ExternalEventsAreNodes) {
  EXPECT_EQ(cudaEventRecordWithFlags(join, other, cudaEventRecordExternal), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamWaitEvent(other, join, cudaEventWaitExternal), cudaErrorInvalidValue);
  Gate gate;
  Note inGraph{&order, 2};
  begin();
  ASSERT_CUDA(cudaStreamWaitEvent(stream, fork, cudaEventWaitExternal));
  note(stream, inGraph);
  ASSERT_CUDA(cudaEventRecordWithFlags(join, stream, cudaEventRecordExternal));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  block(other, gate);
  ASSERT_CUDA(cudaEventRecord(fork, other));
  ASSERT_CUDA(cudaGraphLaunch(exec, stream));
  settle();
  EXPECT_TRUE(order.empty()) << "the wait node holds the graph";
  EXPECT_EQ(cudaEventQuery(join), cudaErrorNotReady);
  gate.open();
  EXPECT_CUDA(cudaEventSynchronize(join));
  EXPECT_EQ(order, (Numbers{2}));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_CUDA(cudaGraphExecDestroy(exec));
  EXPECT_CUDA(cudaGraphDestroy(graph));
}

TEST_F(Capture, ModesDecideWhatUnsafeCallsMayDo) {
  struct Case {
    cudaStreamCaptureMode capture;
    cudaStreamCaptureMode thread;
    bool allowedHere;
    bool allowedElsewhere;  // in a thread of the same mode that captures nothing
  };
  constexpr auto kGlobal = cudaStreamCaptureModeGlobal;
  constexpr auto kLocal = cudaStreamCaptureModeThreadLocal;
  constexpr auto kRelaxed = cudaStreamCaptureModeRelaxed;
  const Case cases[] = {
      {kGlobal, kGlobal, false, false}, {kGlobal, kLocal, false, true}, {kGlobal, kRelaxed, true, true},
      {kLocal, kGlobal, false, true},   {kLocal, kLocal, false, true},  {kLocal, kRelaxed, true, true},
      {kRelaxed, kGlobal, true, true},  {kRelaxed, kLocal, true, true}, {kRelaxed, kRelaxed, true, true},
  };
  const auto unsafeCall = [](cudaStreamCaptureMode threadMode) {
    cudaStreamCaptureMode mode = threadMode;
    EXPECT_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
    void* pointer = nullptr;
    const cudaError_t result = cudaMalloc(&pointer, 100);
    if (result == cudaSuccess) {
      EXPECT_CUDA(cudaFree(pointer));
    }
    EXPECT_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
    EXPECT_EQ(mode, threadMode);
    return result;
  };
  for (const Case& c : cases) {
    for (const bool here : {true, false}) {
      begin(c.capture);
      cudaError_t result = cudaErrorUnknown;
      if (here)
        result = unsafeCall(c.thread);
      else
        std::thread([&] { result = unsafeCall(c.thread); }).join();
      const bool allowed = here ? c.allowedHere : c.allowedElsewhere;
      EXPECT_EQ(result, allowed ? cudaSuccess : cudaErrorStreamCaptureUnsupported)
          << c.capture << " " << c.thread << " " << here;
      if (allowed)
        endAndLaunch(1);
      else
        expectInvalidated();
    }
  }
}

TEST_F(Capture, EveryUnsafeCallIsRefused) {
  static char plain[64];
  void* pointer = nullptr;
  void* pinned = nullptr;
  ASSERT_CUDA(cudaMallocHost(&pinned, 64));
  ASSERT_CUDA(cudaEventRecord(join, other));
  using Call = std::function<cudaError_t()>;
  const Call calls[] = {
      [&] { return cudaMalloc(&pointer, 10); },
      [&] { return cudaMallocHost(&pointer, 10); },
      [&] { return cudaMallocManaged(&pointer, 10); },
      [&] { return cudaFree(memory); },
      [&] { return cudaFreeHost(pinned); },
      [&] { return cudaHostRegister(plain, sizeof plain, 0); },
      [&] { return cudaHostUnregister(plain); },
      [&] { return cudaEventQuery(join); },
      [&] { return cudaEventSynchronize(join); },
      [&] { return cudaMemcpy(memory, plain, 64, cudaMemcpyHostToDevice); },
      [&] { return cudaMemset(memory, 0, 64); },
  };
  for (const Call& call : calls) {
    begin(cudaStreamCaptureModeGlobal);
    EXPECT_EQ(call(), cudaErrorStreamCaptureUnsupported) << &call - calls;
    expectInvalidated();
  }
  EXPECT_CUDA(cudaFreeHost(pinned));
}

TEST_F(Capture, SafeCallsAreAllowed) {
  begin(cudaStreamCaptureModeGlobal);
  cudaStream_t made;
  cudaEvent_t event;
  cudaPointerAttributes attributes;
  size_t free = 0;
  size_t total = 0;
  EXPECT_CUDA(cudaStreamCreate(&made));
  EXPECT_CUDA(cudaEventCreate(&event));
  EXPECT_CUDA(cudaPointerGetAttributes(&attributes, memory));
  EXPECT_CUDA(cudaMemGetInfo(&free, &total));
  EXPECT_CUDA(cudaSetDevice(0));
  EXPECT_CUDA(cudaEventDestroy(event));
  EXPECT_CUDA(cudaStreamDestroy(made));
  endAndLaunch(1);
}

TEST_F(Capture, InfoNamesTheGraphAndWhatTheNextNodeComesAfter) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
  unsigned long long id = 99;
  cudaGraph_t graph = nullptr;
  const cudaGraphNode_t* nodes = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  size_t count = 99;
  ASSERT_CUDA(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, &edges, &count));
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  EXPECT_EQ(id, 0u);
  EXPECT_EQ(count, 0u);
  begin();
  ASSERT_CUDA(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, &edges, &count));
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  EXPECT_NE(id, 0u);
  EXPECT_EQ(count, 0u);
  ASSERT_TRUE(graph);
  ASSERT_CUDA(cudaMemsetAsync(memory, 1, 10, stream));
  forkOther();
  unsigned long long otherId = 0;
  ASSERT_CUDA(cudaStreamGetCaptureInfo(other, &status, &otherId, nullptr, &nodes, nullptr, &count));
  EXPECT_EQ(otherId, id);
  ASSERT_EQ(count, 1u);
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  ASSERT_CUDA(cudaGraphNodeGetType(nodes[0], &type));
  EXPECT_EQ(type, cudaGraphNodeTypeMemset);
  cudaGraph_t ended = nullptr;
  ASSERT_CUDA(cudaStreamEndCapture(stream, &ended));
  EXPECT_EQ(ended, graph);
  EXPECT_CUDA(cudaGraphDestroy(graph));
  begin();
  unsigned long long second = 0;
  ASSERT_CUDA(cudaStreamGetCaptureInfo(stream, &status, &second));
  EXPECT_NE(second, id);
  endAndLaunch(1);
}

TEST_F(Capture, DependenciesCanBeReplaced) {
  Note first{&order, 1};
  Note second{&order, 2};
  begin();
  note(stream, first);
  cudaStreamCaptureStatus status;
  cudaGraph_t graph = nullptr;
  ASSERT_CUDA(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph));
  // A node of the program's own, after what was captured; what is captured next comes after it.
  const cudaGraphNode_t* tails = nullptr;
  size_t count = 0;
  ASSERT_CUDA(cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &tails, nullptr, &count));
  cudaHostNodeParams params{Note::run, &second};
  cudaGraphNode_t own = nullptr;
  ASSERT_CUDA(cudaGraphAddHostNode(&own, graph, tails, count, &params));
  ASSERT_CUDA(
      cudaStreamUpdateCaptureDependencies(stream, &own, nullptr, 1, cudaStreamSetCaptureDependencies));
  ASSERT_CUDA(cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &tails, nullptr, &count));
  ASSERT_EQ(count, 1u);
  EXPECT_EQ(tails[0], own);
  endAndLaunch(1);
  EXPECT_EQ(order, (Numbers{1, 2}));
  EXPECT_EQ(cudaStreamUpdateCaptureDependencies(stream, nullptr, nullptr, 0, 0), cudaErrorIllegalState);
}

TEST_F(Capture, SurvivesTheLossOfItsNodes) {
  Note note1{&order, 1};
  begin();
  note(stream, note1);
  forkOther();
  cudaStreamCaptureStatus status;
  const cudaGraphNode_t* tails = nullptr;
  size_t count = 0;
  ASSERT_CUDA(cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &tails, nullptr, &count));
  ASSERT_EQ(count, 1u);
  ASSERT_CUDA(cudaGraphDestroyNode(tails[0]));
  endAndLaunch(1);
  EXPECT_TRUE(order.empty());
}

TEST_F(Capture, GoesIntoAGraphThatExists) {
  Note first{&order, 1};
  Note second{&order, 2};
  cudaGraph_t graph = nullptr;
  cudaGraphNode_t node = nullptr;
  cudaHostNodeParams params{Note::run, &first};
  ASSERT_CUDA(cudaGraphCreate(&graph, 0));
  ASSERT_CUDA(cudaGraphAddHostNode(&node, graph, nullptr, 0, &params));
  ASSERT_CUDA(cudaStreamBeginCaptureToGraph(stream, graph, &node, nullptr, 1, cudaStreamCaptureModeRelaxed));
  note(stream, second);
  cudaGraph_t ended = nullptr;
  ASSERT_CUDA(cudaStreamEndCapture(stream, &ended));
  EXPECT_EQ(ended, graph);
  cudaGraphExec_t exec = nullptr;
  ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  ASSERT_CUDA(cudaGraphLaunch(exec, stream));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(order, (Numbers{1, 2}));
  EXPECT_CUDA(cudaGraphExecDestroy(exec));
  EXPECT_CUDA(cudaGraphDestroy(graph));
}

TEST_F(Capture, ALaunchInACaptureIsAChildGraph) {
  Note inner{&order, 1};
  begin();
  note(stream, inner);
  cudaGraph_t innerGraph = nullptr;
  cudaGraphExec_t exec = nullptr;
  ASSERT_CUDA(cudaStreamEndCapture(stream, &innerGraph));
  ASSERT_CUDA(cudaGraphInstantiate(&exec, innerGraph, 0));
  Note outer{&order, 2};
  begin();
  ASSERT_CUDA(cudaGraphLaunch(exec, stream));
  note(stream, outer);
  ASSERT_CUDA(cudaGraphLaunch(exec, stream));
  EXPECT_CUDA(cudaGraphExecDestroy(exec));
  EXPECT_CUDA(cudaGraphDestroy(innerGraph));
  EXPECT_TRUE(order.empty());
  endAndLaunch(2);
  EXPECT_EQ(order, (Numbers{1, 2, 1, 1, 2, 1}));
}

TEST_F(Capture, AllocationsStayWithTheGraph) {
  void* inGraph = nullptr;
  begin(cudaStreamCaptureModeGlobal);
  ASSERT_CUDA(cudaMallocAsync(&inGraph, 1000, stream));
  ASSERT_TRUE(inGraph);
  ASSERT_CUDA(cudaMemsetAsync(inGraph, 5, 1000, stream));
  ASSERT_CUDA(cudaMemcpyAsync(memory, inGraph, 1000, cudaMemcpyDeviceToDevice, stream));
  ASSERT_CUDA(cudaFreeAsync(inGraph, stream));
  EXPECT_EQ(cudaFreeAsync(memory, stream), cudaErrorInvalidValue)
      << "from outside: gone at the second launch";
  endAndLaunch(2);
  EXPECT_TRUE(isFilled(memory, 1000, 5));
  cudaPointerAttributes attributes;
  ASSERT_CUDA(cudaPointerGetAttributes(&attributes, inGraph));
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered) << "gone with the graph";
}

// As nvcc declares them.
extern "C" {
void** __cudaRegisterFatBinary(void*);
void __cudaUnregisterFatBinary(void**);
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*, dim3*, int*);
}

TEST_F(Capture, AKernelInvalidatesSinceTheGraphWouldLackIt) {
  static char stub;
  static char image;
  char name[] = "_Z5scalePf";
  void** module = __cudaRegisterFatBinary(&image);
  __cudaRegisterFunction(module, &stub, name, name, -1, nullptr, nullptr, nullptr, nullptr, nullptr);
  begin();
  testing::internal::CaptureStderr();
  EXPECT_EQ(cudaLaunchKernel(static_cast<const void*>(&stub), dim3(1), dim3(1), nullptr, 0, stream),
            cudaErrorNotSupported);
  cudaLaunchConfig_t config = {};
  config.stream = stream;
  EXPECT_EQ(cudaLaunchKernelExC(&config, &stub, nullptr), cudaErrorNotSupported);
  const std::string message = testing::internal::GetCapturedStderr();
  EXPECT_NE(message.find("scale(float*)"), std::string::npos) << message;
  expectInvalidated();
  __cudaUnregisterFatBinary(module);
}

TEST_F(Capture, ThreadsCaptureSideBySide) {
  constexpr int kThreads = 4;
  std::vector<std::thread> threads;
  std::atomic<int> ran{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      cudaStream_t own;
      ASSERT_CUDA(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
      for (int round = 0; round < 20; ++round) {
        ASSERT_CUDA(cudaStreamBeginCapture(own, cudaStreamCaptureModeThreadLocal));
        for (int i = 0; i < 3; ++i)
          ASSERT_CUDA(cudaLaunchHostFunc(
              own, [](void* data) { ++*static_cast<std::atomic<int>*>(data); }, &ran));
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t exec = nullptr;
        ASSERT_CUDA(cudaStreamEndCapture(own, &graph));
        ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
        ASSERT_CUDA(cudaGraphDestroy(graph));
        for (int i = 0; i < 2; ++i) ASSERT_CUDA(cudaGraphLaunch(exec, own));
        ASSERT_CUDA(cudaGraphExecDestroy(exec)) << "what was launched still runs";
        ASSERT_CUDA(cudaStreamSynchronize(own));
      }
      ASSERT_CUDA(cudaStreamDestroy(own));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ran, kThreads * 20 * 3 * 2);
}

}  // namespace
