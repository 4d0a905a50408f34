#include "common/size.h"

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

TEST(ParseSize, TakesPlainBytesAndBinarySuffixes) {
  EXPECT_EQ(parseSize("8"), 8u);
  EXPECT_EQ(parseSize("0"), 0u);
  EXPECT_EQ(parseSize("4K"), 4096u);
  EXPECT_EQ(parseSize("4k"), 4096u);
  EXPECT_EQ(parseSize("128M"), 134217728u);
  EXPECT_EQ(parseSize("2g"), 2147483648u);
  EXPECT_EQ(parseSize("1T"), 1099511627776u);
  EXPECT_EQ(parseSize("16KB"), 16384u);
  EXPECT_EQ(parseSize("16KiB"), 16384u);
}

TEST(ParseSize, TakesFractions) {
  EXPECT_EQ(parseSize("1.5K"), 1536u);
  EXPECT_EQ(parseSize("0.5M"), 524288u);
}

TEST(ParseSize, RefusesEverythingElse) {
  for (const char* text : {"",
                           "K",
                           "-1",
                           "-1K",
                           "+1",
                           " 1",
                           "1 ",
                           "1X",
                           "1KK",
                           "0x10",
                           "1e3",
                           "nan",
                           "inf",
                           "B",
                           "8B",
                           "iB",
                           ".5.",
                           "99999999999999999999",
                           "99999999999T",
                           "16EiB",
                           "1e400"})
    EXPECT_FALSE(parseSize(text)) << '"' << text << '"';
}

TEST(ParseSize, ReachesTheLargestNumbers) {
  EXPECT_EQ(parseSize("18446744073709551615"), 18446744073709551615u);
  EXPECT_FALSE(parseSize("18446744073709551616"));
  EXPECT_EQ(parseSize("16777215T"), 16777215ull << 40);
  EXPECT_FALSE(parseSize("16777216T"));
}

TEST(ParseNumber, RespectsItsMaximum) {
  EXPECT_EQ(parseNumber("10", 10), 10u);
  EXPECT_FALSE(parseNumber("11", 10));
  EXPECT_FALSE(parseNumber("1K", 10000));
}

}  // namespace
}  // namespace tutti::perf
