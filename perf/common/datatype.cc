#include "common/datatype.h"

#include <array>
#include <bit>
#include <cmath>
#include <utility>

namespace tutti::perf {
namespace {

constexpr std::array<DataType, 12> kTypes = {{
    {"int8", ncclInt8, TypeClass::signedInteger, 1, 0, 0, false},
    {"uint8", ncclUint8, TypeClass::unsignedInteger, 1, 0, 0, false},
    {"int32", ncclInt32, TypeClass::signedInteger, 4, 0, 0, false},
    {"uint32", ncclUint32, TypeClass::unsignedInteger, 4, 0, 0, false},
    {"int64", ncclInt64, TypeClass::signedInteger, 8, 0, 0, false},
    {"uint64", ncclUint64, TypeClass::unsignedInteger, 8, 0, 0, false},
    {"half", ncclFloat16, TypeClass::floating, 2, 5, 10, true},
    {"float", ncclFloat32, TypeClass::floating, 4, 8, 23, true},
    {"double", ncclFloat64, TypeClass::floating, 8, 11, 52, true},
    {"bfloat16", ncclBfloat16, TypeClass::floating, 2, 8, 7, true},
    {"f8e4m3", ncclFloat8e4m3, TypeClass::floating, 1, 4, 3, false},
    {"f8e5m2", ncclFloat8e5m2, TypeClass::floating, 1, 5, 2, true},
}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kAliases = {{
    {"char", "int8"},
    {"int", "int32"},
    {"float16", "half"},
    {"float32", "float"},
    {"float64", "double"},
    {"bf16", "bfloat16"},
}};

uint64_t exponentMask(const DataType& type) { return (uint64_t{1} << type.exponentBits) - 1; }
uint64_t mantissaMask(const DataType& type) { return (uint64_t{1} << type.mantissaBits) - 1; }

/// What a number beyond the largest becomes (without its sign).
uint64_t overflow(const DataType& type) {
  const uint64_t top = exponentMask(type) << type.mantissaBits;
  return type.hasInfinity ? top : top | mantissaMask(type);
}

}  // namespace

std::span<const DataType> dataTypes() { return kTypes; }

const DataType* findDataType(std::string_view name) {
  for (const auto& [alias, real] : kAliases)
    if (alias == name) name = real;
  for (const DataType& type : kTypes)
    if (type.name == name) return &type;
  return nullptr;
}

uint64_t encodeFloat(const DataType& type, double value) {
  if (type.bytes == 8) return std::bit_cast<uint64_t>(value);
  const uint64_t sign = std::signbit(value) ? uint64_t{1} << (type.bits() - 1) : 0;
  const double magnitude = std::fabs(value);
  if (std::isnan(value)) return sign | (exponentMask(type) << type.mantissaBits) | mantissaMask(type);
  if (magnitude == 0) return sign;
  if (std::isinf(value)) return sign | overflow(type);

  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude is in [2^(exponent-1), 2^exponent)
  const int lowest = 1 - type.bias();
  const int scale = std::max(exponent - 1, lowest);  // subnormals share the lowest exponent
  // In units of the last place; nearbyint rounds to even in the default rounding mode.
  const auto units = static_cast<uint64_t>(std::nearbyint(std::ldexp(magnitude, type.mantissaBits - scale)));
  // A carry out of the mantissa, or into the normal range, is the right pattern by itself.
  const uint64_t bits = (static_cast<uint64_t>(scale - lowest) << type.mantissaBits) + units;
  const uint64_t largest = overflow(type) - 1;
  return sign | (bits > largest ? overflow(type) : bits);
}

double decodeFloat(const DataType& type, uint64_t bits) {
  if (type.bytes == 8) return std::bit_cast<double>(bits);
  const bool negative = (bits >> (type.bits() - 1)) & 1;
  const uint64_t mantissa = bits & mantissaMask(type);
  const uint64_t exponent = (bits >> type.mantissaBits) & exponentMask(type);
  double magnitude = 0;
  if (!isFinite(type, bits)) {
    magnitude = type.hasInfinity && mantissa == 0 ? HUGE_VAL : std::nan("");
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<double>(mantissa), 1 - type.bias() - type.mantissaBits);
  } else {
    const double units = static_cast<double>(mantissa + mantissaMask(type) + 1);
    magnitude = std::ldexp(units, static_cast<int>(exponent) - type.bias() - type.mantissaBits);
  }
  return negative ? -magnitude : magnitude;
}

bool isFinite(const DataType& type, uint64_t bits) {
  const uint64_t magnitude = bits & (type.mask() >> 1);
  return magnitude < overflow(type);
}

int64_t decodeSigned(const DataType& type, uint64_t bits) {
  const int unused = 64 - type.bits();
  const uint64_t shifted = bits << unused;
  if (type.kind == TypeClass::signedInteger) return static_cast<int64_t>(shifted) >> unused;
  return static_cast<int64_t>(shifted >> unused);
}

}  // namespace tutti::perf
