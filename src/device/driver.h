// The functions of a CUDA driver that the library uses, and the two that provide them: libcuda.so.1, and the
// host runtime's virtual GPUs. This is the only place that knows either.
//
//   core, executor/cuda, transport/p2p
//        |  Driver (this interface)
//        +--> cuda_driver.cc      libcuda.so.1 by dlopen, functions by cuGetProcAddress, kernels from fatbins
//        +--> virtual_driver.cc   tuttiHostRuntime_v1, kernels compiled by the host compiler
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/device_program.h"
#include "base/status.h"
#include "nccl.h"

namespace tutti {

/// cudaStream_t / CUstream and cudaEvent_t / CUevent: the same pointers in both APIs.
using DeviceStream = void*;
using DeviceEvent = void*;

/// Where a pointer's memory is.
struct PointerFacts {
  enum class Kind : uint8_t { unknown, host, device, managed };  // unknown: plain memory, or none at all
  Kind kind = Kind::unknown;
  int device = -1;
};

struct DeviceFacts {
  std::string name;
  std::string busId;  // "0000:1b:00.0", lower case
  int major = 0;      // compute capability
  int minor = 0;
  int multiprocessors = 1;
};

/// A launch of one interpreter kernel.
struct KernelLaunch {
  ncclDataType_t type = ncclInt8;
  device::Protocol protocol = device::Protocol::simple;
  uint32_t blocks = 1;
  uint32_t threads = device::kWarp;  // a multiple of a warp
  uint32_t sharedBytes = 0;
  const device::LaunchArguments* arguments = nullptr;  // copied by the call
};

/// Thread-safe. Devices are numbered as the calling program sees them (CUDA_VISIBLE_DEVICES). Null streams
/// are the legacy default stream of `device`. Functions leave the calling thread's current device as it was.
/// None but the synchronise functions waits for a stream, and none uses a stream that others wait for.
class Driver {
 public:
  virtual ~Driver() = default;

  /// True for the host runtime.
  virtual bool isVirtual() const = 0;
  virtual Result<int> deviceCount() = 0;
  virtual Result<int> currentDevice() = 0;
  virtual Result<DeviceFacts> facts(int device) = 0;

  /// All kernels, on that device: to be called when a communicator is made, since loading a kernel beside
  /// spinning ones can wait for them. The error names what the driver or the device lacks. Once a device.
  virtual Status loadKernels(int device) = 0;
  /// Most blocks of that kernel which surely run at the same time on the device, when nothing else does.
  virtual Result<uint32_t> residentBlocks(int device, ncclDataType_t type, device::Protocol protocol,
                                          uint32_t threads, uint32_t sharedBytes) = 0;
  virtual Status launch(int device, DeviceStream stream, const KernelLaunch& launch) = 0;

  /// Zeroed memory of the device, aligned to 512 bytes at least.
  virtual Result<std::byte*> allocate(int device, size_t bytes) = 0;
  virtual Status free(int device, std::byte* memory) = 0;
  /// Zeroed pinned memory that host and all devices see under one address.
  virtual Result<std::byte*> allocateHost(size_t bytes) = 0;
  virtual Status freeHost(std::byte* memory) = 0;
  /// Copies and returns when it is done. On a stream of the driver's own.
  virtual Status copyToDevice(int device, void* destination, const void* source, size_t bytes) = 0;
  virtual Status copyFromDevice(int device, void* destination, const void* source, size_t bytes) = 0;
  virtual PointerFacts pointerFacts(const void* pointer) = 0;

  virtual Result<bool> canAccessPeer(int device, int peer) = 0;
  /// So that kernels of `device` can use memory of `peer`. Again without harm.
  virtual Status enablePeerAccess(int device, int peer) = 0;

  /// The device that the stream belongs to; `current` for the default stream.
  virtual Result<int> streamDevice(DeviceStream stream, int current) = 0;
  /// 0 where nothing is captured; the capture's number else. An error when the capture was invalidated.
  virtual Result<uint64_t> captureOf(int device, DeviceStream stream) = 0;
  /// True when everything enqueued so far is done.
  virtual Result<bool> isIdle(int device, DeviceStream stream) = 0;
  virtual Status synchronize(int device, DeviceStream stream) = 0;

  /// Without timing.
  virtual Result<DeviceEvent> createEvent(int device) = 0;
  virtual Status destroyEvent(int device, DeviceEvent event) = 0;
  /// `inGraph`: the stream is being captured, and every launch of the graph records the event, or waits for
  /// what was recorded before that launch. Without it events of a captured stream only order the capture.
  virtual Status recordEvent(int device, DeviceEvent event, DeviceStream stream, bool inGraph = false) = 0;
  virtual Status waitEvent(int device, DeviceStream stream, DeviceEvent event, bool inGraph = false) = 0;
  /// True when what was recorded is done (or nothing was).
  virtual Result<bool> isDone(int device, DeviceEvent event) = 0;

  /// Where kernels stand now, as far as the driver knows (virtual GPUs do; "" else).
  virtual std::string kernelReport() = 0;
};

/// The driver of the process's virtual GPUs; an error when the host runtime cannot be had (see hostTable()).
/// Kept.
Result<Driver*> virtualDriver();
/// libcuda.so.1: an error that says what is missing when there is none, it is too old (older than
/// kOldestDriver), finds no device, or this library was built without kernels for GPUs. Kept, also a failure.
Result<Driver*> cudaDriver();
/// CUDA 12.0: the first driver with all functions that we use (see docs/cuda-executor.md).
constexpr int kOldestDriver = 12000;

}  // namespace tutti
