#include "device/device_world.h"

#include <dlfcn.h>
#include <unistd.h>

#include "base/log.h"
#include "base/params.h"
#include "device/host_table.h"

namespace tutti {
namespace {

enum RuntimeChoice : int { kAutomatic, kHost, kCuda };  // the order of TUTTI_RUNTIME's values

/// The program works with NVIDIA's driver, on a machine that has devices for it: CPU threads could not touch
/// its memory.
bool programUsesGpus() {
  void* driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return false;
  ::dlclose(driver);
  return ::access("/dev/nvidiactl", F_OK) == 0 || ::access("/dev/dxg", F_OK) == 0;
}

World settle() {
  const World host = params().hostKernels() ? World::virtualGpus : World::hostThreads;
  // One runtime per process: who has the host runtime's cudart cannot launch on a GPU.
  if (params().runtime() == kHost || hostRuntimeIsLoaded()) return host;
  if (params().runtime() == kCuda) return World::gpus;
  if (programUsesGpus())
    return World::gpus;  // or an error when a communicator is made, that says what is missing
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
