// Reductions of half, bfloat16 and the 8-bit floats: values are float in registers, rounded once when stored.
#include <cstring>
#include <limits>

#include "base/float8.h"
#include "executor/host/simd/kernel_table.h"
#include "executor/host/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "executor/host/simd/reduce_narrow.cc"
#include <hwy/foreach_target.h>

#include "executor/host/simd/kernel_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {
namespace {

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;
using D16 = hn::Rebind<uint16_t, DF>;
using V16 = hn::Vec<D16>;
using DU = hn::RebindToUnsigned<DF>;
using DI = hn::RebindToSigned<DF>;
constexpr size_t kLanes = HWY_LANES(float);

/// Drops the upper halves, which are zero.
HWY_INLINE V16 narrow(hn::Vec<DU> v) { return hn::DemoteTo(D16(), hn::BitCast(DI(), v)); }

/// Conversions of the two 16-bit formats. round() is given no NaN but the canonical one.
struct Bfloat16 {
  static HWY_INLINE VF widen(V16 v) { return hn::BitCast(DF(), hn::ShiftLeft<16>(hn::PromoteTo(DU(), v))); }
  static HWY_INLINE V16 round(VF v) {
    const DU du;
    const auto bits = hn::BitCast(du, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    return narrow(hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), odd)));
  }
};

// Highway's own half conversions truncate subnormals and lose infinities on targets without F16C, so that
// only the ones that map to the instructions are used.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
struct Half {
  static HWY_INLINE VF widen(V16 v) {
    return hn::PromoteTo(DF(), hn::BitCast(hn::Rebind<hwy::float16_t, DF>(), v));
  }
  static HWY_INLINE V16 round(VF v) {
    return hn::BitCast(D16(), hn::DemoteTo(hn::Rebind<hwy::float16_t, DF>(), v));
  }
};
#else
struct Half {
  static HWY_INLINE VF widen(V16 v) {
    const DU du;
    const DF df;
    const auto half = hn::PromoteTo(du, v);
    const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(du, 0x8000u)));
    const auto magnitude = hn::ShiftLeft<13>(hn::And(half, hn::Set(du, 0x7fffu)));
    const auto exponent = hn::And(magnitude, hn::Set(du, 0x7c00u << 13));
    const auto normal = hn::Add(magnitude, hn::Set(du, (127u - 15u) << 23));
    const auto infinite = hn::Add(normal, hn::Set(du, (128u - 16u) << 23));
    // subnormal: put the mantissa below a 2^-14 and take that away again, exactly
    const auto base = hn::Set(du, 113u << 23);
    const auto subnormal =
        hn::BitCast(du, hn::Sub(hn::BitCast(df, hn::Add(magnitude, base)), hn::BitCast(df, base)));
    auto bits = hn::IfThenElse(hn::Eq(exponent, hn::Set(du, 0x7c00u << 13)), infinite, normal);
    bits = hn::IfThenElse(hn::Eq(exponent, hn::Zero(du)), subnormal, bits);
    return hn::BitCast(df, hn::Or(bits, sign));
  }
  static HWY_INLINE V16 round(VF v) {
    const DU du;
    const DF df;
    const DI di;  // magnitudes are positive as signed numbers, and SSE compares only those
    const auto bits = hn::BitCast(du, v);
    const auto sign = hn::And(bits, hn::Set(du, 0x80000000u));
    const auto magnitude = hn::Xor(bits, sign);
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
    // rounding may carry into the exponent, and from the largest number to infinity, as it should
    const auto normal =
        hn::ShiftRight<13>(hn::Add(hn::Sub(magnitude, hn::Set(du, ((127u - 15u) << 23) - 0xfffu)), odd));
    // adding 0.5 leaves the subnormal's mantissa, rounded by the addition, in the lowest bits
    const auto half = hn::Set(du, 126u << 23);
    const auto subnormal =
        hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(df, magnitude), hn::BitCast(df, half))), half);
    const auto special = hn::IfThenElse(hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, 255 << 23)),
                                        hn::Set(di, 0x7e00), hn::Set(di, 0x7c00));
    const auto signedMagnitude = hn::BitCast(di, magnitude);
    auto result = hn::IfThenElse(hn::Lt(signedMagnitude, hn::Set(di, 113 << 23)), hn::BitCast(di, subnormal),
                                 hn::BitCast(di, normal));
    result = hn::IfThenElse(hn::Gt(signedMagnitude, hn::Set(di, (143 << 23) - 1)), special, result);
    return narrow(hn::Or(hn::BitCast(du, result), hn::ShiftRight<16>(sign)));
  }
};
#endif

/// What all narrow types share: arithmetic in float.
class InFloat {
 public:
  using V = VF;
  static constexpr int kUnroll = 4;
  static constexpr size_t lanes() { return kLanes; }
  HWY_INLINE explicit InFloat(const KernelArguments& a) : scale_(static_cast<float>(a.scale)) {}
  HWY_INLINE VF finish(VF v) const { return canonicalNan(DF(), v); }
  template <Reduction op>
  static HWY_INLINE VF combine(VF a, VF b) {
    return combineFloats<op>(DF(), a, b);
  }

 protected:
  HWY_INLINE VF scaledInFloat(VF v) const { return canonicalNan(DF(), hn::Mul(v, hn::Set(DF(), scale_))); }

 private:
  float scale_;
};

// A scaled contribution is rounded to its type at once: one rank may add it where another rank has got it as
// a message, and both must add the same.
template <class Format>
class Float16Bits : public InFloat {
 public:
  using Stored = uint16_t;
  HWY_INLINE explicit Float16Bits(const KernelArguments& a) : InFloat(a) {}
  HWY_INLINE VF scale(VF v) const { return Format::widen(Format::round(scaledInFloat(v))); }
  HWY_INLINE VF load(const uint16_t* p) const { return Format::widen(hn::LoadU(D16(), p)); }
  HWY_INLINE void store(VF v, uint16_t* p) const { hn::StoreU(Format::round(v), D16(), p); }
  HWY_INLINE void stream(VF v, uint16_t* p) const {
    if constexpr (kLanes * sizeof(uint16_t) >= 16) {
      hn::Stream(Format::round(v), D16(), p);
    } else {
      store(v, p);  // Highway would write a whole 16 bytes
    }
  }
  HWY_INLINE VF loadPart(const uint16_t* p, size_t n) const { return Format::widen(loadPartOf(D16(), p, n)); }
  HWY_INLINE void storePart(VF v, uint16_t* p, size_t n) const { storePartOf(D16(), Format::round(v), p, n); }
};

/// 8-bit floats go through tables and plain code: rare, and 4 times smaller than float to begin with.
template <class Format>
class Float8Bits : public InFloat {
 public:
  using Stored = uint8_t;
  static constexpr int kUnroll = 1;
  HWY_INLINE explicit Float8Bits(const KernelArguments& a) : InFloat(a) {}
  HWY_INLINE VF scale(VF v) const {
    uint8_t rounded[kLanes];
    storePart(scaledInFloat(v), rounded, kLanes);
    return loadPart(rounded, kLanes);
  }
  HWY_INLINE VF load(const uint8_t* p) const { return loadPart(p, kLanes); }
  HWY_INLINE void store(VF v, uint8_t* p) const { storePart(v, p, kLanes); }
  HWY_INLINE void stream(VF v, uint8_t* p) const { storePart(v, p, kLanes); }
  HWY_INLINE VF loadPart(const uint8_t* p, size_t count) const {
    HWY_ALIGN float values[kLanes] = {};
    for (size_t i = 0; i < count; ++i) values[i] = Format::kValues[p[i]];
    return hn::Load(DF(), values);
  }
  HWY_INLINE void storePart(VF v, uint8_t* p, size_t count) const {
    HWY_ALIGN float values[kLanes];
    hn::Store(v, DF(), values);
    for (size_t i = 0; i < count; ++i) p[i] = Format::round(values[i]);
  }
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
  addType<Float16Bits<Half>>(rows, ncclFloat16);
  addType<Float16Bits<Bfloat16>>(rows, ncclBfloat16);
  addType<Float8Bits<Float8E4M3>>(rows, ncclFloat8e4m3);
  addType<Float8Bits<Float8E5M2>>(rows, ncclFloat8e5m2);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tutti

#if HWY_ONCE
#define TUTTI_ADD_KERNELS addNarrowFloatKernels
#include "executor/host/simd/add_targets-inl.h"
#endif
