// A launch as the program asks for it, checked and copied.
#pragma once

#include <memory>

#include "hostrt/kernel_registry.h"
#include "hostrt/kernel_run.h"
#include "hostrt/stream.h"

namespace tutti::hostrt {

struct LaunchRequest {
  dim3 grid;
  dim3 block;
  void** arguments = nullptr;
  size_t dynamicShared = 0;
  bool isCooperative = false;
};

/// Checks sizes and copies the arguments. Errors are CUDA's; a kernel that cannot run here is named on
/// stderr.
cudaError_t prepareLaunch(Kernel* kernel, const LaunchRequest& request,
                          std::shared_ptr<const KernelLaunch>* result);

/// Enqueues the launch, or adds it to the stream's capture.
cudaError_t launchOn(Stream& stream, Kernel* kernel, const LaunchRequest& request);

/// Blocks of that size that a multiprocessor holds; 0 when it can run none.
unsigned residentPerMultiprocessor(const shim::KernelTwin* twin, unsigned threads, size_t dynamicShared);

}  // namespace tutti::hostrt
