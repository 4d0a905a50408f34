// Questions about devices and settings of them.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "base/fnv.h"
#include "hostrt/capture.h"
#include "hostrt/device.h"
#include "hostrt/kernel_context.h"
#include "hostrt/kernel_limits.h"
#include "hostrt/memory.h"
#include "hostrt/priorities.h"

using namespace tutti::hostrt;

namespace {

constexpr int kVersion = CUDART_VERSION;

/// A name for the device that is the same in every process of this machine until it boots again.
cudaUUID_t uuidOf(const Device& device) {
  std::string seed;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> seed;
  seed.append("/").append(std::to_string(device.slot));
  cudaUUID_t uuid;
  uint64_t hash = tutti::kFnvStart;
  for (int half = 0; half < 2; ++half) {
    hash = tutti::fnv1a(seed, hash);
    std::memcpy(uuid.bytes + 8 * half, &hash, 8);
  }
  return uuid;
}

int cacheBytes() { return static_cast<int>(std::max(0L, ::sysconf(_SC_LEVEL3_CACHE_SIZE))); }

/// What kernels find: see docs/virtual-gpus.md.
void fillLimits(cudaDeviceProp* p) {
  p->multiProcessorCount = static_cast<int>(kMultiprocessors);
  p->sharedMemPerBlock = kSharedPerBlock;
  p->sharedMemPerBlockOptin = kSharedPerBlockOptin;
  p->sharedMemPerMultiprocessor = kSharedPerMultiprocessor;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->warpSize = static_cast<int>(kWarpSize);
  p->maxThreadsPerBlock = static_cast<int>(kThreadsPerBlock);
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = INT_MAX;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->maxThreadsPerMultiProcessor = static_cast<int>(kThreadsPerMultiprocessor);
  p->maxBlocksPerMultiProcessor = static_cast<int>(kBlocksPerMultiprocessor);
  p->totalConstMem = 65536;
  p->memPitch = INT_MAX;
  p->textureAlignment = p->surfaceAlignment = 512;
  p->texturePitchAlignment = 32;
  p->cooperativeLaunch = 1;
}

void fillProperties(const Device& device, cudaDeviceProp* p) {
  *p = {};
  const DeviceProperties properties = propertiesOf(device);
  std::snprintf(p->name, sizeof p->name, "%s", properties.name.c_str());
  p->uuid = uuidOf(device);
  p->totalGlobalMem = machineMemory().total;
  fillLimits(p);
  p->major = properties.major;
  p->minor = properties.minor;
  p->l2CacheSize = cacheBytes();
  p->integrated = 1;
  p->canMapHostMemory = 1;
  p->concurrentKernels = 1;
  const PciAddress address = pciAddress(device);
  p->pciDomainID = static_cast<int>(address.domain);
  p->pciBusID = static_cast<int>(address.bus);
  p->pciDeviceID = static_cast<int>(address.device);
  p->asyncEngineCount = 2;
  p->unifiedAddressing = 1;
  p->memoryBusWidth = 64;
  p->streamPrioritiesSupported = 1;
  p->memoryPoolsSupported = 1;
  p->managedMemory = p->concurrentManagedAccess = p->directManagedMemAccessFromHost = 1;
  p->pageableMemoryAccess = p->pageableMemoryAccessUsesHostPageTables = 1;
  p->hostNativeAtomicSupported = 1;
  p->canUseHostPointerForRegisteredMem = p->hostRegisterSupported = p->hostRegisterReadOnlySupported = 1;
  p->deviceNumaId = p->hostNumaId = -1;
}

struct IntAttribute {
  cudaDeviceAttr attr;
  int cudaDeviceProp::*field;
};
struct SizeAttribute {
  cudaDeviceAttr attr;
  size_t cudaDeviceProp::*field;
};
struct ConstantAttribute {
  cudaDeviceAttr attr;
  int value;
};

constexpr IntAttribute kIntAttributes[] = {
    {cudaDevAttrMaxThreadsPerBlock, &cudaDeviceProp::maxThreadsPerBlock},
    {cudaDevAttrWarpSize, &cudaDeviceProp::warpSize},
    {cudaDevAttrMaxRegistersPerBlock, &cudaDeviceProp::regsPerBlock},
    {cudaDevAttrMaxRegistersPerMultiprocessor, &cudaDeviceProp::regsPerMultiprocessor},
    {cudaDevAttrMultiProcessorCount, &cudaDeviceProp::multiProcessorCount},
    {cudaDevAttrMaxThreadsPerMultiProcessor, &cudaDeviceProp::maxThreadsPerMultiProcessor},
    {cudaDevAttrMaxBlocksPerMultiprocessor, &cudaDeviceProp::maxBlocksPerMultiProcessor},
    {cudaDevAttrGlobalMemoryBusWidth, &cudaDeviceProp::memoryBusWidth},
    {cudaDevAttrL2CacheSize, &cudaDeviceProp::l2CacheSize},
    {cudaDevAttrAsyncEngineCount, &cudaDeviceProp::asyncEngineCount},
    {cudaDevAttrPciBusId, &cudaDeviceProp::pciBusID},
    {cudaDevAttrPciDeviceId, &cudaDeviceProp::pciDeviceID},
    {cudaDevAttrPciDomainId, &cudaDeviceProp::pciDomainID},
    {cudaDevAttrComputeCapabilityMajor, &cudaDeviceProp::major},
    {cudaDevAttrComputeCapabilityMinor, &cudaDeviceProp::minor},
    {cudaDevAttrNumaId, &cudaDeviceProp::deviceNumaId},
    {cudaDevAttrHostNumaId, &cudaDeviceProp::hostNumaId},
    {cudaDevAttrIntegrated, &cudaDeviceProp::integrated},
    {cudaDevAttrCanMapHostMemory, &cudaDeviceProp::canMapHostMemory},
    {cudaDevAttrCooperativeLaunch, &cudaDeviceProp::cooperativeLaunch},
    {cudaDevAttrConcurrentKernels, &cudaDeviceProp::concurrentKernels},
    {cudaDevAttrUnifiedAddressing, &cudaDeviceProp::unifiedAddressing},
    {cudaDevAttrStreamPrioritiesSupported, &cudaDeviceProp::streamPrioritiesSupported},
    {cudaDevAttrMemoryPoolsSupported, &cudaDeviceProp::memoryPoolsSupported},
    {cudaDevAttrManagedMemory, &cudaDeviceProp::managedMemory},
    {cudaDevAttrHostNativeAtomicSupported, &cudaDeviceProp::hostNativeAtomicSupported},
    {cudaDevAttrPageableMemoryAccess, &cudaDeviceProp::pageableMemoryAccess},
    {cudaDevAttrConcurrentManagedAccess, &cudaDeviceProp::concurrentManagedAccess},
    {cudaDevAttrCanUseHostPointerForRegisteredMem, &cudaDeviceProp::canUseHostPointerForRegisteredMem},
    {cudaDevAttrHostRegisterSupported, &cudaDeviceProp::hostRegisterSupported},
    {cudaDevAttrHostRegisterReadOnlySupported, &cudaDeviceProp::hostRegisterReadOnlySupported},
    {cudaDevAttrPageableMemoryAccessUsesHostPageTables,
     &cudaDeviceProp::pageableMemoryAccessUsesHostPageTables},
    {cudaDevAttrDirectManagedMemAccessFromHost, &cudaDeviceProp::directManagedMemAccessFromHost},
};

constexpr SizeAttribute kSizeAttributes[] = {
    {cudaDevAttrMaxSharedMemoryPerBlock, &cudaDeviceProp::sharedMemPerBlock},
    {cudaDevAttrMaxSharedMemoryPerBlockOptin, &cudaDeviceProp::sharedMemPerBlockOptin},
    {cudaDevAttrMaxSharedMemoryPerMultiprocessor, &cudaDeviceProp::sharedMemPerMultiprocessor},
    {cudaDevAttrTotalConstantMemory, &cudaDeviceProp::totalConstMem},
    {cudaDevAttrMaxPitch, &cudaDeviceProp::memPitch},
    {cudaDevAttrTextureAlignment, &cudaDeviceProp::textureAlignment},
    {cudaDevAttrTexturePitchAlignment, &cudaDeviceProp::texturePitchAlignment},
    {cudaDevAttrSurfaceAlignment, &cudaDeviceProp::surfaceAlignment},
};

constexpr ConstantAttribute kConstantAttributes[] = {
    {cudaDevAttrGpuOverlap, 1},
    {cudaDevAttrClockRate, 1000000},  // kHz; nothing depends on it
    {cudaDevAttrMemoryClockRate, 1000000},
    {cudaDevAttrSingleToDoublePrecisionPerfRatio, 2},
};

/// False for numbers that are no attribute. What has no entry above is 0: textures, surfaces, GPUDirect.
bool readAttribute(const cudaDeviceProp& p, cudaDeviceAttr attr, int* value) {
  if (attr < cudaDevAttrMaxThreadsPerBlock || attr >= cudaDevAttrMax) return false;
  *value = 0;
  if (attr >= cudaDevAttrMaxBlockDimX && attr <= cudaDevAttrMaxBlockDimZ)
    *value = p.maxThreadsDim[attr - cudaDevAttrMaxBlockDimX];
  if (attr >= cudaDevAttrMaxGridDimX && attr <= cudaDevAttrMaxGridDimZ)
    *value = p.maxGridSize[attr - cudaDevAttrMaxGridDimX];
  for (const auto& entry : kIntAttributes)
    if (entry.attr == attr) *value = p.*entry.field;
  for (const auto& entry : kSizeAttributes)
    if (entry.attr == attr) *value = static_cast<int>(p.*entry.field);
  for (const auto& entry : kConstantAttributes)
    if (entry.attr == attr) *value = entry.value;
  return true;
}

bool isScheduleFlags(unsigned int flags) { return (flags & ~unsigned{cudaDeviceMask}) == 0; }

/// Runs body(device) on the current device.
template <class Body>
cudaError_t withCurrent(Body&& body) {
  return apiCall([&] {
    Device* device = currentDeviceOrNull();
    return device ? body(*device) : cudaErrorNoDevice;
  });
}

}  // namespace

extern "C" {

cudaError_t cudaDriverGetVersion(int* driverVersion) {
  return apiCall([&] {
    if (!driverVersion) return cudaErrorInvalidValue;
    *driverVersion = kVersion;
    return cudaSuccess;
  });
}

cudaError_t cudaRuntimeGetVersion(int* runtimeVersion) { return cudaDriverGetVersion(runtimeVersion); }

cudaError_t cudaGetDeviceCount(int* count) {
  return apiCall([&] {
    if (!count) return cudaErrorInvalidValue;
    *count = static_cast<int>(devices().size());
    return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return withCurrent([&](const Device& current) {
    if (!device) return cudaErrorInvalidValue;
    *device = current.index;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return apiCall([&] {
    if (!findDevice(device)) return devices().empty() ? cudaErrorNoDevice : cudaErrorInvalidDevice;
    setCurrentDevice(device);
    return cudaSuccess;
  });
}

cudaError_t cudaInitDevice(int number, unsigned int deviceFlags, unsigned int flags) {
  return apiCall([&] {
    Device* device = findDevice(number);
    if (!device) return cudaErrorInvalidDevice;
    if ((flags & ~unsigned{cudaInitDeviceFlagsAreValid}) || !isScheduleFlags(deviceFlags))
      return cudaErrorInvalidValue;
    const std::lock_guard lock(device->settingsMutex);
    if (flags & cudaInitDeviceFlagsAreValid) device->flags = deviceFlags;
    return cudaSuccess;
  });
}

cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp* prop) {
  return apiCall([&] {
    if (!device || !prop) return cudaErrorInvalidValue;
    if (devices().empty()) return cudaErrorNoDevice;
    *device = 0;  // they are all alike
    return cudaSuccess;
  });
}

cudaError_t cudaSetValidDevices(int* list, int length) {
  return apiCall([&] {
    if (length < 0 || (length > 0 && !list)) return cudaErrorInvalidValue;
    const bool areValid =
        std::all_of(list, list + length, [](int device) { return findDevice(device) != nullptr; });
    return areValid ? cudaSuccess : cudaErrorInvalidDevice;
  });
}

cudaError_t cudaSetDeviceFlags(unsigned int flags) {
  return withCurrent([&](Device& device) {
    if (!isScheduleFlags(flags)) return cudaErrorInvalidValue;
    const std::lock_guard lock(device.settingsMutex);
    device.flags = flags;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceFlags(unsigned int* flags) {
  return withCurrent([&](Device& device) {
    if (!flags) return cudaErrorInvalidValue;
    const std::lock_guard lock(device.settingsMutex);
    *flags = device.flags | cudaDeviceMapHost;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int number) {
  return apiCall([&] {
    const Device* device = findDevice(number);
    if (!device) return cudaErrorInvalidDevice;
    if (!prop) return cudaErrorInvalidValue;
    fillProperties(*device, prop);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attr, int number) {
  return apiCall([&] {
    const Device* device = findDevice(number);
    if (!device) return cudaErrorInvalidDevice;
    if (!value) return cudaErrorInvalidValue;
    cudaDeviceProp prop;
    fillProperties(*device, &prop);
    return readAttribute(prop, attr, value) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int number) {
  return apiCall([&] {
    const Device* device = findDevice(number);
    if (!device) return cudaErrorInvalidDevice;
    const std::string id = pciBusId(*device);
    if (!text || length <= static_cast<int>(id.size())) return cudaErrorInvalidValue;
    std::memcpy(text, id.c_str(), id.size() + 1);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetByPCIBusId(int* number, const char* text) {
  return apiCall([&] {
    if (!number || !text) return cudaErrorInvalidValue;
    PciAddress wanted;
    // domain:bus:device[.function]
    if (std::sscanf(text, "%x:%x:%x.%x", &wanted.domain, &wanted.bus, &wanted.device, &wanted.function) < 3)
      return cudaErrorInvalidValue;
    for (const auto& device : devices()) {
      if (pciAddress(*device) != wanted) continue;
      *number = device->index;
      return cudaSuccess;
    }
    return cudaErrorInvalidDevice;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return withCurrent([](Device& device) {
    if (const cudaError_t error = checkExecutes(device); error != cudaSuccess) return error;
    std::vector<Marker> markers;
    device.pending(markers);
    waitForAll(markers);
    return device.fault.load();
  });
}

cudaError_t cudaDeviceReset() {
  return withCurrent([](Device& device) {
    if (const cudaError_t error = checkExecutes(device); error != cudaSuccess) return error;
    std::vector<Marker> markers;
    device.pending(markers);
    waitForAll(markers);
    memory().freeAllOf(device.index);
    device.fault.store(cudaSuccess);
    const std::lock_guard lock(device.settingsMutex);
    device.peerAccess.assign(device.peerAccess.size(), false);
    device.flags = 0;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value) {
  return withCurrent([&](Device&) {
    if (limit == cudaLimitStackSize) setKernelStackBytes(value);
    return limit >= cudaLimitStackSize && limit <= cudaLimitPersistingL2CacheSize ? cudaSuccess
                                                                                  : cudaErrorUnsupportedLimit;
  });
}

cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
  return withCurrent([&](Device&) {
    if (!value) return cudaErrorInvalidValue;
    if (limit < cudaLimitStackSize || limit > cudaLimitPersistingL2CacheSize)
      return cudaErrorUnsupportedLimit;
    *value = limit == cudaLimitStackSize ? kernelStackBytes() : 0;  // nothing else is limited
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) {
  return withCurrent([](Device&) { return cudaSuccess; });  // a preference, which may be ignored
}

cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* cacheConfig) {
  return withCurrent([&](Device&) {
    if (!cacheConfig) return cudaErrorInvalidValue;
    *cacheConfig = cudaFuncCachePreferNone;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) {
  return withCurrent([](Device&) { return cudaSuccess; });  // a preference, which may be ignored
}

cudaError_t cudaDeviceGetSharedMemConfig(cudaSharedMemConfig* config) {
  return withCurrent([&](Device&) {
    if (!config) return cudaErrorInvalidValue;
    *config = cudaSharedMemBankSizeDefault;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  return withCurrent([&](Device&) {
    if (leastPriority) *leastPriority = kLeastPriority;
    if (greatestPriority) *greatestPriority = kGreatestPriority;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTarget,
                                               cudaFlushGPUDirectRDMAWritesScope) {
  return withCurrent([](Device&) {
    // A full barrier. Not a fence: the thread sanitizer knows none.
    static std::atomic<int> barrier{0};
    barrier.exchange(1, std::memory_order_seq_cst);
    return cudaSuccess;
  });
}

cudaError_t cudaCtxResetPersistingL2Cache() {
  return withCurrent([](Device&) { return cudaSuccess; });
}

cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }

cudaError_t cudaDeviceCanAccessPeer(int* canAccessPeer, int device, int peerDevice) {
  return apiCall([&] {
    if (!canAccessPeer) return cudaErrorInvalidValue;
    const Device* from = findDevice(device);
    const Device* to = findDevice(peerDevice);
    if (!from || !to) return cudaErrorInvalidDevice;
    *canAccessPeer = reaches(*from, *to);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peerDevice, unsigned int flags) {
  return withCurrent([&](Device& device) {
    if (flags != cudaPeerAccessDefault) return cudaErrorInvalidValue;
    if (!findDevice(peerDevice) || peerDevice == device.index) return cudaErrorInvalidDevice;
    const std::lock_guard lock(device.settingsMutex);
    auto enabled = device.peerAccess[static_cast<size_t>(peerDevice)];
    if (enabled) return cudaErrorPeerAccessAlreadyEnabled;
    enabled = true;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceDisablePeerAccess(int peerDevice) {
  return withCurrent([&](Device& device) {
    if (!findDevice(peerDevice)) return cudaErrorInvalidDevice;
    const std::lock_guard lock(device.settingsMutex);
    auto enabled = device.peerAccess[static_cast<size_t>(peerDevice)];
    if (!enabled) return cudaErrorPeerAccessNotEnabled;
    enabled = false;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attr, int srcDevice, int dstDevice) {
  return apiCall([&] {
    if (!value || srcDevice == dstDevice) return cudaErrorInvalidValue;
    const Device* source = findDevice(srcDevice);
    const Device* destination = findDevice(dstDevice);
    if (!source || !destination) return cudaErrorInvalidDevice;
    switch (attr) {
      case cudaDevP2PAttrAccessSupported:
        *value = reaches(*source, *destination);
        break;
      case cudaDevP2PAttrNativeAtomicSupported:
        *value = areClose(*source, *destination);
        break;
      case cudaDevP2PAttrPerformanceRank:  // 0 is the best
        *value = areClose(*source, *destination) ? 0 : 1;
        break;
      case cudaDevP2PAttrCudaArrayAccessSupported:
      case cudaDevP2PAttrOnlyPartialNativeAtomicSupported:
        *value = 0;
        break;
      default:
        return cudaErrorInvalidValue;
    }
    return cudaSuccess;
  });
}

}  // extern "C"
