#include "base/datatype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

namespace tutti::testing {
namespace {

TEST(Datatype, TablesMatchTheHeader) {
  EXPECT_EQ(sizeOf(ncclInt8), 1u);
  EXPECT_EQ(sizeOf(ncclUint64), 8u);
  EXPECT_EQ(sizeOf(ncclFloat16), 2u);
  EXPECT_EQ(sizeOf(ncclBfloat16), 2u);
  EXPECT_EQ(sizeOf(ncclFloat8e5m2), 1u);
  EXPECT_EQ(nameOf(ncclDouble), "double");
  EXPECT_TRUE(isFloat(ncclFloat8e4m3));
  EXPECT_FALSE(isFloat(ncclUint64));
  EXPECT_FALSE(isSigned(ncclUint8));
  for (const int bad : {-1, 12, 1000}) {
    EXPECT_FALSE(isValid(static_cast<ncclDataType_t>(bad)));
    EXPECT_EQ(sizeOf(static_cast<ncclDataType_t>(bad)), 0u);
  }
  EXPECT_EQ(nameOf(ncclAvg), "avg");
  EXPECT_EQ(nameOf(static_cast<ncclRedOp_t>(7)), "custom");
}

/// A small format as its own list of values: the oracle rounds by searching the list, exactly, in double.
struct Format {
  const char* name;
  uint32_t codes;  // of non-negative values: the finite ones are 0..largest
  uint32_t largest;
  uint32_t signBit;
  bool infinity;
  std::function<float(uint32_t)> expand;
  std::function<uint32_t(float)> contract;
};

class SmallFloat : public ::testing::TestWithParam<Format> {};

/// Nearest finite value, ties to the even code; beyond half a step above the largest: overflow.
uint32_t nearest(const Format& f, double magnitude) {
  const double top = f.expand(f.largest);
  const double step = top - static_cast<double>(f.expand(f.largest - 1));
  if (magnitude > top + step / 2 || (magnitude == top + step / 2 && (f.largest & 1) != 0))
    return f.largest + 1;
  uint32_t low = 0, high = f.largest;  // largest code whose value is <= magnitude
  while (low < high) {
    const uint32_t mid = (low + high + 1) / 2;
    static_cast<double>(f.expand(mid)) <= magnitude ? low = mid : high = mid - 1;
  }
  if (low == f.largest) return low;
  const double below = magnitude - static_cast<double>(f.expand(low));
  const double above = static_cast<double>(f.expand(low + 1)) - magnitude;
  return below < above || (below == above && (low & 1) == 0) ? low : low + 1;
}

TEST_P(SmallFloat, EveryFiniteValueSurvivesTheRoundTrip) {
  const Format& f = GetParam();
  for (uint32_t code = 0; code <= f.largest; ++code) {
    EXPECT_EQ(f.contract(f.expand(code)), code);
    EXPECT_EQ(f.contract(-f.expand(code)), code | f.signBit);
    if (code > 0) {
      EXPECT_GT(f.expand(code), f.expand(code - 1));
    }
  }
}

TEST_P(SmallFloat, RoundsToNearestEvenAsTheListOfValuesSays) {
  const Format& f = GetParam();
  const auto check = [&](float value) {
    if (!std::isfinite(value)) return;
    const uint32_t code = nearest(f, std::fabs(static_cast<double>(value)));
    const uint32_t expected = (std::signbit(value) ? f.signBit : 0) |
                              (code > f.largest ? (f.infinity ? f.largest + 1 : f.codes - 1) : code);
    ASSERT_EQ(f.contract(value), expected) << value;
  };
  for (uint32_t code = 0; code < f.largest; ++code) {
    const float a = f.expand(code), b = f.expand(code + 1);
    const auto middle = static_cast<float>((static_cast<double>(a) + static_cast<double>(b)) / 2);
    for (const float v : {middle, std::nextafter(middle, a), std::nextafter(middle, b)}) check(v), check(-v);
  }
  const float top = f.expand(f.largest);
  for (const float v : {top, std::nextafter(top, INFINITY), top * 1.03f, top * 1.07f, top * 2,
                        std::numeric_limits<float>::max()})
    check(v), check(-v);
  check(std::numeric_limits<float>::denorm_min());
  check(std::numeric_limits<float>::min());
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i) check(std::bit_cast<float>(static_cast<uint32_t>(random())));
}

TEST_P(SmallFloat, KeepsNanAndInfinity) {
  const Format& f = GetParam();
  for (const float sign : {1.0f, -1.0f}) {
    const uint32_t nan = f.contract(std::copysign(std::numeric_limits<float>::quiet_NaN(), sign));
    EXPECT_TRUE(std::isnan(f.expand(nan)));
    EXPECT_EQ(std::signbit(f.expand(nan)), sign < 0);
    // A NaN whose payload lies only in bits that are cut off must not become an infinity.
    EXPECT_TRUE(std::isnan(f.expand(f.contract(std::bit_cast<float>(0x7f800001u)))));
    const float infinity = f.expand(f.contract(std::copysign(INFINITY, sign)));
    if (f.infinity) {
      EXPECT_EQ(infinity, std::copysign(INFINITY, sign));
    } else {
      EXPECT_TRUE(std::isnan(infinity));
    }
    EXPECT_EQ(std::signbit(f.expand(f.contract(std::copysign(0.0f, sign)))), sign < 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, SmallFloat,
    ::testing::Values(Format{"half", 0x8000, 0x7bff, 0x8000, true,
                             [](uint32_t c) { return halfToFloat(static_cast<uint16_t>(c)); },
                             [](float v) { return uint32_t{floatToHalf(v)}; }},
                      Format{"bfloat16", 0x8000, 0x7f7f, 0x8000, true,
                             [](uint32_t c) { return bfloat16ToFloat(static_cast<uint16_t>(c)); },
                             [](float v) { return uint32_t{floatToBfloat16(v)}; }},
                      Format{"e4m3", 0x80, 0x7e, 0x80, false,
                             [](uint32_t c) { return e4m3ToFloat(static_cast<uint8_t>(c)); },
                             [](float v) { return uint32_t{floatToE4m3(v)}; }},
                      Format{"e5m2", 0x80, 0x7b, 0x80, true,
                             [](uint32_t c) { return e5m2ToFloat(static_cast<uint8_t>(c)); },
                             [](float v) { return uint32_t{floatToE5m2(v)}; }}),
    [](const auto& instance) { return std::string(instance.param.name); });

TEST(SmallFloatValues, AreThePublishedOnes) {
  EXPECT_EQ(halfToFloat(0x3c00), 1.0f);
  EXPECT_EQ(halfToFloat(0x7bff), 65504.0f);
  EXPECT_EQ(halfToFloat(0x0001), std::ldexp(1.0f, -24));
  EXPECT_EQ(bfloat16ToFloat(0x3f80), 1.0f);
  EXPECT_EQ(e4m3ToFloat(0x7e), 448.0f);
  EXPECT_EQ(e4m3ToFloat(0x38), 1.0f);
  EXPECT_EQ(e4m3ToFloat(0x01), std::ldexp(1.0f, -9));
  EXPECT_EQ(e5m2ToFloat(0x7b), 57344.0f);
  EXPECT_EQ(e5m2ToFloat(0x3c), 1.0f);
  EXPECT_TRUE(std::isnan(e4m3ToFloat(0x7f)));
  EXPECT_EQ(e5m2ToFloat(0x7c), INFINITY);
}

}  // namespace
}  // namespace tutti::testing
