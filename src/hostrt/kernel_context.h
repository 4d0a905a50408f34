// Stacks for CUDA threads and the switch between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif

namespace tutti::hostrt {

/// Where a suspended flow of control goes on.
struct Context {
#if defined(__x86_64__) || defined(__aarch64__)
  void* stackPointer = nullptr;
#else
  ucontext_t machine;
#endif
};

/// Saves the calling flow of control in `from` and goes on with `to`. Returns when something switches back.
/// (Registers that calls preserve are kept; floating-point modes are not.)
void switchContext(Context& from, const Context& to);
/// Prepares a context that calls entry(argument), which must not return, on the stack that ends at `top`.
void makeContext(Context& context, std::byte* bottom, std::byte* top, void (*entry)(void*), void* argument);

struct KernelStack {
  std::byte* bottom = nullptr;
  std::byte* top =
      nullptr;       // where its first frame begins: staggered, so that stacks do not share cache sets
  size_t bytes = 0;  // from bottom
};

/// Stacks of one OS thread, in slabs with a guard page below each. Memory is committed on first touch.
class StackPool {
 public:
  StackPool() = default;
  ~StackPool();
  StackPool(const StackPool&) = delete;
  StackPool& operator=(const StackPool&) = delete;

  /// The stack used last comes first. Throws std::bad_alloc.
  KernelStack* take();
  void give(KernelStack* stack) { free_.push_back(stack); }
  /// True when a thread wrote beyond its stack since the last call. Call when all stacks are free.
  bool wereOverrun();

 private:
  struct Slab {
    std::byte* memory;
    size_t bytes;
  };
  void addSlab();
  void adoptSize();

  std::vector<Slab> slabs_;
  std::vector<KernelStack*> all_;
  std::vector<KernelStack*> free_;
  size_t stackBytes_ = 0;
  size_t mostUsed_ = 0;  // stacks taken at the same time since the last check
};

/// Of each CUDA thread; cudaDeviceSetLimit(cudaLimitStackSize) raises it.
size_t kernelStackBytes();
void setKernelStackBytes(size_t bytes);

}  // namespace tutti::hostrt
