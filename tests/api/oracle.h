// Inputs and exact results of collectives, for every type and operator.
//
// Values are small integers, chosen so that every partial result in every order is exact in the element type:
// sums stay below 2^3 (8-bit floats hold integers up to 2^3 or 2^4 exactly), products are powers of two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/datatype.h"
#include "nccl.h"

namespace tutti::test {

/// What rank `rank` contributes at element `i`.
inline double inputValue(ncclRedOp_t op, int rank, int ranks, size_t i) {
  const auto mix = static_cast<unsigned>((i * 2654435761u) >> 7) + static_cast<unsigned>(rank) * 7u;
  switch (op) {
    case ncclProd:
      return mix % 5 == 0 && rank % 3 == 0 ? 2 : 1;
    case ncclAvg:
      return ranks * static_cast<double>(mix % 2);  // the mean is a sum of zeros and ones
    case ncclSum:
      return rank < 7 ? mix % 2 : 0;
    default:
      return mix % 8;
  }
}

/// The reduction over all ranks at element `i`.
inline double reducedValue(ncclRedOp_t op, int ranks, size_t i) {
  double result = inputValue(op, 0, ranks, i);
  for (int r = 1; r < ranks; ++r) {
    const double value = inputValue(op, r, ranks, i);
    if (op == ncclProd)
      result *= value;
    else if (op == ncclMax)
      result = value > result ? value : result;
    else if (op == ncclMin)
      result = value < result ? value : result;
    else
      result += value;
  }
  return op == ncclAvg ? result / ranks : result;
}

/// `count` elements of `type`, element i made from value(i).
template <typename Value>
std::vector<std::byte> makeElements(ncclDataType_t type, size_t count, Value&& value) {
  const size_t size = sizeOf(type);
  std::vector<std::byte> bytes(count * size);
  for (size_t i = 0; i < count; ++i) fromDouble(type, value(i), bytes.data() + i * size);
  return bytes;
}

}  // namespace tutti::test
