#include "hostrt/memory_pool.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "hostrt/device.h"
#include "hostrt/memory.h"

namespace tutti::hostrt {
namespace {

struct Pools {
  HandleTable<MemoryPool> handles{'P'};
  std::mutex mutex;                   // of the rest
  std::vector<MemoryPool*> defaults;  // by device
  std::vector<MemoryPool*> destroyed;
};

Pools& pools() {
  static auto* all = new Pools;
  return *all;
}

/// Null when there are too many.
MemoryPool* create(Device& device, uint64_t maxBytes) {
  Pools& all = pools();
  const auto unused = std::find_if(all.destroyed.begin(), all.destroyed.end(),
                                   [](const MemoryPool* pool) { return pool->isUnused(); });
  MemoryPool* pool = nullptr;
  if (unused != all.destroyed.end()) {
    pool = *unused;
    all.destroyed.erase(unused);
  } else {
    auto fresh = std::make_unique<MemoryPool>(device);
    if (!all.handles.add(fresh.get())) return nullptr;
    pool = fresh.release();
  }
  pool->reset(device, maxBytes);
  return pool;
}

cudaMemPool_t handleOf(const MemoryPool& pool) {
  return static_cast<cudaMemPool_t>(pools().handles.handleOf(pool));
}

cudaError_t createPool(cudaMemPool_t* handle, const cudaMemPoolProps* props) {
  if (!handle || !props || props->allocType != cudaMemAllocationTypePinned) return cudaErrorInvalidValue;
  if (props->win32SecurityAttributes) return cudaErrorInvalidValue;
  // Other processes map the runtime's memory by IPC handles; pools on host memory would be the same memory.
  if (props->handleTypes != cudaMemHandleTypeNone) return cudaErrorNotSupported;
  if (props->location.type == cudaMemLocationTypeHost || props->location.type == cudaMemLocationTypeHostNuma)
    return cudaErrorNotSupported;
  if (props->location.type != cudaMemLocationTypeDevice) return cudaErrorInvalidValue;
  Device* device = findDevice(props->location.id);
  if (!device) return cudaErrorInvalidDevice;
  const std::lock_guard lock(pools().mutex);
  MemoryPool* pool = create(*device, props->maxSize);
  if (!pool) return cudaErrorMemoryAllocation;
  *handle = handleOf(*pool);
  return cudaSuccess;
}

cudaError_t destroyPool(cudaMemPool_t handle) {
  MemoryPool* pool = findPool(handle);
  if (!pool || pool->isDefault) return cudaErrorInvalidValue;
  if (!HandleTable<MemoryPool>::retire(*pool, handle)) return cudaErrorInvalidValue;
  // A device whose current pool it was goes back to its default pool.
  for (const auto& device : devices()) {
    MemoryPool* current = pool;
    device->pool.compare_exchange_strong(current, nullptr);
  }
  const std::lock_guard lock(pools().mutex);
  pools().destroyed.push_back(pool);
  return cudaSuccess;
}

}  // namespace

void MemoryPool::add(uint64_t bytes) {
  const uint64_t now = used_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  uint64_t high = usedHigh_.load(std::memory_order_relaxed);
  while (high < now && !usedHigh_.compare_exchange_weak(high, now, std::memory_order_relaxed)) {
  }
}

void MemoryPool::reset(Device& owner, uint64_t mostBytes) {
  device = &owner;
  maxBytes_ = mostBytes;
  usedHigh_.store(0, std::memory_order_relaxed);
  releaseThreshold_.store(0, std::memory_order_relaxed);
  for (auto& setting : reuse_) setting.store(1, std::memory_order_relaxed);
}

cudaError_t MemoryPool::setAttribute(cudaMemPoolAttr attribute, const void* value) {
  switch (attribute) {
    case cudaMemPoolReuseFollowEventDependencies:
    case cudaMemPoolReuseAllowOpportunistic:
    case cudaMemPoolReuseAllowInternalDependencies:
      reuse_[attribute - cudaMemPoolReuseFollowEventDependencies] = *static_cast<const int*>(value);
      return cudaSuccess;
    case cudaMemPoolAttrReleaseThreshold:
      releaseThreshold_ = *static_cast<const uint64_t*>(value);
      return cudaSuccess;
    case cudaMemPoolAttrReservedMemHigh:
    case cudaMemPoolAttrUsedMemHigh:
      if (*static_cast<const uint64_t*>(value) != 0) return cudaErrorInvalidValue;  // it can only be reset
      usedHigh_ = used_.load();
      return cudaSuccess;
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t MemoryPool::getAttribute(cudaMemPoolAttr attribute, void* value) const {
  switch (attribute) {
    case cudaMemPoolReuseFollowEventDependencies:
    case cudaMemPoolReuseAllowOpportunistic:
    case cudaMemPoolReuseAllowInternalDependencies:
      *static_cast<int*>(value) = reuse_[attribute - cudaMemPoolReuseFollowEventDependencies];
      return cudaSuccess;
    case cudaMemPoolAttrReleaseThreshold:
      *static_cast<uint64_t*>(value) = releaseThreshold_;
      return cudaSuccess;
    case cudaMemPoolAttrReservedMemCurrent:
    case cudaMemPoolAttrUsedMemCurrent:
      *static_cast<uint64_t*>(value) = used_;
      return cudaSuccess;
    case cudaMemPoolAttrReservedMemHigh:
    case cudaMemPoolAttrUsedMemHigh:
      *static_cast<uint64_t*>(value) = usedHigh_;
      return cudaSuccess;
    default:
      return cudaErrorInvalidValue;
  }
}

MemoryPool* defaultPool(Device& device) {
  Pools& all = pools();
  const std::lock_guard lock(all.mutex);
  const auto index = static_cast<size_t>(device.index);
  if (all.defaults.size() <= index) all.defaults.resize(index + 1);
  MemoryPool*& pool = all.defaults[index];
  if (!pool) {
    pool = create(device, 0);
    if (pool) pool->isDefault = true;
  }
  return pool;
}

MemoryPool* currentPool(Device& device) {
  MemoryPool* pool = device.pool.load();
  return pool ? pool : defaultPool(device);
}

MemoryPool* findPool(cudaMemPool_t handle) { return pools().handles.find(handle); }

}  // namespace tutti::hostrt

using namespace tutti::hostrt;

namespace {

/// Runs body(device) for its number.
template <class Body>
cudaError_t withDevice(int number, Body&& body) {
  return apiCall([&] {
    Device* device = findDevice(number);
    return device ? body(*device) : cudaErrorInvalidDevice;
  });
}

/// Runs body(pool), or says that the handle is not valid.
template <class Body>
cudaError_t withPool(cudaMemPool_t handle, Body&& body) {
  return apiCall([&] {
    MemoryPool* pool = findPool(handle);
    return pool ? body(*pool) : cudaErrorInvalidValue;
  });
}

}  // namespace

extern "C" {

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* memPool, int number) {
  return withDevice(number, [&](Device& device) {
    if (!memPool) return cudaErrorInvalidValue;
    const MemoryPool* pool = defaultPool(device);
    if (!pool) return cudaErrorMemoryAllocation;
    *memPool = handleOf(*pool);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* memPool, int number) {
  return withDevice(number, [&](Device& device) {
    if (!memPool) return cudaErrorInvalidValue;
    const MemoryPool* pool = currentPool(device);
    if (!pool) return cudaErrorMemoryAllocation;
    *memPool = handleOf(*pool);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSetMemPool(int number, cudaMemPool_t memPool) {
  return withDevice(number, [&](Device& device) {
    MemoryPool* pool = findPool(memPool);
    if (!pool || pool->device != &device) return cudaErrorInvalidValue;
    device.pool = pool;
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* memPool, const cudaMemPoolProps* poolProps) {
  return apiCall([&] { return createPool(memPool, poolProps); });
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t memPool) {
  return apiCall([&] { return destroyPool(memPool); });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t memPool, size_t) {
  return withPool(memPool, [](MemoryPool&) { return cudaSuccess; });  // nothing is held in reserve
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t memPool, cudaMemPoolAttr attr, void* value) {
  return withPool(memPool, [&](MemoryPool& pool) {
    return value ? pool.setAttribute(attr, value) : cudaErrorInvalidValue;
  });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t memPool, cudaMemPoolAttr attr, void* value) {
  return withPool(memPool, [&](MemoryPool& pool) {
    return value ? pool.getAttribute(attr, value) : cudaErrorInvalidValue;
  });
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t memPool, const cudaMemAccessDesc* descList, size_t count) {
  return withPool(memPool, [&](const MemoryPool& pool) {
    if (count > 0 && !descList) return cudaErrorInvalidValue;
    for (size_t i = 0; i < count; ++i) {
      const cudaMemAccessDesc& desc = descList[i];
      if (desc.location.type != cudaMemLocationTypeDevice) return cudaErrorInvalidValue;
      const Device* device = findDevice(desc.location.id);
      if (!device) return cudaErrorInvalidDevice;
      // All memory is accessible from everywhere; only the owner's access cannot be given up, as in CUDA.
      if (device == pool.device && desc.flags == cudaMemAccessFlagsProtNone) return cudaErrorInvalidValue;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags* flags, cudaMemPool_t memPool,
                                 cudaMemLocation* location) {
  return withPool(memPool, [&](const MemoryPool&) {
    if (!flags || !location || location->type != cudaMemLocationTypeDevice) return cudaErrorInvalidValue;
    if (!findDevice(location->id)) return cudaErrorInvalidDevice;
    *flags = cudaMemAccessFlagsProtReadWrite;
    return cudaSuccess;
  });
}

}  // extern "C"
