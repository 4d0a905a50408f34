#include "hostrt/kernel_context.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <new>

namespace tutti::hostrt {
namespace {

constexpr size_t kDefaultStackBytes = 256 << 10;
constexpr size_t kMostStackBytes = 16 << 20;
constexpr size_t kStacksPerSlab = 32;
constexpr size_t kPage = 4096;
std::atomic<size_t> stackBytes{kDefaultStackBytes};

}  // namespace

#if defined(__x86_64__)

extern "C" void tuttiSwitchStack(void** from, void* to);
extern "C" void tuttiEnterStack();
asm(R"(
  .text
  .p2align 4
  .hidden tuttiSwitchStack
  .globl tuttiSwitchStack
  .type tuttiSwitchStack, @function
tuttiSwitchStack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size tuttiSwitchStack, . - tuttiSwitchStack
  .hidden tuttiEnterStack
  .globl tuttiEnterStack
  .type tuttiEnterStack, @function
tuttiEnterStack:
  .cfi_startproc
  .cfi_undefined rip
  movq %r12, %rdi
  callq *%r13
  ud2
  .cfi_endproc
  .size tuttiEnterStack, . - tuttiEnterStack
)");

void switchContext(Context& from, const Context& to) {
  tuttiSwitchStack(&from.stackPointer, to.stackPointer);
}

void makeContext(Context& context, std::byte*, std::byte* top, void (*entry)(void*), void* argument) {
  // As tuttiSwitchStack leaves a stack: r15, r14, r13, r12, rbx, rbp, return address.
  // The return address lies so that the stack is aligned when tuttiEnterStack calls.
  auto** frame = reinterpret_cast<void**>(top) - 9;
  std::fill_n(frame, 9, nullptr);
  frame[2] = reinterpret_cast<void*>(entry);
  frame[3] = argument;
  frame[6] = reinterpret_cast<void*>(tuttiEnterStack);
  context.stackPointer = frame;
}

#elif defined(__aarch64__)

extern "C" void tuttiSwitchStack(void** from, void* to);
extern "C" void tuttiEnterStack();
asm(R"(
  .text
  .p2align 4
  .hidden tuttiSwitchStack
  .globl tuttiSwitchStack
  .type tuttiSwitchStack, %function
tuttiSwitchStack:
  sub sp, sp, #160
  stp x19, x20, [sp]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
  .size tuttiSwitchStack, . - tuttiSwitchStack
  .hidden tuttiEnterStack
  .globl tuttiEnterStack
  .type tuttiEnterStack, %function
tuttiEnterStack:
  mov x0, x19
  blr x20
  brk #1
  .size tuttiEnterStack, . - tuttiEnterStack
)");

void switchContext(Context& from, const Context& to) {
  tuttiSwitchStack(&from.stackPointer, to.stackPointer);
}

void makeContext(Context& context, std::byte*, std::byte* top, void (*entry)(void*), void* argument) {
  auto** frame = reinterpret_cast<void**>(top - 160);
  std::fill_n(frame, 20, nullptr);
  frame[0] = argument;                                   // x19
  frame[1] = reinterpret_cast<void*>(entry);             // x20
  frame[11] = reinterpret_cast<void*>(tuttiEnterStack);  // x30
  context.stackPointer = frame;
}

#else

namespace {
void enterStack(unsigned entryHigh, unsigned entryLow, unsigned argumentHigh, unsigned argumentLow) {
  const auto join = [](unsigned high, unsigned low) { return (static_cast<uint64_t>(high) << 32) | low; };
  const auto entry = reinterpret_cast<void (*)(void*)>(static_cast<uintptr_t>(join(entryHigh, entryLow)));
  entry(reinterpret_cast<void*>(static_cast<uintptr_t>(join(argumentHigh, argumentLow))));
}
}  // namespace

void switchContext(Context& from, const Context& to) { ::swapcontext(&from.machine, &to.machine); }

void makeContext(Context& context, std::byte* bottom, std::byte* top, void (*entry)(void*), void* argument) {
  ::getcontext(&context.machine);
  context.machine.uc_stack.ss_sp = bottom;
  context.machine.uc_stack.ss_size = static_cast<size_t>(top - bottom);
  context.machine.uc_link = nullptr;
  const auto e = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(entry));
  const auto a = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(argument));
  ::makecontext(&context.machine, reinterpret_cast<void (*)()>(enterStack), 4, static_cast<unsigned>(e >> 32),
                static_cast<unsigned>(e), static_cast<unsigned>(a >> 32), static_cast<unsigned>(a));
}

#endif

size_t kernelStackBytes() { return stackBytes.load(std::memory_order_relaxed); }

void setKernelStackBytes(size_t bytes) {
  // What a kernel needs on a GPU is less than what the host compiler makes of it.
  const size_t wanted = std::min(kMostStackBytes, bytes + kDefaultStackBytes);
  stackBytes.store((wanted + kPage - 1) / kPage * kPage, std::memory_order_relaxed);
}

StackPool::~StackPool() {
  for (KernelStack* stack : all_) delete stack;
  for (const Slab& slab : slabs_) ::munmap(slab.memory, slab.bytes);
}

void StackPool::addSlab() {
  const size_t bytes = kPage + kStacksPerSlab * stackBytes_;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  auto* base = static_cast<std::byte*>(memory);
  ::mprotect(base, kPage, PROT_NONE);
  slabs_.push_back({base, bytes});
  for (size_t i = 0; i < kStacksPerSlab; ++i) {
    auto* stack = new KernelStack;
    stack->bottom = base + kPage + i * stackBytes_;
    stack->bytes = stackBytes_;
    stack->top = stack->bottom + stackBytes_ - (all_.size() * 192) % 8192;
    all_.push_back(stack);
  }
  free_.reserve(all_.size());  // so that give() allocates nothing
  // Handed out from the back.
  free_.insert(free_.begin(), all_.rbegin(), all_.rbegin() + kStacksPerSlab);
}

void StackPool::adoptSize() {
  if (free_.size() != all_.size() || stackBytes_ == kernelStackBytes()) return;
  for (KernelStack* stack : all_) delete stack;
  for (const Slab& slab : slabs_) ::munmap(slab.memory, slab.bytes);
  all_.clear();
  free_.clear();
  slabs_.clear();
  stackBytes_ = kernelStackBytes();
}

KernelStack* StackPool::take() {
  adoptSize();
  if (free_.empty()) addSlab();
  KernelStack* stack = free_.back();
  free_.pop_back();
  mostUsed_ = std::max(mostUsed_, all_.size() - free_.size());
  return stack;
}

bool StackPool::wereOverrun() {
  // The lowest word of a stack is zero as long as nobody reached it; reading commits no memory.
  bool found = false;
  for (size_t i = 0; i < mostUsed_ && i < free_.size(); ++i) {
    auto* word = reinterpret_cast<uint64_t*>(free_[free_.size() - 1 - i]->bottom);
    found = found || *word != 0;
    if (*word != 0) *word = 0;
  }
  mostUsed_ = 0;
  return found;
}

}  // namespace tutti::hostrt
