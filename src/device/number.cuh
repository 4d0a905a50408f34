// The element types: how they lie in memory, in what they are computed, and each operation on one number. The
// same bits as executor/host/simd/reduce.h, which states the rules.
#pragma once

#include <type_traits>

#include "device/memory_order.cuh"

#if defined(TUTTI_HOST_KERNELS_COMPILATION)
#include "base/float8.h"
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#endif

namespace tutti::device::TUTTI_KERNELS {

template <class To, class From>
TUTTI_DEVICE To bitsAs(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

// ---- integers

template <class T, class U>
struct IntegerNumber {
  using Stored = T;
  using Value = T;
  using Scale = U;
  static constexpr bool kDivides = true;

  TUTTI_DEVICE static Value widen(Stored s) { return s; }
  TUTTI_DEVICE static Stored narrow(Value v) { return v; }
  /// The operator's scalar: the bits that the call carries, or of the call's type in memory.
  TUTTI_DEVICE static Scale scaleOf(uint64_t bits) { return static_cast<U>(bits); }
  TUTTI_DEVICE static Scale scaleAt(const void* p) { return static_cast<U>(*static_cast<const T*>(p)); }

  // Small unsigned types would be computed as int, where a product can overflow.
  TUTTI_DEVICE static Value add(Value a, Value b) {
    return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
  }
  TUTTI_DEVICE static Value multiply(Value a, Value b) { return scale(a, static_cast<U>(b)); }
  TUTTI_DEVICE static Value scale(Value v, Scale s) {
    return static_cast<T>(static_cast<U>((1u * static_cast<U>(v)) * s));
  }
  TUTTI_DEVICE static Value greater(Value a, Value b) { return a > b ? a : b; }
  TUTTI_DEVICE static Value less(Value a, Value b) { return a < b ? a : b; }
  /// Toward zero. Divisors are numbers of ranks.
  TUTTI_DEVICE static Value divide(Value v, uint64_t divisor) {
    if constexpr (sizeof(T) == 8) {
      return v / static_cast<T>(divisor);
    } else {
      bool negative = false;
      if constexpr (std::is_signed_v<T>) negative = v < 0;
      const uint32_t magnitude = negative ? 0u - static_cast<uint32_t>(v) : static_cast<uint32_t>(v);
      const auto by = static_cast<uint32_t>(divisor);
      uint32_t quotient = 0;
      if constexpr (sizeof(T) == 1) {
        // One reciprocal for all numbers of a chunk. Exact: it errs by less than magnitude / 65536, and
        // quotients that are not whole are 1 / by away from the next.
        const uint32_t reciprocal = divisor > 255 ? 0 : 65536u / by + 1;
        quotient = magnitude * reciprocal >> 16;
      } else {
        quotient = magnitude / by;
      }
      return static_cast<T>(negative ? 0u - quotient : quotient);
    }
  }
};

// ---- floats

TUTTI_DEVICE float addExactly(float a, float b) { return __fadd_rn(a, b); }
TUTTI_DEVICE double addExactly(double a, double b) { return __dadd_rn(a, b); }
TUTTI_DEVICE float multiplyExactly(float a, float b) { return __fmul_rn(a, b); }
TUTTI_DEVICE double multiplyExactly(double a, double b) { return __dmul_rn(a, b); }

template <class F>
struct FloatBits;
template <>
struct FloatBits<float> {
  using Bits = uint32_t;
  TUTTI_DEVICE static Bits nan() { return 0x7fc00000u; }
};
template <>
struct FloatBits<double> {
  using Bits = uint64_t;
  TUTTI_DEVICE static Bits nan() { return 0x7ff8000000000000u; }
};

/// NaN wins over numbers; of equal zeros + is the greater one.
template <class F>
struct FloatArithmetic {
  using Value = F;
  using Bits = typename FloatBits<F>::Bits;
  static constexpr bool kDivides = false;

  TUTTI_DEVICE static F add(F a, F b) { return addExactly(a, b); }
  TUTTI_DEVICE static F multiply(F a, F b) { return multiplyExactly(a, b); }
  TUTTI_DEVICE static F greater(F a, F b) {
    F best = a > b ? a : b;
    if (a == b) best = bitsAs<F>(static_cast<Bits>(bitsAs<Bits>(a) & bitsAs<Bits>(b)));
    return a != a ? a : best;
  }
  TUTTI_DEVICE static F less(F a, F b) {
    F best = a < b ? a : b;
    if (a == b) best = bitsAs<F>(static_cast<Bits>(bitsAs<Bits>(a) | bitsAs<Bits>(b)));
    return a != a ? a : best;
  }
  TUTTI_DEVICE static F canonical(F v) { return v != v ? bitsAs<F>(FloatBits<F>::nan()) : v; }
  TUTTI_DEVICE static F divide(F v, uint64_t) { return v; }
};

template <class F>
struct FloatNumber : FloatArithmetic<F> {
  using Stored = F;
  using Scale = F;
  TUTTI_DEVICE static F widen(F s) { return s; }
  TUTTI_DEVICE static F narrow(F v) { return FloatArithmetic<F>::canonical(v); }
  TUTTI_DEVICE static F scaleOf(uint64_t bits) { return static_cast<F>(bitsAs<double>(bits)); }
  TUTTI_DEVICE static F scaleAt(const void* p) { return *static_cast<const F*>(p); }
  TUTTI_DEVICE static F scale(F v, F s) { return multiplyExactly(v, s); }
};

/// Floats that are computed as float: Format converts, and rounds NaN to the one NaN of the type.
template <class Format>
struct NarrowNumber : FloatArithmetic<float> {
  using Stored = typename Format::Stored;
  using Scale = float;
  TUTTI_DEVICE static float widen(Stored s) { return Format::widen(s); }
  TUTTI_DEVICE static Stored narrow(float v) { return Format::narrow(v); }
  TUTTI_DEVICE static float scaleOf(uint64_t bits) { return static_cast<float>(bitsAs<double>(bits)); }
  TUTTI_DEVICE static float scaleAt(const void* p) { return widen(*static_cast<const Stored*>(p)); }
  /// Rounded at once: another rank may have got it as a message, and both must add the same.
  TUTTI_DEVICE static float scale(float v, float s) { return widen(narrow(multiplyExactly(v, s))); }
};

#if defined(TUTTI_HOST_KERNELS_COMPILATION)

struct Float16Format {
  using Stored = uint16_t;
  TUTTI_DEVICE static float widen(uint16_t s) {
    const uint32_t sign = static_cast<uint32_t>(s & 0x8000u) << 16;
    const uint32_t magnitude = static_cast<uint32_t>(s & 0x7fffu) << 13;
    // 2^112 moves the exponent's origin and makes subnormals normal, exactly.
    const float scaled = bitsAs<float>(magnitude) * bitsAs<float>((127u + 112u) << 23);
    const uint32_t special = magnitude | 0x7f800000u;  // infinity and NaN
    return bitsAs<float>(sign | ((s & 0x7c00u) == 0x7c00u ? special : bitsAs<uint32_t>(scaled)));
  }
  TUTTI_DEVICE static uint16_t narrow(float v) {
    const uint32_t bits = bitsAs<uint32_t>(v);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return 0x7e00;
    uint32_t code = 0;
    if (magnitude < 113u << 23) {
      // below 2^-14: adding 0.5, whose last bit is a subnormal's unit, rounds to that unit
      code = bitsAs<uint32_t>(bitsAs<float>(magnitude) + 0.5f) - (126u << 23);
    } else {
      code = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
      if (code > 0x7c00u) code = 0x7c00u;
    }
    return static_cast<uint16_t>(code | ((bits >> 16) & 0x8000u));
  }
};
struct Bfloat16Format {
  using Stored = uint16_t;
  TUTTI_DEVICE static float widen(uint16_t s) { return bitsAs<float>(static_cast<uint32_t>(s) << 16); }
  TUTTI_DEVICE static uint16_t narrow(float v) {
    if (v != v) return 0x7fc0;
    const uint32_t bits = bitsAs<uint32_t>(v);
    return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  }
};
template <class Codes>
struct Float8Format {
  using Stored = uint8_t;
  TUTTI_DEVICE static float widen(uint8_t s) { return Codes::kValues[s]; }
  TUTTI_DEVICE static uint8_t narrow(float v) { return Codes::round(v); }
};
using Float8E4M3Format = Float8Format<Float8E4M3>;
using Float8E5M2Format = Float8Format<Float8E5M2>;

#else

struct Float16Format {
  using Stored = uint16_t;
  TUTTI_DEVICE static float widen(uint16_t s) { return __half2float(__ushort_as_half(s)); }
  TUTTI_DEVICE static uint16_t narrow(float v) {
    return v != v ? static_cast<uint16_t>(0x7e00) : __half_as_ushort(__float2half_rn(v));
  }
};
struct Bfloat16Format {
  using Stored = uint16_t;
  TUTTI_DEVICE static float widen(uint16_t s) { return __uint_as_float(static_cast<uint32_t>(s) << 16); }
  TUTTI_DEVICE static uint16_t narrow(float v) {
    return v != v ? static_cast<uint16_t>(0x7fc0) : __bfloat16_as_ushort(__float2bfloat16_rn(v));
  }
};
template <__nv_fp8_interpretation_t kKind>
struct Float8Format {
  using Stored = uint8_t;
  TUTTI_DEVICE static float widen(uint8_t s) {
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(s, kKind)));
  }
  TUTTI_DEVICE static uint8_t narrow(float v) {
    return v != v ? static_cast<uint8_t>(0x7f)
                  : static_cast<uint8_t>(__nv_cvt_float_to_fp8(v, __NV_SATFINITE, kKind));
  }
};
using Float8E4M3Format = Float8Format<__NV_E4M3>;
using Float8E5M2Format = Float8Format<__NV_E5M2>;

#endif

using Int8 = IntegerNumber<int8_t, uint8_t>;
using Uint8 = IntegerNumber<uint8_t, uint8_t>;
using Int32 = IntegerNumber<int32_t, uint32_t>;
using Uint32 = IntegerNumber<uint32_t, uint32_t>;
using Int64 = IntegerNumber<int64_t, uint64_t>;
using Uint64 = IntegerNumber<uint64_t, uint64_t>;
using Float16 = NarrowNumber<Float16Format>;
using Float32 = FloatNumber<float>;
using Float64 = FloatNumber<double>;
using Bfloat16 = NarrowNumber<Bfloat16Format>;
using Float8e4m3 = NarrowNumber<Float8E4M3Format>;
using Float8e5m2 = NarrowNumber<Float8E5M2Format>;

}  // namespace tutti::device::TUTTI_KERNELS
