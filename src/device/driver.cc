// The two drivers of the process, with the library's own kernels.
#include "device/driver.h"

#include "device/cuda_driver.h"
#include "device/host_table.h"
#include "device/kernel_table.h"
#include "device/virtual_driver.h"

namespace tutti {
namespace {

// Both are kept: kernels and their memory are used until the very end.

Result<Driver*> makeVirtual() {
  TUTTI_ASSIGN(const tuttiHostRuntime_v1* table, hostTable());
  TUTTI_ASSIGN(std::unique_ptr<Driver> driver, makeVirtualDriver(*table, kernelTwin));
  return driver.release();
}

Result<Driver*> makeCuda() {
  const GpuKernels kernels{kernelImage(), kernelName, sharedBytesFor(device::kMostLinks)};
  TUTTI_ASSIGN(std::unique_ptr<Driver> driver, openCudaDriver("libcuda.so.1", kernels));
  return driver.release();
}

}  // namespace

Result<Driver*> virtualDriver() {
  static const auto* driver = new Result<Driver*>(makeVirtual());
  return *driver;
}

Result<Driver*> cudaDriver() {
  static const auto* driver = new Result<Driver*>(makeCuda());
  return *driver;
}

}  // namespace tutti
