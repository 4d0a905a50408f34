// All memory that the runtime knows: what it allocated, what it imported and what programs registered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <shared_mutex>
#include <vector>

#include "base/host_runtime.h"
#include "hostrt/api.h"
#include "hostrt/arena.h"

namespace tutti::hostrt {

/// What is known about an address.
struct MemoryInfo {
  enum class Type : uint8_t { unregistered, host, device, managed };
  Type type = Type::unregistered;
  int device = cudaInvalidDeviceId;
  std::byte* base = nullptr;  // of the allocation or registration; the rest likewise
  size_t bytes = 0;
  unsigned int flags = 0;   // of cudaHostAlloc or cudaHostRegister
  bool registered = false;  // by cudaHostRegister
  bool imported = false;    // by cudaIpcOpenMemHandle
  bool ofGraph = false;     // of a captured cudaMallocAsync
};

/// What another process needs to map an allocation.
struct ExportInfo {
  int fd = -1;
  size_t offset = 0;  // of the allocation in the file
  size_t bytes = 0;
  int device = 0;
};

/// Thread-safe. Memory comes from arenas: files of 32 MiB that hold many allocations, so that descriptors
/// stay few. Arenas grow with the memory that a device has (1/4 of it), and allocations beyond 1/4 of the
/// next arena get a file of their own. An arena is returned to the system when its last allocation is freed.
class Memory {
 public:
  /// Zero bytes give a null pointer.
  cudaError_t allocate(int device, size_t bytes, MemoryKind kind, unsigned int flags, bool forLibrary,
                       void** pointer);
  /// For programs: stream-ordered allocations, which a pool counts; `ofGraph`: for an allocation node.
  cudaError_t allocateFrom(MemoryPool& pool, size_t bytes, bool ofGraph, void** pointer);
  /// Frees what a graph owns; other calls leave that alone.
  void freeOfGraph(void* pointer);
  /// `pointer` must be the start of an allocation of that kind.
  cudaError_t free(void* pointer, MemoryKind kind);
  /// Frees what programs allocated on the device with cudaMalloc and its like.
  void freeAllOf(int device);

  cudaError_t registerHost(void* pointer, size_t bytes, unsigned int flags, int device);
  cudaError_t unregisterHost(void* pointer);

  MemoryInfo find(const void* pointer) const;
  bool fileOf(const void* pointer, tuttiMemoryFileRef* ref) const;
  bool exportOf(const void* pointer, ExportInfo* info) const;
  /// Takes over the descriptor.
  cudaError_t import(int device, int fd, size_t offset, size_t bytes, void** pointer);

 private:
  using Arenas = std::map<const std::byte*, std::unique_ptr<Arena>>;
  struct Registration {
    size_t bytes;
    unsigned int flags;
    int device;
  };

  Arena* arenaOf(const void* pointer) const;
  cudaError_t allocate(int device, Allocation allocation, void** pointer);
  cudaError_t allocateLocked(int device, const Allocation& allocation, bool zeroed, void** pointer);
  /// The arena too, when nothing is left in it.
  void releaseLocked(Arena& arena, size_t offset);

  mutable std::shared_mutex mutex_;
  Arenas arenas_;  // by address
  std::map<const std::byte*, Registration> registered_;
  std::vector<size_t> arenaBytes_;  // by device, without imported files
  size_t allocated_ = 0;            // bytes of all allocations, without imported ones
};

/// Lives for ever.
Memory& memory();

}  // namespace tutti::hostrt
