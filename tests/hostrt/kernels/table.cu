// Kernels that the library launches through the table: by their twin, whatever the current device is.
#include <cerrno>

#include "hostrt/kernels/support.cuh"

namespace {

__global__ void addTo(int* value, int addend) {
  extern __shared__ int words[];
  words[threadIdx.x] = addend;
  __syncthreads();
  atomicAdd(value, words[blockDim.x - 1 - threadIdx.x]);
}

__global__ void __launch_bounds__(64) bounded(int* value) { *value = 1; }

__global__ void traps() { __trap(); }

/// A launch of addTo on a stream of the device.
int launchAdd(int device, cudaStream_t stream, int* value, int addend, tuttiKernelShape shape) {
  void* arguments[] = {&value, &addend};
  return table().kernelLaunch(device, stream, &tutti::shim::Twin<&addTo>::record, &shape, arguments);
}

tuttiKernelShape shapeOf(uint32_t blocks, uint32_t threads) {
  return {{blocks, 1, 1}, {threads, 1, 1}, threads * sizeof(int)};
}

}  // namespace

TEST(TableKernels, RunInTheOrderOfTheirStream) {
  cudaStream_t stream;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const Buffer<int> value(1);
  Gate gate;
  block(stream, gate);
  ASSERT_EQ(launchAdd(0, stream, value.get(), 5, shapeOf(3, 64)), 0);
  settle();
  EXPECT_EQ(value.values()[0], 0);
  gate.open();
  ASSERT_EQ(table().streamSynchronize(stream), 0);
  EXPECT_EQ(value.values()[0], 5 * 3 * 64);
  ASSERT_CUDA(cudaStreamDestroy(stream));
}

TEST(TableKernels, TakeDefaultStreamsOfTheDeviceThatIsNamed) {
  const Buffer<int> value(1);
  ASSERT_EQ(launchAdd(3, nullptr, value.get(), 1, shapeOf(1, 32)), 0);
  ASSERT_EQ(launchAdd(3, cudaStreamPerThread, value.get(), 1, shapeOf(1, 32)), 0);
  int device = -1;
  ASSERT_CUDA(cudaGetDevice(&device));
  EXPECT_EQ(device, 0) << "the current device stays";
  ASSERT_CUDA(cudaSetDevice(3));
  ASSERT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(value.values()[0], 64);
  cudaStream_t ofThree;
  ASSERT_CUDA(cudaStreamCreate(&ofThree));
  ASSERT_CUDA(cudaSetDevice(0));
  EXPECT_EQ(launchAdd(0, ofThree, value.get(), 1, shapeOf(1, 32)), EINVAL) << "another device's stream";
  EXPECT_EQ(launchAdd(99, nullptr, value.get(), 1, shapeOf(1, 32)), ENODEV);
  ASSERT_CUDA(cudaStreamDestroy(ofThree));
}

TEST(TableKernels, AreNodesOfACapture) {
  cudaStream_t stream;
  ASSERT_CUDA(cudaStreamCreate(&stream));
  const Buffer<int> value(1);
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  ASSERT_EQ(launchAdd(0, stream, value.get(), 2, shapeOf(2, 32)), 0);
  cudaGraph_t graph;
  ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  EXPECT_EQ(value.values()[0], 0);
  size_t nodes = 1;
  cudaGraphNode_t node;
  ASSERT_CUDA(cudaGraphGetNodes(graph, &node, &nodes));
  ASSERT_EQ(nodes, 1u);
  cudaGraphNodeType type;
  ASSERT_CUDA(cudaGraphNodeGetType(node, &type));
  EXPECT_EQ(type, cudaGraphNodeTypeKernel);
  cudaGraphExec_t exec;
  ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  for (int replay = 0; replay < 3; ++replay) ASSERT_CUDA(cudaGraphLaunch(exec, stream));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(value.values()[0], 3 * 2 * 2 * 32);
  ASSERT_CUDA(cudaGraphExecDestroy(exec));
  ASSERT_CUDA(cudaGraphDestroy(graph));
  ASSERT_CUDA(cudaStreamDestroy(stream));
}

TEST(TableKernels, OfAShapeThatNoDeviceCanRunAreRefused) {
  const Buffer<int> value(1);
  EXPECT_EQ(launchAdd(0, nullptr, value.get(), 1, shapeOf(1, 2048)), EINVAL);
  EXPECT_EQ(launchAdd(0, nullptr, value.get(), 1, shapeOf(0, 32)), EINVAL);
  tuttiKernelShape shape = shapeOf(1, 32);
  shape.sharedBytes = 227 << 10;
  EXPECT_EQ(launchAdd(0, nullptr, value.get(), 1, shape), 0) << "nobody has to ask for it first";
  shape.sharedBytes += 1;
  EXPECT_EQ(launchAdd(0, nullptr, value.get(), 1, shape), EINVAL);
  EXPECT_EQ(table().kernelLaunch(0, nullptr, nullptr, &shape, nullptr), EINVAL);
  expectFinishes();
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "the program's last error is its own";
}

TEST(TableKernels, ResidencyFollowsThreadsSharedMemoryAndBounds) {
  const auto resident = [](const void* twin, uint32_t threads, size_t bytes) {
    uint32_t blocks = 99;
    EXPECT_EQ(table().kernelResident(0, twin, threads, bytes, &blocks), 0);
    return blocks;
  };
  const void* free = &tutti::shim::Twin<&addTo>::record;
  int multiprocessors = 0;
  ASSERT_CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  const auto count = static_cast<uint32_t>(multiprocessors);
  EXPECT_EQ(resident(free, 1024, 0), 2 * count);
  EXPECT_EQ(resident(free, 32, 0), 32 * count);
  EXPECT_EQ(resident(free, 32, 100 << 10), 2 * count);
  EXPECT_EQ(resident(free, 1025, 0), 0u);
  EXPECT_EQ(resident(&tutti::shim::Twin<&bounded>::record, 65, 0), 0u);
  uint32_t blocks = 0;
  EXPECT_EQ(table().kernelResident(0, free, 0, 0, &blocks), EINVAL);
}

TEST(TableKernels, AFailedDeviceAnswersEio) {
  const tuttiKernelShape shape{{1, 1, 1}, {1, 1, 1}, 0};
  void* event = nullptr;
  ASSERT_EQ(table().eventCreate(5, &event), 0);
  ASSERT_EQ(table().kernelLaunch(5, nullptr, &tutti::shim::Twin<&traps>::record, &shape, nullptr), 0);
  ASSERT_EQ(table().eventRecord(5, nullptr, event), 0);
  int state = EBUSY;
  for (int i = 0; i < 10000 && state == EBUSY; ++i) {
    settle();
    state = table().eventQuery(event);
  }
  EXPECT_EQ(state, EIO);
  const Buffer<int> value(1);
  EXPECT_EQ(launchAdd(5, nullptr, value.get(), 1, shapeOf(1, 32)), EIO);
  EXPECT_EQ(table().eventDestroy(event), 0);
  ASSERT_CUDA(cudaSetDevice(5));
  ASSERT_CUDA(cudaDeviceReset());
  ASSERT_CUDA(cudaSetDevice(0));
}
