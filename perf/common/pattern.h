// What every rank contributes, and the one right answer.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "common/datatype.h"

namespace tutti::perf {

/// What happens to the contributions. `none` for collectives that only move data.
enum class Operator : uint8_t { sum, prod, max, min, avg, mulsum, none };

const char* nameOf(Operator op);
/// Operator::none when there is no such operator.
Operator findOperator(std::string_view name);

/// The scalar by which mulsum (ncclRedOpCreatePreMulSum) multiplies this rank's contribution: 2 or 1.
int mulsumScalar(int rank);

/// Inputs for one type, operator and number of ranks, made so that every order of combining them, and every
/// place where a library may round, gives the same bits:
///   integers      arithmetic is modulo 2^n, so random bits do; averages are kept from overflowing.
///   float sums    integers whose absolute values add up to at most 2^significand: each partial sum is exact.
///   float prods   signed powers of two whose exponents' absolute values add up to less than the range.
///   float avg     multiples of n such that scaling by the rounded 1/n, in the type or in float, before or
///   after the
///                 sum, and dividing afterwards all agree.
///   max, min      random finite numbers. Moved data: random bits.
/// With more ranks than such a budget has units, each element gets contributions from some ranks only, and
/// from others at other elements.
class Pattern {
 public:
  Pattern(const DataType& type, Operator op, int ranks);

  /// The contributions of all ranks (`inputs` has one place a rank) to element `index`, and the result. For
  /// Operator::none the result is 0. Thread-safe.
  void element(uint64_t index, std::span<uint64_t> inputs, uint64_t& result) const;
  /// One rank's contribution to moved data (Operator::none), without computing the others'.
  uint64_t moved(uint64_t index, int rank) const;

  const DataType& type() const { return *type_; }
  Operator op() const { return op_; }
  int ranks() const { return ranks_; }

 private:
  uint64_t random(uint64_t index, int rank, uint64_t salt) const;
  /// Signed integers, one a rank, whose absolute values add up to at most `budget`.
  void share(uint64_t index, int64_t budget, bool negative, std::span<int64_t> values) const;
  void integers(uint64_t index, std::span<uint64_t> inputs, uint64_t& result) const;
  void integerAverage(uint64_t index, std::span<uint64_t> inputs, uint64_t& result) const;
  void floatSum(uint64_t index, std::span<uint64_t> inputs, uint64_t& result) const;
  void floatProduct(uint64_t index, std::span<uint64_t> inputs, uint64_t& result) const;
  void floatAverage(uint64_t index, std::span<uint64_t> inputs, uint64_t& result) const;
  void singleAverage(uint64_t index, std::span<uint64_t> inputs, uint64_t& result) const;
  void extremum(uint64_t index, std::span<uint64_t> inputs, uint64_t& result) const;
  /// True when every way to compute x/n that a library may choose gives the same bits, which go to
  /// `quotient`.
  bool dividesAlike(double x, uint64_t& quotient) const;

  const DataType* type_;
  Operator op_;
  int ranks_;
};

}  // namespace tutti::perf
