// The kernels for GPUs that are embedded in this library.
#pragma once

#include <cstddef>
#include <span>

namespace tutti::device {

/// Empty where the library was built without nvcc.
std::span<const std::byte> embeddedKernels();

}  // namespace tutti::device
