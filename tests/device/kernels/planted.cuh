// A copy of one type's kernels with a fault (TUTTI_PLANT of device/memory_order.cuh), under names of its own.
#pragma once

#include "device/interpreter.cuh"

#define TUTTI_PLANTED_KERNEL(name, protocol)                                                          \
  extern "C" __global__ void name(const __grid_constant__ tutti::device::LaunchArguments arguments) { \
    tutti::device::TUTTI_KERNELS::interpret<tutti::device::TUTTI_KERNELS::Int32,                      \
                                            tutti::device::Protocol::protocol>(arguments);            \
  }                                                                                                   \
  namespace tutti::device {                                                                           \
  const shim::KernelTwin* name##Twin() { return &shim::Twin<&name>::record; }                         \
  }
