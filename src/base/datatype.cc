#include "base/datatype.h"

#include <cstring>

#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace tutti {
namespace {

struct TypeInfo {
  size_t bytes;
  std::string_view name;
  bool isFloat;
  bool isSigned;
};

constexpr std::array<TypeInfo, ncclNumTypes> kTypes = {{{1, "int8", false, true},
                                                        {1, "uint8", false, false},
                                                        {4, "int32", false, true},
                                                        {4, "uint32", false, false},
                                                        {8, "int64", false, true},
                                                        {8, "uint64", false, false},
                                                        {2, "half", true, true},
                                                        {4, "float", true, true},
                                                        {8, "double", true, true},
                                                        {2, "bfloat16", true, true},
                                                        {1, "f8e4m3", true, true},
                                                        {1, "f8e5m2", true, true}}};

/// A binary format of at most 16 bits with IEEE layout: sign, exponent, mantissa.
struct SmallFormat {
  int exponentBits;
  int mantissaBits;
  bool hasInfinity;  // false (e4m3): the top exponent holds numbers too, and all ones is NaN

  constexpr int bias() const { return (1 << (exponentBits - 1)) - 1; }
  constexpr uint32_t signBit() const { return 1u << (exponentBits + mantissaBits); }
  constexpr uint32_t exponentMask() const { return ((1u << exponentBits) - 1) << mantissaBits; }
  constexpr uint32_t mantissaMask() const { return (1u << mantissaBits) - 1; }
  constexpr uint32_t quietNan() const {
    return hasInfinity ? exponentMask() | (1u << (mantissaBits - 1)) : exponentMask() | mantissaMask();
  }
  /// What overflow rounds to.
  constexpr uint32_t overflow() const { return hasInfinity ? exponentMask() : quietNan(); }
  /// Largest finite magnitude.
  constexpr uint32_t largest() const {
    return hasInfinity ? exponentMask() - 1 : (exponentMask() | mantissaMask()) - 1;
  }
};

constexpr SmallFormat kHalf{5, 10, true};
constexpr SmallFormat kE4m3{4, 3, false};
constexpr SmallFormat kE5m2{5, 2, true};

float expand(uint32_t bits, const SmallFormat& format) {
  const bool negative = (bits & format.signBit()) != 0;
  const uint32_t exponent = (bits & format.exponentMask()) >> format.mantissaBits;
  const uint32_t mantissa = bits & format.mantissaMask();
  const bool top = (bits & format.exponentMask()) == format.exponentMask();
  float value;
  if (top && (format.hasInfinity ? mantissa != 0 : mantissa == format.mantissaMask())) {
    value = std::numeric_limits<float>::quiet_NaN();
  } else if (top && format.hasInfinity) {
    value = std::numeric_limits<float>::infinity();
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<float>(mantissa), 1 - format.bias() - format.mantissaBits);
  } else {
    value = std::ldexp(static_cast<float>(mantissa | (1u << format.mantissaBits)),
                       static_cast<int>(exponent) - format.bias() - format.mantissaBits);
  }
  return std::copysign(value, negative ? -1.0f : 1.0f);
}

uint32_t contract(float value, const SmallFormat& format) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 31) != 0 ? format.signBit() : 0;
  if (std::isnan(value)) return sign | format.quietNan();
  if (std::isinf(value)) return sign | format.overflow();
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude == 0) return sign;

  // value = significand * 2^(exponent - 23) with the leading bit explicit; float denormals have exponent
  // -126.
  int exponent = static_cast<int>(magnitude >> 23) - 127;
  uint32_t significand = magnitude & 0x7fffff;
  if (exponent == -127) {
    exponent = -126;
  } else {
    significand |= 0x800000;
  }
  const int smallestNormal = 1 - format.bias();
  int drop = 23 - format.mantissaBits;  // bits to round away
  if (exponent < smallestNormal) drop += smallestNormal - exponent;
  if (drop > 25) return sign;  // below half of the smallest denormal
  uint32_t kept = significand >> drop;
  const uint32_t rest = significand & ((1u << drop) - 1);
  const uint32_t half = 1u << (drop - 1);
  if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
  // Adding the exponent field lets a carry out of the mantissa move into it, also from denormal to normal.
  const uint32_t field = exponent < smallestNormal ? 0u : static_cast<uint32_t>(exponent - smallestNormal);
  const uint64_t result = (uint64_t{field} << format.mantissaBits) + kept;
  if (result > format.largest()) return sign | format.overflow();
  return sign | static_cast<uint32_t>(result);
}

}  // namespace

bool isValid(ncclDataType_t type) {
  const auto index = static_cast<long>(type);
  return index >= 0 && index < static_cast<long>(ncclNumTypes);
}
size_t sizeOf(ncclDataType_t type) { return isValid(type) ? kTypes[type].bytes : 0; }
std::string_view nameOf(ncclDataType_t type) { return isValid(type) ? kTypes[type].name : "invalid"; }
bool isFloat(ncclDataType_t type) { return isValid(type) && kTypes[type].isFloat; }
bool isSigned(ncclDataType_t type) { return isValid(type) && kTypes[type].isSigned; }

bool isValidBuiltin(ncclRedOp_t op) {
  const auto index = static_cast<long>(op);
  return index >= 0 && index < static_cast<long>(ncclNumOps);
}
std::string_view nameOf(ncclRedOp_t op) {
  constexpr std::string_view kNames[] = {"sum", "prod", "max", "min", "avg"};
  return isValidBuiltin(op) ? kNames[op] : "custom";
}

float halfToFloat(uint16_t bits) { return expand(bits, kHalf); }
uint16_t floatToHalf(float value) { return static_cast<uint16_t>(contract(value, kHalf)); }
float e4m3ToFloat(uint8_t bits) { return expand(bits, kE4m3); }
uint8_t floatToE4m3(float value) { return static_cast<uint8_t>(contract(value, kE4m3)); }
float e5m2ToFloat(uint8_t bits) { return expand(bits, kE5m2); }
uint8_t floatToE5m2(float value) { return static_cast<uint8_t>(contract(value, kE5m2)); }

float bfloat16ToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
uint16_t floatToBfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  // bfloat16 is the upper half of a float: add just under half, plus one when the kept part is odd.
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

namespace {

template <typename T>
T load(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <typename T>
void store(T value, void* to) {
  std::memcpy(to, &value, sizeof value);
}

}  // namespace

double toDouble(ncclDataType_t type, const void* element) {
  switch (type) {
    case ncclInt8:
      return load<int8_t>(element);
    case ncclUint8:
      return load<uint8_t>(element);
    case ncclInt32:
      return load<int32_t>(element);
    case ncclUint32:
      return load<uint32_t>(element);
    case ncclInt64:
      return static_cast<double>(load<int64_t>(element));
    case ncclUint64:
      return static_cast<double>(load<uint64_t>(element));
    case ncclFloat16:
      return halfToFloat(load<uint16_t>(element));
    case ncclFloat32:
      return load<float>(element);
    case ncclFloat64:
      return load<double>(element);
    case ncclBfloat16:
      return bfloat16ToFloat(load<uint16_t>(element));
    case ncclFloat8e4m3:
      return e4m3ToFloat(load<uint8_t>(element));
    case ncclFloat8e5m2:
      return e5m2ToFloat(load<uint8_t>(element));
    default:
      return 0;
  }
}

void fromDouble(ncclDataType_t type, double value, void* element) {
  switch (type) {
    case ncclInt8:
      return store(static_cast<int8_t>(value), element);
    case ncclUint8:
      return store(static_cast<uint8_t>(value), element);
    case ncclInt32:
      return store(static_cast<int32_t>(value), element);
    case ncclUint32:
      return store(static_cast<uint32_t>(value), element);
    case ncclInt64:
      return store(static_cast<int64_t>(value), element);
    case ncclUint64:
      return store(static_cast<uint64_t>(value), element);
    case ncclFloat16:
      return store(floatToHalf(static_cast<float>(value)), element);
    case ncclFloat32:
      return store(static_cast<float>(value), element);
    case ncclFloat64:
      return store(value, element);
    case ncclBfloat16:
      return store(floatToBfloat16(static_cast<float>(value)), element);
    case ncclFloat8e4m3:
      return store(floatToE4m3(static_cast<float>(value)), element);
    case ncclFloat8e5m2:
      return store(floatToE5m2(static_cast<float>(value)), element);
    default:
      return;
  }
}

}  // namespace tutti
