// An independent, slow and obvious account of what reductions must give, element by element.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "executor/host/simd/reduce.h"

namespace tutti::oracle {

/// A small float format as a table of all its values; rounding is a search in that table.
class SmallFloat {
 public:
  SmallFloat(int bits, int mantissaBits, int bias, bool ieee, bool saturates)
      : bits_(bits), mantissaBits_(mantissaBits), bias_(bias), ieee_(ieee), saturates_(saturates) {
    for (uint32_t code = 0; code < (1u << (bits - 1)); ++code) {
      const double value = magnitude(code);
      if (!std::isnan(value)) values_.push_back(value);  // ascending by construction
    }
  }
  double decode(uint32_t code) const {
    const uint32_t sign = 1u << (bits_ - 1);
    const double value = magnitude(code & (sign - 1));
    return (code & sign) != 0 ? -value : value;
  }
  /// Nearest, ties to the even code.
  uint32_t encode(double value) const {
    const uint32_t sign = 1u << (bits_ - 1);
    if (std::isnan(value)) return nan();
    const uint32_t signBit = std::signbit(value) ? sign : 0;
    const double wanted = std::fabs(value);
    uint32_t largest = static_cast<uint32_t>(values_.size()) - 1;
    if (ieee_) --largest;  // the last one is infinity
    const double top = values_[largest];
    const double step = top - values_[largest - 1];
    if (wanted >= top + step / 2) return signBit | (saturates_ ? largest : largest + 1);
    if (wanted >= top) return signBit | largest;
    const auto above =
        static_cast<uint32_t>(std::upper_bound(values_.begin(), values_.end(), wanted) - values_.begin());
    const double low = wanted - values_[above - 1];
    const double high = values_[above] - wanted;
    const bool up = high < low || (high == low && (above & 1u) == 0);
    return signBit | (up ? above : above - 1);
  }
  uint32_t nan() const {
    if (!ieee_ || saturates_) return (1u << (bits_ - 1)) - 1;  // fp8: all ones
    const uint32_t exponents = (1u << (bits_ - 1)) - (1u << mantissaBits_);
    return exponents | (1u << (mantissaBits_ - 1));
  }

 private:
  double magnitude(uint32_t code) const {
    const int exponent = static_cast<int>(code >> mantissaBits_);
    const uint32_t mantissa = code & ((1u << mantissaBits_) - 1);
    const int top = (1 << (bits_ - 1 - mantissaBits_)) - 1;
    if (ieee_ && exponent == top) return mantissa == 0 ? INFINITY : NAN;
    if (!ieee_ && code == (1u << (bits_ - 1)) - 1) return NAN;
    if (exponent == 0) return std::ldexp(mantissa, 1 - bias_ - mantissaBits_);
    return std::ldexp((1u << mantissaBits_) + mantissa, exponent - bias_ - mantissaBits_);
  }

  int bits_;
  int mantissaBits_;
  int bias_;
  bool ieee_;
  bool saturates_;
  std::vector<double> values_;
};

inline const SmallFloat& format(ncclDataType_t type) {
  static const SmallFloat half(16, 10, 15, true, false);
  static const SmallFloat bfloat(16, 7, 127, true, false);
  static const SmallFloat e4m3(8, 3, 7, false, true);
  static const SmallFloat e5m2(8, 2, 15, true, true);
  switch (type) {
    case ncclFloat16:
      return half;
    case ncclBfloat16:
      return bfloat;
    case ncclFloat8e4m3:
      return e4m3;
    default:
      return e5m2;
  }
}

template <typename F>
F combineFloat(Reduction op, F a, F b) {
  if (op == Reduction::sum) return a + b;
  if (op == Reduction::prod) return a * b;
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<F>::quiet_NaN();
  if (a == b) return (op == Reduction::max) == std::signbit(a) ? b : a;
  return (op == Reduction::max) == (a > b) ? a : b;
}

template <typename T>
T combineInteger(Reduction op, T a, T b) {
  using Wide = unsigned __int128;
  if (op == Reduction::sum) return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
  if (op == Reduction::prod) return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
  return op == Reduction::max ? std::max(a, b) : std::min(a, b);
}

/// One element: sources in order, `scaled[i]` of them multiplied, then the divisor.
template <typename T>
T reduceInteger(const ReductionSpec& spec, const std::vector<T>& sources, const std::vector<bool>& scaled,
                bool finalize) {
  T value{};
  for (size_t s = 0; s < sources.size(); ++s) {
    T next = sources[s];
    if (spec.hasScale && scaled[s])
      next = combineInteger(Reduction::prod, next, static_cast<T>(spec.integerScale));
    value = s == 0 ? next : combineInteger(spec.op, value, next);
  }
  if (finalize && spec.divisor != 1)
    value = static_cast<T>(static_cast<__int128>(value) / static_cast<__int128>(spec.divisor));
  return value;
}

template <typename F>
F reduceFloat(const ReductionSpec& spec, const std::vector<F>& sources, const std::vector<bool>& scaled) {
  F value{};
  for (size_t s = 0; s < sources.size(); ++s) {
    F next = sources[s];
    if (spec.hasScale && scaled[s]) next = next * static_cast<F>(spec.scale);
    value = s == 0 ? next : combineFloat(spec.op, value, next);
  }
  return std::isnan(value) ? std::numeric_limits<F>::quiet_NaN() : value;
}

template <typename T>
T loadAs(const std::byte* from, size_t index) {
  T value;
  std::memcpy(&value, from + index * sizeof(T), sizeof(T));
  return value;
}

/// result[i] for all i of `elements`, in the memory format of spec.type.
inline std::vector<std::byte> reduce(const ReductionSpec& spec, const std::vector<const std::byte*>& sources,
                                     size_t elements, const std::vector<bool>& scaled, bool finalize) {
  const size_t width = elementBytes(spec.type);
  std::vector<std::byte> result(elements * width);
  const bool any = std::find(scaled.begin(), scaled.end(), true) != scaled.end();
  if (sources.size() == 1 && !(spec.hasScale && any) && !(finalize && spec.divisor != 1)) {
    if (!result.empty()) std::memcpy(result.data(), sources[0], result.size());  // a copy keeps every bit
    return result;
  }
  const auto each = [&]<typename T>(T, auto&& function) {
    std::vector<T> values;
    for (size_t i = 0; i < elements; ++i) {
      values.clear();
      for (const std::byte* source : sources) values.push_back(loadAs<T>(source, i));
      const T value = function(values);
      std::memcpy(result.data() + i * sizeof(T), &value, sizeof(T));
    }
  };
  const auto integer = [&]<typename T>(T sample) {
    each(sample, [&](const std::vector<T>& v) { return reduceInteger(spec, v, scaled, finalize); });
  };
  const auto narrow = [&]<typename T>(T sample) {
    const SmallFloat& small = format(spec.type);
    each(sample, [&](const std::vector<T>& v) {
      std::vector<float> wide;
      for (size_t s = 0; s < v.size(); ++s) {
        auto value = static_cast<float>(small.decode(v[s]));
        if (spec.hasScale && scaled[s]) {
          value *= static_cast<float>(spec.scale);
          value = static_cast<float>(small.decode(small.encode(value)));  // a scaled contribution is rounded
        }
        wide.push_back(value);
      }
      ReductionSpec unscaled = spec;
      unscaled.hasScale = false;
      return static_cast<T>(small.encode(reduceFloat(unscaled, wide, scaled)));
    });
  };
  switch (spec.type) {
    case ncclInt8:
      integer(int8_t());
      break;
    case ncclUint8:
      integer(uint8_t());
      break;
    case ncclInt32:
      integer(int32_t());
      break;
    case ncclUint32:
      integer(uint32_t());
      break;
    case ncclInt64:
      integer(int64_t());
      break;
    case ncclUint64:
      integer(uint64_t());
      break;
    case ncclFloat32:
      each(float(), [&](const std::vector<float>& v) { return reduceFloat(spec, v, scaled); });
      break;
    case ncclFloat64:
      each(double(), [&](const std::vector<double>& v) { return reduceFloat(spec, v, scaled); });
      break;
    case ncclFloat16:
    case ncclBfloat16:
      narrow(uint16_t());
      break;
    default:
      narrow(uint8_t());
      break;
  }
  return result;
}

}  // namespace tutti::oracle
