// The ends of a process: exit and fork.
#pragma once

namespace tutti::hostrt {

/// True once the process runs its exit handlers. Workers start nothing new then, and nobody waits for them:
/// what work refers to (other libraries, the program's static objects) may be gone.
bool isExiting();
/// Never returns when the process is exiting.
void parkIfExiting();

/// A hint to the processor inside a spin loop.
inline void cpuRelax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

}  // namespace tutti::hostrt
