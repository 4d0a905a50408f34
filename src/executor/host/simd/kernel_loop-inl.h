// The loop around every kernel, compiled once per instruction set (Highway's foreach_target mechanism).
// No ordinary include guard: the toggle makes it visible again for each target.
#if defined(TUTTI_KERNEL_LOOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_KERNEL_LOOP_INL_H_
#undef TUTTI_KERNEL_LOOP_INL_H_
#else
#define TUTTI_KERNEL_LOOP_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstring>
#include <limits>

#include "executor/host/simd/reduce.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

#undef TUTTI_HAVE_MASKED_MEMORY
#if HWY_TARGET == HWY_AVX3
#define TUTTI_HAVE_MASKED_MEMORY 1
#else
#define TUTTI_HAVE_MASKED_MEMORY 0
#endif

constexpr size_t kSmall = 64;

/// memcpy of fewer than 64 bytes without a call: two overlapping moves of the largest fitting size.
HWY_INLINE void copySmall(void* to, const void* from, size_t bytes) {
  auto* t = static_cast<char*>(to);
  const auto* f = static_cast<const char*>(from);
  struct Block16 {
    char b[16];
  };
  struct Block32 {
    char b[32];
  };
  const auto move = [&](auto sample) {
    decltype(sample) first, last;
    std::memcpy(&first, f, sizeof(sample));
    std::memcpy(&last, f + bytes - sizeof(sample), sizeof(sample));
    std::memcpy(t, &first, sizeof(sample));
    std::memcpy(t + bytes - sizeof(sample), &last, sizeof(sample));
  };
  if (bytes >= 32) return move(Block32());
  if (bytes >= 16) return move(Block16());
  if (bytes >= 8) return move(uint64_t());
  if (bytes >= 4) return move(uint32_t());
  if (bytes >= 2) return move(uint16_t());
  if (bytes == 1) *t = *f;
}

// A Type describes one element type to the loop:
//   Stored     element in memory               V       vector of values (accumulators)
//   kUnroll    vectors per iteration
//   lanes()    elements per vector             load / store / stream of `lanes()` elements
//   loadPart / storePart of fewer              scale(v), finish(v): applied to contributions / results
//   combine<op>(a, b)

template <Reduction op, class Type, int kVectors>
HWY_INLINE void reduceVectors(const Type& type, const KernelArguments& a, size_t at, bool streamed) {
  using T = typename Type::Stored;
  using V = typename Type::V;
  const size_t lanes = Type::lanes();
  const bool scaleFirst = a.scaled == Scaled::first || a.scaled == Scaled::all;
  V acc[kVectors];
  const T* first = reinterpret_cast<const T*>(a.sources[0]) + at;
  for (int u = 0; u < kVectors; ++u) acc[u] = type.load(first + static_cast<size_t>(u) * lanes);
  if (HWY_UNLIKELY(scaleFirst)) {
    for (int u = 0; u < kVectors; ++u) acc[u] = type.scale(acc[u]);
  }
  const bool scaleRest = a.scaled == Scaled::rest || a.scaled == Scaled::all;
  for (int32_t s = 1; s < a.sourceCount; ++s) {
    const T* source = reinterpret_cast<const T*>(a.sources[s]) + at;
    if (HWY_UNLIKELY(scaleRest)) {
      for (int u = 0; u < kVectors; ++u) {
        acc[u] = Type::template combine<op>(acc[u],
                                            type.scale(type.load(source + static_cast<size_t>(u) * lanes)));
      }
    } else {
      for (int u = 0; u < kVectors; ++u) {
        acc[u] = Type::template combine<op>(acc[u], type.load(source + static_cast<size_t>(u) * lanes));
      }
    }
  }
  for (int u = 0; u < kVectors; ++u) acc[u] = type.finish(acc[u]);
  for (int32_t d = 0; d < a.destinationCount; ++d) {
    T* destination = reinterpret_cast<T*>(a.destinations[d]) + at;
    if (HWY_UNLIKELY(streamed)) {
      for (int u = 0; u < kVectors; ++u) type.stream(acc[u], destination + static_cast<size_t>(u) * lanes);
    } else {
      for (int u = 0; u < kVectors; ++u) type.store(acc[u], destination + static_cast<size_t>(u) * lanes);
    }
  }
}

/// The same for fewer elements than a vector has.
template <Reduction op, class Type>
HWY_INLINE void reducePart(const Type& type, const KernelArguments& a, size_t at, size_t count) {
  using T = typename Type::Stored;
  auto acc = type.loadPart(reinterpret_cast<const T*>(a.sources[0]) + at, count);
  if (a.scaled == Scaled::first || a.scaled == Scaled::all) acc = type.scale(acc);
  const bool scaleRest = a.scaled == Scaled::rest || a.scaled == Scaled::all;
  for (int32_t s = 1; s < a.sourceCount; ++s) {
    auto next = type.loadPart(reinterpret_cast<const T*>(a.sources[s]) + at, count);
    if (scaleRest) next = type.scale(next);
    acc = Type::template combine<op>(acc, next);
  }
  acc = type.finish(acc);
  for (int32_t d = 0; d < a.destinationCount; ++d) {
    type.storePart(acc, reinterpret_cast<T*>(a.destinations[d]) + at, count);
  }
}

/// Elements before destination 0 reaches a vector boundary, or `elements` when not all destinations reach one
/// together.
template <class Type>
HWY_INLINE size_t elementsToAlignment(const KernelArguments& a) {
  using T = typename Type::Stored;
  const size_t vectorBytes = Type::lanes() * sizeof(T);
  const size_t offset = reinterpret_cast<uintptr_t>(a.destinations[0]) % vectorBytes;
  if (offset % sizeof(T) != 0) return a.elements;
  for (int32_t d = 1; d < a.destinationCount; ++d) {
    if (reinterpret_cast<uintptr_t>(a.destinations[d]) % vectorBytes != offset) return a.elements;
  }
  return offset == 0 ? 0 : (vectorBytes - offset) / sizeof(T);
}

template <Reduction op, class Type>
void reduceKernel(const KernelArguments& a) {
  const Type type(a);
  const size_t lanes = Type::lanes();
  constexpr int kUnroll = Type::kUnroll;
  size_t at = 0;
  bool streamed = a.stream;
  if (HWY_UNLIKELY(streamed)) {
    const size_t head = elementsToAlignment<Type>(a);
    streamed = head < a.elements;
    if (streamed && head != 0) {
      reducePart<op>(type, a, 0, head);
      at = head;
    }
  }
  for (; at + kUnroll * lanes <= a.elements; at += kUnroll * lanes) {
    reduceVectors<op, Type, kUnroll>(type, a, at, streamed);
  }
  for (; at + lanes <= a.elements; at += lanes) reduceVectors<op, Type, 1>(type, a, at, streamed);
  if (at < a.elements) reducePart<op>(type, a, at, a.elements - at);
  if (streamed) hwy::FlushStream();
}

/// Part of a vector of D's lanes to and from memory.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> loadPartOf(D d, const T* from, size_t count) {
#if TUTTI_HAVE_MASKED_MEMORY
  return hn::MaskedLoad(hn::FirstN(d, count), d, from);
#else
  HWY_ALIGN T buffer[kSmall / sizeof(T)] = {};
  copySmall(buffer, from, count * sizeof(T));
  return hn::Load(d, buffer);
#endif
}
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void storePartOf(D d, hn::Vec<D> v, T* to, size_t count) {
#if TUTTI_HAVE_MASKED_MEMORY
  hn::BlendedStore(v, hn::FirstN(d, count), d, to);
#else
  HWY_ALIGN T buffer[kSmall / sizeof(T)];
  hn::Store(v, d, buffer);
  copySmall(to, buffer, count * sizeof(T));
#endif
}

/// Comparison with NaN and signed zeros made independent of operand order; see reduce.h.
template <Reduction op, class D>
HWY_INLINE hn::Vec<D> combineFloats(D d, hn::Vec<D> a, hn::Vec<D> b) {
  if constexpr (op == Reduction::sum) {
    return hn::Add(a, b);
  } else if constexpr (op == Reduction::prod) {
    return hn::Mul(a, b);
  } else {
    const bool max = op == Reduction::max;
    // takes b when either is NaN
    auto best = hn::IfThenElse(max ? hn::Gt(a, b) : hn::Lt(a, b), a, b);
    // equal values differ at most in the sign of zero: + wins in max, - in min
    const hn::RebindToUnsigned<D> du;
    const auto ua = hn::BitCast(du, a);
    const auto ub = hn::BitCast(du, b);
    const auto zero = hn::BitCast(d, max ? hn::And(ua, ub) : hn::Or(ua, ub));
    best = hn::IfThenElse(hn::Eq(a, b), zero, best);
    return hn::IfThenElse(hn::IsNaN(a), a, best);
  }
}

template <class D>
HWY_INLINE hn::Vec<D> canonicalNan(D d, hn::Vec<D> v) {
  using T = hn::TFromD<D>;
  return hn::IfThenElse(hn::IsNaN(v), hn::Set(d, std::numeric_limits<T>::quiet_NaN()), v);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

// What follows runs on any CPU, so it must not be compiled for the target: it only collects addresses of
// kernels.
namespace tutti {
namespace HWY_NAMESPACE {
namespace {

/// Where this target's rows stand in the table.
constexpr SimdTarget thisTarget() {
#if HWY_TARGET == HWY_AVX3
  return SimdTarget::avx512;
#elif HWY_TARGET == HWY_AVX2
  return SimdTarget::avx2;
#elif HWY_TARGET == HWY_SSE4
  return SimdTarget::sse4;
#elif HWY_TARGET == HWY_NEON
  return SimdTarget::neon;
#else
  return SimdTarget::scalar;
#endif
}

/// Puts the four operations of a type into a table row.
template <class Type>
void addType(ReduceKernel (*rows)[4], ncclDataType_t type) {
  rows[type][static_cast<int>(Reduction::sum)] = reduceKernel<Reduction::sum, Type>;
  rows[type][static_cast<int>(Reduction::prod)] = reduceKernel<Reduction::prod, Type>;
  rows[type][static_cast<int>(Reduction::max)] = reduceKernel<Reduction::max, Type>;
  rows[type][static_cast<int>(Reduction::min)] = reduceKernel<Reduction::min, Type>;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tutti
#endif
