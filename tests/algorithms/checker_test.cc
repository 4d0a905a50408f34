// Every shipped algorithm is proved, for all ranks, roots and orders of calls.
#include "algorithms/checker.h"

#include <gtest/gtest.h>

#include <string_view>
#include <utility>
#include <vector>

#include "algorithms/registry.h"
#include "algorithms/send_recv.h"

namespace tutti {
namespace {

constexpr Collective kCollectives[] = {
    Collective::allReduce, Collective::allGather, Collective::reduceScatter, Collective::broadcast,
    Collective::reduce,    Collective::allToAll,  Collective::gather,        Collective::scatter};

bool rooted(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce ||
         collective == Collective::gather || collective == Collective::scatter;
}

ScheduleSet schedules(std::string_view algorithm, Collective collective, int32_t ranks, int32_t root = 0,
                      Layout layout = {}) {
  ScheduleRequest request{collective, ranks, 0, root, std::move(layout)};
  auto all = generateAll(algorithm, request);
  EXPECT_TRUE(all.isOk()) << all.status().message();
  return all.isOk() ? std::move(all).value() : ScheduleSet{};
}

/// Calls body(algorithm, collective, ranks, root) for everything that exists.
template <typename Body>
void forAll(int32_t maxRanks, Body body) {
  for (const Algorithm& algorithm : algorithms())
    for (const Collective collective : kCollectives)
      for (int32_t ranks = 1; ranks <= maxRanks; ++ranks) {
        if (!algorithm.inter.empty()) continue;  // pairs for several hosts: two_level_test.cc
        if (!algorithm.implements(collective, ranks)) continue;
        for (int32_t root = 0; root < (rooted(collective) ? ranks : 1); ++root)
          body(algorithm, collective, ranks, root);
      }
}

TEST(Checker, ProvesEveryAlgorithmForUpTo16RanksAndAllRoots) {
  int proofs = 0;
  forAll(16, [&](const Algorithm& algorithm, Collective collective, int32_t ranks, int32_t root) {
    const ScheduleSet set = schedules(algorithm.name, collective, ranks, root);
    const auto certificate = prove(set);
    ASSERT_TRUE(certificate.isOk()) << certificate.status().message() << "\n" << toText(set[0]);
    ++proofs;
  });
  EXPECT_GT(proofs, 800);
}

TEST(Checker, ProvesAnyNumberOfSlicesAndShallowFifos) {
  forAll(6, [&](const Algorithm& algorithm, Collective collective, int32_t ranks, int32_t root) {
    const ScheduleSet set = schedules(algorithm.name, collective, ranks, root);
    for (const int32_t slices : {1, 2, 10}) {
      const auto certificate = prove(set, {.fifoSlots = slices == 1 ? 2 : 8, .slices = slices});
      ASSERT_TRUE(certificate.isOk()) << certificate.status().message();
    }
  });
}

TEST(Checker, ProvesRingsAndTreesInAnyOrderOfTheRanks) {
  for (const std::vector<int32_t>& order :
       {std::vector<int32_t>{2, 0, 3, 1, 4}, {4, 3, 2, 1, 0}, {1, 2, 3, 4, 0}, {0, 5, 1, 4, 2, 3}, {1, 0}})
    for (const char* algorithm : {"ring", "tree", "doubling"})
      for (const Collective collective : kCollectives) {
        const auto ranks = static_cast<int32_t>(order.size());
        if (!findAlgorithm(algorithm)->implements(collective, ranks)) continue;
        for (int32_t root = 0; root < (rooted(collective) ? ranks : 1); ++root) {
          const auto certificate = prove(schedules(algorithm, collective, ranks, root, Layout(order)));
          ASSERT_TRUE(certificate.isOk()) << certificate.status().message();
        }
      }
}

// Every pair of algorithms, in the order A, B, A, so that A meets what is left of B and of itself.
TEST(Checker, ProvesConsecutiveCallsOfDifferentSchedules) {
  const int32_t ranks = 4;
  std::vector<ScheduleSet> sets;
  for (const Algorithm& algorithm : algorithms())
    for (const Collective collective : kCollectives)
      if (algorithm.inter.empty() && algorithm.implements(collective, ranks))
        sets.push_back(schedules(algorithm.name, collective, ranks, 2));
  sets.push_back({});
  for (int32_t r = 0; r < ranks; ++r) sets.back().push_back(sendRecv(ranks, r, 3, 1));
  for (const ScheduleSet& a : sets)
    for (const ScheduleSet& b : sets)
      for (const int32_t slices : {1, 3}) {
        const ScheduleSet* calls[] = {&a, &b, &a};
        const auto result = check(calls, {.slices = slices});
        ASSERT_TRUE(result.isOk()) << result.status().message();
      }
}

TEST(Checker, ProvesPointToPointMessages) {
  for (int32_t sender = 0; sender < 3; ++sender)
    for (int32_t receiver = 0; receiver < 3; ++receiver) {
      for (const int port : {kPointToPointPort, kVariableCountPort}) {
        ScheduleSet set;
        for (int32_t r = 0; r < 3; ++r) set.push_back(sendRecv(3, r, sender, receiver, port));
        const auto certificate = prove(set);
        ASSERT_TRUE(certificate.isOk()) << certificate.status().message();
        EXPECT_EQ(certificate->rounds, sender == receiver ? 0 : 1);
      }
    }
}

Certificate certificateOf(std::string_view algorithm, Collective collective, int32_t ranks,
                          int32_t root = 0) {
  auto result = prove(schedules(algorithm, collective, ranks, root));
  EXPECT_TRUE(result.isOk()) << result.status().message();
  return result.isOk() ? std::move(result).value() : Certificate{};
}

TEST(Certificate, StatesTheRoundsAndVolumeOfTheRing) {
  for (const int32_t ranks : {2, 3, 7, 16}) {
    const Certificate all = certificateOf("ring", Collective::allReduce, ranks);
    EXPECT_EQ(all.rounds, 2 * (ranks - 1));
    EXPECT_DOUBLE_EQ(all.sent, all.sentBound);
    EXPECT_DOUBLE_EQ(all.sent, 2.0 * (ranks - 1) / ranks);
    EXPECT_EQ(all.reductionDepth, ranks - 1);
    const Certificate scatter = certificateOf("ring", Collective::reduceScatter, ranks);
    EXPECT_EQ(scatter.rounds, ranks - 1);
    EXPECT_DOUBLE_EQ(scatter.sent, scatter.sentBound);
    EXPECT_EQ(certificateOf("ring", Collective::broadcast, ranks).rounds, ranks - 1);
  }
  EXPECT_EQ(certificateOf("ring", Collective::reduce, 4, 1).reductionOrder, "1 + (0 + (3 + 2))");
}

TEST(Certificate, StatesLogarithmicRoundsOfTreesAndDoubling) {
  EXPECT_EQ(certificateOf("doubling", Collective::allReduce, 8).rounds, 3);
  EXPECT_EQ(certificateOf("doubling", Collective::allReduce, 8).reductionOrder,
            "((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7))");
  EXPECT_EQ(certificateOf("doubling", Collective::allReduce, 6).rounds, 3);  // 4 and 5 do not wait for a fold
  EXPECT_EQ(certificateOf("doubling", Collective::allReduce, 7).rounds, 4);
  EXPECT_EQ(certificateOf("doubling", Collective::allGather, 8).rounds, 3);
  EXPECT_DOUBLE_EQ(certificateOf("doubling", Collective::allGather, 8).sent, 7.0 / 8);
  for (int32_t ranks = 2; ranks <= 16; ++ranks) {
    int32_t height = 1;
    while ((1 << height) < ranks) ++height;
    const Certificate tree = certificateOf("tree", Collective::allReduce, ranks);
    EXPECT_LE(tree.rounds, 2 * (height + 1));
    EXPECT_LE(tree.sent, 2.0);
    EXPECT_LE(certificateOf("tree", Collective::broadcast, ranks).sent, 1.0);
  }
}

// peers.md 2.3: 2 P n is the least traffic of an AllReduce inside a host.
TEST(Certificate, ShowsThatZeroCopyMovesTheLeastMemory) {
  for (const int32_t ranks : {2, 4, 8}) {
    const double p = ranks;
    EXPECT_DOUBLE_EQ(certificateOf("direct", Collective::allReduce, ranks).memoryTraffic, 2 * p);
    EXPECT_DOUBLE_EQ(certificateOf("direct", Collective::reduceScatter, ranks).memoryTraffic, p + 1);
    EXPECT_DOUBLE_EQ(certificateOf("twoshot", Collective::allReduce, ranks).memoryTraffic, 5 * p + 1);
    EXPECT_DOUBLE_EQ(certificateOf("oneshot", Collective::allReduce, ranks).memoryTraffic, p * (p + 3));
    EXPECT_EQ(certificateOf("oneshot", Collective::allReduce, ranks).rounds, 1);
    EXPECT_EQ(certificateOf("direct", Collective::allReduce, ranks).rounds, 2);
  }
}

TEST(Checker, RefusesNonsense) {
  EXPECT_FALSE(check({}).isOk());
  const ScheduleSet two = schedules("ring", Collective::allReduce, 2);
  const ScheduleSet three = schedules("ring", Collective::allReduce, 3);
  const ScheduleSet* calls[] = {&two, &three};
  EXPECT_FALSE(check(calls).isOk());
  EXPECT_FALSE(prove(two, {.fifoSlots = 0}).isOk());
  ScheduleSet short2(two.begin(), two.begin() + 1);
  EXPECT_FALSE(prove(short2).isOk());
}

}  // namespace
}  // namespace tutti
