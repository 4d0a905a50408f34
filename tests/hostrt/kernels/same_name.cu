#include "hostrt/kernels/same_name.h"

#include <cuda_runtime.h>

namespace {
__global__ void sameName(int* out) { *out = 2; }
}  // namespace

void launchOtherSameName(int* out) { sameName<<<1, 1>>>(out); }
