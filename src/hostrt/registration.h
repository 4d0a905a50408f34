// Kernels that programs have registered.
#pragma once

#include "hostrt/api.h"

namespace tutti::hostrt {

/// A kernel node cannot run: says so and names the kernel, as for a launch.
cudaError_t refuseKernelNode(const void* hostFunction);

}  // namespace tutti::hostrt
