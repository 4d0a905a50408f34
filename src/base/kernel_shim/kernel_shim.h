// CUDA device code for the host compiler: the words and functions that nvcc knows by itself. Included first
// (g++ -include) by tutti_add_host_kernels; docs/virtual-gpus.md says how the pieces fit.
#pragma once

#include "atomics.h"
#include "core.h"
#include "host_api.h"
#include "intrinsics.h"
#include "launch.h"
#include "memory.h"
#include "warp.h"
