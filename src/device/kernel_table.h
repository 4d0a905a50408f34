// The interpreter's kernels (interpreter.cuh): 12 types, 3 protocols, and each of these twice: compiled by
// the host compiler for virtual GPUs, and in an image for GPUs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/device_program.h"
#include "nccl.h"

namespace tutti {

namespace shim {
struct KernelTwin;  // base/kernel_shim/abi.h
}  // namespace shim

/// The kernel compiled by the host compiler; its one argument is a device::LaunchArguments. Null for a number
/// that is no data type. Lives as long as the library.
const shim::KernelTwin* kernelTwin(ncclDataType_t type, device::Protocol protocol);

/// All kernels for GPUs, as cuModuleLoadData takes them (a fatbin). Empty unless the library was configured
/// with -DTUTTI_GPU_KERNELS=ON.
std::span<const std::byte> kernelImage();
/// Name of the kernel in that image; "" for a number that is no data type.
std::string kernelName(ncclDataType_t type, device::Protocol protocol);

/// Dynamic shared memory of a launch whose lanes have at most `links` connections.
uint32_t sharedBytesFor(uint32_t links);
/// Most threads a block of any kernel may have.
constexpr uint32_t kMostThreads = 512;

}  // namespace tutti
