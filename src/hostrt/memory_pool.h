// Memory pools: accounts of stream-ordered allocations.
//
// All memory comes from the device's arenas, and goes back to them when its stream gets to the free. So a
// pool holds nothing in reserve: it counts, and keeps its settings.
#pragma once

#include <atomic>
#include <cstdint>

#include "hostrt/api.h"
#include "hostrt/handle_table.h"

namespace tutti::hostrt {

struct Device;

/// Thread-safe. Like streams, pools are used again and never freed: an allocation may outlive its pool.
class MemoryPool : public HandleTarget {
 public:
  explicit MemoryPool(Device& owner) : device(&owner) {}

  void add(uint64_t bytes);
  void remove(uint64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  cudaError_t setAttribute(cudaMemPoolAttr attribute, const void* value);
  cudaError_t getAttribute(cudaMemPoolAttr attribute, void* value) const;
  /// Prepares the pool for its next user.
  void reset(Device& owner, uint64_t mostBytes);
  /// Destroyed by the program: used again when its last allocation is freed, never before.
  bool isUnused() const { return used_.load(std::memory_order_relaxed) == 0; }
  uint64_t maxBytes() const { return maxBytes_; }
  uint64_t usedBytes() const { return used_.load(std::memory_order_relaxed); }

  Device* device;
  bool isDefault = false;

 private:
  static constexpr int kReuseSettings = 3;
  std::atomic<uint64_t> used_{0};
  std::atomic<uint64_t> usedHigh_{0};
  std::atomic<uint64_t> releaseThreshold_{0};
  std::atomic<int> reuse_[kReuseSettings] = {1, 1, 1};
  uint64_t maxBytes_ = 0;  // 0: no limit
};

/// Of the device; made on first use.
MemoryPool* defaultPool(Device& device);
/// That cudaMallocAsync takes from.
MemoryPool* currentPool(Device& device);
/// Null when the handle is not valid.
MemoryPool* findPool(cudaMemPool_t handle);

}  // namespace tutti::hostrt
