// A program with graphs as users write them, compiled with the toolkit's headers: capture over two streams, a memory
// pool, a user object, an update; with "kernel" it launches one in a capture. Prints "sum N" when everything is right.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "check.h"

__constant__ float scaleFactor;
__global__ void scale(float* values) { values[threadIdx.x] *= scaleFactor; }

static int destroyed = 0;
static void CUDART_CB noteDestruction(void*) { ++destroyed; }
static void CUDART_CB addTen(void* data) { *static_cast<int*>(data) += 10; }

int main(int argc, char** argv) {
  const int n = 1 << 18;
  int* source = nullptr;
  int* target = nullptr;
  int calls = 0;
  cudaStream_t stream, side;
  cudaEvent_t fork, join;
  cudaMemPool_t pool;
  CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, -1));
  CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
  CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
  CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
  cudaMemPoolProps props = {};
  props.allocType = cudaMemAllocationTypePinned;
  props.location.type = cudaMemLocationTypeDevice;
  props.location.id = 0;
  CHECK(cudaMemPoolCreate(&pool, &props));
  CHECK(cudaMallocAsync(&source, n * sizeof(int), pool, stream));
  CHECK(cudaMallocHost(&target, n * sizeof(int)));

  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  CHECK(cudaMemsetAsync(source, 1, n * sizeof(int) / 2, stream));
  CHECK(cudaEventRecord(fork, stream));
  CHECK(cudaStreamWaitEvent(side, fork, 0));
  CHECK(cudaMemsetAsync(source + n / 2, 2, n * sizeof(int) / 2, side));
  CHECK(cudaLaunchHostFunc(stream, addTen, &calls));
  CHECK(cudaEventRecord(join, side));
  CHECK(cudaStreamWaitEvent(stream, join, 0));
  CHECK(cudaMemcpyAsync(target, source, n * sizeof(int), cudaMemcpyDeviceToHost, stream));
  cudaStreamCaptureStatus status;
  unsigned long long id = 0;
  cudaGraph_t graph = nullptr;
  const cudaGraphNode_t* dependencies = nullptr;
  size_t count = 0;
  CHECK(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &dependencies, nullptr, &count));
  if (status != cudaStreamCaptureStatusActive || count != 1) return 3;
  cudaUserObject_t object;
  CHECK(cudaUserObjectCreate(&object, &calls, noteDestruction, 1, cudaUserObjectNoDestructorSync));
  CHECK(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
  if (argc > 1 && std::strcmp(argv[1], "kernel") == 0) {
    scale<<<1, 32, 0, stream>>>(nullptr);
    CHECK(cudaGetLastError());
  }
  CHECK(cudaStreamEndCapture(stream, &graph));

  cudaGraphExec_t exec = nullptr;
  CHECK(cudaGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  for (int i = 0; i < 3; ++i) CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  long long sum = 0;
  for (int i = 0; i < n; ++i) sum += target[i] == (i < n / 2 ? 0x01010101 : 0x02020202);
  size_t nodes = 0;
  CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
  cudaGraphExecUpdateResultInfo info;
  CHECK(cudaGraphExecUpdate(exec, graph, &info));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaFreeAsync(source, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaMemPoolDestroy(pool));
  CHECK(cudaFreeHost(target));
  CHECK(cudaDeviceSynchronize());
  std::printf("sum %lld, nodes %zu, calls %d, destroyed %d\n", sum, nodes, calls, destroyed);
  return 0;
}
