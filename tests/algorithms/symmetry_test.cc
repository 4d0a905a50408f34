// One rank stands for thousands.
#include "algorithms/symmetry.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "algorithms/checker.h"

namespace tutti {
namespace {

template <typename Body>
void forAllSymmetric(int32_t ranks, Body body) {
  for (const Algorithm& algorithm : algorithms())
    for (const Collective collective : algorithm.collectives)
      if (algorithm.implements(collective, ranks) &&
          algorithm.symmetryOf(collective, ranks) != Symmetry::none)
        body(algorithm, collective, algorithm.symmetryOf(collective, ranks));
}

TEST(Symmetry, DeclarationsHoldStepByStepForUpTo64Ranks) {
  int checked = 0;
  for (int32_t ranks = 2; ranks <= 64; ++ranks)
    forAllSymmetric(ranks, [&](const Algorithm& algorithm, Collective collective, Symmetry symmetry) {
      const auto set = generateAll(algorithm.name, {collective, ranks, 0, 0, {}});
      ASSERT_TRUE(set.isOk());
      const Status status = checkSymmetry(*set, symmetry);
      ASSERT_TRUE(status.isOk()) << status.message();
      ++checked;
    });
  EXPECT_GT(checked, 600);
}

TEST(Symmetry, OneRankGivesTheCertificateThatAllRanksGive) {
  for (const int32_t ranks : {2, 3, 7, 8, 16, 33})
    forAllSymmetric(ranks, [&](const Algorithm& algorithm, Collective collective, Symmetry symmetry) {
      const auto set = generateAll(algorithm.name, {collective, ranks, 0, 0, {}});
      const auto all = prove(*set);
      const auto one = proveSymmetric(set->front(), symmetry);
      ASSERT_TRUE(all.isOk()) << all.status().message();
      ASSERT_TRUE(one.isOk()) << one.status().message();
      EXPECT_EQ(one->rounds, all->rounds) << all->toText();
      EXPECT_DOUBLE_EQ(one->sent, all->sent) << all->toText();
      EXPECT_EQ(one->reductionDepth, all->reductionDepth) << all->toText();
    });
}

TEST(Symmetry, ProvesFourThousandRanks) {
  for (const int32_t ranks : {1000, 4096})
    forAllSymmetric(ranks, [&](const Algorithm& algorithm, Collective collective, Symmetry symmetry) {
      const auto schedule = generate(algorithm.name, {collective, ranks, 0, 0, {}});
      ASSERT_TRUE(schedule.isOk());
      const auto certificate = proveSymmetric(*schedule, symmetry);
      ASSERT_TRUE(certificate.isOk()) << certificate.status().message();
      const bool longWay = algorithm.name == "doubling" || algorithm.name == "bruck";
      if (!longWay) {
        EXPECT_DOUBLE_EQ(certificate->sent, certificate->sentBound) << certificate->toText();
      }
    });
}

/// Changes that break the schedule of rank 0, and with it those of all ranks.
TEST(Symmetry, AWrongStepIsRefusedForAnyNumberOfRanks) {
  for (const int32_t ranks : {8, 256})
    forAllSymmetric(ranks, [&](const Algorithm& algorithm, Collective collective, Symmetry symmetry) {
      const Schedule good = *generate(algorithm.name, {collective, ranks, 0, 0, {}});
      const size_t blocks = good.lanes[0].blocks.size();
      for (size_t b = 0; b < blocks; ++b)
        for (size_t i = 0; i < good.lanes[0].blocks[b].steps.size(); ++i) {
          const auto refused = [&](const char* what, auto change) {
            Schedule bad = good;
            change(bad.lanes[0].blocks[b]);
            bad = tidy(std::move(bad));
            if (bad.lanes == good.lanes) return;
            EXPECT_FALSE(proveSymmetric(bad, symmetry).isOk())
                << what << " " << algorithm.name << " " << name(collective) << " "
                << toText(good.lanes[0].blocks[b].steps[i]);
          };
          const Step& step = good.lanes[0].blocks[b].steps[i];
          refused("drop",
                  [&](Block& block) { block.steps.erase(block.steps.begin() + static_cast<ptrdiff_t>(i)); });
          if (step.kind != StepKind::copy)
            refused("double", [&](Block& block) {
              const Step copy = block.steps[i];
              block.steps.insert(block.steps.begin() + static_cast<ptrdiff_t>(i), copy);
            });
          if (sends(step.kind))
            refused("other target",
                    [&](Block& block) { block.steps[i].peerTo.base = step.peerTo.base % ranks + 1; });
          if (receives(step.kind))
            refused("other source",
                    [&](Block& block) { block.steps[i].peerFrom.base = step.peerFrom.base % ranks + 1; });
          if (writesDestination(step.kind))
            refused("other place", [&](Block& block) { block.steps[i].dst.segment.base += 1; });
          refused("other mark", [&](Block& block) { block.steps[i].finalize = !step.finalize; });
        }
    });
}

TEST(Symmetry, AFifoTooShallowIsNoticed) {
  const Schedule ring = *generate("ring", {Collective::allReduce, 512, 0, 0, {}});
  const auto result = proveSymmetric(ring, Symmetry::shift, {.fifoSlots = 1});
  ASSERT_FALSE(result.isOk());
  EXPECT_NE(result.status().message().find("all ranks wait for a free slot"), std::string::npos)
      << result.status().message();
}

TEST(Symmetry, WhatIsNotSymmetricIsRefused) {
  const auto tree = generateAll("tree", {Collective::allReduce, 8, 0, 0, {}});
  EXPECT_FALSE(checkSymmetry(*tree, Symmetry::shift).isOk());
  const auto pairs = generateAll("pairwise", {Collective::allToAll, 8, 0, 0, {}});
  EXPECT_FALSE(checkSymmetry(*pairs, Symmetry::shift).isOk());
  const auto ring = generateAll("ring", {Collective::allReduce, 8, 0, 0, {}});
  EXPECT_FALSE(checkSymmetry(*ring, Symmetry::exclusiveOr).isOk());
  EXPECT_FALSE(checkSymmetry(*ring, Symmetry::none).isOk());
}

}  // namespace
}  // namespace tutti
