// The driver of virtual GPUs: kernels that the host compiler compiled, run by the host runtime.
#pragma once

#include <memory>

#include "base/host_runtime.h"
#include "device/driver.h"

namespace tutti {

namespace shim {
struct KernelTwin;
}

/// The kernel for a type and a protocol; null where there is none.
using TwinOf = const shim::KernelTwin* (*)(ncclDataType_t type, device::Protocol protocol);

/// Fails when the host runtime is of an earlier release, which cannot be driven.
Result<std::unique_ptr<Driver>> makeVirtualDriver(const tuttiHostRuntime_v1& runtime, TwinOf twins);

}  // namespace tutti
