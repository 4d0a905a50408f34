// Stands for the library's kernels: adds to a counter in the output of the first call, once it may.
#include "device/kernels/counting.h"

namespace {

/// Every thread adds `count`; the block's first one adds what its dynamic shared memory was large enough for.
/// Before that it waits until *comm->abort is not 0, where a comm is given.
__global__ void countingKernel(const tutti::device::LaunchArguments arguments) {
  extern __shared__ unsigned words[];
  const tutti::device::Call& call = arguments.inlineCalls[0];
  if (arguments.comm)
    while (tutti::shim::loadAcquire(arguments.comm->abort) == 0) __nanosleep(1000);
  words[threadIdx.x] = static_cast<unsigned>(call.count);
  __syncthreads();
  atomicAdd(reinterpret_cast<unsigned long long*>(call.output), words[blockDim.x - 1 - threadIdx.x]);
}

}  // namespace

namespace tutti::test {

const shim::KernelTwin* countingTwin(ncclDataType_t type, device::Protocol) {
  return type == ncclFloat8e5m2 ? nullptr : &shim::Twin<&countingKernel>::record;
}
const shim::KernelTwin* completeTwins(ncclDataType_t, device::Protocol) {
  return &shim::Twin<&countingKernel>::record;
}

}  // namespace tutti::test
