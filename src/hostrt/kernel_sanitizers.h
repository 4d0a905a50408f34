// What the sanitizers must know of fibers. Empty in ordinary builds. The files that switch are not themselves
// instrumented (CMakeLists.txt says why).
#pragma once

#include <cstddef>

#if defined(TUTTI_KERNEL_ASAN)
extern "C" {
void __sanitizer_start_switch_fiber(void** fakeStack, const void* bottom, size_t bytes);
void __sanitizer_finish_switch_fiber(void* fakeStack, const void** oldBottom, size_t* oldBytes);
void __asan_unpoison_memory_region(void const volatile* address, size_t bytes);
}
#endif
#if defined(TUTTI_KERNEL_TSAN)
extern "C" {
void* __tsan_get_current_fiber(void);
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
#endif

namespace tutti::hostrt::sanitizer {

#if defined(TUTTI_KERNEL_ASAN)
inline void startSwitch(void** fakeStack, const void* bottom, size_t bytes) {
  __sanitizer_start_switch_fiber(fakeStack, bottom, bytes);
}
inline void finishSwitch(void* fakeStack, const void** oldBottom, size_t* oldBytes) {
  __sanitizer_finish_switch_fiber(fakeStack, oldBottom, oldBytes);
}
inline void unpoison(void* address, size_t bytes) { __asan_unpoison_memory_region(address, bytes); }
#else
inline void startSwitch(void**, const void*, size_t) {}
inline void finishSwitch(void*, const void**, size_t*) {}
inline void unpoison(void*, size_t) {}
#endif

#if defined(TUTTI_KERNEL_TSAN)
/// What CUDA threads share must be allocated by the OS thread: allocating counts as an access.
constexpr bool kSeesThreads = true;
inline void* currentFiber() { return __tsan_get_current_fiber(); }
inline void* createFiber() { return __tsan_create_fiber(0); }
inline void destroyFiber(void* fiber) { __tsan_destroy_fiber(fiber); }
/// Without order: CUDA threads are ordered by barriers alone, not by the order in which they happen to run.
inline void switchToFiber(void* fiber) { __tsan_switch_to_fiber(fiber, 1); }
inline void acquire(void* address) { __tsan_acquire(address); }
inline void release(void* address) { __tsan_release(address); }
#else
constexpr bool kSeesThreads = false;
inline void* currentFiber() { return nullptr; }
inline void* createFiber() { return nullptr; }
inline void destroyFiber(void*) {}
inline void switchToFiber(void*) {}
inline void acquire(void*) {}
inline void release(void*) {}
#endif

}  // namespace tutti::hostrt::sanitizer
