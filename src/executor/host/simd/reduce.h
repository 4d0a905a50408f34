// Element-wise reduction of k sources into m destinations: the kernels under every reducing step.
//
// Results depend on the values alone: not on the instruction set, alignment, length or position of an
// element. So ranks on different machines that add in the same order agree bitwise. This takes some rules:
//   - 8- and 16-bit floats are added in float over all sources of a call and rounded once, to nearest even
//     (fp8 saturates to the largest finite value, as CUDA's conversions do);
//   - a contribution that is scaled (PreMulSum, average of floats) is rounded to its type before it is added,
//   as it is
//     where it travels as a message;
//   - multiply and add are never fused;
//   - a NaN result is always the same NaN (positive, quiet, empty payload), and min and max give NaN when any
//     operand is one; max(-0, +0) is +0 and min(-0, +0) is -0 in either order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "executor/host/reduction.h"
#include "executor/host/simd/target.h"

namespace tutti {

/// Which sources are raw contributions, to be multiplied by the operator's scale.
enum class Scaled : uint8_t { none, first, rest, all };  // rest: all but the first

/// Arguments of a kernel. Sources and destinations may have any alignment; a destination may be the same
/// memory as a source, but must not overlap one partially.
struct KernelArguments {
  const std::byte* const* sources = nullptr;
  std::byte* const* destinations = nullptr;
  int32_t sourceCount = 0;       // at least 1
  int32_t destinationCount = 0;  // at least 1
  size_t elements = 0;
  Scaled scaled = Scaled::none;
  bool stream = false;  // store around the caches where alignment allows
  double scale = 1.0;
  uint64_t integerScale = 1;
  uint64_t divisor = 1;
};
using ReduceKernel = void (*)(const KernelArguments&);

/// A reduction made ready for one call: kernel looked up once, parameters beside it. Copyable, no ownership.
class Reducer {
 public:
  Reducer() = default;
  Reducer(const ReductionSpec& spec, SimdTarget target);

  size_t elementBytes() const { return elementBytes_; }
  bool hasScale() const { return hasScale_; }

  /// destination[j][i] = source[0][i] (op) source[1][i] (op) ..., in this order, for `bytes` (a multiple of
  /// the element size); sources marked by `scaled` are multiplied by the scale first (when there is one), the
  /// result is divided when `finalize`. One source without scale and divisor is a plain copy, bit by bit.
  void run(const std::byte* const* sources, int32_t sourceCount, std::byte* const* destinations,
           int32_t destinationCount, size_t bytes, Scaled scaled, bool finalize, bool stream) const;

 private:
  ReduceKernel kernel_ = nullptr;
  SimdTarget target_ = SimdTarget::scalar;
  uint32_t elementBytes_ = 1;
  bool hasScale_ = false;
  double scale_ = 1.0;
  uint64_t integerScale_ = 1;
  uint64_t divisor_ = 1;
};

/// Bytes of an element; 0 for a number that is no data type.
size_t elementBytes(ncclDataType_t type);

/// Copies to one place. With `stream` the stores go around the caches: right for destinations larger than the
/// last-level cache that nobody reads soon.
void copyBytes(std::byte* destination, const std::byte* source, size_t bytes, bool stream, SimdTarget target);

/// Copies to several places, reading once.
void copyToMany(std::byte* const* destinations, int32_t count, const std::byte* source, size_t bytes,
                bool stream, SimdTarget target);

}  // namespace tutti
