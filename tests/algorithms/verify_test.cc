// The list of proofs is complete, and each of its tasks passes.
#include "algorithms/verify.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

namespace tutti {
namespace {

TEST(Verify, ListsEveryAlgorithmCollectiveAndNumberOfRanks) {
  std::set<std::tuple<std::string_view, Collective, int32_t>> listed;
  for (const VerifyTask& task : verifyTasks(9, 0))
    EXPECT_TRUE(listed.emplace(task.algorithm->name, task.collective, task.ranks).second);
  size_t expected = 0;
  for (const Algorithm& algorithm : algorithms())
    for (const Collective collective : algorithm.collectives)
      for (int32_t ranks = 1; ranks <= 9; ++ranks)
        expected += algorithm.implements(collective, ranks) ? 1 : 0;
  EXPECT_EQ(listed.size(), expected);
}

TEST(Verify, ListsOneAlgorithmOrNone) {
  for (const VerifyTask& task : verifyTasks(4, 0, "PAT")) EXPECT_EQ(task.algorithm->name, "pat");
  EXPECT_EQ(verifyTasks(4, 0, "pat").size(), 8u);
  EXPECT_TRUE(verifyTasks(4, 0, "nonsense").empty());
}

TEST(Verify, AddsOneLargeTaskForEachDeclarationOfSymmetry) {
  int large = 0;
  for (const VerifyTask& task : verifyTasks(2, 1024)) {
    EXPECT_EQ(task.symmetric, task.ranks == 1024);
    large += task.symmetric ? 1 : 0;
  }
  EXPECT_EQ(large, 14);
}

TEST(Verify, EveryTaskOfFewRanksPasses) {
  int64_t proofs = 0;
  for (const VerifyTask& task : verifyTasks(6, 256)) {
    const auto outcome = verify(task);
    ASSERT_TRUE(outcome.isOk()) << outcome.status().message();
    EXPECT_GT(outcome->proofs, 0);
    EXPECT_EQ(outcome->certificate.ranks, task.ranks);
    proofs += outcome->proofs;
  }
  EXPECT_GT(proofs, 2000);
}

}  // namespace
}  // namespace tutti
