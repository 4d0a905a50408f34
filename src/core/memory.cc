#include "core/memory.h"

#include "device/device_world.h"
#include "device/host_table.h"

namespace tutti {
namespace {

Status allocateOnGpu(void** pointer, size_t bytes) {
  TUTTI_ASSIGN(Driver* const driver, kernelDriver());
  TUTTI_ASSIGN(const int device, driver->currentDevice());
  TUTTI_ASSIGN(*pointer, driver->allocate(device, bytes));
  return Status::ok();
}

Status freeOnGpu(void* pointer) {
  TUTTI_ASSIGN(Driver* const driver, kernelDriver());
  const PointerFacts facts = driver->pointerFacts(pointer);
  if (facts.kind != PointerFacts::Kind::device)
    return invalidArgument("{} was not allocated by ncclMemAlloc, or was freed before", pointer);
  return driver->free(facts.device, static_cast<std::byte*>(pointer));
}

}  // namespace

Status allocateMemory(void** pointer, size_t bytes) {
  if (pointer == nullptr) return invalidArgument("ptr is null");
  *pointer = nullptr;
  if (bytes == 0) return Status::ok();
  if (world() == World::gpus) return allocateOnGpu(pointer, bytes);
  TUTTI_ASSIGN(const tuttiHostRuntime_v1* runtime, hostTable());
  int device = 0;
  if (const int error = runtime->currentDevice(&device); error != 0)
    return systemError(error, "find the current device");
  if (const int error = runtime->memoryAllocate(device, bytes, pointer); error != 0) {
    return systemError(error, "allocate {} bytes on device {}", bytes, device);
  }
  return Status::ok();
}

Status freeMemory(void* pointer) {
  if (pointer == nullptr) return Status::ok();
  if (world() == World::gpus) return freeOnGpu(pointer);
  TUTTI_ASSIGN(const tuttiHostRuntime_v1* runtime, hostTable());
  const int error = runtime->memoryFree(pointer);
  if (error == 0) return Status::ok();
  return invalidArgument("{} was not allocated by ncclMemAlloc, or was freed before", pointer);
}

Status synchronizeStream(cudaStream_t stream) {
  if (world() == World::gpus) {
    TUTTI_ASSIGN(Driver* const driver, kernelDriver());
    TUTTI_ASSIGN(const int current, driver->currentDevice());
    return driver->synchronize(current, stream);
  }
  TUTTI_ASSIGN(const tuttiHostRuntime_v1* runtime, hostTable());
  const int error = runtime->streamSynchronize(stream);
  if (error == 0) return Status::ok();
  if (error == EINVAL)
    return invalidArgument("{} is not a stream, or was destroyed", static_cast<const void*>(stream));
  if (error == EPERM)
    return invalidUsage("stream {} is being captured: nothing runs that could be waited for",
                        static_cast<const void*>(stream));
  return systemError(error, "wait for stream {}", static_cast<const void*>(stream));
}

}  // namespace tutti
