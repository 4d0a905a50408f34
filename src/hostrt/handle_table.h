// Handles for objects that programs name by an opaque pointer (streams, events).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

namespace tutti::hostrt {

/// What an object in a HandleTable derives from. An object is never freed: when its user destroys it, its
/// generation grows, which makes the old handle invalid, and it is used again for a later one. So a pointer
/// to it stays valid for ever, and a stale or wild handle is recognised without reading freed memory.
struct HandleTarget {
  uint32_t index = 0;
  std::atomic<uint32_t> generation{1};
};

/// handle = tag (8 bits) | generation (28) | index (28). Looking up takes no lock.
template <class T>
class HandleTable {
 public:
  explicit HandleTable(uint8_t tag) : tag_(tag) {}

  /// Gives the object its index, for good. False when the table is full.
  bool add(T* object) {
    const std::lock_guard lock(mutex_);
    const uint32_t index = count_.load(std::memory_order_relaxed);
    if (index == kChunks * kChunkSize) return false;
    std::atomic<Chunk*>& chunk = chunks_[index / kChunkSize];
    if (!chunk.load(std::memory_order_relaxed)) chunk.store(new Chunk{}, std::memory_order_release);
    object->index = index;
    (*chunk.load(std::memory_order_relaxed))[index % kChunkSize] = object;
    count_.store(index + 1, std::memory_order_release);
    return true;
  }

  /// The handle under which the object is known until retire.
  void* handleOf(const T& object) const {
    const uint64_t generation = object.generation.load(std::memory_order_relaxed) & kMask;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): a number that CUDA's types make a pointer; nobody follows it
    return reinterpret_cast<void*>(uint64_t{tag_} << 56 | generation << 28 | object.index);
  }

  /// The object, or null when the handle is not one of a living object.
  T* find(const void* handle) const {
    const auto bits = reinterpret_cast<uint64_t>(handle);
    const uint64_t index = bits & kMask;
    if (bits >> 56 != tag_ || index >= count_.load(std::memory_order_acquire)) return nullptr;
    T* object = (*chunks_[index / kChunkSize].load(std::memory_order_acquire))[index % kChunkSize];
    const uint64_t generation = object->generation.load(std::memory_order_acquire) & kMask;
    return (bits >> 28 & kMask) == generation ? object : nullptr;
  }

  /// Makes the object's present handle invalid; false when somebody else did.
  static bool retire(T& object, const void* handle) {
    auto seen = static_cast<uint32_t>(reinterpret_cast<uint64_t>(handle) >> 28 & kMask);
    return object.generation.compare_exchange_strong(seen, (seen + 1) & kMask, std::memory_order_acq_rel);
  }

 private:
  static constexpr uint32_t kChunkSize = 256;
  static constexpr uint32_t kChunks = 8192;
  static constexpr uint64_t kMask = (uint64_t{1} << 28) - 1;
  using Chunk = std::array<T*, kChunkSize>;

  const uint8_t tag_;
  std::mutex mutex_;
  std::atomic<uint32_t> count_{0};
  std::array<std::atomic<Chunk*>, kChunks> chunks_{};
};

}  // namespace tutti::hostrt
