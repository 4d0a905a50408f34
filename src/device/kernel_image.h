// The kernels for GPUs that are embedded in this library.
#pragma once

#include <cstddef>
#include <span>

namespace tutti::device {

/// Empty where the library was built without them (CMake option TUTTI_GPU_KERNELS).
std::span<const std::byte> embeddedKernels();

}  // namespace tutti::device
