// A reduction as the host executor applies it to elements.
#pragma once

#include <cstdint>

#include "nccl.h"

namespace tutti {

enum class Reduction : uint8_t { sum, prod, max, min };

/// `scale` multiplies every contribution when it is read from an input (PreMulSum; average of floats: 1/n);
/// `divisor` divides the final value (average of integers: n), truncating toward zero as C does.
struct ReductionSpec {
  Reduction op = Reduction::sum;
  ncclDataType_t type = ncclFloat32;
  bool hasScale = false;
  double scale = 1.0;         // floating types; rounded to float for all but double
  uint64_t integerScale = 1;  // integer types: the scalar's bits, multiplied modulo 2^n
  uint64_t divisor = 1;       // integer types
  friend bool operator==(const ReductionSpec&, const ReductionSpec&) = default;
};

}  // namespace tutti
