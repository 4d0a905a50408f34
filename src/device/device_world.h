// Which of the two CUDA worlds this process is in, and what runs its calls there.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "device/driver.h"

namespace tutti {

enum class World : uint8_t {
  hostThreads,  // host runtime; calls are run by CPU threads
  virtualGpus,  // host runtime; calls are run by kernels on virtual GPUs (TUTTI_HOST_KERNELS=1)
  gpus,         // NVIDIA's driver
};

/// Where libcuda.so.1 has a usable driver and the program is not linked to the host runtime, and
/// TUTTI_RUNTIME does not say otherwise: gpus. Settled at the first use. Thread-safe.
World world();

/// What runs kernels; null where CPU threads run calls. An error where TUTTI_RUNTIME=cuda, or
/// TUTTI_HOST_KERNELS=1, cannot be had.
Result<Driver*> kernelDriver();

}  // namespace tutti
