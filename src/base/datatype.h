// What the library knows about ncclDataType_t, and conversions of the small floats one value at a time.
//
// The conversions are plain and slow: they are the oracle of the tests and the tail of vector loops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "nccl.h"

namespace tutti {

bool isValid(ncclDataType_t type);
/// Bytes of one element; 0 for a value that is no type.
size_t sizeOf(ncclDataType_t type);
/// As nccl-tests writes it: "int8", "half", "bfloat16", "f8e4m3"; "invalid" for a value that is no type.
std::string_view nameOf(ncclDataType_t type);
bool isFloat(ncclDataType_t type);
bool isSigned(ncclDataType_t type);

bool isValidBuiltin(ncclRedOp_t op);
/// "sum", "prod", "max", "min", "avg"; "custom" for handles of PreMulSum.
std::string_view nameOf(ncclRedOp_t op);

// To float: exact. From float: round to nearest, ties to even; NaN stays NaN (quiet, sign kept).
// half and bfloat16 round beyond their largest value to infinity, as IEEE 754 says. The 8-bit types follow
// OFP8 with saturation off for e5m2 (it has infinities: overflow gives infinity) and NaN for overflow in
// e4m3, which has no infinity (largest value 448).
float halfToFloat(uint16_t bits);
uint16_t floatToHalf(float value);
float bfloat16ToFloat(uint16_t bits);
uint16_t floatToBfloat16(float value);
float e4m3ToFloat(uint8_t bits);
uint8_t floatToE4m3(float value);
float e5m2ToFloat(uint8_t bits);
uint8_t floatToE5m2(float value);

/// The element of `type` at `element` (any alignment) as a double; exact but for 64-bit integers beyond 2^53.
double toDouble(ncclDataType_t type, const void* element);
/// Stores `value`, converted to `type` (integers: as C converts), at `element`.
void fromDouble(ncclDataType_t type, double value, void* element);

}  // namespace tutti
