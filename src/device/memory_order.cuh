// Every access of the kernels to memory that others use at the same time, with its order: PTX for GPUs, and
// beside it the twin that the host compiler compiles (docs/virtual-gpus.md). No other file has PTX.
//
//   acquire, release   scope sys: peers' GPUs, the host. Cumulative over __syncthreads: what all threads of a
//                      block wrote before the barrier comes before a release by one thread after it.
//   relaxed            no order by itself; says why it needs none
//   plain              nobody else uses that memory meanwhile
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/device_program.h"

/// Everything lies in this namespace: tests compile the kernels once more, with faults.
#ifndef TUTTI_KERNELS
#define TUTTI_KERNELS kernels
#endif
#define TUTTI_DEVICE __device__ __forceinline__

/// The fault that a test plants; 0: none.
#ifndef TUTTI_PLANT
#define TUTTI_PLANT 0
#endif
#define TUTTI_PLANT_NO_BARRIER 1      // none between a step's movement and its end
#define TUTTI_PLANT_EARLY_TAIL 2      // a message is announced without release
#define TUTTI_PLANT_BEHIND_END 3      // one element is stored behind the piece's end
#define TUTTI_PLANT_TORN_LINE 4       // the flag of an LL128 line comes before its data
#define TUTTI_PLANT_LOST_REMAINDER 5  // elements behind the last whole 16 bytes are not moved

namespace tutti::device::TUTTI_KERNELS {

/// Bytes of memory in registers.
template <int kBytes>
struct alignas(kBytes) Chunk {
  uint32_t words[kBytes / 4];
};
template <>
struct alignas(2) Chunk<2> {
  uint16_t words[1];
};
template <>
struct alignas(1) Chunk<1> {
  uint8_t words[1];
};

/// Tells reports of deadlocks where a virtual GPU's thread is.
TUTTI_DEVICE void note([[maybe_unused]] const char* what, [[maybe_unused]] uint64_t number) {
#if defined(TUTTI_HOST_KERNELS_COMPILATION)
  shim::note(what, number);
#endif
}

/// A number that grows: about one a nanosecond.
TUTTI_DEVICE uint64_t ticks() { return static_cast<uint64_t>(clock64()); }

#if defined(TUTTI_HOST_KERNELS_COMPILATION)

// ---- the twin

/// A kernel that begins after the abort must not touch the user's memory, which may be gone: on this machine
/// nothing keeps it (cudaFree waits for a GPU's kernels).
TUTTI_DEVICE bool wasAborted(const uint32_t* flag) { return shim::loadRelaxed(flag) != 0; }
/// The thread waits: others of the block, and other blocks, have their turn before it looks again.
TUTTI_DEVICE void giveWay() { __nanosleep(0); }
/// In programs with several lanes lines have release and acquire (line_order.cuh), which say more.
TUTTI_DEVICE void fenceDevice() {}

TUTTI_DEVICE uint64_t loadAcquire(const uint64_t* p) { return shim::loadAcquire(p); }
TUTTI_DEVICE uint64_t loadRelaxed(const uint64_t* p) { return shim::loadRelaxed(p); }
TUTTI_DEVICE uint32_t loadRelaxed(const uint32_t* p) { return shim::loadRelaxed(p); }
TUTTI_DEVICE void storeRelease(uint64_t* p, uint64_t value) { shim::storeRelease(p, value); }
TUTTI_DEVICE void storeRelease(uint32_t* p, uint32_t value) { shim::storeRelease(p, value); }
TUTTI_DEVICE void storeRelaxed(uint64_t* p, uint64_t value) { shim::storeRelaxed(p, value); }
TUTTI_DEVICE void storeRelaxed(uint32_t* p, uint32_t value) { shim::storeRelaxed(p, value); }

/// Acquire and release among the blocks of a device. Gives the old value.
TUTTI_DEVICE uint32_t addAcquireRelease(uint32_t* p, uint32_t value) {
  return __atomic_fetch_add(p, value, __ATOMIC_ACQ_REL);
}
/// True for the one who changes *p from 0 to `value`. Relaxed: it guards only reports.
TUTTI_DEVICE bool claim(uint32_t* p, uint32_t value) { return atomicCAS(p, 0u, value) == 0; }

template <int kBytes>
TUTTI_DEVICE Chunk<kBytes> loadPlain(const void* p) {
  Chunk<kBytes> chunk;
  std::memcpy(&chunk, p, kBytes);
  return chunk;
}
template <int kBytes>
TUTTI_DEVICE void storePlain(void* p, const Chunk<kBytes>& chunk) {
  std::memcpy(p, &chunk, kBytes);
}

#else

// ---- PTX

TUTTI_DEVICE void giveWay() {}
TUTTI_DEVICE bool wasAborted(const uint32_t*) { return false; }  // not worth a load from host memory
/// acquire and release, scope gpu: this thread's stores come before whatever it, or the block behind a
/// barrier, stores later.
TUTTI_DEVICE void fenceDevice() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

TUTTI_DEVICE uint64_t loadAcquire(const uint64_t* p) {
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];"
               : "=l"(value)
               : "l"(__cvta_generic_to_global(p))
               : "memory");
  return value;
}
TUTTI_DEVICE uint64_t loadRelaxed(const uint64_t* p) {
  uint64_t value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];"
               : "=l"(value)
               : "l"(__cvta_generic_to_global(p))
               : "memory");
  return value;
}
TUTTI_DEVICE uint32_t loadRelaxed(const uint32_t* p) {
  uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];"
               : "=r"(value)
               : "l"(__cvta_generic_to_global(p))
               : "memory");
  return value;
}
TUTTI_DEVICE void storeRelease(uint64_t* p, uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(p)), "l"(value)
               : "memory");
}
TUTTI_DEVICE void storeRelease(uint32_t* p, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(p)), "r"(value)
               : "memory");
}
TUTTI_DEVICE void storeRelaxed(uint64_t* p, uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(p)), "l"(value)
               : "memory");
}
TUTTI_DEVICE void storeRelaxed(uint32_t* p, uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(p)), "r"(value)
               : "memory");
}

TUTTI_DEVICE uint32_t addAcquireRelease(uint32_t* p, uint32_t value) {
  uint32_t old;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(__cvta_generic_to_global(p)), "r"(value)
               : "memory");
  return old;
}
TUTTI_DEVICE bool claim(uint32_t* p, uint32_t value) { return atomicCAS_system(p, 0u, value) == 0; }

template <int kBytes>
TUTTI_DEVICE Chunk<kBytes> loadPlain(const void* p) {
  if constexpr (kBytes == 16) {
    Chunk<16> c;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(c.words[0]), "=r"(c.words[1]), "=r"(c.words[2]), "=r"(c.words[3])
                 : "l"(__cvta_generic_to_global(p))
                 : "memory");
    return c;
  } else {
    return *static_cast<const Chunk<kBytes>*>(p);
  }
}
template <int kBytes>
TUTTI_DEVICE void storePlain(void* p, const Chunk<kBytes>& c) {
  if constexpr (kBytes == 16) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(p)),
                 "r"(c.words[0]), "r"(c.words[1]), "r"(c.words[2]), "r"(c.words[3])
                 : "memory");
  } else {
    *static_cast<Chunk<kBytes>*>(p) = c;
  }
}

#endif

}  // namespace tutti::device::TUTTI_KERNELS
