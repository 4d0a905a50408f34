// Devices: slots on this machine that have streams and memory of their own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "hostrt/stream.h"

namespace tutti::hostrt {

class MemoryPool;
struct FileGpu;

/// Lives for ever, like everything that threads may use while the process exits.
struct Device {
  explicit Device(int number, int physicalSlot);

  const int index;  // as programs count
  const int slot;   // as the machine counts: differs with CUDA_VISIBLE_DEVICES

  std::mutex mutex;              // guards all streams of the device
  std::vector<Stream*> streams;  // all that were ever created here, the legacy one first
  std::vector<Stream*> unused;   // destroyed and idle
  size_t busyBlocking = 0;       // blocking streams that are not idle
  Stream legacy;
  std::atomic<int> capturedBlocking{
      0};  // blocking streams that are captured: the legacy one is unusable then

  std::mutex settingsMutex;
  std::vector<bool> peerAccess;  // by device, from this one
  unsigned int flags = 0;
  std::atomic<cudaError_t> fault{cudaSuccess};  // of a kernel: stays until the device is reset
  std::atomic<MemoryPool*> pool{nullptr};       // of cudaMallocAsync; null: the default pool

  /// Appends the markers of everything that is pending on the device.
  void pending(std::vector<Marker>& markers);
  /// In a forked child whose parent used the legacy stream alone (others see isUnusableFork()).
  void forgetWork();
};

/// Of a kernel that failed on the stream's device: what every call that uses it returns from then on.
inline cudaError_t faultOf(const Stream& stream) {
  return stream.device.fault.load(std::memory_order_acquire);
}

/// configuredSlots(), narrowed by CUDA_VISIBLE_DEVICES when that lists numbers.
const std::vector<std::unique_ptr<Device>>& devices();

/// How many slots the machine has: TUTTI_HOST_DEVICES (default 8); 0 when that is not a number (a warning
/// says so). Where the library's kernels run on virtual GPUs (TUTTI_HOST_KERNELS=1) and NCCL_TOPO_FILE
/// describes a machine: its GPUs, or the first so many of them.
int configuredSlots();
/// The GPU that the device stands for; null where it stands for none.
const FileGpu* fileGpuOf(const Device& device);
/// The calling thread's current device, by number; 0 at first.
int currentDevice();
void setCurrentDevice(int device);
/// Null when there is no such device.
Device* findDevice(int device);
/// The calling thread's current device; null when there is none at all.
Device* currentDeviceOrNull();

/// The error that a failed kernel left on it; success when there is no device, or none failed.
cudaError_t faultOfCurrentDevice();

/// That of the GPU that the device stands for, else 7e00:03:00.0: a domain that no machine uses, so that
/// nothing looks such a device up in sysfs.
struct PciAddress {
  uint32_t domain = 0;
  uint32_t bus = 0;
  uint32_t device = 0;
  uint32_t function = 0;
  bool operator==(const PciAddress&) const = default;
};
PciAddress pciAddress(const Device& device);
/// "7e00:03:00.0".
std::string pciBusId(const Device& device);

/// What programs and the library are told of a device.
struct DeviceProperties {
  std::string name;
  std::string busId;
  int major = 0;
  int minor = 0;
};
DeviceProperties propertiesOf(const Device& device);
/// Whether kernels of one device can use memory of the other: all can, but for a device and itself, as in
/// CUDA.
bool reaches(const Device& device, const Device& peer);
/// The way between the devices is as good as any: NVLink, where they stand for GPUs of a file.
bool areClose(const Device& device, const Device& peer);

/// Bytes of memory that this process may use, and that are free now: of the machine or, if less, of the
/// memory control group.
struct MachineMemory {
  size_t total = 0;
  size_t available = 0;
};
MachineMemory machineMemory();

}  // namespace tutti::hostrt
