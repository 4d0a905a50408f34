// Loads and stores with a stated order, and the cache hints of plain ones. Every scope (block, GPU, system)
// is the machine. Loads count as polling: see polled().
#pragma once

#include "base/kernel_shim/atomics.h"

namespace tutti::shim {

template <class T>
inline T loadAcquire(const T* address, Place place = here("an acquire load")) {
  T value;
  __atomic_load(address, &value, __ATOMIC_ACQUIRE);
  polled(place);
  return value;
}
template <class T>
inline T loadRelaxed(const T* address, Place place = here("a relaxed load")) {
  T value;
  __atomic_load(address, &value, __ATOMIC_RELAXED);
  polled(place);
  return value;
}
/// ld.volatile of device code: not torn, not reordered with other volatile accesses of the thread.
template <class T>
inline T loadVolatile(const T* address, Place place = here("a volatile load")) {
  return loadRelaxed(address, place);
}
template <class T>
inline void storeRelease(T* address, SameAs<T> value) {
  __atomic_store(address, &value, __ATOMIC_RELEASE);
}
template <class T>
inline void storeRelaxed(T* address, SameAs<T> value) {
  __atomic_store(address, &value, __ATOMIC_RELAXED);
}

}  // namespace tutti::shim

#define TUTTI_PLAIN_LOAD(name)      \
  template <class T>                \
  inline T name(const T* address) { \
    return *address;                \
  }
TUTTI_PLAIN_LOAD(__ldg)
TUTTI_PLAIN_LOAD(__ldcg)
TUTTI_PLAIN_LOAD(__ldca)
TUTTI_PLAIN_LOAD(__ldcs)
TUTTI_PLAIN_LOAD(__ldlu)
#undef TUTTI_PLAIN_LOAD
/// Not cached: kernels poll with it.
template <class T>
inline T __ldcv(const T* address, tutti::shim::Place place = tutti::shim::here("__ldcv")) {
  tutti::shim::polled(place);
  return *const_cast<const volatile T*>(address);
}
#define TUTTI_PLAIN_STORE(name)                                \
  template <class T>                                           \
  inline void name(T* address, tutti::shim::SameAs<T> value) { \
    *address = value;                                          \
  }
TUTTI_PLAIN_STORE(__stwb)
TUTTI_PLAIN_STORE(__stcg)
TUTTI_PLAIN_STORE(__stcs)
TUTTI_PLAIN_STORE(__stwt)
#undef TUTTI_PLAIN_STORE
