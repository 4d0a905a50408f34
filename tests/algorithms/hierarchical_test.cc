// Rings over hosts, for hosts of any sizes, each with its own way of sharing the work.
#include "algorithms/hierarchical.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "algorithms/checker.h"
#include "algorithms/registry.h"

namespace tutti {
namespace {

using Hosts = std::vector<std::vector<int32_t>>;

int32_t ranksOf(const Hosts& hosts) {
  size_t ranks = 0;
  for (const auto& host : hosts) ranks += host.size();
  return static_cast<int32_t>(ranks);
}

/// Bit h of `mapped`: host h works in its users' buffers.
ScheduleSet schedules(const Hosts& hosts, unsigned mapped) {
  ScheduleRequest request;
  request.ranks = ranksOf(hosts);
  request.hosts = hosts;
  ScheduleSet set(static_cast<size_t>(request.ranks));
  for (size_t h = 0; h < hosts.size(); ++h)
    for (const int32_t rank : hosts[h]) {
      request.rank = rank;
      request.mapped = (mapped >> h & 1) != 0;
      auto made = generate("hierarchical", request);
      EXPECT_TRUE(made.isOk()) << made.status().message();
      if (made.isOk()) set[static_cast<size_t>(rank)] = std::move(made).value();
    }
  return set;
}

const unsigned kAllMapped = ~0u;

TEST(Hierarchical, IsProvedForHostsOfAnySizesAndAnyMixOfWays) {
  int proofs = 0;
  for (const std::vector<int32_t>& sizes : {std::vector<int32_t>{1, 1},
                                            {2, 2},
                                            {2, 2, 2},
                                            {3, 1, 2},
                                            {1, 4},
                                            {4, 4},
                                            {1, 1, 1, 3},
                                            {2, 3, 1, 2},
                                            {4},
                                            {8, 1},
                                            {9, 1, 1},
                                            {2, 2, 2, 2, 2, 2, 2, 2}}) {
    const Hosts hosts = consecutiveHosts(sizes);
    for (unsigned mapped = 0; mapped < (1u << hosts.size()); ++mapped)
      for (const int32_t fifoSlots : {2, 8}) {
        const auto certificate = prove(schedules(hosts, mapped), {.fifoSlots = fifoSlots});
        ASSERT_TRUE(certificate.isOk()) << certificate.status().message();
        ++proofs;
      }
  }
  EXPECT_GT(proofs, 500);
}

TEST(Hierarchical, DoesNotMindWhereRanksLieNorTheOrderOfHosts) {
  for (const Hosts& hosts :
       {Hosts{{0, 2, 4}, {1, 3, 5}}, Hosts{{3, 4}, {0, 5}, {1, 2}}, Hosts{{5}, {0, 1, 2, 3, 4}}})
    for (const unsigned mapped : {0u, 1u, kAllMapped}) {
      const auto certificate = prove(schedules(hosts, mapped), {.slices = 10});
      ASSERT_TRUE(certificate.isOk()) << certificate.status().message();
    }
}

TEST(Hierarchical, CallsOfAllKindsFollowEachOther) {
  const Hosts hosts = consecutiveHosts({2, 3, 1});
  const ScheduleSet mapped = schedules(hosts, kAllMapped);
  const ScheduleSet messages = schedules(hosts, 0);
  const ScheduleSet mixed = schedules(hosts, 2);
  auto ring = generateAll("ring", {Collective::allReduce, 6, 0, 0, {}});
  ASSERT_TRUE(ring.isOk());
  const ScheduleSet* calls[] = {&mapped, &*ring, &messages, &mapped, &mixed, &*ring, &mixed, &messages};
  const auto result = check(calls);
  EXPECT_TRUE(result.isOk()) << result.status().message();
}

TEST(Hierarchical, SendsTheLeastBetweenHostsAndSumsInOneOrder) {
  for (const int32_t hosts : {2, 3, 5})
    for (const int32_t local : {1, 2, 4}) {
      const Hosts all = consecutiveHosts(std::vector<int32_t>(static_cast<size_t>(hosts), local));
      const auto mapped = prove(schedules(all, kAllMapped));
      const auto messages = prove(schedules(all, 0));
      ASSERT_TRUE(mapped.isOk() && messages.isOk());
      // A host's ranks send no more than a ring of hosts must, and share it evenly.
      EXPECT_DOUBLE_EQ(mapped->sent, 2.0 * (hosts - 1) / hosts / local);
      EXPECT_EQ(mapped->rounds, 2 * (hosts - 1) + (local > 1 ? 2 : 0));
      EXPECT_EQ(mapped->reductionDepth, hosts * local - 1);
      EXPECT_EQ(mapped->reductionOrder, messages->reductionOrder);
      // Where buffers are mapped, h - 1 of h parts: message and l inputs -> message or l outputs.
      if (local > 1) {
        EXPECT_LT(mapped->memoryTraffic, messages->memoryTraffic);
      }
    }
}

TEST(Hierarchical, GivesEachRankOfALargeHostItsOwnRailAndASmallHostSeveral) {
  EXPECT_EQ(railCount(consecutiveHosts({2, 2, 2})), 2);
  EXPECT_EQ(railCount(consecutiveHosts({3, 1, 2})), 3);
  EXPECT_EQ(railCount(consecutiveHosts({8, 1})), kMostRailsPerRank);
  EXPECT_EQ(railCount(consecutiveHosts({1, 1, 1})), 1);
  const ScheduleSet set = schedules(consecutiveHosts({3, 1, 2}), 0);
  EXPECT_EQ(set[3].lanes.size(), 3u);  // alone on its host: works for all rails
  for (const Schedule& schedule : set) EXPECT_EQ(schedule.parts, 9);
}

TEST(Hierarchical, WithoutHostsIsARing) {
  auto made = generateAll("hierarchical", {Collective::allReduce, 5, 0, 0, Layout({2, 0, 4, 1, 3})});
  ASSERT_TRUE(made.isOk()) << made.status().message();
  const auto certificate = prove(*made);
  ASSERT_TRUE(certificate.isOk()) << certificate.status().message();
  EXPECT_EQ(certificate->rounds, 8);
  EXPECT_DOUBLE_EQ(certificate->sent, certificate->sentBound);
}

TEST(Hierarchical, HostsMustHoldEachRankOnce) {
  ScheduleRequest request;
  request.ranks = 3;
  for (const Hosts& wrong :
       {Hosts{{0, 1}}, Hosts{{0, 1}, {1, 2}}, Hosts{{0, 1}, {2, 3}}, Hosts{{0, 1, 2}, {}}}) {
    request.hosts = wrong;
    const auto made = generate("hierarchical", request);
    ASSERT_FALSE(made.isOk());
    EXPECT_THAT(made.status().message(), testing::HasSubstr("host"));
  }
}

TEST(Hierarchical, PeersOfAHostThatDoesNotDeclareItsBuffersMayNotUseThem) {
  ScheduleSet set = schedules(consecutiveHosts({2, 2}), kAllMapped);
  set[1].sharedUserBuffers = false;
  set[1].lanes.erase(set[1].lanes.begin());  // it works for no rail any more
  const auto certificate = prove(set);
  ASSERT_FALSE(certificate.isOk());
  EXPECT_THAT(certificate.status().message(), testing::HasSubstr("owner's schedule does not declare"));
}

}  // namespace
}  // namespace tutti
