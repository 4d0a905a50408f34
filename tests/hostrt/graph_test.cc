// Graphs made by hand, executables, updates, user objects, and the library's work in graphs.
#include <cerrno>
#include <vector>

#include "hostrt/support.h"

namespace {

using Numbers = std::vector<int>;

struct Step {
  Numbers* order;
  std::mutex* mutex;
  int number;
  static void run(void* data) {
    auto* self = static_cast<Step*>(data);
    const std::lock_guard lock(*self->mutex);
    self->order->push_back(self->number);
  }
};

class Graph : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_CUDA(cudaStreamCreate(&stream));
    ASSERT_CUDA(cudaGraphCreate(&graph, 0));
    for (int i = 0; i < 8; ++i) steps[i] = {&order, &mutex, i};
  }
  void TearDown() override {
    if (graph) {
      EXPECT_CUDA(cudaGraphDestroy(graph));
    }
    EXPECT_CUDA(cudaStreamDestroy(stream));
    cudaGetLastError();
  }
  cudaGraphNode_t host(int number, std::vector<cudaGraphNode_t> after = {}) {
    cudaHostNodeParams params{Step::run, &steps[number]};
    cudaGraphNode_t node = nullptr;
    EXPECT_CUDA(cudaGraphAddHostNode(&node, graph, after.data(), after.size(), &params));
    return node;
  }
  void launch(int times = 1) {
    cudaGraphExec_t exec = nullptr;
    ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < times; ++i) ASSERT_CUDA(cudaGraphLaunch(exec, stream));
    ASSERT_CUDA(cudaStreamSynchronize(stream));
    ASSERT_CUDA(cudaGraphExecDestroy(exec));
  }
  size_t position(int number) const {
    return static_cast<size_t>(std::find(order.begin(), order.end(), number) - order.begin());
  }

  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  std::mutex mutex;
  Numbers order;
  Step steps[8];
};

TEST_F(Graph, RunsNodesAfterTheirDependencies) {
  //   0 -> 1 -> 3 -> 5        4 is a root of its own
  //    `-> 2 -'----> 6
  const auto a = host(0);
  const auto b = host(1, {a});
  const auto c = host(2, {a});
  const auto d = host(3, {b, c});
  host(4);
  host(5, {d});
  host(6, {c});
  for (int round = 0; round < 20; ++round) {
    order.clear();
    launch();
    ASSERT_EQ(order.size(), 7u);
    EXPECT_LT(position(0), position(1));
    EXPECT_LT(position(0), position(2));
    EXPECT_LT(position(1), position(3));
    EXPECT_LT(position(2), position(3));
    EXPECT_LT(position(3), position(5));
    EXPECT_LT(position(2), position(6));
  }
}

TEST_F(Graph, DependenciesAddedLaterCount) {
  // Against the order in which the nodes were made.
  const auto last = host(0);
  const auto first = host(1);
  ASSERT_CUDA(cudaGraphAddDependencies(graph, &first, &last, nullptr, 1));
  EXPECT_EQ(cudaGraphAddDependencies(graph, &first, &last, nullptr, 1), cudaErrorInvalidValue)
      << "there already";
  EXPECT_EQ(cudaGraphAddDependencies(graph, &first, &first, nullptr, 1), cudaErrorInvalidValue);
  launch();
  EXPECT_EQ(order, (Numbers{1, 0}));
  ASSERT_CUDA(cudaGraphRemoveDependencies(graph, &first, &last, nullptr, 1));
  EXPECT_EQ(cudaGraphRemoveDependencies(graph, &first, &last, nullptr, 1), cudaErrorInvalidValue);
}

TEST_F(Graph, ACircleCannotBeInstantiated) {
  const auto a = host(0);
  const auto b = host(1, {a});
  ASSERT_CUDA(cudaGraphAddDependencies(graph, &b, &a, nullptr, 1));
  cudaGraphExec_t exec = nullptr;
  EXPECT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaErrorInvalidValue);
  cudaGraphInstantiateParams params = {};
  EXPECT_EQ(cudaGraphInstantiateWithParams(&exec, graph, &params), cudaErrorInvalidValue);
  EXPECT_EQ(params.result_out, cudaGraphInstantiateInvalidStructure);
}

TEST_F(Graph, AnEmptyGraphRuns) {
  launch(2);
  cudaGraphNode_t node = nullptr;
  ASSERT_CUDA(cudaGraphAddEmptyNode(&node, graph, nullptr, 0));
  host(1, {node});
  launch();
  EXPECT_EQ(order, (Numbers{1}));
}

TEST_F(Graph, LaunchesStandInTheStreamsOrder) {
  host(1);
  cudaGraphExec_t exec = nullptr;
  ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  Gate gate;
  block(stream, gate);
  ASSERT_CUDA(cudaGraphLaunch(exec, stream));
  ASSERT_CUDA(cudaLaunchHostFunc(stream, Step::run, &steps[2]));
  settle();
  EXPECT_TRUE(order.empty());
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(order, (Numbers{1, 2}));
  EXPECT_CUDA(cudaGraphExecDestroy(exec));
}

TEST_F(Graph, BranchesAreWaitedForByTheStream) {
  const auto a = host(0);
  Gate gate;
  cudaHostNodeParams params{Gate::run, &gate};
  cudaGraphNode_t slow = nullptr;
  host(1, {a});
  ASSERT_CUDA(cudaGraphAddHostNode(&slow, graph, &a, 1, &params));
  cudaGraphExec_t exec = nullptr;
  ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  ASSERT_CUDA(cudaGraphLaunch(exec, stream));
  ASSERT_CUDA(cudaLaunchHostFunc(stream, Step::run, &steps[2]));
  gate.awaitReached();
  settle();
  EXPECT_EQ(position(2), order.size()) << "the stream goes on only after all branches";
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(position(2), 2u);
  EXPECT_CUDA(cudaGraphExecDestroy(exec));
}

TEST_F(Graph, LaunchesOfOneExecutableDoNotOverlap) {
  struct Room {
    std::atomic<int> inside{0};
    std::atomic<int> most{0};
    static void run(void* data) {
      auto* self = static_cast<Room*>(data);
      if (const int now = ++self->inside; now > self->most) self->most = now;
      settle();
      --self->inside;
    }
  } room;
  cudaHostNodeParams params{Room::run, &room};
  cudaGraphNode_t node = nullptr;
  ASSERT_CUDA(cudaGraphAddHostNode(&node, graph, nullptr, 0, &params));
  host(1, {node});
  cudaGraphExec_t exec = nullptr;
  cudaStream_t second;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  ASSERT_CUDA(cudaGraphLaunch(exec, stream));
  ASSERT_CUDA(cudaGraphLaunch(exec, second));
  ASSERT_CUDA(cudaStreamSynchronize(second));
  EXPECT_CUDA(cudaStreamQuery(stream)) << "the launch before is over too";
  EXPECT_EQ(room.most, 1);
  EXPECT_EQ(order, (Numbers{1, 1}));
  ASSERT_CUDA(cudaStreamDestroy(second));
  EXPECT_CUDA(cudaGraphExecDestroy(exec));
}

TEST_F(Graph, AllRootsComeAfterTheStreamsEarlierWork) {
  for (int i = 0; i < 4; ++i) host(i);
  cudaGraphExec_t exec = nullptr;
  ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  Gate gate;
  block(stream, gate);
  ASSERT_CUDA(cudaGraphLaunch(exec, stream));
  settle();
  EXPECT_TRUE(order.empty());
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(order.size(), 4u);
  EXPECT_CUDA(cudaGraphExecDestroy(exec));
}

TEST_F(Graph, AnExecutableIsASnapshot) {
  const auto a = host(1);
  cudaGraphExec_t exec = nullptr;
  ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  host(2, {a});
  ASSERT_CUDA(cudaGraphLaunch(exec, stream));
  ASSERT_CUDA(cudaGraphDestroy(graph));
  graph = nullptr;
  ASSERT_CUDA(cudaGraphLaunch(exec, stream));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(order, (Numbers{1, 1}));
  ASSERT_CUDA(cudaGraphExecDestroy(exec));
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphLaunch(exec, stream), cudaErrorInvalidValue);
}

TEST_F(Graph, CopiesAndFillsTakeAllForms) {
  uint32_t* memory = nullptr;
  ASSERT_CUDA(cudaMallocManaged(&memory, 4096));
  std::memset(memory, 0, 4096);
  cudaMemsetParams words{memory, 64, 0x01020304, 4, 3, 2};  // two rows of three words
  cudaGraphNode_t fill = nullptr;
  ASSERT_CUDA(cudaGraphAddMemsetNode(&fill, graph, nullptr, 0, &words));
  cudaGraphNode_t copy = nullptr;
  ASSERT_CUDA(cudaGraphAddMemcpyNode1D(&copy, graph, &fill, 1, memory + 100, memory, 12, cudaMemcpyDefault));
  cudaMemcpy3DParms box = {};
  box.srcPtr = make_cudaPitchedPtr(memory, 64, 64, 2);
  box.dstPtr = make_cudaPitchedPtr(memory + 200, 16, 16, 2);
  box.extent = make_cudaExtent(12, 2, 1);
  box.kind = cudaMemcpyDeviceToDevice;
  cudaGraphNode_t rows = nullptr;
  ASSERT_CUDA(cudaGraphAddMemcpyNode(&rows, graph, &fill, 1, &box));
  launch();
  for (const int i : {0, 1, 2, 16, 17, 18, 100, 101, 102, 200, 201, 202, 204, 205, 206})
    EXPECT_EQ(memory[i], 0x01020304u) << i;
  for (const int i : {3, 15, 19, 103, 203, 207}) EXPECT_EQ(memory[i], 0u) << i;

  cudaMemsetParams filled = {};
  ASSERT_CUDA(cudaGraphMemsetNodeGetParams(fill, &filled));
  EXPECT_EQ(filled.value, words.value);
  EXPECT_EQ(filled.elementSize, 4u);
  EXPECT_EQ(filled.width, 3u);
  EXPECT_EQ(filled.height, 2u);
  cudaMemcpy3DParms copied = {};
  ASSERT_CUDA(cudaGraphMemcpyNodeGetParams(rows, &copied));
  EXPECT_EQ(copied.dstPtr.ptr, memory + 200);
  EXPECT_EQ(copied.srcPtr.pitch, 64u);
  EXPECT_EQ(copied.extent.height, 2u);
  EXPECT_EQ(copied.kind, cudaMemcpyDeviceToDevice);
  EXPECT_EQ(cudaGraphMemcpyNodeGetParams(fill, &copied), cudaErrorInvalidValue) << "of another type";

  words.elementSize = 3;
  EXPECT_EQ(cudaGraphAddMemsetNode(&fill, graph, nullptr, 0, &words), cudaErrorInvalidValue);
  words.elementSize = 4;
  words.dst = &words;
  EXPECT_EQ(cudaGraphAddMemsetNode(&fill, graph, nullptr, 0, &words), cudaErrorInvalidValue)
      << "not device memory";
  EXPECT_CUDA(cudaFree(memory));
}

TEST_F(Graph, ListsItsNodes) {
  const auto a = host(0);
  const auto b = host(1, {a});
  const auto c = host(2, {a});
  size_t count = 0;
  ASSERT_CUDA(cudaGraphGetNodes(graph, nullptr, &count));
  EXPECT_EQ(count, 3u);
  std::vector<cudaGraphNode_t> nodes(5, a);
  count = 5;
  ASSERT_CUDA(cudaGraphGetNodes(graph, nodes.data(), &count));
  EXPECT_EQ(count, 3u);
  EXPECT_EQ(nodes, (std::vector<cudaGraphNode_t>{a, b, c, nullptr, nullptr}));
  count = 1;
  ASSERT_CUDA(cudaGraphGetRootNodes(graph, nodes.data(), &count));
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(nodes[0], a);
  count = 2;
  ASSERT_CUDA(cudaGraphNodeGetDependentNodes(a, nodes.data(), nullptr, &count));
  EXPECT_EQ(nodes[0], b);
  EXPECT_EQ(nodes[1], c);
  ASSERT_CUDA(cudaGraphNodeGetDependencies(b, nullptr, nullptr, &count));
  EXPECT_EQ(count, 1u);
  ASSERT_CUDA(cudaGraphDestroyNode(a));
  EXPECT_EQ(cudaGraphDestroyNode(a), cudaErrorInvalidValue);
  ASSERT_CUDA(cudaGraphNodeGetDependencies(b, nullptr, nullptr, &count));
  EXPECT_EQ(count, 0u);
}

TEST_F(Graph, ClonesFindTheirNodes) {
  const auto a = host(1);
  const auto b = host(2, {a});
  cudaGraph_t clone = nullptr;
  ASSERT_CUDA(cudaGraphClone(&clone, graph));
  cudaGraphNode_t twin = nullptr;
  ASSERT_CUDA(cudaGraphNodeFindInClone(&twin, b, clone));
  EXPECT_NE(twin, b);
  cudaGraphNode_t before = nullptr;
  size_t count = 1;
  ASSERT_CUDA(cudaGraphNodeGetDependencies(twin, &before, nullptr, &count));
  cudaGraphNode_t twinOfA = nullptr;
  ASSERT_CUDA(cudaGraphNodeFindInClone(&twinOfA, a, clone));
  EXPECT_EQ(before, twinOfA);
  cudaHostNodeParams params{Step::run, &steps[7]};
  ASSERT_CUDA(cudaGraphHostNodeSetParams(twin, &params));
  launch();
  EXPECT_EQ(order, (Numbers{1, 2})) << "the original is as it was";
  EXPECT_CUDA(cudaGraphDestroy(clone));
  EXPECT_EQ(cudaGraphDestroy(clone), cudaErrorInvalidValue);
}

TEST_F(Graph, ChildGraphsRunInTheirPlace) {
  cudaGraph_t child = nullptr;
  ASSERT_CUDA(cudaGraphCreate(&child, 0));
  std::swap(graph, child);
  const auto x = host(2);
  host(3, {x});
  std::swap(graph, child);
  const auto before = host(1);
  cudaGraphNode_t node = nullptr;
  ASSERT_CUDA(cudaGraphAddChildGraphNode(&node, graph, &before, 1, child));
  host(4, {node});
  EXPECT_CUDA(cudaGraphDestroy(child)) << "the node has a copy";
  launch(2);
  EXPECT_EQ(order, (Numbers{1, 2, 3, 4, 1, 2, 3, 4}));
  cudaGraph_t embedded = nullptr;
  ASSERT_CUDA(cudaGraphChildGraphNodeGetGraph(node, &embedded));
  size_t count = 0;
  EXPECT_CUDA(cudaGraphGetNodes(embedded, nullptr, &count));
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(cudaGraphDestroy(embedded), cudaErrorInvalidValue) << "it belongs to the node";
}

TEST_F(Graph, AnExecutableTakesAGraphOfTheSameForm) {
  const auto a = host(1);
  host(2, {a});
  cudaGraphExec_t exec = nullptr;
  ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  cudaGraph_t changed = nullptr;
  ASSERT_CUDA(cudaGraphClone(&changed, graph));
  cudaGraphNode_t twin = nullptr;
  ASSERT_CUDA(cudaGraphNodeFindInClone(&twin, a, changed));
  cudaHostNodeParams params{Step::run, &steps[5]};
  ASSERT_CUDA(cudaGraphHostNodeSetParams(twin, &params));
  cudaGraphExecUpdateResultInfo info = {};
  ASSERT_CUDA(cudaGraphExecUpdate(exec, changed, &info));
  EXPECT_EQ(info.result, cudaGraphExecUpdateSuccess);
  ASSERT_CUDA(cudaGraphLaunch(exec, stream));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(order, (Numbers{5, 2}));

  cudaGraphNode_t extra = nullptr;
  ASSERT_CUDA(cudaGraphAddEmptyNode(&extra, changed, nullptr, 0));
  EXPECT_EQ(cudaGraphExecUpdate(exec, changed, &info), cudaErrorGraphExecUpdateFailure);
  EXPECT_EQ(info.result, cudaGraphExecUpdateErrorTopologyChanged);
  ASSERT_CUDA(cudaGraphDestroyNode(twin));
  EXPECT_EQ(cudaGraphExecUpdate(exec, changed, &info), cudaErrorGraphExecUpdateFailure);
  EXPECT_EQ(info.result, cudaGraphExecUpdateErrorNodeTypeChanged);
  EXPECT_CUDA(cudaGraphDestroy(changed));
  EXPECT_CUDA(cudaGraphExecDestroy(exec));
}

TEST_F(Graph, KernelNodesAreRefused) {
  static char unknown;
  cudaKernelNodeParams params = {};
  params.func = &unknown;
  cudaGraphNode_t node = nullptr;
  EXPECT_EQ(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &params), cudaErrorInvalidDeviceFunction);
  EXPECT_EQ(cudaGraphAddKernelNode(&node, graph, nullptr, 0, nullptr), cudaErrorInvalidValue);
}

TEST_F(Graph, WrongHandlesAreRefused) {
  int onStack = 0;
  const auto wild = reinterpret_cast<cudaGraph_t>(&onStack);
  cudaGraphNode_t node = nullptr;
  size_t count = 0;
  EXPECT_EQ(cudaGraphDestroy(nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphDestroy(wild), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphGetNodes(wild, nullptr, &count), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphAddEmptyNode(&node, wild, nullptr, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphCreate(nullptr, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphCreate(&graph, 1), cudaErrorInvalidValue);
  cudaGraphExec_t exec = nullptr;
  EXPECT_EQ(cudaGraphInstantiate(&exec, wild, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphInstantiate(&exec, graph, 1u << 10), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagDeviceLaunch), cudaErrorNotSupported);
  EXPECT_EQ(cudaGraphLaunch(reinterpret_cast<cudaGraphExec_t>(&onStack), stream), cudaErrorInvalidValue);
  // A node of another graph.
  cudaGraph_t second = nullptr;
  ASSERT_CUDA(cudaGraphCreate(&second, 0));
  const auto mine = host(1);
  EXPECT_EQ(cudaGraphAddEmptyNode(&node, second, &mine, 1), cudaErrorInvalidValue);
  EXPECT_CUDA(cudaGraphDestroy(second));
  ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  EXPECT_EQ(cudaGraphLaunch(exec, reinterpret_cast<cudaStream_t>(&onStack)), cudaErrorInvalidResourceHandle);
  EXPECT_CUDA(cudaGraphExecDestroy(exec));
}

TEST_F(Graph, UserObjectsLiveAsLongAsGraphsNeedThem) {
  int destroyed = 0;
  const auto destroy = [](void* count) { ++*static_cast<int*>(count); };
  cudaUserObject_t object = nullptr;
  EXPECT_EQ(cudaUserObjectCreate(&object, &destroyed, destroy, 1, 0), cudaErrorInvalidValue)
      << "the flag is required";
  ASSERT_CUDA(cudaUserObjectCreate(&object, &destroyed, destroy, 1, cudaUserObjectNoDestructorSync));
  ASSERT_CUDA(cudaUserObjectRetain(object, 2));
  ASSERT_CUDA(cudaUserObjectRelease(object, 2));
  EXPECT_EQ(cudaUserObjectRelease(object, 2), cudaErrorInvalidValue) << "more than there are";
  // The program's reference moves to the graph.
  ASSERT_CUDA(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
  cudaGraphExec_t exec = nullptr;
  host(1);
  ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  ASSERT_CUDA(cudaGraphDestroy(graph));
  EXPECT_EQ(destroyed, 0) << "the executable has a reference too";
  ASSERT_CUDA(cudaGraphExecDestroy(exec));
  EXPECT_EQ(destroyed, 1);
  EXPECT_EQ(cudaUserObjectRetain(object, 1), cudaErrorInvalidValue) << "gone";

  ASSERT_CUDA(cudaGraphCreate(&graph, 0));
  ASSERT_CUDA(cudaUserObjectCreate(&object, &destroyed, destroy, 1, cudaUserObjectNoDestructorSync));
  ASSERT_CUDA(cudaGraphRetainUserObject(graph, object));
  ASSERT_CUDA(cudaUserObjectRelease(object));
  EXPECT_EQ(destroyed, 1);
  EXPECT_EQ(cudaGraphReleaseUserObject(graph, object, 2), cudaErrorInvalidValue);
  ASSERT_CUDA(cudaGraphReleaseUserObject(graph, object, 1));
  EXPECT_EQ(destroyed, 2);
}

/// The library's work: notes when it is numbered (launch) and when it runs.
struct Work {
  Numbers launched;
  Numbers ran;
  std::mutex mutex;
  int released = 0;
  int error = 0;  // what launch answers
  struct Run {
    Work* work;
    int number;
  };
  tuttiGraphWork get() {
    return {[](void* context, tuttiStreamTask* task) {
              auto* self = static_cast<Work*>(context);
              if (self->error != 0) return self->error;
              const int number = static_cast<int>(self->launched.size());
              self->launched.push_back(number);
              *task = {[](void* run) {
                         auto* mine = static_cast<Run*>(run);
                         const std::lock_guard lock(mine->work->mutex);
                         mine->work->ran.push_back(mine->number);
                       },
                       [](void* run) { delete static_cast<Run*>(run); }, new Run{self, number}};
              return 0;
            },
            [](void* context) { ++static_cast<Work*>(context)->released; }, this};
  }
};

TEST_F(Graph, WorkOfTheLibraryIsNumberedAtTheLaunchAndRunsInOrder) {
  Work work;
  tuttiCaptureState state = {7, 7};
  ASSERT_EQ(table().streamCapture(stream, &state), 0);
  EXPECT_EQ(state.id, 0u);
  void* streams[] = {stream};
  EXPECT_EQ(table().streamCaptureAdd(streams, 1, work.get()), EINVAL) << "nothing is captured";
  EXPECT_EQ(work.released, 0) << "refused work stays the caller's";
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  ASSERT_EQ(table().streamCapture(stream, &state), 0);
  EXPECT_NE(state.id, 0u);
  EXPECT_EQ(state.invalidated, 0);
  ASSERT_EQ(table().streamCaptureAdd(streams, 1, work.get()), 0);
  void* occupation = nullptr;
  EXPECT_EQ(table().streamTryBegin(stream, &occupation), EPERM);
  EXPECT_EQ(table().streamEnqueue(stream, {Gate::run, nullptr, nullptr}), EPERM);
  EXPECT_EQ(table().streamQuery(stream), EPERM);
  EXPECT_EQ(table().streamSynchronize(stream), EPERM);
  EXPECT_EQ(table().streamCapture(nullptr, &state), EPERM) << "a blocking stream is captured; invalidates";
  ASSERT_EQ(table().streamCapture(stream, &state), 0);
  EXPECT_EQ(state.invalidated, 1);
  EXPECT_EQ(table().streamCaptureAdd(streams, 1, work.get()), EPERM);
  cudaGraph_t captured = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &captured), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(work.released, 1) << "with the graph that nobody got";

  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  ASSERT_EQ(table().streamCaptureAdd(streams, 1, work.get()), 0);
  ASSERT_EQ(table().streamCaptureAdd(streams, 1, work.get()), 0);
  ASSERT_CUDA(cudaStreamEndCapture(stream, &captured));
  cudaGraphExec_t exec = nullptr;
  ASSERT_CUDA(cudaGraphInstantiate(&exec, captured, 0));
  ASSERT_CUDA(cudaGraphDestroy(captured));
  Gate gate;
  block(stream, gate);
  ASSERT_CUDA(cudaGraphLaunch(exec, stream));
  ASSERT_CUDA(cudaGraphLaunch(exec, stream));
  EXPECT_EQ(work.launched, (Numbers{0, 1, 2, 3}));
  EXPECT_TRUE(work.ran.empty());
  ASSERT_CUDA(cudaGraphExecDestroy(exec));
  EXPECT_EQ(work.released, 1) << "launches are pending";
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(work.ran, (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(work.released, 3);
}

TEST_F(Graph, WorkOfTheLibraryMayBelongToSeveralStreams) {
  cudaStream_t second;
  cudaEvent_t event;
  ASSERT_CUDA(cudaStreamCreate(&second));
  ASSERT_CUDA(cudaEventCreate(&event));
  Work work;
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  void* streams[] = {stream, second};
  EXPECT_EQ(table().streamCaptureAdd(streams, 2, work.get()), EINVAL) << "the second is not captured";
  ASSERT_CUDA(cudaEventRecord(event, stream));
  ASSERT_CUDA(cudaStreamWaitEvent(second, event));
  ASSERT_CUDA(cudaLaunchHostFunc(stream, Step::run, &steps[0]));
  ASSERT_CUDA(cudaLaunchHostFunc(second, Step::run, &steps[1]));
  ASSERT_EQ(table().streamCaptureAdd(streams, 2, work.get()), 0);
  cudaGraph_t captured = nullptr;
  ASSERT_CUDA(cudaStreamEndCapture(stream, &captured)) << "the common node joins the streams";
  size_t count = 0;
  ASSERT_CUDA(cudaGraphGetEdges(captured, nullptr, nullptr, nullptr, &count));
  EXPECT_EQ(count, 2u);
  EXPECT_CUDA(cudaGraphDestroy(captured));
  EXPECT_CUDA(cudaEventDestroy(event));
  EXPECT_CUDA(cudaStreamDestroy(second));
}

TEST_F(Graph, ALaunchReportsWorkThatCannotRun) {
  Work bad;
  Work good;
  bad.error = ENODEV;
  void* streams[] = {stream};
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  ASSERT_EQ(table().streamCaptureAdd(streams, 1, bad.get()), 0);
  ASSERT_EQ(table().streamCaptureAdd(streams, 1, good.get()), 0);
  cudaGraph_t captured = nullptr;
  cudaGraphExec_t exec = nullptr;
  ASSERT_CUDA(cudaStreamEndCapture(stream, &captured));
  ASSERT_CUDA(cudaGraphInstantiate(&exec, captured, 0));
  EXPECT_EQ(cudaGraphLaunch(exec, stream), cudaErrorLaunchFailure);
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(good.ran, (Numbers{0})) << "the rest runs: other ranks wait for it";
  EXPECT_CUDA(cudaGraphExecDestroy(exec));
  EXPECT_CUDA(cudaGraphDestroy(captured));
}

TEST_F(Graph, ManyBranchesShareLanes) {
  std::atomic<int> ran{0};
  cudaHostNodeParams params{[](void* data) { ++*static_cast<std::atomic<int>*>(data); }, &ran};
  std::vector<cudaGraphNode_t> branches;
  const auto root = host(0);
  for (int i = 0; i < 200; ++i) {
    cudaGraphNode_t node = nullptr;
    ASSERT_CUDA(cudaGraphAddHostNode(&node, graph, &root, 1, &params));
    branches.push_back(node);
  }
  host(1, branches);
  launch(2);
  EXPECT_EQ(ran, 400);
  EXPECT_EQ(order, (Numbers{0, 1, 0, 1}));
}

}  // namespace
