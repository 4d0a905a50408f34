#include "common/datatype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <set>

namespace tutti::perf {
namespace {

TEST(DataTypes, StandInNcclsOrderAndAreFoundByName) {
  int expected = 0;
  for (const DataType& type : dataTypes()) {
    EXPECT_EQ(type.nccl, expected++);
    EXPECT_EQ(findDataType(type.name), &type);
  }
  EXPECT_EQ(expected, ncclNumTypes);
  EXPECT_EQ(findDataType("int"), findDataType("int32"));
  EXPECT_EQ(findDataType("float17"), nullptr);
}

TEST(DataTypes, EveryFinitePatternSurvivesDecodingAndEncoding) {
  for (const DataType& type : dataTypes()) {
    if (!type.isFloating() || type.bytes > 2) continue;
    for (uint64_t bits = 0; bits <= type.mask(); ++bits) {
      if (!isFinite(type, bits)) continue;
      ASSERT_EQ(encodeFloat(type, decodeFloat(type, bits)), bits) << type.name;
    }
  }
}

TEST(DataTypes, FloatConversionAgreesWithTheCompiler) {
  const DataType& type = *findDataType("float");
  std::mt19937_64 random(1);
  for (int i = 0; i < 200000; ++i) {
    const double value = std::bit_cast<double>(random());
    if (std::isnan(value)) continue;
    const auto bits = static_cast<uint64_t>(std::bit_cast<uint32_t>(static_cast<float>(value)));
    ASSERT_EQ(encodeFloat(type, value), bits) << value;
  }
  for (int i = 0; i < 200000; ++i) {
    const auto bits = static_cast<uint32_t>(random());
    const auto value = std::bit_cast<float>(bits);
    if (std::isnan(value)) continue;
    ASSERT_EQ(decodeFloat(type, bits), static_cast<double>(value));
  }
}

TEST(DataTypes, KnownPatterns) {
  const auto encode = [](const char* name, double value) { return encodeFloat(*findDataType(name), value); };
  EXPECT_EQ(encode("half", 1.0), 0x3c00u);
  EXPECT_EQ(encode("half", 65504.0), 0x7bffu);
  EXPECT_EQ(encode("half", 65520.0), 0x7c00u);  // ties away from the largest: infinity
  EXPECT_EQ(encode("half", 5.9604644775390625e-8), 0x0001u);
  EXPECT_EQ(encode("bfloat16", -2.0), 0xc000u);
  EXPECT_EQ(encode("bfloat16", 1.00390625), 0x3f80u);  // 1 + 2^-8: tie, to even
  EXPECT_EQ(encode("f8e4m3", 448.0), 0x7eu);
  EXPECT_EQ(encode("f8e4m3", 480.0), 0x7fu);  // no infinity: NaN
  EXPECT_EQ(encode("f8e4m3", 0.001953125), 0x01u);
  EXPECT_EQ(encode("f8e5m2", 57344.0), 0x7bu);
  EXPECT_EQ(encode("f8e5m2", -1.0), 0xbcu);
  EXPECT_EQ(encode("f8e5m2", 1e9), 0x7cu);
  EXPECT_TRUE(std::isnan(decodeFloat(*findDataType("f8e4m3"), 0x7f)));
  EXPECT_TRUE(std::isinf(decodeFloat(*findDataType("f8e5m2"), 0x7c)));
}

TEST(DataTypes, SignsExtendByType) {
  EXPECT_EQ(decodeSigned(*findDataType("int8"), 0xff), -1);
  EXPECT_EQ(decodeSigned(*findDataType("uint8"), 0xff), 255);
  EXPECT_EQ(decodeSigned(*findDataType("int32"), 0x80000000u), std::numeric_limits<int32_t>::min());
}

}  // namespace
}  // namespace tutti::perf
