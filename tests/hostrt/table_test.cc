#include <cerrno>
#include <vector>

#include "hostrt/support.h"

/// A task that notes its number, after a gate if it has one.
struct TableTask {
  std::vector<int>* order;
  int number;
  Gate* gate = nullptr;
  std::atomic<int> ran{0};
  std::atomic<int> released{0};
  tuttiStreamTask get() {
    return {[](void* context) {
              auto* self = static_cast<TableTask*>(context);
              if (self->gate) self->gate->pass();
              self->order->push_back(self->number);
              ++self->ran;
            },
            [](void* context) {
              auto* self = static_cast<TableTask*>(context);
              EXPECT_EQ(self->ran, 1);
              ++self->released;
            },
            this};
  }
};

class Table : public testing::Test {
 protected:
  void SetUp() override { ASSERT_CUDA(cudaStreamCreate(&stream)); }
  void TearDown() override { EXPECT_CUDA(cudaStreamDestroy(stream)); }
  cudaStream_t stream = nullptr;
  std::vector<int> order;  // written by one stream's worker at a time
};

using Numbers = std::vector<int>;

TEST_F(Table, NamesItsSizeAndVersion) {
  EXPECT_EQ(table().size, sizeof(tuttiHostRuntime_v1));
  EXPECT_EQ(table().version, 1u);
}

TEST_F(Table, SharesDevicesWithTheApi) {
  int value = 0;
  ASSERT_EQ(table().deviceCount(&value), 0);
  EXPECT_EQ(value, 8);
  ASSERT_EQ(table().setCurrentDevice(6), 0);
  ASSERT_CUDA(cudaGetDevice(&value));
  EXPECT_EQ(value, 6);
  EXPECT_EQ(table().setCurrentDevice(8), ENODEV);
  ASSERT_EQ(table().currentDevice(&value), 0);
  EXPECT_EQ(value, 6);
  ASSERT_EQ(table().streamDevice(nullptr, &value), 0);
  EXPECT_EQ(value, 6);
  ASSERT_EQ(table().streamDevice(stream, &value), 0);
  EXPECT_EQ(value, 0);
  ASSERT_EQ(table().setCurrentDevice(0), 0);
}

TEST_F(Table, SharesMemoryWithTheApi) {
  void* pointer = nullptr;
  ASSERT_EQ(table().memoryAllocate(4, 100000, &pointer), 0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(pointer) % 4096, 0u);
  cudaPointerAttributes attributes;
  ASSERT_CUDA(cudaPointerGetAttributes(&attributes, pointer));
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.device, 4);
  ASSERT_EQ(table().memoryFree(pointer), 0);
  EXPECT_EQ(table().memoryFree(nullptr), 0);
  EXPECT_EQ(table().memoryAllocate(99, 1, &pointer), ENODEV);
  EXPECT_EQ(table().memoryAllocate(0, size_t{1} << 60, &pointer), ENOMEM);
}

TEST_F(Table, AnOccupationHoldsLaterWorkBack) {
  void* occupation = nullptr;
  ASSERT_EQ(table().streamTryBegin(stream, &occupation), 0);
  void* second = nullptr;
  EXPECT_EQ(table().streamTryBegin(stream, &second), EBUSY);
  EXPECT_EQ(table().streamQuery(stream), EBUSY);
  TableTask task{&order, 1};
  ASSERT_EQ(table().streamEnqueue(stream, task.get()), 0);
  settle();
  EXPECT_EQ(task.ran, 0);
  order.push_back(0);
  table().streamEnd(occupation);
  ASSERT_EQ(table().streamSynchronize(stream), 0);
  EXPECT_EQ(order, (Numbers{0, 1}));
  EXPECT_EQ(task.released, 1);
  EXPECT_EQ(table().streamQuery(stream), 0);
}

TEST_F(Table, AHandedOffTaskGoesBeforeWhatWasEnqueuedMeanwhile) {
  void* occupation = nullptr;
  ASSERT_EQ(table().streamTryBegin(stream, &occupation), 0);
  Gate gate;
  TableTask rest{&order, 1, &gate};
  TableTask later{&order, 2};
  ASSERT_EQ(table().streamEnqueue(stream, later.get()), 0);
  table().streamHandOff(occupation, rest.get());
  gate.awaitReached();
  EXPECT_EQ(later.ran, 0);
  EXPECT_EQ(table().streamQuery(stream), EBUSY);
  void* second = nullptr;
  EXPECT_EQ(table().streamTryBegin(stream, &second), EBUSY);
  gate.open();
  ASSERT_EQ(table().streamSynchronize(stream), 0);
  EXPECT_EQ(order, (Numbers{1, 2}));
  EXPECT_EQ(rest.released, 1);
}

TEST_F(Table, SynchronizeCoversAHandedOffTask) {
  for (int i = 0; i < 200; ++i) {
    void* occupation = nullptr;
    ASSERT_EQ(table().streamTryBegin(stream, &occupation), 0) << "round " << i;
    TableTask rest{&order, i};
    table().streamHandOff(occupation, rest.get());
    ASSERT_EQ(table().streamSynchronize(stream), 0);
    ASSERT_EQ(rest.ran, 1);
    ASSERT_EQ(rest.released, 1);
  }
}

TEST_F(Table, TryBeginNeedsEverythingThatTheStreamWaitsFor) {
  cudaStream_t free;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&free, cudaStreamNonBlocking));
  void* occupation = nullptr;
  {
    Gate gate;
    block(stream, gate);
    EXPECT_EQ(table().streamTryBegin(nullptr, &occupation), EBUSY) << "a blocking stream is busy";
    ASSERT_EQ(table().streamTryBegin(free, &occupation), 0);
    table().streamEnd(occupation);
    gate.open();
    ASSERT_CUDA(cudaStreamSynchronize(stream));
  }
  ASSERT_EQ(table().streamTryBegin(nullptr, &occupation), 0);
  void* other = nullptr;
  EXPECT_EQ(table().streamTryBegin(stream, &other), EBUSY) << "the legacy stream is busy";
  ASSERT_EQ(table().streamTryBegin(free, &other), 0);
  table().streamEnd(other);
  TableTask task{&order, 7};
  ASSERT_EQ(table().streamEnqueue(stream, task.get()), 0);
  settle();
  EXPECT_EQ(task.ran, 0);
  table().streamEnd(occupation);
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(task.ran, 1);
  ASSERT_CUDA(cudaStreamDestroy(free));
}

TEST_F(Table, WaitsForEventsBeforeItLetsABegin) {
  cudaStream_t other;
  cudaEvent_t event;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  ASSERT_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  Gate gate;
  block(other, gate);
  ASSERT_CUDA(cudaEventRecord(event, other));
  ASSERT_CUDA(cudaStreamWaitEvent(stream, event));
  void* occupation = nullptr;
  EXPECT_EQ(table().streamTryBegin(stream, &occupation), EBUSY);
  TableTask task{&order, 1};
  ASSERT_EQ(table().streamEnqueue(stream, task.get()), 0);
  settle();
  EXPECT_EQ(task.ran, 0);
  gate.open();
  ASSERT_EQ(table().streamSynchronize(stream), 0);
  EXPECT_EQ(task.ran, 1);
  ASSERT_CUDA(cudaEventDestroy(event));
  ASSERT_CUDA(cudaStreamDestroy(other));
}

TEST_F(Table, ApiWorkComesAfterAnOccupation) {
  void* occupation = nullptr;
  ASSERT_EQ(table().streamTryBegin(stream, &occupation), 0);
  char* memory = nullptr;
  ASSERT_CUDA(cudaMalloc(&memory, 64));
  memory[0] = 1;
  ASSERT_CUDA(cudaMemsetAsync(memory, 2, 64, stream));
  cudaEvent_t event;
  ASSERT_CUDA(cudaEventCreate(&event));
  ASSERT_CUDA(cudaEventRecord(event, stream));
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  EXPECT_EQ(memory[0], 1);
  table().streamEnd(occupation);
  ASSERT_CUDA(cudaEventSynchronize(event));
  EXPECT_EQ(memory[0], 2);
  ASSERT_CUDA(cudaEventDestroy(event));
  ASSERT_CUDA(cudaFree(memory));
}

TEST_F(Table, DestroyedStreamsRunAndReleaseTheirTasks) {
  cudaStream_t gone;
  ASSERT_CUDA(cudaStreamCreate(&gone));
  Gate gate;
  TableTask first{&order, 1, &gate};
  TableTask second{&order, 2};
  ASSERT_EQ(table().streamEnqueue(gone, first.get()), 0);
  ASSERT_EQ(table().streamEnqueue(gone, second.get()), 0);
  ASSERT_CUDA(cudaStreamDestroy(gone));
  EXPECT_EQ(table().streamEnqueue(gone, first.get()), EINVAL);
  gate.open();
  ASSERT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(first.released, 1);
  EXPECT_EQ(second.released, 1);
}

TEST_F(Table, WrongArgumentsGetAnErrno) {
  void* occupation = nullptr;
  int onStack = 0;
  EXPECT_EQ(table().streamTryBegin(&onStack, &occupation), EINVAL);
  EXPECT_EQ(table().streamEnqueue(stream, {}), EINVAL);
  EXPECT_EQ(table().streamQuery(reinterpret_cast<void*>(0x99)), EINVAL);
  EXPECT_EQ(table().streamSynchronize(reinterpret_cast<void*>(0x99)), EINVAL);
}

TEST_F(Table, OccupationsExcludeEachOtherAcrossThreads) {
  int inside = 0;  // no atomic: the occupation is the lock
  int total = 0;
  std::vector<std::thread> all;
  for (int t = 0; t < 4; ++t) {
    all.emplace_back([&] {
      for (int done = 0; done < 500;) {
        void* occupation = nullptr;
        if (table().streamTryBegin(stream, &occupation) != 0) {
          std::this_thread::yield();
          continue;
        }
        EXPECT_EQ(++inside, 1);
        ++total;
        --inside;
        table().streamEnd(occupation);
        ++done;
      }
    });
  }
  for (std::thread& thread : all) thread.join();
  EXPECT_EQ(total, 2000);
}

TEST_F(Table, DescribesDevicesAsTheApiDoes) {
  tuttiDeviceFacts facts;
  ASSERT_EQ(table().deviceFacts(3, &facts), 0);
  cudaDeviceProp properties;
  ASSERT_CUDA(cudaGetDeviceProperties(&properties, 3));
  EXPECT_STREQ(facts.name, properties.name);
  EXPECT_EQ(facts.major, properties.major);
  EXPECT_EQ(facts.minor, properties.minor);
  EXPECT_EQ(facts.multiprocessors, properties.multiProcessorCount);
  char busId[32];
  ASSERT_CUDA(cudaDeviceGetPCIBusId(busId, sizeof busId, 3));
  EXPECT_STREQ(facts.busId, busId);
  EXPECT_EQ(table().deviceFacts(8, &facts), ENODEV);
  int reaches = -1;
  ASSERT_EQ(table().deviceReaches(0, 7, &reaches), 0);
  EXPECT_EQ(reaches, 1);
  ASSERT_EQ(table().deviceReaches(2, 2, &reaches), 0);
  EXPECT_EQ(reaches, 0);
  EXPECT_EQ(table().deviceReaches(0, 8, &reaches), ENODEV);
}

TEST_F(Table, PinnedMemoryIsTheHosts) {
  void* pinned = nullptr;
  ASSERT_EQ(table().pinnedAllocate(2, 5000, &pinned), 0);
  EXPECT_TRUE(isFilled(pinned, 5000, 0));
  cudaPointerAttributes attributes;
  ASSERT_CUDA(cudaPointerGetAttributes(&attributes, pinned));
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  EXPECT_EQ(attributes.devicePointer, pinned);
  EXPECT_EQ(table().memoryFree(pinned), EINVAL) << "it is no device memory";
  EXPECT_EQ(table().pinnedFree(pinned), 0);
  EXPECT_EQ(table().pinnedFree(pinned), EINVAL);
  EXPECT_EQ(table().pinnedFree(nullptr), 0);
  EXPECT_EQ(table().pinnedAllocate(99, 1, &pinned), ENODEV);
  EXPECT_EQ(table().pinnedAllocate(0, size_t{1} << 60, &pinned), ENOMEM);
}

TEST_F(Table, TellsWhatAPointerIs) {
  const auto kindOf = [](const void* pointer, int* device) {
    tuttiPointerFacts facts;
    EXPECT_EQ(table().pointerFacts(pointer, &facts), 0);
    *device = facts.device;
    return facts.kind;
  };
  int device = 0;
  char* memory = nullptr;
  ASSERT_CUDA(cudaSetDevice(4));
  ASSERT_CUDA(cudaMalloc(&memory, 100));
  ASSERT_CUDA(cudaSetDevice(0));
  EXPECT_EQ(kindOf(memory + 99, &device), tuttiPointerDevice);
  EXPECT_EQ(device, 4);
  ASSERT_CUDA(cudaFree(memory));
  ASSERT_CUDA(cudaMallocHost(&memory, 100));
  EXPECT_EQ(kindOf(memory, &device), tuttiPointerHost);
  ASSERT_CUDA(cudaFreeHost(memory));
  ASSERT_CUDA(cudaMallocManaged(&memory, 100, cudaMemAttachGlobal));
  EXPECT_EQ(kindOf(memory, &device), tuttiPointerManaged);
  ASSERT_CUDA(cudaFree(memory));
  EXPECT_EQ(kindOf(&device, &device), tuttiPointerUnknown);
  EXPECT_EQ(device, -1);
  EXPECT_EQ(kindOf(nullptr, &device), tuttiPointerUnknown);
}

TEST_F(Table, EventsOrderStreamsOfTwoDevices) {
  void* event = nullptr;
  ASSERT_EQ(table().eventCreate(0, &event), 0);
  EXPECT_EQ(table().eventQuery(event), 0) << "nothing was recorded";
  Gate gate;
  block(stream, gate);
  ASSERT_EQ(table().eventRecord(0, stream, event, 0), 0);
  EXPECT_EQ(table().eventQuery(event), EBUSY);
  EXPECT_EQ(table().eventRecord(1, nullptr, event, 0), EINVAL) << "another device's stream";
  ASSERT_EQ(table().eventWait(1, nullptr, event, 0), 0);
  ASSERT_EQ(table().setCurrentDevice(1), 0);
  EXPECT_EQ(table().streamQuery(nullptr), EBUSY);
  gate.open();
  ASSERT_EQ(table().streamSynchronize(nullptr), 0);
  ASSERT_EQ(table().setCurrentDevice(0), 0);
  EXPECT_EQ(table().eventQuery(event), 0);
  EXPECT_EQ(table().eventDestroy(event), 0);
  EXPECT_EQ(table().eventDestroy(event), EINVAL);
  EXPECT_EQ(table().eventQuery(event), EINVAL);
  EXPECT_EQ(table().eventCreate(99, &event), ENODEV);
}

TEST_F(Table, AskingForAnEventDisturbsNoCapture) {
  void* event = nullptr;
  ASSERT_EQ(table().eventCreate(0, &event), 0);
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  EXPECT_EQ(table().eventQuery(event), 0);
  cudaGraph_t graph;
  ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  ASSERT_CUDA(cudaGraphDestroy(graph));
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  ASSERT_EQ(table().eventRecord(0, stream, event, 0), 0);
  EXPECT_EQ(table().eventQuery(event), EPERM);
  ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  ASSERT_CUDA(cudaGraphDestroy(graph));
  ASSERT_EQ(table().eventDestroy(event), 0);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "the program's last error is its own";
}
