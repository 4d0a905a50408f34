// Pairs of algorithms, inside hosts and between them, for hosts of any sizes.
#include "algorithms/two_level.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "algorithms/checker.h"
#include "algorithms/registry.h"

namespace tutti {
namespace {

using RanksOfHosts = std::vector<std::vector<int32_t>>;

/// Bit h of `mapped`: host h works in its users' buffers.
ScheduleSet pairSchedules(const Algorithm& pair, Collective collective, const RanksOfHosts& hosts,
                          int32_t root, unsigned mapped) {
  ScheduleRequest request;
  request.collective = collective;
  request.root = root;
  request.hosts = hosts;
  request.ranks = 0;
  for (const auto& ranks : hosts) request.ranks += static_cast<int32_t>(ranks.size());
  ScheduleSet set(static_cast<size_t>(request.ranks));
  for (size_t h = 0; h < hosts.size(); ++h)
    for (const int32_t rank : hosts[h]) {
      request.rank = rank;
      request.mapped = (mapped >> h & 1) != 0;
      auto made = generate(pair.name, request);
      EXPECT_TRUE(made.isOk()) << made.status().message();
      if (made.isOk()) set[static_cast<size_t>(rank)] = std::move(made).value();
    }
  return set;
}

template <typename Body>
void forAllPairs(Body body) {
  for (const Algorithm& pair : algorithms())
    if (!pair.inter.empty())
      for (const Collective collective : pair.collectives) body(pair, collective);
}

TEST(TwoLevel, EveryPairIsProvedForHostsOfAnySizesAndAnyMixOfWays) {
  int proofs = 0;
  for (const std::vector<int32_t>& sizes :
       {std::vector<int32_t>{1, 2}, {2, 2}, {3, 5}, {7, 1}, {3, 1, 2}, {4}, {1, 1, 1}, {2, 3, 1, 2}})
    forAllPairs([&](const Algorithm& pair, Collective collective) {
      const RanksOfHosts hosts = consecutiveHosts(sizes);
      const bool ways = pair.intra == "direct";
      const auto all = 1u << hosts.size();
      for (unsigned mapped = 0; mapped < (ways ? all : 1u); ++mapped) {
        const auto ranks = static_cast<int32_t>(hosts.back().back() + 1);
        for (const int32_t root : {0, ranks - 1}) {
          if (collective == Collective::allReduce && root != 0) continue;
          const auto certificate =
              prove(pairSchedules(pair, collective, hosts, root, mapped), {.fifoSlots = 2});
          ASSERT_TRUE(certificate.isOk()) << certificate.status().message();
          ++proofs;
        }
      }
    });
  EXPECT_GT(proofs, 800);
}

TEST(TwoLevel, RanksMayStandOnHostsInAnyOrder) {
  forAllPairs([&](const Algorithm& pair, Collective collective) {
    const RanksOfHosts hosts = {{4, 1}, {0, 5, 2}, {3}};
    for (const unsigned mapped : {0u, 7u}) {
      const auto certificate = prove(pairSchedules(pair, collective, hosts, 5, mapped));
      ASSERT_TRUE(certificate.isOk()) << certificate.status().message();
    }
  });
}

// Four hosts of four ranks: what a host's links carry in all is what the algorithm between hosts needs.
TEST(TwoLevel, RailsShareTheVolumeBetweenHosts) {
  ScheduleRequest request;
  request.ranks = 16;
  request.hosts = consecutiveHosts({4, 4, 4, 4});
  request.inter = request.intra = "ring";
  EXPECT_EQ(twoLevelRails(request), 4);
  const ScheduleSet set = pairSchedules(*findAlgorithm("hierarchical/direct/circulant"),
                                        Collective::allReduce, request.hosts, 0, 15);
  const auto certificate = prove(set);
  ASSERT_TRUE(certificate.isOk()) << certificate.status().message();
  EXPECT_DOUBLE_EQ(certificate->sent, 2 * 0.75 / 4);
}

}  // namespace
}  // namespace tutti
