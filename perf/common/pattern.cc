#include "common/pattern.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace tutti::perf {
namespace {

constexpr std::array<std::pair<Operator, const char*>, 6> kOperators = {{
    {Operator::sum, "sum"},
    {Operator::prod, "prod"},
    {Operator::max, "max"},
    {Operator::min, "min"},
    {Operator::avg, "avg"},
    {Operator::mulsum, "mulsum"},
}};

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): every bit of the input moves every bit of the
/// output.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

const char* nameOf(Operator op) {
  for (const auto& [value, name] : kOperators)
    if (value == op) return name;
  return "none";
}

Operator findOperator(std::string_view name) {
  for (const auto& [value, known] : kOperators)
    if (name == known) return value;
  return Operator::none;
}

int mulsumScalar(int rank) { return rank % 2 == 0 ? 2 : 1; }

Pattern::Pattern(const DataType& type, Operator op, int ranks) : type_(&type), op_(op), ranks_(ranks) {}

uint64_t Pattern::random(uint64_t index, int rank, uint64_t salt) const {
  return mix(mix(index * 0x2545f4914f6cdd1du + salt) + static_cast<uint64_t>(rank));
}

uint64_t Pattern::moved(uint64_t index, int rank) const { return random(index, rank, 1) & type_->mask(); }

void Pattern::element(uint64_t index, std::span<uint64_t> inputs, uint64_t& result) const {
  switch (op_) {
    case Operator::none:
      for (int rank = 0; rank < ranks_; ++rank) inputs[rank] = moved(index, rank);
      result = 0;
      return;
    case Operator::max:
    case Operator::min:
      return extremum(index, inputs, result);
    case Operator::avg:
      return type_->isFloating() ? floatAverage(index, inputs, result)
                                 : integerAverage(index, inputs, result);
    case Operator::prod:
      return type_->isFloating() ? floatProduct(index, inputs, result) : integers(index, inputs, result);
    case Operator::sum:
    case Operator::mulsum:
      return type_->isFloating() ? floatSum(index, inputs, result) : integers(index, inputs, result);
  }
}

void Pattern::share(uint64_t index, int64_t budget, bool negative, std::span<int64_t> values) const {
  const int64_t each = budget / ranks_;
  const int64_t groups = each > 0 ? 1 : (ranks_ + budget - 1) / budget;
  const auto turn = static_cast<int64_t>(random(index, 0, 2) % static_cast<uint64_t>(groups));
  for (int rank = 0; rank < ranks_; ++rank) {
    const uint64_t bits = random(index, rank, 3);
    const auto most = static_cast<uint64_t>(std::max<int64_t>(each, 1));
    // 1..most: a contribution that is lost or doubled always shows.
    auto value = static_cast<int64_t>(1 + (bits >> 8) % most);
    if (rank % groups != turn) value = 0;
    values[rank] = negative && (bits & 1) ? -value : value;
  }
}

void Pattern::integers(uint64_t index, std::span<uint64_t> inputs, uint64_t& result) const {
  uint64_t total = op_ == Operator::prod ? 1 : 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    const uint64_t value = random(index, rank, 4);
    // Odd factors: a product with an even one would soon be zero.
    inputs[rank] = (op_ == Operator::prod ? value | 1 : value) & type_->mask();
    if (op_ == Operator::prod)
      total *= inputs[rank];
    else
      total += inputs[rank] * static_cast<uint64_t>(op_ == Operator::mulsum ? mulsumScalar(rank) : 1);
  }
  result = total & type_->mask();
}

void Pattern::integerAverage(uint64_t index, std::span<uint64_t> inputs, uint64_t& result) const {
  const bool hasSign = type_->kind == TypeClass::signedInteger;
  // The sum fits: the definition (sum, then divide, toward zero) leaves nothing open.
  const auto largest = static_cast<int64_t>(type_->mask() >> 1);
  std::vector<int64_t> values(ranks_);
  share(index, largest, hasSign, values);
  int64_t total = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    inputs[rank] = static_cast<uint64_t>(values[rank]) & type_->mask();
    total += values[rank];
  }
  result = static_cast<uint64_t>(total / ranks_) & type_->mask();
}

void Pattern::floatSum(uint64_t index, std::span<uint64_t> inputs, uint64_t& result) const {
  const bool scaled = op_ == Operator::mulsum;
  int64_t budget = int64_t{1} << type_->significand();
  if (scaled) budget /= 2;
  std::vector<int64_t> values(ranks_);
  share(index, budget, true, values);
  int64_t total = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    inputs[rank] = encodeFloat(*type_, static_cast<double>(values[rank]));
    total += values[rank] * (scaled ? mulsumScalar(rank) : 1);
  }
  result = encodeFloat(*type_, static_cast<double>(total));
}

void Pattern::floatProduct(uint64_t index, std::span<uint64_t> inputs, uint64_t& result) const {
  std::vector<int64_t> exponents(ranks_);
  share(index, type_->bias() - 1, true, exponents);  // 2^±(bias-1) is a normal number in every type
  int64_t exponent = 0;
  bool negative = false;
  for (int rank = 0; rank < ranks_; ++rank) {
    const bool minus = random(index, rank, 5) & 1;
    const double value = std::ldexp(minus ? -1.0 : 1.0, static_cast<int>(exponents[rank]));
    inputs[rank] = encodeFloat(*type_, value);
    exponent += exponents[rank];
    negative = negative != minus;
  }
  result = encodeFloat(*type_, std::ldexp(negative ? -1.0 : 1.0, static_cast<int>(exponent)));
}

bool Pattern::dividesAlike(double x, uint64_t& quotient) const {
  const DataType& type = *type_;
  const double n = ranks_;
  quotient = encodeFloat(type, x / n);
  // The reciprocal and the product rounded to the type. (Up to float, the product is exact in double.) Where
  // 1/n is a subnormal number of the type, nobody can use it: f8e4m3 beyond 64 ranks.
  const double reciprocal = decodeFloat(type, encodeFloat(type, 1.0 / n));
  const bool usable = 1.0 / n >= std::ldexp(1.0, 1 - type.bias());
  if (usable && encodeFloat(type, x * reciprocal) != quotient) return false;
  if (type.bytes == 8) return true;
  // The same in double or in float, rounded to the type at the end.
  if (encodeFloat(type, x * (1.0 / n)) != quotient) return false;
  const float inFloat = static_cast<float>(x) * (1.0f / static_cast<float>(n));
  return encodeFloat(type, static_cast<double>(inFloat)) == quotient;
}

void Pattern::floatAverage(uint64_t index, std::span<uint64_t> inputs, uint64_t& result) const {
  const int64_t budget = (int64_t{1} << type_->significand()) / ranks_;
  if (budget == 0) return singleAverage(index, inputs, result);
  std::vector<int64_t> averages(ranks_);
  share(index, budget, true, averages);
  int64_t total = 0;
  bool alike = true;
  for (int rank = 0; rank < ranks_ && alike; ++rank) {
    const auto value = static_cast<double>(averages[rank] * ranks_);
    uint64_t quotient = 0;
    inputs[rank] = encodeFloat(*type_, value);
    alike =
        dividesAlike(value, quotient) && decodeFloat(*type_, quotient) == static_cast<double>(averages[rank]);
    total += averages[rank];
  }
  alike = alike && dividesAlike(static_cast<double>(total * ranks_), result) &&
          decodeFloat(*type_, result) == static_cast<double>(total);
  if (!alike) singleAverage(index, inputs, result);
}

void Pattern::singleAverage(uint64_t index, std::span<uint64_t> inputs, uint64_t& result) const {
  std::fill(inputs.begin(), inputs.end(), 0);
  result = 0;
  const auto contributor = static_cast<int>(random(index, 0, 6) % static_cast<uint64_t>(ranks_));
  for (int attempt = 0; attempt < 64; ++attempt) {
    const uint64_t bits = random(index, attempt, 7);
    const uint64_t units = 1 + (bits >> 1) % ((uint64_t{1} << type_->significand()) - 1);
    const double value = static_cast<double>(units) * (bits & 1 ? -4.0 : 4.0);
    uint64_t quotient = 0;
    if (!dividesAlike(value, quotient) || decodeFloat(*type_, quotient) == 0) continue;
    inputs[contributor] = encodeFloat(*type_, value);
    result = quotient;
    return;
  }
}

void Pattern::extremum(uint64_t index, std::span<uint64_t> inputs, uint64_t& result) const {
  const bool wantMax = op_ == Operator::max;
  const uint64_t sign = uint64_t{1} << (type_->bits() - 1);
  for (int rank = 0; rank < ranks_; ++rank) {
    uint64_t bits = random(index, rank, 8) & type_->mask();
    if (type_->isFloating()) {
      for (int attempt = 0; !isFinite(*type_, bits); ++attempt)
        bits = random(index, rank, 9 + static_cast<uint64_t>(attempt)) & type_->mask();
      if (bits == sign) bits = 0;  // -0 and +0 are equal, so either could be the answer
    }
    inputs[rank] = bits;
    bool better = rank == 0;
    if (!better && type_->isFloating()) {
      const double value = decodeFloat(*type_, bits);
      const double best = decodeFloat(*type_, result);
      better = wantMax ? value > best : value < best;
    } else if (!better && type_->kind == TypeClass::signedInteger) {
      const int64_t value = decodeSigned(*type_, bits);
      const int64_t best = decodeSigned(*type_, result);
      better = wantMax ? value > best : value < best;
    } else if (!better) {
      better = wantMax ? bits > result : bits < result;
    }
    if (better) result = bits;
  }
}

}  // namespace tutti::perf
