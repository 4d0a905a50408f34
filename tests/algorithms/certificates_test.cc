// What the certificates of the shipped algorithms must say: rounds and volume, beside the bounds.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <string_view>
#include <utility>

#include "algorithms/checker.h"
#include "algorithms/circulant.h"
#include "algorithms/registry.h"

namespace tutti {
namespace {

Certificate proved(std::string_view algorithm, const ScheduleRequest& request) {
  const auto set = generateAll(algorithm, request);
  EXPECT_TRUE(set.isOk()) << set.status().message();
  if (!set.isOk()) return {};
  const auto certificate = prove(*set);
  EXPECT_TRUE(certificate.isOk()) << certificate.status().message() << "\n" << toText(set->front());
  return certificate.isOk() ? std::move(certificate).value() : Certificate{};
}

int32_t logUp(int32_t ranks) { return std::bit_width(static_cast<uint32_t>(ranks - 1)); }
double share(int32_t ranks) { return static_cast<double>(ranks - 1) / ranks; }

TEST(Certificates, CirculantFormsMeetBothBoundsForAnyNumberOfRanks) {
  for (int32_t ranks = 2; ranks <= 40; ++ranks) {
    const Certificate all = proved("circulant", {Collective::allReduce, ranks, 0, 0, {}});
    EXPECT_EQ(all.rounds, 2 * logUp(ranks));
    EXPECT_DOUBLE_EQ(all.sent, all.sentBound);
    EXPECT_LE(all.reductionDepth, logUp(ranks));
    const Certificate scatter = proved("circulant", {Collective::reduceScatter, ranks, 0, 0, {}});
    EXPECT_EQ(scatter.rounds, logUp(ranks));
    EXPECT_DOUBLE_EQ(scatter.sent, share(ranks));
    const Certificate gather = proved("circulant", {Collective::allGather, ranks, 0, 0, {}});
    EXPECT_EQ(gather.rounds, logUp(ranks));
    EXPECT_DOUBLE_EQ(gather.sent, share(ranks));
  }
}

// The conditions that make a broadcast schedule right, for far more ranks than are proved step by step:
// over the rounds of a phase a rank receives its first block and all others of the phase before, and a
// sender has what it sends.
TEST(Certificates, CirculantBroadcastsReceiveEachBlockOnceAndSendWhatTheyHave) {
  for (const int32_t ranks : {2, 3, 5, 17, 31, 32, 33, 97, 100, 255, 257, 500, 733}) {
    const std::vector<int32_t> distances = circulantDistances(ranks);
    const auto q = static_cast<int32_t>(distances.size()) - 1;
    std::vector<std::vector<int32_t>> receives;
    for (int32_t rank = 0; rank < ranks; ++rank) receives.push_back(circulantReceives(distances, rank));
    const auto firstOf = [&](int32_t rank) {
      for (const int32_t block : receives[static_cast<size_t>(rank)])
        if (block >= 0) return block;
      return q;
    };
    for (int32_t rank = 0; rank < ranks; ++rank) {
      std::vector<int32_t> had = {rank == 0 ? q : firstOf(rank) - q};
      std::vector<bool> seen(static_cast<size_t>(q));
      for (int32_t k = 0; k < q; ++k) {
        const auto round = static_cast<size_t>(k);
        const int32_t to = (rank + distances[round]) % ranks;
        const int32_t sent = receives[static_cast<size_t>(to)][round];
        if (rank == 0) {
          EXPECT_EQ(sent, k);
        } else if (to != 0) {
          EXPECT_NE(std::find(had.begin(), had.end(), sent), had.end()) << ranks << " " << rank << " " << k;
        }
        const int32_t got = receives[static_cast<size_t>(rank)][round];
        had.push_back(got);
        if (rank == 0) continue;
        const auto number = static_cast<size_t>((got + q) % q);
        EXPECT_FALSE(seen[number]) << ranks << " " << rank << " " << k;
        seen[number] = true;
      }
    }
  }
}

TEST(Certificates, APipelineOverTheCirculantGraphTakesOneRoundForEachBlockMore) {
  for (int32_t ranks = 2; ranks <= 20; ++ranks)
    for (const int32_t blocks : {1, 2, 3, 7, 16})
      for (const int32_t root : {0, ranks / 2}) {
        ScheduleRequest request{Collective::broadcast, ranks, 0, root, {}};
        request.blocks = blocks;
        const Certificate broadcast = proved("circulant", request);
        // (The longest chain of messages; a rank that only sends waits for nobody.)
        EXPECT_LE(broadcast.rounds, blocks - 1 + logUp(ranks)) << ranks << " " << blocks;
        EXPECT_LE(broadcast.sent, static_cast<double>(blocks - 1 + logUp(ranks)) / blocks);
        request.collective = Collective::reduce;
        const Certificate reduce = proved("circulant", request);
        EXPECT_DOUBLE_EQ(reduce.sent, 1);
        EXPECT_LE(reduce.rounds, blocks - 1 + logUp(ranks));
      }
}

TEST(Certificates, RabenseifnerMeetsTheBoundsOnPowersOfTwoAndPaysForTheFoldElsewhere) {
  for (int32_t ranks = 2; ranks <= 33; ++ranks) {
    const Certificate all = proved("rabenseifner", {Collective::allReduce, ranks, 0, 0, {}});
    const int32_t core = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(ranks)));
    if (core == ranks) {
      EXPECT_EQ(all.rounds, 2 * logUp(ranks));
      EXPECT_DOUBLE_EQ(all.sent, all.sentBound);
    } else {
      EXPECT_LE(all.rounds, 2 * logUp(ranks));
      EXPECT_DOUBLE_EQ(all.sent, 2 * share(core) + 1);
    }
  }
}

TEST(Certificates, HalvingAndPatMoveTheLeastVolumeInLogarithmicRounds) {
  for (const int32_t ranks : {2, 4, 8, 32}) {
    const Certificate halving = proved("doubling", {Collective::reduceScatter, ranks, 0, 0, {}});
    EXPECT_EQ(halving.rounds, logUp(ranks));
    EXPECT_DOUBLE_EQ(halving.sent, share(ranks));
  }
  for (int32_t ranks = 2; ranks <= 40; ++ranks)
    for (const Collective collective : {Collective::allGather, Collective::reduceScatter}) {
      const Certificate pat = proved("pat", {collective, ranks, 0, 0, {}});
      EXPECT_EQ(pat.rounds, logUp(ranks));
      EXPECT_DOUBLE_EQ(pat.sent, share(ranks));
    }
}

// With messages of few blocks PAT's buffers stay small while rounds grow.
TEST(Certificates, PatBoundsItsMessagesAndItsScratch) {
  for (int32_t ranks = 2; ranks <= 40; ++ranks)
    for (const int32_t most : {1, 2, 4, 8})
      for (const Collective collective : {Collective::allGather, Collective::reduceScatter}) {
        ScheduleRequest request{collective, ranks, 0, 0, {}};
        request.blocks = most;
        const Certificate pat = proved("pat", request);
        EXPECT_DOUBLE_EQ(pat.sent, share(ranks));
        const Schedule schedule = *generate("pat", request);
        EXPECT_LE(schedule.maxCount, std::max(2, most));
        EXPECT_LE(schedule.scratchSegments, std::max(2, most) + 1 + logUp(ranks));
      }
}

TEST(Certificates, TreesFromOneRootTakeLogarithmicRounds) {
  for (int32_t ranks = 2; ranks <= 33; ++ranks)
    for (const Collective collective :
         {Collective::broadcast, Collective::reduce, Collective::gather, Collective::scatter}) {
      const Certificate tree = proved("binomial", {collective, ranks, 0, ranks - 1, {}});
      EXPECT_LE(tree.rounds, logUp(ranks));
      if (collective == Collective::reduce) {
        EXPECT_DOUBLE_EQ(tree.sent, 1);
      }
      if (collective == Collective::scatter) {
        EXPECT_DOUBLE_EQ(tree.sent, share(ranks));
      }
      if (collective == Collective::gather) {
        EXPECT_LE(tree.sent, 0.5);
      }
    }
}

TEST(Certificates, ScatterAndAllGatherMoveLessThanTwoVectors) {
  for (int32_t ranks = 2; ranks <= 33; ++ranks)
    for (const Collective collective : {Collective::broadcast, Collective::reduce}) {
      const Certificate both = proved("scatter_allgather", {collective, ranks, 0, ranks / 3, {}});
      EXPECT_LE(both.rounds, 2 * logUp(ranks));
      EXPECT_LE(both.sent, 2 * share(ranks));
    }
}

TEST(Certificates, AllToAllTakesManyRoundsOrMovesManyBytes) {
  for (int32_t ranks = 2; ranks <= 33; ++ranks) {
    const Certificate pairs = proved("pairwise", {Collective::allToAll, ranks, 0, 0, {}});
    EXPECT_DOUBLE_EQ(pairs.sent, share(ranks));
    EXPECT_LE(pairs.rounds, ranks);
    const Certificate digits = proved("bruck", {Collective::allToAll, ranks, 0, 0, {}});
    EXPECT_EQ(digits.rounds, logUp(ranks));
    EXPECT_LE(digits.sent, 0.5 * logUp(ranks));
  }
}

}  // namespace
}  // namespace tutti
