// One memory file, mapped, with the allocations that lie in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

namespace tutti::hostrt {

class MemoryPool;

/// What an allocation is to the program.
enum class MemoryKind : uint8_t { device, host, managed, imported };

struct Allocation {
  size_t bytes = 0;     // as asked for
  size_t reserved = 0;  // rounded up
  MemoryKind kind = MemoryKind::device;
  unsigned int flags = 0;      // of cudaHostAlloc
  bool ofProgram = true;       // false: of the library, through the table
  MemoryPool* pool = nullptr;  // that counts it
  bool ofGraph = false;        // of an allocation node: freed with the graph alone
};

/// Not thread-safe. Allocations start on multiples of kAlignment.
class Arena {
 public:
  static constexpr size_t kAlignment = 4096;

  /// A new memory file of `bytes` (rounded up to pages). Null with errno set when the system refuses.
  static std::unique_ptr<Arena> create(int device, size_t bytes);
  /// Another process' memory file, of which the program may use `bytes` at `offset`. Takes over the
  /// descriptor, also when it fails. Null with errno set when it cannot be mapped.
  static std::unique_ptr<Arena> import(int device, int fd, size_t offset, size_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Offset of `allocation.reserved` bytes in the smallest hole that is large enough. With `zeroed` the bytes
  /// are 0.
  std::optional<size_t> allocate(const Allocation& allocation, bool zeroed);
  /// The allocation that starts at the offset ends; large holes give their pages back to the system.
  void release(size_t offset);
  /// The allocation that the offset lies in, with its start; null when there is none.
  const std::pair<const size_t, Allocation>* find(size_t offset) const;

  bool isEmpty() const { return allocations_.empty(); }
  const std::map<size_t, Allocation>& allocations() const { return allocations_; }
  std::byte* base() const { return base_; }
  size_t bytes() const { return bytes_; }
  int fd() const { return fd_; }
  int device() const { return device_; }
  uint64_t fileId() const { return fileId_; }

 private:
  Arena(int device, int fd, std::byte* base, size_t bytes);
  /// Makes the range zero by giving its pages back. False when the system refuses.
  bool returnPages(size_t offset, size_t bytes);

  const int device_;
  const int fd_;
  std::byte* const base_;
  const size_t bytes_;
  const uint64_t fileId_;
  size_t touched_ = 0;  // everything from here on was never handed out, so it is still zero
  std::map<size_t, Allocation> allocations_;  // by offset
  std::map<size_t, size_t> holes_;            // offset, bytes; neighbours are merged
};

}  // namespace tutti::hostrt
