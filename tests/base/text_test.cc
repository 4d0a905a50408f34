#include "base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(Text, LowersLettersAlone) {
  EXPECT_EQ(lower("AllReduce-2 \t"), "allreduce-2 \t");
  EXPECT_EQ(lowerTrimmed(" \t Ring, TREE \t"), "ring, tree");
  EXPECT_EQ(lowerTrimmed(" \t"), "");
}

TEST(Text, SplitsIntoOnePieceMoreThanThereAreSeparators) {
  using testing::ElementsAre;
  EXPECT_THAT(splitAt("", ','), ElementsAre(""));
  EXPECT_THAT(splitAt("a", ','), ElementsAre("a"));
  EXPECT_THAT(splitAt(",a,,b,", ','), ElementsAre("", "a", "", "b", ""));
}

}  // namespace
}  // namespace tutti
