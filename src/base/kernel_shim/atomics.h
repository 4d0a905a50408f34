// atomicAdd and its kin. CUDA's are relaxed; these are sequentially consistent, which the machine gives for
// nothing and which lets ThreadSanitizer see what fences order.
#pragma once

#include "base/kernel_shim/core.h"

namespace tutti::shim {

/// Applies `change` until no other thread came between. Gives the old value.
template <class T, class Change>
T atomicUpdate(T* address, Change change, const Place& place) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  T old;
  __atomic_load(address, &old, __ATOMIC_RELAXED);
  for (;;) {
    T next = change(old);
    if (__atomic_compare_exchange(address, &old, &next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) break;
  }
  polled(place);
  return old;
}

template <class T>
constexpr bool isAtomicInteger = std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8);
template <class T>
constexpr bool isAtomicNumber = isAtomicInteger<T> || std::is_floating_point_v<T>;
template <class T>
struct Same {
  using type = T;
};
template <class T>
using SameAs = typename Same<T>::type;  // not deduced from: the address says what is exchanged

}  // namespace tutti::shim

#define TUTTI_ATOMIC(name, kind, expression)                                                     \
  template <class T>                                                                             \
  requires tutti::shim::kind<T>                                                                  \
  inline T name(T* address, tutti::shim::SameAs<T> value,                                        \
                tutti::shim::Place place = tutti::shim::here(#name)) {                           \
    return tutti::shim::atomicUpdate(                                                            \
        address, [value]([[maybe_unused]] T old) { return static_cast<T>(expression); }, place); \
  }                                                                                              \
  template <class T>                                                                             \
  requires tutti::shim::kind<T>                                                                  \
  inline T name##_system(T* address, tutti::shim::SameAs<T> value,                               \
                         tutti::shim::Place place = tutti::shim::here(#name)) {                  \
    return name(address, value, place);                                                          \
  }                                                                                              \
  template <class T>                                                                             \
  requires tutti::shim::kind<T>                                                                  \
  inline T name##_block(T* address, tutti::shim::SameAs<T> value,                                \
                        tutti::shim::Place place = tutti::shim::here(#name)) {                   \
    return name(address, value, place);                                                          \
  }
TUTTI_ATOMIC(atomicAdd, isAtomicNumber, old + value)
TUTTI_ATOMIC(atomicSub, isAtomicNumber, old - value)
TUTTI_ATOMIC(atomicMin, isAtomicNumber, value < old ? value : old)
TUTTI_ATOMIC(atomicMax, isAtomicNumber, value > old ? value : old)
TUTTI_ATOMIC(atomicExch, isAtomicNumber, value)
TUTTI_ATOMIC(atomicAnd, isAtomicInteger, old& value)
TUTTI_ATOMIC(atomicOr, isAtomicInteger, old | value)
TUTTI_ATOMIC(atomicXor, isAtomicInteger, old ^ value)
TUTTI_ATOMIC(atomicInc, isAtomicInteger, old >= value ? 0 : old + 1)
TUTTI_ATOMIC(atomicDec, isAtomicInteger, old == 0 || old > value ? value : old - 1)
#undef TUTTI_ATOMIC

template <class T>
inline T atomicCAS(T* address, tutti::shim::SameAs<T> expected, tutti::shim::SameAs<T> value,
                   tutti::shim::Place place = tutti::shim::here("atomicCAS")) {
  __atomic_compare_exchange(address, &expected, &value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  tutti::shim::polled(place);
  return expected;
}
template <class T>
inline T atomicCAS_system(T* address, tutti::shim::SameAs<T> expected, tutti::shim::SameAs<T> value,
                          tutti::shim::Place place = tutti::shim::here("atomicCAS")) {
  return atomicCAS(address, expected, value, place);
}
template <class T>
inline T atomicCAS_block(T* address, tutti::shim::SameAs<T> expected, tutti::shim::SameAs<T> value,
                         tutti::shim::Place place = tutti::shim::here("atomicCAS")) {
  return atomicCAS(address, expected, value, place);
}

namespace tutti::shim {
/// A full barrier. An exchange, since ThreadSanitizer knows no fences.
inline void fence() {
#if defined(__SANITIZE_THREAD__)
  static int everybody = 0;
  __atomic_fetch_add(&everybody, 0, __ATOMIC_ACQ_REL);
#else
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}
}  // namespace tutti::shim

inline void __threadfence() { tutti::shim::fence(); }
inline void __threadfence_block() { tutti::shim::fence(); }
inline void __threadfence_system() { tutti::shim::fence(); }
