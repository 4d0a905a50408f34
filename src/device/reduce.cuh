// A step's arithmetic on chunks of registers: sources are folded one after the other, in their order; floats
// of 8 and 16 bits in float, rounded once at the end.
#pragma once

#include "device/lane.cuh"
#include "device/number.cuh"

namespace tutti::device::TUTTI_KERNELS {

/// What one step does to its sources. The same for all threads; numbers stay in shared memory, since
/// registers are few.
template <class Number>
struct Operator {
  const Shared& shared;
  bool scalesFirst;
  bool scalesRest;
  bool divides;
  bool copies;  // bits pass as they are: one source, which is neither scaled nor divided

  TUTTI_DEVICE typename Number::Scale scale() const {
    typename Number::Scale result;
    std::memcpy(&result, &shared.scale, sizeof result);
    return result;
  }
};

/// The call's operator, as far as it applies to the step.
template <class Number>
TUTTI_DEVICE Operator<Number> operatorOf(const LaneView& view, const Step& step, uint32_t sources) {
  const ScaledSources scaled = view.call().hasScale ? step.scaled : ScaledSources::none;
  const bool first = scaled == ScaledSources::first || scaled == ScaledSources::all;
  const bool rest = sources > 1 && (scaled == ScaledSources::rest || scaled == ScaledSources::all);
  const bool divides = step.finalize && view.shared.divisor != 1;
  return {view.shared, first, rest, divides, sources == 1 && !first && !divides};
}

/// Where steps find it: by one thread, when the call begins.
template <class Number>
TUTTI_DEVICE void loadOperator(const Call& call, Shared& shared) {
  const typename Number::Scale scale =
      call.scalar != nullptr ? Number::scaleAt(call.scalar) : Number::scaleOf(call.scale);
  std::memcpy(&shared.scale, &scale, sizeof scale);
  shared.divisor = call.divisor;
  shared.op = call.op;
}

/// The numbers of a chunk, as they are computed.
template <class Number, int kBytes>
struct Accumulator {
  using Stored = typename Number::Stored;
  static constexpr int kCount = kBytes / static_cast<int>(sizeof(Stored));
  typename Number::Value values[kCount];

  TUTTI_DEVICE static Accumulator of(const Chunk<kBytes>& chunk) {
    Stored stored[kCount];
    std::memcpy(stored, &chunk, kBytes);
    Accumulator result;
#pragma unroll
    for (int i = 0; i < kCount; ++i) result.values[i] = Number::widen(stored[i]);
    return result;
  }
  TUTTI_DEVICE Chunk<kBytes> chunk() const {
    Stored stored[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) stored[i] = Number::narrow(values[i]);
    Chunk<kBytes> result;
    std::memcpy(&result, stored, kBytes);
    return result;
  }
  TUTTI_DEVICE void scale(typename Number::Scale by) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = Number::scale(values[i], by);
  }
  TUTTI_DEVICE void divide(uint64_t divisor) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = Number::divide(values[i], divisor);
  }
  template <Op kOp>
  TUTTI_DEVICE void combine(const Accumulator& other) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if constexpr (kOp == Op::sum) values[i] = Number::add(values[i], other.values[i]);
      if constexpr (kOp == Op::prod) values[i] = Number::multiply(values[i], other.values[i]);
      if constexpr (kOp == Op::max) values[i] = Number::greater(values[i], other.values[i]);
      if constexpr (kOp == Op::min) values[i] = Number::less(values[i], other.values[i]);
    }
  }
};

template <Op kOp, class Number, int kBytes, int kUnroll>
TUTTI_DEVICE void combineAll(Accumulator<Number, kBytes> (&sums)[kUnroll],
                             const Chunk<kBytes> (&chunks)[kUnroll], bool scales,
                             typename Number::Scale scale) {
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    auto next = Accumulator<Number, kBytes>::of(chunks[u]);
    if (scales) next.scale(scale);
    sums[u].template combine<kOp>(next);
  }
}

/// The first source of a tile.
template <class Number, int kBytes, int kUnroll>
TUTTI_DEVICE void start(const Operator<Number>& op, Accumulator<Number, kBytes> (&sums)[kUnroll],
                        const Chunk<kBytes> (&chunks)[kUnroll]) {
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    sums[u] = Accumulator<Number, kBytes>::of(chunks[u]);
    if (op.scalesFirst) sums[u].scale(op.scale());
  }
}

/// The next one.
template <class Number, int kBytes, int kUnroll>
TUTTI_DEVICE void fold(const Operator<Number>& op, Accumulator<Number, kBytes> (&sums)[kUnroll],
                       const Chunk<kBytes> (&chunks)[kUnroll]) {
  // Chosen once a source, not once a number.
  switch (op.shared.op) {
    case Op::sum:
      return combineAll<Op::sum>(sums, chunks, op.scalesRest, op.scale());
    case Op::prod:
      return combineAll<Op::prod>(sums, chunks, op.scalesRest, op.scale());
    case Op::max:
      return combineAll<Op::max>(sums, chunks, op.scalesRest, op.scale());
    case Op::min:
      return combineAll<Op::min>(sums, chunks, op.scalesRest, op.scale());
  }
}

/// What is stored.
template <class Number, int kBytes, int kUnroll>
TUTTI_DEVICE void finish(const Operator<Number>& op, Accumulator<Number, kBytes> (&sums)[kUnroll],
                         Chunk<kBytes> (&chunks)[kUnroll]) {
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    if constexpr (Number::kDivides) {
      if (op.divides) sums[u].divide(op.shared.divisor);
    }
    chunks[u] = sums[u].chunk();
  }
}

}  // namespace tutti::device::TUTTI_KERNELS
