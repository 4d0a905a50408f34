// The two 8-bit float formats of NCCL (OCP 8-bit floating point specification, E4M3 and E5M2).
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

namespace tutti {

/// sign | exponentBits | mantissaBits. With kIeee the highest exponent means infinity and NaN; without, only
/// the code with all bits set is NaN (E4M3).
template <int kMantissaBits, int kBias, bool kIeee>
struct Float8 {
  static constexpr int kExponentMax = 0x7f >> kMantissaBits;
  static constexpr uint8_t kLargest = kIeee ? (kExponentMax << kMantissaBits) - 1 : 0x7e;
  static constexpr uint8_t kNan = 0x7f;

  static constexpr float widen(uint8_t code) {
    const int magnitude = code & 0x7f;
    const int exponent = magnitude >> kMantissaBits;
    const int mantissa = magnitude & ((1 << kMantissaBits) - 1);
    float value = 0;
    if (kIeee && exponent == kExponentMax) {
      value =
          mantissa == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
    } else if (!kIeee && magnitude == kNan) {
      value = std::numeric_limits<float>::quiet_NaN();
    } else {
      const int shift = (exponent == 0 ? 1 : exponent) - kBias - kMantissaBits;
      const int whole = exponent == 0 ? mantissa : mantissa + (1 << kMantissaBits);
      value = static_cast<float>(whole) * std::bit_cast<float>(static_cast<uint32_t>(127 + shift) << 23);
    }
    return (code & 0x80) != 0 ? -value : value;
  }

  /// To nearest, ties to even; what is too large becomes the largest finite value, NaN becomes +NaN.
  static constexpr uint8_t round(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return kNan;
    const auto sign = static_cast<uint8_t>((bits >> 24) & 0x80u);
    constexpr int kDropped = 23 - kMantissaBits;
    constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(127 - kBias + 1) << 23;
    uint32_t code = 0;
    if (magnitude >= kSmallestNormal) {
      const uint32_t odd = (magnitude >> kDropped) & 1u;
      code = (magnitude - (static_cast<uint32_t>(127 - kBias) << 23) + (1u << (kDropped - 1)) - 1u + odd) >>
             kDropped;
    } else {
      // a number whose last mantissa bit is worth one subnormal unit: adding it rounds the value to units
      constexpr auto kUnit = static_cast<uint32_t>(127 - kBias + 1 + kDropped) << 23;
      code = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(kUnit)) - kUnit;
    }
    return static_cast<uint8_t>(sign | (code > kLargest ? kLargest : code));
  }

  static constexpr std::array<float, 256> makeValues() {
    std::array<float, 256> values = {};
    for (int code = 0; code < 256; ++code) values[code] = widen(static_cast<uint8_t>(code));
    return values;
  }
  static constexpr std::array<float, 256> kValues = makeValues();
};

using Float8E4M3 = Float8<3, 7, false>;
using Float8E5M2 = Float8<2, 15, true>;

}  // namespace tutti
