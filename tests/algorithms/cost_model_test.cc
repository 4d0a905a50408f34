// Closed forms against certificates, and against numbers that anybody can work out.
#include "algorithms/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "algorithms/checker.h"
#include "algorithms/registry.h"

namespace tutti {
namespace {

constexpr Collective kEvery[] = {Collective::allReduce, Collective::allGather, Collective::reduceScatter,
                                 Collective::broadcast, Collective::reduce,    Collective::allToAll,
                                 Collective::gather,    Collective::scatter};

CostForm form(std::string_view algorithm, Collective collective, int32_t ranks, int32_t blocks = 1) {
  return costForm({algorithm, collective, ranks}, blocks);
}

TEST(CostForms, StateWhatCertificatesStateForEveryAlgorithmThatExists) {
  int compared = 0;
  for (const Algorithm& algorithm : algorithms())
    for (const Collective collective : kEvery)
      for (const int32_t ranks : {2, 3, 4, 5, 7, 8, 16}) {
        if (!algorithm.implements(collective, ranks)) continue;
        const int32_t blocks = algorithm.takesBlocks ? 4 : 1;
        const CostForm stated = form(algorithm.name, collective, ranks, blocks);
        if (!stated.exactRounds && !stated.exactSent) continue;
        ScheduleRequest request;
        request.collective = collective;
        request.ranks = ranks;
        request.blocks = algorithm.takesBlocks ? blocks : 0;
        const auto set = generateAll(algorithm.name, request);
        ASSERT_TRUE(set.isOk()) << set.status().message();
        const auto certificate = prove(*set);
        ASSERT_TRUE(certificate.isOk()) << certificate.status().message();
        if (stated.exactRounds) {
          EXPECT_EQ(stated.rounds, certificate->rounds) << certificate->toText();
        }
        if (stated.exactSent && stated.barriers == 0) {
          EXPECT_NEAR(stated.sent, certificate->sent, 1e-9) << certificate->toText();
        }
        ++compared;
      }
  EXPECT_GT(compared, 100);
}

TEST(CostForms, NeverStateLessThanAnyAlgorithmNeeds) {
  for (const char* algorithm : {"ring", "tree", "doubling", "rabenseifner", "circulant"})
    for (const int32_t ranks : {2, 3, 6, 8, 13, 64}) {
      const CostForm all = form(algorithm, Collective::allReduce, ranks);
      ASSERT_TRUE(all.known);
      EXPECT_GE(all.sent, 2.0 * (ranks - 1) / ranks - 1e-12) << algorithm << " " << ranks;
      EXPECT_GE(all.rounds, std::ceil(std::log2(ranks))) << algorithm << " " << ranks;
    }
}

TEST(CostForms, AreThoseOfTheSources) {
  // 2 ceil(log2 p) rounds and 2 (p - 1) / p vectors for every p.
  for (const int32_t ranks : {5, 6, 7, 9, 100}) {
    const CostForm all = form("circulant", Collective::allReduce, ranks);
    EXPECT_EQ(all.rounds, 2 * std::ceil(std::log2(ranks)));
    EXPECT_DOUBLE_EQ(all.sent, 2.0 * (ranks - 1) / ranks);
  }
  EXPECT_EQ(form("circulant", Collective::broadcast, 9, 20).rounds, 20 - 1 + 4);
  EXPECT_EQ(form("rabenseifner", Collective::allReduce, 16).rounds, 8);
  EXPECT_EQ(form("rabenseifner", Collective::allReduce, 17).rounds, 10);
  EXPECT_DOUBLE_EQ(form("rabenseifner", Collective::allReduce, 16).sent, 30.0 / 16);
  EXPECT_EQ(form("bruck", Collective::allToAll, 8).rounds, 3);
  EXPECT_DOUBLE_EQ(form("bruck", Collective::allToAll, 8).sent, 1.5);
  // Distances 1 .. 4: bit 0 in 1, 3; bit 1 in 2, 3; bit 2 in 4.
  EXPECT_DOUBLE_EQ(form("bruck", Collective::allToAll, 5).sent, 5.0 / 5);
  EXPECT_EQ(form("spread", Collective::allToAll, 8).rounds, 1);
  EXPECT_EQ(form("pairwise", Collective::allToAll, 8).rounds, 8);
  EXPECT_EQ(form("pat", Collective::allGather, 64).rounds, 6);
  EXPECT_GT(form("pat", Collective::allGather, 1024).rounds, 10);  // blocks no longer fit one message
  EXPECT_EQ(form("binomial", Collective::broadcast, 8).rounds, 3);
  // The root's last message, to 8, leaves half a message after each of the three before it, were they not on
  // their way to subtrees that take longer.
  EXPECT_EQ(form("binomial", Collective::broadcast, 9).rounds, 3.5);
  EXPECT_DOUBLE_EQ(form("binomial", Collective::scatter, 8).sent, 7.0 / 8);
  EXPECT_FALSE(form("telepathy", Collective::allReduce, 8).known);
  EXPECT_FALSE(form("hierarchical/ring", Collective::allReduce, 8).known);
}

CostParameters network() {
  CostParameters costs;
  costs.alpha = costs.sliceAlpha = 10e-6;
  costs.beta = 1e-9;
  costs.sliceBytes = 1 << 20;
  return costs;
}

TEST(CostModel, AddsRoundsAndBytes) {
  const CostQuery query{"ring", Collective::allReduce, 4, 4 << 20};
  // 1 MiB a message: 6 rounds of 10 us, and 1.5 vectors.
  EXPECT_NEAR(predictSeconds(query, network()), 60e-6 + 1.5 * (4 << 20) * 1e-9, 1e-12);
  // Four slices go through all rounds each; four channels carry one each.
  CostQuery large = query;
  large.bytes = 16 << 20;
  EXPECT_NEAR(predictSeconds(large, network()), 240e-6 + 1.5 * (16 << 20) * 1e-9, 1e-12);
  large.channels = 4;
  EXPECT_NEAR(predictSeconds(large, network()), 60e-6 + 1.5 * (16 << 20) * 1e-9, 1e-12);
}

TEST(CostModel, ChoosesTheNumberOfBlocks) {
  const CostQuery query{"circulant", Collective::broadcast, 16, 16 << 20};
  const CostParameters costs = network();
  const int32_t best = bestBlocks(query, costs);
  const double expected =
      std::sqrt(3 * (16 << 20) * costs.beta / costs.alpha);  // sqrt((rounds - 1) n beta / alpha)
  EXPECT_NEAR(best, std::min<double>(expected, kMostBlocks), 10);
  for (const int32_t other : {1, 2, best - 1, std::min(best + 1, kMostBlocks), kMostBlocks}) {
    CostQuery with = query;
    with.blocks = other;
    CostQuery chosen = query;
    chosen.blocks = best;
    EXPECT_GE(predictSeconds(with, costs), predictSeconds(chosen, costs)) << other;
  }
  EXPECT_DOUBLE_EQ(predictSeconds(query, costs),
                   predictSeconds({"circulant", Collective::broadcast, 16, 16 << 20, 1, 1, best}, costs));
  CostQuery small = query;
  small.bytes = 8;
  EXPECT_EQ(bestBlocks(small, costs), 1);
  EXPECT_EQ(bestBlocks({"ring", Collective::broadcast, 16, 1 << 20}, costs), 1);
}

TEST(CostModel, CountsBothLevels) {
  TwoLevelCosts costs;
  costs.inside.alpha = 1e-6;
  costs.between.alpha = 10e-6;
  // 8 hosts of 8: 2 x 63 rounds, of which 16 between hosts.
  EXPECT_NEAR(predictSeconds({"ring", Collective::allReduce, 64, 64, 8}, costs), 110e-6 + 160e-6, 1e-12);
  // All on one host, or each on its own.
  EXPECT_NEAR(predictSeconds({"doubling", Collective::allReduce, 8, 8, 1}, costs), 3e-6, 1e-12);
  EXPECT_NEAR(predictSeconds({"doubling", Collective::allReduce, 8, 8, 8}, costs), 30e-6, 1e-12);
  // The network's bytes: rings leave a host once, doubling all its ranks in every round.
  costs = {};
  costs.between.beta = 1e-9;
  EXPECT_NEAR(predictSeconds({"ring", Collective::allReduce, 64, 1 << 20, 8}, costs),
              2.0 * 63 / 64 * (1 << 20) * 1e-9, 1e-12);
  EXPECT_NEAR(predictSeconds({"doubling", Collective::allReduce, 64, 1 << 20, 8}, costs),
              8 * 3.0 * (1 << 20) * 1e-9, 1e-12);
}

TEST(CostModel, PricesPairsOfAlgorithmsOverHosts) {
  const TwoLevelCosts costs = gpuCosts(370e9, 384e9);
  const double pair =
      predictSeconds({"hierarchical/ring/ring", Collective::allReduce, 64, 1 << 30, 8, 16}, costs);
  EXPECT_TRUE(std::isfinite(pair));
  // The network alone needs this, and it is what a ring over hosts sends.
  EXPECT_GE(pair, 2.0 * 7 / 8 * (1 << 30) / 384e9);
  EXPECT_LT(pair, 4 * 2.0 * 7 / 8 * (1 << 30) / 384e9);
  EXPECT_TRUE(
      std::isinf(predictSeconds({"hierarchical/ring/nothing", Collective::allReduce, 64, 8, 8}, costs)));
}

TEST(CostModel, CountsLatencyOnceInPipelinesThatNeedNotWait) {
  TwoLevelCosts costs;
  costs.inside.alpha = 10e-6;
  costs.inside.beta = 1e-9;
  costs.inside.sliceBytes = 1000;
  // A chain of 3 stages, 10 slices of 1 us.
  const CostQuery query{"ring", Collective::broadcast, 4, 10000};
  EXPECT_NEAR(predictSeconds(query, costs), (3 + 9) * 11e-6, 1e-12);
  costs.asynchronous = true;
  EXPECT_NEAR(predictSeconds(query, costs), 3 * 11e-6 + 9 * 1e-6, 1e-12);
}

TEST(CostModel, PricesARankAloneAsACopy) {
  CostParameters costs;
  costs.coreByte = 1e-9;
  EXPECT_DOUBLE_EQ(predictSeconds({"ring", Collective::allReduce, 1, 1000}, costs), 2e-6);
}

}  // namespace
}  // namespace tutti
