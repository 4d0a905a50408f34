#include "device/device_world.h"

#include "base/log.h"
#include "base/params.h"
#include "device/host_table.h"

namespace tutti {
namespace {

enum RuntimeChoice : int { kAutomatic, kHost, kCuda };  // the order of TUTTI_RUNTIME's values

World settle() {
  const World host = params().hostKernels() ? World::virtualGpus : World::hostThreads;
  // One runtime per process: who has the host runtime's cudart cannot launch on a GPU.
  if (params().runtime() == kHost || hostRuntimeIsLoaded()) return host;
  if (params().runtime() == kCuda) return World::gpus;
  const auto driver = cudaDriver();
  if (driver.isOk()) return World::gpus;
  logInfo(Subsystem::init, "no GPUs: {}", driver.status().message());
  return host;
}

}  // namespace

World world() {
  static const World settled = settle();
  return settled;
}

Result<Driver*> kernelDriver() {
  switch (world()) {
    case World::gpus:
      return cudaDriver();
    case World::virtualGpus:
      return virtualDriver();
    default:
      return static_cast<Driver*>(nullptr);
  }
}

}  // namespace tutti
