// CUDA's words, coordinates, barriers and ends of threads.
//
// A CUDA thread is a fiber, a block is run by one OS thread. The running thread is found in `current`, which
// the engine sets at each switch; it is thread-local, and so is memory that is __shared__.
#pragma once

#define TUTTI_HOST_KERNELS_COMPILATION 1

#include <cuda_runtime.h>
#include <sched.h>
#include <time.h>

#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "base/kernel_shim/abi.h"

// Other headers declare these names as variables.
#define __DEVICE_LAUNCH_PARAMETERS_H__
#undef __host__
#undef __device__
#undef __global__
#undef __shared__
#undef __constant__
#undef __managed__
#undef __forceinline__
#undef __launch_bounds__
#undef __grid_constant__
#undef __maxnreg__
#undef __cluster_dims__
#undef __align__
#define __host__
#define __align__(n) __attribute__((aligned(n)))
#define __forceinline__ inline __attribute__((always_inline))
#define __grid_constant__
#define __maxnreg__(...)
#define __cluster_dims__(...)
// Understood by the translator (tools/host_kernels), which removes them.
#define __device__ __tutti_device__
#define __constant__ __tutti_device__
#define __managed__ __tutti_device__
#define __global__ __tutti_global__
#define __shared__ __tutti_shared__
#define __launch_bounds__(...) __tutti_launch_bounds__(__VA_ARGS__)

// Variables and not macros: programs have members and variables of these names. The engine sets them.
#define TUTTI_SLOT \
  inline constinit thread_local __attribute__((visibility("hidden"), tls_model("initial-exec")))
TUTTI_SLOT uint3 threadIdx{};
TUTTI_SLOT uint3 blockIdx{};
TUTTI_SLOT dim3 blockDim{};
TUTTI_SLOT dim3 gridDim{};
inline constexpr int warpSize = 32;

namespace tutti::shim {

/// The running CUDA thread; null in host code. One per module, so that access needs no call.
TUTTI_SLOT Thread* current = nullptr;
#undef TUTTI_SLOT

inline Thread& self() { return *current; }
inline const Block& block() { return *current->block; }

/// The place of a call, as a default argument.
constexpr Place here(const char* what, const char* file = __builtin_FILE(),
                     unsigned line = __builtin_LINE()) {
  return {file, line, what};
}

constexpr uint32_t kPollsPerTurn = 32;

/// In every load that kernels poll with: now and then the block's other threads get their turn.
inline void polled(const Place& place) {
  Thread* thread = current;
  if (!thread || ++thread->polls < kPollsPerTurn) return;
  thread->polls = 0;
  thread->block->engine->yield(*thread, place);
}

/// What the thread is doing, for reports of deadlocks and time-outs. `text` must live as long as the program.
inline void note(const char* text, unsigned long long value) {
  if (!current) return;
  current->note = text;
  current->noteValue = value;
}

/// Barrier `id` (0 to 15; 0 is that of __syncthreads) for `threads` threads: PTX's barrier.sync id, threads.
inline void namedBarrier(unsigned id, unsigned threads, Place place = here("barrier")) {
  block().engine->barrier(self(), id, threads, BlockVote::none, 0, place);
}

inline void* dynamicShared() { return current ? block().dynamicShared : nullptr; }

#if defined(__SANITIZE_ADDRESS__)
extern "C" void __asan_poison_memory_region(void const volatile*, size_t);
extern "C" void __asan_unpoison_memory_region(void const volatile*, size_t);
/// A variable between poisoned neighbours: the compiler guards none that are thread-local.
template <class T>
struct alignas(alignof(T) > 32 ? alignof(T) : 32) Guarded {
  static constexpr size_t kRedzone = 32;
  alignas(alignof(T) > 32 ? alignof(T) : 32) unsigned char before[alignof(T) > 32 ? alignof(T) : 32];
  T value;
  unsigned char after[2 * kRedzone];
  bool guarded;
  /// The memory becomes another thread's when this one ends.
  struct Cleanup {
    Guarded* storage;
    ~Cleanup() { __asan_unpoison_memory_region(storage, sizeof(Guarded)); }
  };
  T& get() {
    if (!guarded) {
      guarded = true;
      static thread_local Cleanup cleanup{this};
      static_cast<void>(cleanup);
      __asan_poison_memory_region(before, sizeof before);
      __asan_poison_memory_region(after, kRedzone);
    }
    return value;
  }
};
template <class T>
__attribute__((always_inline)) inline T& sharedVariable() {
  static thread_local Guarded<T> storage;
  return storage.get();
}
#else
template <class T>
__attribute__((always_inline)) inline T& sharedVariable() {
  static thread_local T storage;
  return storage;
}
#endif

/// An array of shared memory that was declared outside of functions.
template <class T>
struct DynamicShared {
  operator T*() const { return static_cast<T*>(dynamicShared()); }
};

[[noreturn]] inline void faultHere(int error, const char* text, const Place& place) {
  if (current) block().engine->fault(self(), error, text, place);
  std::fprintf(stderr, "%s:%u: %s in host code\n", place.file, place.line, text);
  std::abort();
}

}  // namespace tutti::shim

// ---- barriers of a block

inline void __syncthreads(tutti::shim::Place place = tutti::shim::here("__syncthreads")) {
  using namespace tutti::shim;
  block().engine->barrier(self(), 0, 0, BlockVote::none, 0, place);
}
inline int __syncthreads_count(int predicate,
                               tutti::shim::Place place = tutti::shim::here("__syncthreads_count")) {
  using namespace tutti::shim;
  return static_cast<int>(block().engine->barrier(self(), 0, 0, BlockVote::count, predicate != 0, place));
}
inline int __syncthreads_and(int predicate,
                             tutti::shim::Place place = tutti::shim::here("__syncthreads_and")) {
  using namespace tutti::shim;
  return static_cast<int>(block().engine->barrier(self(), 0, 0, BlockVote::all, predicate != 0, place));
}
inline int __syncthreads_or(int predicate, tutti::shim::Place place = tutti::shim::here("__syncthreads_or")) {
  using namespace tutti::shim;
  return static_cast<int>(block().engine->barrier(self(), 0, 0, BlockVote::any, predicate != 0, place));
}

// ---- ends, time

[[noreturn]] inline void __trap(tutti::shim::Place place = tutti::shim::here("__trap")) {
  tutti::shim::faultHere(cudaErrorLaunchFailure, "__trap", place);
}
inline void __brkpt() {}

/// What assert() of a twin calls: as in CUDA, the kernel fails, not the process.
[[noreturn]] inline void __tutti_assert_fail(const char* text, const char* file, unsigned line,
                                             const char* function) {
  using namespace tutti::shim;
  if (!current) {
    std::fprintf(stderr, "%s:%u: %s: Assertion `%s' failed.\n", file, line, function, text);
    std::abort();
  }
  const uint3 b = blockIdx;
  const uint3 t = threadIdx;
  std::fprintf(stderr, "%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.\n", file,
               line, function, b.x, b.y, b.z, t.x, t.y, t.z, text);
  faultHere(cudaErrorAssert, "assertion", Place{file, line, "assert"});
}

inline void __nanosleep(unsigned ns, tutti::shim::Place place = tutti::shim::here("__nanosleep")) {
  using namespace tutti::shim;
  if (current) block().engine->sleep(self(), ns, place);
}
/// In loops without a body, where the translator puts it: they poll.
constexpr void __tutti_spin(tutti::shim::Place place = tutti::shim::here("a loop without a body")) {
  if (!__builtin_is_constant_evaluated()) tutti::shim::polled(place);
}

inline long long __tutti_clock() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}
/// One cycle is a nanosecond.
inline long long clock64() { return __tutti_clock(); }
