// The driver of GPUs: libcuda.so.1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "device/driver.h"

namespace tutti {

/// Kernels for GPUs, as kernel_table.h has the library's.
struct GpuKernels {
  std::span<const std::byte> image;  // for cuModuleLoadData; empty: none were built
  std::string (*nameOf)(ncclDataType_t type, device::Protocol protocol) = nullptr;
  uint32_t mostSharedBytes = 0;  // of a launch
};

/// See cudaDriver(). `file`: the driver's library.
Result<std::unique_ptr<Driver>> openCudaDriver(const std::string& file, const GpuKernels& kernels);

}  // namespace tutti
