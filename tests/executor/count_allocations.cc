#include "count_allocations.h"

#include <cstdlib>
#include <new>

namespace {
thread_local size_t allocations = 0;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
bool tutti::test::countsAllocations() { return false; }
#else
bool tutti::test::countsAllocations() { return true; }

void* operator new(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  ++allocations;
  const auto unit = static_cast<size_t>(alignment);
  if (void* memory = std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
#endif

size_t tutti::test::allocationsOfThread() { return allocations; }
