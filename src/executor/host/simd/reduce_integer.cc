// Integer reductions: modulo 2^n for sum and product, as C's unsigned types.
#include <limits>

#include "executor/host/simd/kernel_table.h"
#include "executor/host/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "executor/host/simd/reduce_integer.cc"
#include <hwy/foreach_target.h>

#include "executor/host/simd/kernel_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {
namespace {

/// Product of unsigned lanes modulo 2^n; Highway 1.0.3 lacks the one of bytes.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> multiply(D d, hn::Vec<D> a, hn::Vec<D> b) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(d, static_cast<T>(hn::GetLane(a) * hn::GetLane(b)));
#else
  if constexpr (sizeof(T) == 1) {
    const hn::Repartition<uint16_t, D> wide;
    const auto wa = hn::BitCast(wide, a);
    const auto wb = hn::BitCast(wide, b);
    const auto even = hn::And(hn::Mul(wa, wb), hn::Set(wide, 0xff));
    const auto odd = hn::ShiftLeft<8>(hn::Mul(hn::ShiftRight<8>(wa), hn::ShiftRight<8>(wb)));
    return hn::BitCast(d, hn::Or(even, odd));
  } else {
    return hn::Mul(a, b);
  }
#endif
}

template <typename T>
class Integer {
 public:
  using Stored = T;
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  using U = hwy::MakeUnsigned<T>;
  static constexpr int kUnroll = 4;
  static constexpr size_t lanes() { return HWY_LANES(T); }

  HWY_INLINE explicit Integer(const KernelArguments& a)
      : scale_(static_cast<U>(a.integerScale)), divisor_(a.divisor) {}

  HWY_INLINE V load(const T* p) const { return hn::LoadU(D(), p); }
  HWY_INLINE void store(V v, T* p) const { hn::StoreU(v, D(), p); }
  HWY_INLINE void stream(V v, T* p) const { hn::Stream(v, D(), p); }
  HWY_INLINE V loadPart(const T* p, size_t count) const { return loadPartOf(D(), p, count); }
  HWY_INLINE void storePart(V v, T* p, size_t count) const { storePartOf(D(), v, p, count); }
  HWY_INLINE V scale(V v) const {
    const hn::RebindToUnsigned<D> du;
    return hn::BitCast(D(), multiply(du, hn::BitCast(du, v), hn::Set(du, scale_)));
  }
  HWY_INLINE V finish(V v) const { return HWY_LIKELY(divisor_ == 1) ? v : divide(v); }

  template <Reduction op>
  static HWY_INLINE V combine(V a, V b) {
    const hn::RebindToUnsigned<D> du;  // signed overflow is undefined where a target falls back to plain C++
    if constexpr (op == Reduction::sum) {
      return hn::BitCast(D(), hn::Add(hn::BitCast(du, a), hn::BitCast(du, b)));
    } else if constexpr (op == Reduction::prod) {
      return hn::BitCast(D(), multiply(du, hn::BitCast(du, a), hn::BitCast(du, b)));
    } else if constexpr (op == Reduction::max) {
      return hn::Max(a, b);
    } else {
      return hn::Min(a, b);
    }
  }

 private:
  /// Lane by lane. Up to 32 bits the quotient of doubles is exact enough to truncate: a fraction differs from
  /// an integer by at least 1/divisor, more than the rounding error. This form the compiler can vectorise.
  HWY_NOINLINE V divide(V v) const {
    HWY_ALIGN T values[lanes()];
    hn::Store(v, D(), values);
    if constexpr (sizeof(T) <= 4) {
      const auto divisor = static_cast<double>(divisor_);
      for (T& value : values) value = static_cast<T>(static_cast<double>(value) / divisor);
    } else {
      // divisors are rank counts, never -1: no overflow
      for (T& value : values) value = static_cast<T>(value / static_cast<T>(divisor_));
    }
    return hn::Load(D(), values);
  }

  U scale_;
  uint64_t divisor_;  // more ranks than the type can count are possible
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

namespace tutti {
namespace HWY_NAMESPACE {
namespace {

void addTypes(KernelTable* table) {
  auto* rows = table->kernels[static_cast<int>(thisTarget())];
  addType<Integer<int8_t>>(rows, ncclInt8);
  addType<Integer<uint8_t>>(rows, ncclUint8);
  addType<Integer<int32_t>>(rows, ncclInt32);
  addType<Integer<uint32_t>>(rows, ncclUint32);
  addType<Integer<int64_t>>(rows, ncclInt64);
  addType<Integer<uint64_t>>(rows, ncclUint64);
  // one source, no scale: any operation copies
  table->copy[static_cast<int>(thisTarget())] = rows[ncclUint8][static_cast<int>(Reduction::max)];
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tutti

#if HWY_ONCE
#define TUTTI_ADD_KERNELS addIntegerKernels
#include "executor/host/simd/add_targets-inl.h"
#endif
