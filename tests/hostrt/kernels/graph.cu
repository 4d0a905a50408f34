// Kernels as nodes of graphs.
#include "hostrt/kernels/support.cuh"

namespace {

__global__ void multiplyAdd(int* value, int factor, int addend) { *value = *value * factor + addend; }

}  // namespace

TEST(KernelGraphs, ACaptureIsReplayedWithItsArguments) {
  cudaStream_t stream;
  ASSERT_CUDA(cudaStreamCreate(&stream));
  const Buffer<int> value(std::vector<int>{1});
  int factor = 2;
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  multiplyAdd<<<1, 1, 0, stream>>>(value.get(), factor, 1);
  factor = 1000;
  multiplyAdd<<<1, 1, 0, stream>>>(value.get(), 3, 0);
  cudaGraph_t graph;
  ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  EXPECT_EQ(value.values()[0], 1) << "nothing runs while it is captured";
  cudaGraphExec_t exec;
  ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  int expected = 1;
  for (int replay = 0; replay < 5; ++replay) {
    ASSERT_CUDA(cudaGraphLaunch(exec, stream));
    expected = (expected * 2 + 1) * 3;
  }
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(value.values()[0], expected);
  ASSERT_CUDA(cudaGraphExecDestroy(exec));
  ASSERT_CUDA(cudaGraphDestroy(graph));
  ASSERT_CUDA(cudaStreamDestroy(stream));
}

TEST(KernelGraphs, NodesAreMadeAndChangedByHand) {
  const Buffer<int> value(std::vector<int>{5});
  int* pointer = value.get();
  int factor = 2;
  int addend = 3;
  void* arguments[] = {&pointer, &factor, &addend};
  cudaKernelNodeParams parameters = {};
  parameters.func = reinterpret_cast<void*>(multiplyAdd);
  parameters.gridDim = dim3(1);
  parameters.blockDim = dim3(1);
  parameters.kernelParams = arguments;
  cudaGraph_t graph;
  cudaGraphNode_t first;
  cudaGraphNode_t second;
  ASSERT_CUDA(cudaGraphCreate(&graph, 0));
  ASSERT_CUDA(cudaGraphAddKernelNode(&first, graph, nullptr, 0, &parameters));
  addend = 4;
  ASSERT_CUDA(cudaGraphAddKernelNode(&second, graph, &first, 1, &parameters));
  cudaGraphNodeType type;
  ASSERT_CUDA(cudaGraphNodeGetType(first, &type));
  EXPECT_EQ(type, cudaGraphNodeTypeKernel);
  cudaKernelNodeParams found = {};
  ASSERT_CUDA(cudaGraphKernelNodeGetParams(first, &found));
  EXPECT_EQ(found.func, parameters.func);
  EXPECT_EQ(*static_cast<int*>(found.kernelParams[2]), 3);
  factor = 10;
  ASSERT_CUDA(cudaGraphKernelNodeSetParams(second, &parameters));
  cudaGraphExec_t exec;
  ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  ASSERT_CUDA(cudaGraphLaunch(exec, nullptr));
  expectFinishes();
  EXPECT_EQ(value.values()[0], (5 * 2 + 3) * 10 + 4);
  parameters.blockDim = dim3(2000);
  EXPECT_EQ(cudaGraphKernelNodeSetParams(second, &parameters), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGraphAddKernelNode(&first, graph, nullptr, 0, nullptr), cudaErrorInvalidValue);
  cudaGetLastError();
  ASSERT_CUDA(cudaGraphExecDestroy(exec));
  ASSERT_CUDA(cudaGraphDestroy(graph));
}
