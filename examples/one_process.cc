// AllReduce between the devices of one process: usage  example_one_process [devices]
#include <vector>

#include "arguments.h"
#include "check.h"

int main(int argc, char** argv) {
  constexpr size_t kCount = 1 << 20;
  int devices = 0;
  check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  if (argc > 2) {
    std::fprintf(stderr, "usage: %s [DEVICES]\n", argv[0]);
    return 2;
  }
  if (argc > 1) devices = numberFrom(argv[1], "DEVICES", 1, devices);

  std::vector<ncclComm_t> comms(devices);
  std::vector<cudaStream_t> streams(devices);
  std::vector<float*> data(devices);
  check(ncclCommInitAll(comms.data(), devices, nullptr), "ncclCommInitAll");
  for (int i = 0; i < devices; ++i) {
    check(cudaSetDevice(i), "cudaSetDevice");
    check(cudaStreamCreate(&streams[i]), "cudaStreamCreate");
    check(cudaMalloc(reinterpret_cast<void**>(&data[i]), kCount * sizeof(float)), "cudaMalloc");
    const std::vector<float> input(kCount, static_cast<float>(i + 1));
    check(cudaMemcpy(data[i], input.data(), kCount * sizeof(float), cudaMemcpyHostToDevice), "cudaMemcpy");
  }

  // One thread calls for several devices: the calls belong into a group.
  check(ncclGroupStart(), "ncclGroupStart");
  for (int i = 0; i < devices; ++i)
    check(ncclAllReduce(data[i], data[i], kCount, ncclFloat, ncclSum, comms[i], streams[i]), "ncclAllReduce");
  check(ncclGroupEnd(), "ncclGroupEnd");

  const float expected = static_cast<float>(devices * (devices + 1)) / 2;
  size_t wrong = 0;
  for (int i = 0; i < devices; ++i) {
    check(cudaSetDevice(i), "cudaSetDevice");
    check(cudaStreamSynchronize(streams[i]), "cudaStreamSynchronize");
    checkOperations(comms[i]);
    std::vector<float> output(kCount);
    check(cudaMemcpy(output.data(), data[i], kCount * sizeof(float), cudaMemcpyDeviceToHost), "cudaMemcpy");
    for (const float value : output) wrong += value != expected;
    check(cudaFree(data[i]), "cudaFree");
    check(cudaStreamDestroy(streams[i]), "cudaStreamDestroy");
    check(ncclCommDestroy(comms[i]), "ncclCommDestroy");
  }
  std::printf("%d devices: each sum is %g, %zu wrong\n", devices, expected, wrong);
  return wrong == 0 ? 0 : 1;
}
