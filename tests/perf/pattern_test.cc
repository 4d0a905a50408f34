#include "common/pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace tutti::perf {
namespace {

constexpr Operator kReductions[] = {Operator::sum, Operator::prod, Operator::max,
                                    Operator::min, Operator::avg,  Operator::mulsum};

/// How a library may treat the scale of an average.
enum class Scaling { divideAtEnd, multiplyAtEnd, multiplyFirst, multiplyFirstInFloat };

uint64_t multiply(const DataType& type, uint64_t value, double factor) {
  return encodeFloat(type, decodeFloat(type, value) * factor);
}

uint64_t combineFloats(const DataType& type, Operator op, uint64_t left, uint64_t right) {
  const double a = decodeFloat(type, left);
  const double b = decodeFloat(type, right);
  switch (op) {
    case Operator::prod:
      return encodeFloat(type, a * b);
    case Operator::max:
      return a > b ? left : right;
    case Operator::min:
      return a < b ? left : right;
    default:
      return encodeFloat(type, a + b);
  }
}

uint64_t combineIntegers(const DataType& type, Operator op, uint64_t left, uint64_t right) {
  const bool hasSign = type.kind == TypeClass::signedInteger;
  const bool less = hasSign ? decodeSigned(type, left) < decodeSigned(type, right) : left < right;
  switch (op) {
    case Operator::prod:
      return (left * right) & type.mask();
    case Operator::max:
      return less ? right : left;
    case Operator::min:
      return less ? left : right;
    default:
      return (left + right) & type.mask();
  }
}

/// What a library that rounds after each step computes when it combines the values pairwise, in random order.
uint64_t reduceInRandomOrder(const DataType& type, Operator op, std::vector<uint64_t> values, Scaling scaling,
                             std::mt19937_64& random) {
  const auto ranks = static_cast<double>(values.size());
  // A library rounds 1/n to the type only where that is a normal number.
  const bool normal = type.isFloating() && 1 / ranks >= std::ldexp(1.0, 1 - type.bias());
  const double reciprocal = normal ? decodeFloat(type, encodeFloat(type, 1 / ranks)) : 1 / ranks;
  for (size_t rank = 0; rank < values.size(); ++rank) {
    if (op == Operator::mulsum && type.isFloating())
      values[rank] = multiply(type, values[rank], mulsumScalar(static_cast<int>(rank)));
    if (op == Operator::mulsum && !type.isFloating())
      values[rank] =
          (values[rank] * static_cast<uint64_t>(mulsumScalar(static_cast<int>(rank)))) & type.mask();
    if (op == Operator::avg && type.isFloating() && scaling == Scaling::multiplyFirst)
      values[rank] = multiply(type, values[rank], reciprocal);
    if (op == Operator::avg && type.isFloating() && scaling == Scaling::multiplyFirstInFloat)
      values[rank] =
          multiply(type, values[rank], type.bytes == 8 ? 1 / ranks : 1.0f / static_cast<float>(ranks));
  }
  while (values.size() > 1) {
    std::swap(values[random() % values.size()], values.back());
    const uint64_t last = values.back();
    values.pop_back();
    uint64_t& other = values[random() % values.size()];
    other = type.isFloating() ? combineFloats(type, op, other, last) : combineIntegers(type, op, other, last);
  }
  uint64_t result = values[0];
  if (op == Operator::avg && !type.isFloating()) {
    const int64_t total = decodeSigned(type, result);
    result = static_cast<uint64_t>(total / static_cast<int64_t>(ranks)) & type.mask();
  }
  if (op == Operator::avg && type.isFloating() && scaling == Scaling::divideAtEnd)
    result = encodeFloat(type, decodeFloat(type, result) / ranks);
  if (op == Operator::avg && type.isFloating() && scaling == Scaling::multiplyAtEnd)
    result = multiply(type, result, reciprocal);
  return result;
}

class EveryTypeAndOperator : public testing::TestWithParam<int> {};

TEST_P(EveryTypeAndOperator, HasOneAnswerInEveryOrderAndRounding) {
  const int ranks = GetParam();
  std::mt19937_64 random(static_cast<uint64_t>(ranks));
  std::vector<uint64_t> inputs(static_cast<size_t>(ranks));
  for (const DataType& type : dataTypes()) {
    for (const Operator op : kReductions) {
      const Pattern pattern(type, op, ranks);
      for (uint64_t index = 0; index < 120; ++index) {
        uint64_t expected = 0;
        pattern.element(index, inputs, expected);
        for (const Scaling scaling : {Scaling::divideAtEnd, Scaling::multiplyAtEnd, Scaling::multiplyFirst,
                                      Scaling::multiplyFirstInFloat}) {
          const uint64_t got = reduceInRandomOrder(type, op, inputs, scaling, random);
          ASSERT_EQ(got, expected) << type.name << ' ' << nameOf(op) << " of " << ranks << " ranks, element "
                                   << index << ", scaling " << static_cast<int>(scaling);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, EveryTypeAndOperator,
                         testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 49, 100, 130, 300));

TEST(Pattern, ResultsNoticeALostOrDoubledContribution) {
  // For each rank there must be elements whose result changes when this rank counts twice or not at all.
  std::mt19937_64 random(7);
  for (const DataType& type : dataTypes()) {
    for (const Operator op : {Operator::sum, Operator::prod}) {
      for (const int ranks : {2, 3, 8}) {
        const Pattern pattern(type, op, ranks);
        std::vector<uint64_t> inputs(static_cast<size_t>(ranks));
        for (int victim = 0; victim < ranks; ++victim) {
          int lost = 0;
          int doubled = 0;
          for (uint64_t index = 0; index < 200; ++index) {
            uint64_t expected = 0;
            pattern.element(index, inputs, expected);
            std::vector<uint64_t> fewer = inputs;
            fewer.erase(fewer.begin() + victim);
            std::vector<uint64_t> more = inputs;
            more.push_back(inputs[victim]);
            lost += reduceInRandomOrder(type, op, fewer, Scaling::divideAtEnd, random) != expected;
            doubled += reduceInRandomOrder(type, op, more, Scaling::divideAtEnd, random) != expected;
          }
          EXPECT_GT(lost, 50) << type.name << ' ' << nameOf(op) << ' ' << ranks;
          EXPECT_GT(doubled, 50) << type.name << ' ' << nameOf(op) << ' ' << ranks;
        }
      }
    }
  }
}

TEST(Pattern, EveryRankContributesSomewhereEvenBeyondTheBudget) {
  for (const DataType& type : dataTypes()) {
    for (const Operator op : {Operator::sum, Operator::prod, Operator::avg}) {
      const int ranks = 300;
      const Pattern pattern(type, op, ranks);
      std::vector<uint64_t> inputs(ranks);
      const uint64_t neutral = op == Operator::prod && type.isFloating() ? encodeFloat(type, 1) : 0;
      std::set<int> contributors;
      for (uint64_t index = 0; index < 4000; ++index) {
        uint64_t expected = 0;
        pattern.element(index, inputs, expected);
        for (int rank = 0; rank < ranks; ++rank)
          if (inputs[rank] != neutral) contributors.insert(rank);
      }
      EXPECT_EQ(contributors.size(), static_cast<size_t>(ranks)) << type.name << ' ' << nameOf(op);
    }
  }
}

TEST(Pattern, MovedDataDiffersByRankAndPlace) {
  const Pattern pattern(*findDataType("uint64"), Operator::none, 4);
  std::set<uint64_t> seen;
  for (int rank = 0; rank < 4; ++rank)
    for (uint64_t index = 0; index < 1000; ++index) seen.insert(pattern.moved(index, rank));
  EXPECT_EQ(seen.size(), 4000u);
}

TEST(Pattern, AverageOfNegativeIntegersRoundsTowardZero) {
  // Among the elements there must be some where truncation and floor differ, or the rule would be untested.
  const DataType& type = *findDataType("int32");
  const Pattern pattern(type, Operator::avg, 3);
  std::vector<uint64_t> inputs(3);
  int telling = 0;
  for (uint64_t index = 0; index < 100; ++index) {
    uint64_t expected = 0;
    pattern.element(index, inputs, expected);
    int64_t total = 0;
    for (const uint64_t bits : inputs) total += decodeSigned(type, bits);
    EXPECT_EQ(decodeSigned(type, expected), total / 3);
    telling += total < 0 && total % 3 != 0;
  }
  EXPECT_GT(telling, 10);
}

TEST(Operators, AreFoundByName) {
  for (const Operator op : kReductions) EXPECT_EQ(findOperator(nameOf(op)), op);
  EXPECT_EQ(findOperator("xor"), Operator::none);
}

}  // namespace
}  // namespace tutti::perf
