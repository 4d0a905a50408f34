// A kernel in place of the library's, for tests of drivers.
#pragma once

#include "device/virtual_driver.h"

namespace tutti::test {

/// None for f8e5m2.
const shim::KernelTwin* countingTwin(ncclDataType_t type, device::Protocol protocol);
const shim::KernelTwin* completeTwins(ncclDataType_t type, device::Protocol protocol);

}  // namespace tutti::test
