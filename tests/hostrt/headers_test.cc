#include <gtest/gtest.h>

#include "hostrt/facts/facts.h"

TEST(Headers, NameEveryFactOnceWithAValue) {
  const auto own = ownFacts();
  EXPECT_GT(own.size(), 400u);
  for (const Fact& fact : own) EXPECT_FALSE(fact.value.empty()) << fact.name;
}

#ifdef HOSTRT_HAVE_TOOLKIT
TEST(Headers, AgreeWithTheToolkit) {
  const auto own = ownFacts();
  const auto toolkit = toolkitFacts();
  ASSERT_EQ(own.size(), toolkit.size());
  for (size_t i = 0; i < own.size(); ++i) EXPECT_EQ(own[i].value, toolkit[i].value) << own[i].name;
}
#else
TEST(Headers, AgreeWithTheToolkit) { GTEST_SKIP() << "no CUDA toolkit was found when this was configured"; }
#endif
