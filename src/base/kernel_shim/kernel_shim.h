// CUDA device code for the host compiler: the words and functions that nvcc knows by itself. Included first
// (g++ -include) by tutti_add_host_kernels; docs/virtual-gpus.md says how the pieces fit.
#pragma once

#include "base/kernel_shim/atomics.h"
#include "base/kernel_shim/core.h"
#include "base/kernel_shim/host_api.h"
#include "base/kernel_shim/intrinsics.h"
#include "base/kernel_shim/launch.h"
#include "base/kernel_shim/memory.h"
#include "base/kernel_shim/warp.h"
