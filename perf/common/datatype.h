// The data types of NCCL, and exact conversion between their bit patterns and double.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tutti::perf {

enum class TypeClass : uint8_t { signedInteger, unsignedInteger, floating };

/// One element type. Values travel as bit patterns in the low `bytes` bytes of a uint64_t.
struct DataType {
  const char* name;  // as on the command line
  ncclDataType_t nccl;
  TypeClass kind;
  int bytes;
  int exponentBits;  // floating types only, as is the rest
  int mantissaBits;  // without the implicit one
  bool hasInfinity;  // false: f8e4m3, whose largest exponent holds numbers and one NaN

  bool isFloating() const { return kind == TypeClass::floating; }
  int bits() const { return bytes * 8; }
  uint64_t mask() const { return bytes == 8 ? ~uint64_t{0} : (uint64_t{1} << bits()) - 1; }
  /// Every integer up to 2^significand is exact.
  int significand() const { return mantissaBits + 1; }
  int bias() const { return (1 << (exponentBits - 1)) - 1; }
};

/// All types, in NCCL's order.
std::span<const DataType> dataTypes();
/// Null when there is no such name. Takes NCCL's other names too: "char", "int", "float16", ...
const DataType* findDataType(std::string_view name);

/// The nearest value of a floating type, ties to even; beyond the largest: infinity, or NaN where the type
/// has none.
uint64_t encodeFloat(const DataType& type, double value);
double decodeFloat(const DataType& type, uint64_t bits);
/// False for NaN and infinity.
bool isFinite(const DataType& type, uint64_t bits);

/// Two's complement, sign extended or zero extended by the type. The bits are the type's low bytes.
int64_t decodeSigned(const DataType& type, uint64_t bits);

}  // namespace tutti::perf
