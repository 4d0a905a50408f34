#include "core/reduction_ops.h"

#include <gtest/gtest.h>

#include "base/datatype.h"

namespace tutti {
namespace {

TEST(ReductionOps, AverageScalesFloatsAndDividesIntegers) {
  const ReductionOps ops(4);
  const auto floats = ops.resolve(ncclAvg, ncclFloat16);
  ASSERT_TRUE(floats.isOk());
  EXPECT_TRUE(floats->spec.hasScale);
  EXPECT_EQ(floats->spec.scale, 0.25);
  EXPECT_EQ(floats->spec.divisor, 1u);
  const auto integers = ops.resolve(ncclAvg, ncclInt32);
  ASSERT_TRUE(integers.isOk());
  EXPECT_FALSE(integers->spec.hasScale);
  EXPECT_EQ(integers->spec.divisor, 4u);
}

TEST(ReductionOps, ImmediateScalarIsReadWhenTheOperatorIsMade) {
  ReductionOps ops(2);
  double scalar = 3;
  auto op = ops.createPreMulSum(&scalar, ncclFloat64, ncclScalarHostImmediate);
  ASSERT_TRUE(op.isOk());
  scalar = 5;
  const auto use = ops.resolve(*op, ncclFloat64);
  ASSERT_TRUE(use.isOk());
  EXPECT_EQ(use->spec.scale, 3);
  EXPECT_EQ(use->residentScalar, nullptr);
}

TEST(ReductionOps, ResidentScalarIsLeftForTheRun) {
  ReductionOps ops(2);
  int64_t scalar = -3;
  auto op = ops.createPreMulSum(&scalar, ncclInt64, ncclScalarDevice);
  ASSERT_TRUE(op.isOk());
  auto use = ops.resolve(*op, ncclInt64);
  ASSERT_TRUE(use.isOk());
  EXPECT_EQ(use->residentScalar, &scalar);
  scalar = -7;
  readScalar(use->residentScalar, use->spec);
  EXPECT_EQ(static_cast<int64_t>(use->spec.integerScale), -7);
}

TEST(ReductionOps, ScalarsOfEveryTypeAreRead) {
  for (int t = 0; t < ncclNumTypes; ++t) {
    const auto type = static_cast<ncclDataType_t>(t);
    std::byte element[8];
    fromDouble(type, 3, element);
    ReductionSpec spec;
    spec.type = type;
    readScalar(element, spec);
    EXPECT_TRUE(spec.hasScale);
    if (isFloat(type))
      EXPECT_EQ(spec.scale, 3) << nameOf(type);
    else
      EXPECT_EQ(spec.integerScale, 3u) << nameOf(type);
  }
}

TEST(ReductionOps, RefusesUnknownDestroyedAndMistypedOperators) {
  ReductionOps ops(2);
  float scalar = 1;
  EXPECT_FALSE(ops.resolve(static_cast<ncclRedOp_t>(ncclNumOps), ncclFloat32).isOk());
  EXPECT_FALSE(ops.resolve(static_cast<ncclRedOp_t>(-1), ncclFloat32).isOk());
  auto op = ops.createPreMulSum(&scalar, ncclFloat32, ncclScalarHostImmediate);
  ASSERT_TRUE(op.isOk());
  const auto mistyped = ops.resolve(*op, ncclFloat64);
  ASSERT_FALSE(mistyped.isOk());
  EXPECT_NE(mistyped.status().message().find("created for float"), std::string::npos)
      << mistyped.status().message();
  EXPECT_TRUE(ops.destroy(*op).isOk());
  EXPECT_FALSE(ops.resolve(*op, ncclFloat32).isOk());
  EXPECT_FALSE(ops.destroy(*op).isOk());
  EXPECT_FALSE(ops.destroy(ncclSum).isOk());
  EXPECT_FALSE(ops.createPreMulSum(nullptr, ncclFloat32, ncclScalarDevice).isOk());
  EXPECT_FALSE(ops.createPreMulSum(&scalar, ncclFloat32, static_cast<ncclScalarResidence_t>(7)).isOk());
}

TEST(ReductionOps, HandlesOfDestroyedOperatorsAreUsedAgain) {
  ReductionOps ops(2);
  float scalar = 1;
  auto first = ops.createPreMulSum(&scalar, ncclFloat32, ncclScalarHostImmediate);
  auto second = ops.createPreMulSum(&scalar, ncclFloat32, ncclScalarHostImmediate);
  ASSERT_TRUE(first.isOk() && second.isOk());
  EXPECT_NE(*first, *second);
  ASSERT_TRUE(ops.destroy(*first).isOk());
  auto third = ops.createPreMulSum(&scalar, ncclFloat32, ncclScalarHostImmediate);
  ASSERT_TRUE(third.isOk());
  EXPECT_EQ(*third, *first);
}

}  // namespace
}  // namespace tutti
