#include "hostrt/memory.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "hostrt/device.h"
#include "hostrt/log.h"
#include "hostrt/memory_pool.h"

namespace tutti::hostrt {
namespace {

constexpr size_t kArenaBytes = size_t{32} << 20;

MemoryInfo::Type typeOf(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::host:
      return MemoryInfo::Type::host;
    case MemoryKind::managed:
      return MemoryInfo::Type::managed;
    case MemoryKind::device:
    case MemoryKind::imported:
      break;
  }
  return MemoryInfo::Type::device;
}

size_t totalMemory() {
  static const size_t total = machineMemory().total;
  return total;
}

}  // namespace

Memory& memory() {
  static auto* instance = new Memory;
  return *instance;
}

cudaError_t Memory::allocate(int device, size_t bytes, MemoryKind kind, unsigned int flags, bool forLibrary,
                             void** pointer) {
  return allocate(device, {.bytes = bytes, .kind = kind, .flags = flags, .ofProgram = !forLibrary}, pointer);
}

cudaError_t Memory::allocateFrom(MemoryPool& pool, size_t bytes, bool ofGraph, void** pointer) {
  if (pool.maxBytes() != 0 && bytes > pool.maxBytes() - std::min(pool.maxBytes(), pool.usedBytes())) {
    explain("memory pool of device {}: allocating {} bytes: {} of its {} are in use", pool.device->index,
            bytes, pool.usedBytes(), pool.maxBytes());
    return cudaErrorMemoryAllocation;
  }
  return allocate(pool.device->index, {.bytes = bytes, .pool = &pool, .ofGraph = ofGraph}, pointer);
}

cudaError_t Memory::allocate(int device, Allocation allocation, void** pointer) {
  const size_t bytes = allocation.bytes;
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  watchForks();
  if (bytes > totalMemory()) {
    explain("device {}: allocating {} bytes: the machine has {}", device, bytes, totalMemory());
    return cudaErrorMemoryAllocation;
  }
  const size_t reserved = (bytes + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment;
  const std::unique_lock lock(mutex_);
  if (allocated_ + reserved > totalMemory()) {
    explain("device {}: allocating {} bytes: {} of the machine's {} are allocated", device, bytes, allocated_,
            totalMemory());
    return cudaErrorMemoryAllocation;
  }
  allocation.reserved = reserved;
  const cudaError_t error = allocateLocked(device, allocation, !allocation.ofProgram, pointer);
  if (error != cudaSuccess) return error;
  allocated_ += reserved;
  if (allocation.pool) allocation.pool->add(reserved);
  return cudaSuccess;
}

cudaError_t Memory::allocateLocked(int device, const Allocation& allocation, bool zeroed, void** pointer) {
  for (const auto& [base, arena] : arenas_) {
    if (arena->device() != device) continue;
    const auto offset = arena->allocate(allocation, zeroed);
    if (!offset) continue;
    *pointer = arena->base() + *offset;
    return cudaSuccess;
  }
  if (arenaBytes_.size() <= static_cast<size_t>(device)) arenaBytes_.resize(static_cast<size_t>(device) + 1);
  size_t& mine = arenaBytes_[static_cast<size_t>(device)];
  size_t arenaBytes = std::max(kArenaBytes, mine / 4 / kArenaBytes * kArenaBytes);
  if (allocation.reserved > arenaBytes / 4) arenaBytes = allocation.reserved;
  auto arena = Arena::create(device, arenaBytes);
  if (!arena) {
    explain("device {}: a memory file of {} bytes: {}", device, arenaBytes, ::strerrordesc_np(errno));
    return cudaErrorMemoryAllocation;
  }
  *pointer = arena->base() + *arena->allocate(allocation, zeroed);
  const std::byte* base = arena->base();
  mine += arena->bytes();
  arenas_.emplace(base, std::move(arena));
  return cudaSuccess;
}

Arena* Memory::arenaOf(const void* pointer) const {
  const auto* address = static_cast<const std::byte*>(pointer);
  auto next = arenas_.upper_bound(address);
  if (next == arenas_.begin()) return nullptr;
  Arena* arena = std::prev(next)->second.get();
  return static_cast<size_t>(address - arena->base()) < arena->bytes() ? arena : nullptr;
}

void Memory::releaseLocked(Arena& arena, size_t offset) {
  const auto* found = arena.find(offset);
  const Allocation allocation = found->second;
  arena.release(offset);
  if (allocation.kind != MemoryKind::imported) allocated_ -= allocation.reserved;
  if (allocation.pool) allocation.pool->remove(allocation.reserved);
  if (!arena.isEmpty()) return;
  if (allocation.kind != MemoryKind::imported)
    arenaBytes_[static_cast<size_t>(arena.device())] -= arena.bytes();
  arenas_.erase(arena.base());
}

cudaError_t Memory::free(void* pointer, MemoryKind kind) {
  const std::unique_lock lock(mutex_);
  Arena* arena = arenaOf(pointer);
  const size_t offset = arena ? static_cast<size_t>(static_cast<std::byte*>(pointer) - arena->base()) : 0;
  const auto* found = arena ? arena->find(offset) : nullptr;
  if (!found || found->first != offset) {
    explain("{} is not the start of an allocation of the runtime", fmt::ptr(pointer));
    return cudaErrorInvalidValue;
  }
  const MemoryKind actual = found->second.kind;
  const bool matches = actual == kind || (kind == MemoryKind::device && actual == MemoryKind::managed);
  if (!matches) {
    explain("{} was allocated by another function than the one that this frees", fmt::ptr(pointer));
    return cudaErrorInvalidValue;
  }
  if (!found->second.ofGraph) releaseLocked(*arena, offset);
  return cudaSuccess;
}

void Memory::freeOfGraph(void* pointer) {
  const std::unique_lock lock(mutex_);
  if (Arena* arena = arenaOf(pointer))
    releaseLocked(*arena, static_cast<size_t>(static_cast<std::byte*>(pointer) - arena->base()));
}

void Memory::freeAllOf(int device) {
  const std::unique_lock lock(mutex_);
  for (auto entry = arenas_.begin(); entry != arenas_.end();) {
    Arena& arena = *(entry++)->second;
    if (arena.device() != device) continue;
    std::vector<size_t> offsets;
    for (const auto& [offset, allocation] : arena.allocations()) {
      const bool ofDevice = allocation.kind == MemoryKind::device || allocation.kind == MemoryKind::managed;
      if (allocation.ofProgram && !allocation.ofGraph && ofDevice) offsets.push_back(offset);
    }
    for (const size_t offset : offsets) releaseLocked(arena, offset);
  }
}

cudaError_t Memory::registerHost(void* pointer, size_t bytes, unsigned int flags, int device) {
  if (!pointer || bytes == 0) return cudaErrorInvalidValue;
  const auto* begin = static_cast<const std::byte*>(pointer);
  if (reinterpret_cast<uintptr_t>(begin) + bytes < bytes) return cudaErrorInvalidValue;
  const std::unique_lock lock(mutex_);
  if (arenaOf(pointer)) return cudaErrorHostMemoryAlreadyRegistered;
  const auto next = registered_.upper_bound(begin);
  if (next != registered_.end() && next->first < begin + bytes) return cudaErrorHostMemoryAlreadyRegistered;
  if (next != registered_.begin()) {
    const auto& [base, previous] = *std::prev(next);
    if (base + previous.bytes > begin) return cudaErrorHostMemoryAlreadyRegistered;
  }
  registered_.emplace(begin, Registration{bytes, flags, device});
  return cudaSuccess;
}

cudaError_t Memory::unregisterHost(void* pointer) {
  const std::unique_lock lock(mutex_);
  return registered_.erase(static_cast<const std::byte*>(pointer)) ? cudaSuccess
                                                                   : cudaErrorHostMemoryNotRegistered;
}

MemoryInfo Memory::find(const void* pointer) const {
  const auto* address = static_cast<const std::byte*>(pointer);
  const std::shared_lock lock(mutex_);
  if (const Arena* arena = arenaOf(pointer)) {
    if (const auto* found = arena->find(static_cast<size_t>(address - arena->base()))) {
      const Allocation& allocation = found->second;
      return {typeOf(allocation.kind),
              arena->device(),
              arena->base() + found->first,
              allocation.bytes,
              allocation.flags,
              false,
              allocation.kind == MemoryKind::imported,
              allocation.ofGraph};
    }
    return {};
  }
  auto next = registered_.upper_bound(address);
  if (next == registered_.begin()) return {};
  const auto& [base, range] = *std::prev(next);
  if (static_cast<size_t>(address - base) >= range.bytes) return {};
  return {MemoryInfo::Type::host,
          range.device,
          const_cast<std::byte*>(base),
          range.bytes,
          range.flags,
          true,
          false,
          false};
}

bool Memory::fileOf(const void* pointer, tuttiMemoryFileRef* ref) const {
  const std::shared_lock lock(mutex_);
  const Arena* arena = arenaOf(pointer);
  if (!arena) return false;
  const auto offset = static_cast<size_t>(static_cast<const std::byte*>(pointer) - arena->base());
  if (!arena->find(offset)) return false;
  *ref = {arena->fd(), arena->fileId(), arena->base(), arena->bytes(), offset, arena->device()};
  return true;
}

bool Memory::exportOf(const void* pointer, ExportInfo* info) const {
  const std::shared_lock lock(mutex_);
  const Arena* arena = arenaOf(pointer);
  if (!arena) return false;
  const auto* found =
      arena->find(static_cast<size_t>(static_cast<const std::byte*>(pointer) - arena->base()));
  if (!found || found->second.kind != MemoryKind::device) return false;
  *info = {arena->fd(), found->first, found->second.bytes, arena->device()};
  return true;
}

cudaError_t Memory::import(int device, int fd, size_t offset, size_t bytes, void** pointer) {
  watchForks();
  const std::unique_lock lock(mutex_);
  auto arena = Arena::import(device, fd, offset, bytes);
  if (!arena) {
    explain("mapping another process' memory file: {}", ::strerrordesc_np(errno));
    return cudaErrorMemoryAllocation;
  }
  *pointer = arena->base() + offset;
  const std::byte* base = arena->base();
  arenas_.emplace(base, std::move(arena));
  return cudaSuccess;
}

}  // namespace tutti::hostrt
