#include "topology/cluster_plan.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>

#include "topology/double_tree.h"
#include "topology/machines.h"
#include "topology/topology_files.h"

namespace tutti {
namespace {

using test::describe;
using test::graphOf;
using test::graphOfFile;
using test::netText;
using test::nicText;
using testing::HasSubstr;

std::string summaryOf(const Graph& graph, std::vector<int32_t> ranks, SearchRequest request = {},
                      PathOptions options = {}) {
  request.members = defaultMembers(graph);
  request.members.resize(ranks.size());
  request.acrossHosts = true;
  const auto plan = searchChannels(graph, Paths(graph, options), request);
  EXPECT_TRUE(plan.isOk()) << plan.status().message();
  const auto summary = summarise(graph, request, *plan, ranks);
  EXPECT_TRUE(summary.isOk()) << summary.status().message();
  return encodeHostPlan(*summary);
}
std::vector<int32_t> ranksFrom(int32_t first, int32_t count) {
  std::vector<int32_t> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), first);
  return ranks;
}

/// Every channel: one ring through all ranks, one tree over all ranks; both ends of each connection agree.
void expectWhole(const ClusterPlan& plan) {
  for (int32_t c = 0; c < plan.channels(); ++c) {
    std::vector<int32_t> ring = plan.ring(c);
    ASSERT_EQ(ring.size(), static_cast<size_t>(plan.ranks()));
    for (size_t i = 0; i < ring.size(); ++i) {
      const int32_t next = ring[(i + 1) % ring.size()];
      EXPECT_EQ(plan.neighbours(c, ring[i]).ringNext, next);
      EXPECT_EQ(plan.neighbours(c, next).ringPrevious, ring[i]);
    }
    std::ranges::sort(ring);
    EXPECT_EQ(ring, ranksFrom(0, plan.ranks())) << "every rank once";
    int roots = 0;
    for (int32_t rank = 0; rank < plan.ranks(); ++rank) {
      const ChannelNeighbours own = plan.neighbours(c, rank);
      for (const int32_t child : own.treeChildren)
        EXPECT_TRUE(child < 0 || plan.neighbours(c, child).treeParent == rank) << "channel " << c;
      int32_t at = rank, steps = 0;
      for (int32_t up = own.treeParent; up >= 0 && steps <= plan.ranks(); ++steps) {
        at = up;
        up = plan.neighbours(c, at).treeParent;
      }
      EXPECT_LE(steps, plan.ranks()) << "no cycle";
      roots += own.treeParent < 0;
      if (own.treeParent >= 0) {
        const auto children = plan.neighbours(c, own.treeParent).treeChildren;
        EXPECT_EQ(std::ranges::count(children, rank), 1);
      }
    }
    EXPECT_EQ(roots, 1) << "channel " << c;
  }
}

TEST(DoubleTree, EveryCountIsTwoTreesWithEachNodeInsideOfOne) {
  for (int32_t count = 1; count <= 130; ++count) {
    std::vector<int> inner(static_cast<size_t>(count));
    for (int32_t which = 0; which < 2; ++which) {
      int roots = 0;
      for (int32_t n = 0; n < count; ++n) {
        const TreeNode node = doubleTreeNode(count, n, which);
        int32_t depth = 1;
        for (int32_t up = node.parent; up >= 0 && depth < 99; up = doubleTreeNode(count, up, which).parent)
          ++depth;
        EXPECT_LE(depth, std::bit_width(static_cast<uint32_t>(count))) << count << " " << n;
        roots += node.parent < 0;
        for (const int32_t child : node.children)
          EXPECT_TRUE(child < 0 || doubleTreeNode(count, child, which).parent == n) << count;
        if (node.parent >= 0) {
          const auto siblings = doubleTreeNode(count, node.parent, which).children;
          EXPECT_EQ(std::ranges::count(siblings, n), 1) << count << " " << n;
        }
        inner[static_cast<size_t>(n)] += node.children[0] >= 0 || node.children[1] >= 0;
      }
      EXPECT_EQ(roots, 1) << count;
    }
    EXPECT_LE(std::ranges::max(inner), 1) << count;
  }
}

TEST(ClusterPlan, AlikeHostsStayOnTheirRails) {
  const Graph h100 = graphOfFile("oci-h100-full.xml");
  for (const int32_t hosts : {1, 2, 3, 5, 8}) {
    std::vector<std::string> summaries;
    for (int32_t h = 0; h < hosts; ++h) summaries.push_back(summaryOf(h100, ranksFrom(8 * h, 8)));
    const auto plan = ClusterPlan::connect(summaries);
    ASSERT_TRUE(plan.isOk()) << plan.status().message();
    EXPECT_EQ(plan->channels(), 16);
    EXPECT_FLOAT_EQ(plan->ringRate(), 22.5f);
    EXPECT_FLOAT_EQ(plan->treeRate(), 22.5f);
    EXPECT_EQ(plan->railCrossings(), 0);
    expectWhole(*plan);
    if (hosts == 1) continue;
    const ChannelNeighbours first = plan->neighbours(1, 1), last = plan->neighbours(1, 0);
    EXPECT_EQ(first.ringPrevious, 8 * (hosts - 1)) << "ring 1 ends at GPU0 of the host before";
    EXPECT_EQ(first.railIn, 2);
    EXPECT_EQ(last.ringNext, 8 + 1);
    EXPECT_EQ(last.railOut, 2);
    EXPECT_EQ(last.railIn, kNoRail) << "NVLink";
  }
}

TEST(ClusterPlan, NoHostIsInsideOfBothTrees) {
  const Graph h100 = graphOfFile("oci-h100-full.xml");
  std::vector<std::string> summaries;
  for (int32_t h = 0; h < 6; ++h) summaries.push_back(summaryOf(h100, ranksFrom(8 * h, 8)));
  const auto plan = ClusterPlan::connect(summaries);
  ASSERT_TRUE(plan.isOk());
  std::vector<int> inner(6);
  for (int32_t channel = 0; channel < 2; ++channel)
    for (int32_t rank = 0; rank < plan->ranks(); ++rank) {
      const auto& children = plan->neighbours(channel, rank).treeChildren;
      const auto isElsewhere = [&](int32_t child) { return child >= 0 && child / 8 != rank / 8; };
      inner[static_cast<size_t>(rank / 8)] += std::ranges::any_of(children, isElsewhere);
    }
  EXPECT_LE(std::ranges::max(inner), 1);
}

TEST(ClusterPlan, CrossedRailsAreUncrossedByEverySecondHost) {
  const Graph h100 = graphOfFile("oci-h100-full.xml");
  std::vector<std::string> summaries;
  for (int32_t h = 0; h < 4; ++h)
    summaries.push_back(summaryOf(h100, ranksFrom(8 * h, 8), {.crossNic = CrossNic::always}, {.pxn = false}));
  const auto even = ClusterPlan::connect(summaries);
  ASSERT_TRUE(even.isOk());
  EXPECT_EQ(even->railCrossings(), 0);
  expectWhole(*even);
  summaries.pop_back();
  const auto odd = ClusterPlan::connect(summaries);
  ASSERT_TRUE(odd.isOk());
  EXPECT_EQ(odd->railCrossings(), odd->channels()) << "from the last host to the first one";
  expectWhole(*odd);
}

TEST(ClusterPlan, AnEightAndAFourGpuHost) {
  const Graph h100 = graphOfFile("oci-h100-full.xml");
  const auto plan =
      ClusterPlan::connect({summaryOf(h100, ranksFrom(0, 8)), summaryOf(h100, ranksFrom(8, 4))});
  ASSERT_TRUE(plan.isOk()) << plan.status().message();
  EXPECT_EQ(plan->ranks(), 12);
  expectWhole(*plan);
  // Four GPUs drive all 16 ports: PXN is not needed where a job does not have the peers; NVLink allows 360
  // GB/s.
  EXPECT_GT(plan->ringRate() * static_cast<float>(plan->channels()), 100);
}

TEST(ClusterPlan, HostsOfEightAndTwoPortsHaveTheSlowerOnesRate) {
  std::string nics0, nics1;
  for (int n = 0; n < 8; ++n) (n < 4 ? nics0 : nics1) += nicText(n, netText(n, 100));
  std::vector<test::Nvlinks> links;
  for (int a = 0; a < 4; ++a)
    for (int b = a + 1; b < 4; ++b) links.push_back({a, b, 4});
  const Graph eight = graphOf(describe(test::nvlinkMachine(4, 80, links, 2, nics0, nics1)));
  const Graph two = graphOf(describe(
      test::nvlinkMachine(4, 80, links, 2, nicText(0, netText(0, 100)), nicText(1, netText(1, 100)))));
  const std::string many = summaryOf(eight, ranksFrom(0, 4)), few = summaryOf(two, ranksFrom(4, 4));
  const auto manyAlone = ClusterPlan::connect({many}), mixed = ClusterPlan::connect({many, few});
  ASSERT_TRUE(mixed.isOk() && manyAlone.isOk());
  EXPECT_GT(manyAlone->channels(), 2);
  EXPECT_EQ(mixed->channels(), 2) << "the common minimum: more would share two ports";
  EXPECT_NEAR(mixed->ringRate() * 2, 24, 0.1)
      << "12 GB/s of each port's 12.5: what the other host's channels have";
  expectWhole(*mixed);
  // One fast port against many slow ones: the fast port's channel is shared by as many as the others need.
  const Graph fast = graphOf(describe(test::nvlinkMachine(4, 80, links, 2, nicText(0, netText(0, 400)))));
  const auto shared = ClusterPlan::connect({many, summaryOf(fast, ranksFrom(4, 4), {.maxChannels = 1})});
  ASSERT_TRUE(shared.isOk());
  EXPECT_GT(shared->channels(), 1);
  EXPECT_GT(shared->ringRate() * static_cast<float>(shared->channels()), 2 * 11.9)
      << "one of the 100 Gbit/s ports would be half";
  expectWhole(*shared);
}

TEST(ClusterPlan, RanksMayBeAnywhere) {
  // Round robin over three hosts, one of them with a rank fewer.
  const Graph pcie = graphOf(describe(test::pcieMachine(nicText(0, netText(0, 100)))));
  const std::vector<std::string> summaries = {summaryOf(pcie, {2, 5}), summaryOf(pcie, {0, 3, 6, 7}),
                                              summaryOf(pcie, {1, 4})};
  const auto plan = ClusterPlan::connect(summaries);
  ASSERT_TRUE(plan.isOk()) << plan.status().message();
  expectWhole(*plan);
  const auto shuffled = ClusterPlan::connect({summaries[2], summaries[0], summaries[1]});
  ASSERT_TRUE(shuffled.isOk());
  for (int32_t c = 0; c < plan->channels(); ++c)
    for (int32_t rank = 0; rank < 8; ++rank)
      EXPECT_EQ(plan->neighbours(c, rank), shuffled->neighbours(c, rank));
}

TEST(ClusterPlan, BalancedTreesServeChildrenFromTheSecondRank) {
  // Two GPUs at one switch with the port.
  const Graph graph = graphOf(
      describe(R"(<system><cpu><pci busid="1:0.0" class="0x060400" link_speed="32 GT/s" link_width="16">
    <pci busid="2:0.0" link_speed="16 GT/s" link_width="16"><gpu dev="0" gdr="1"/></pci>
    <pci busid="3:0.0" link_speed="16 GT/s" link_width="16"><gpu dev="1" gdr="1"/></pci>
    <pci busid="4:0.0" class="0x020000" link_speed="32 GT/s" link_width="16"><nic><net dev="0" speed="200000" gdr="1"/></nic></pci></pci></cpu></system>)"));
  std::vector<std::string> summaries;
  for (int32_t h = 0; h < 7; ++h) summaries.push_back(summaryOf(graph, ranksFrom(2 * h, 2)));
  EXPECT_EQ(decodeHostPlan(summaries[0])->trees.pattern, ChannelPattern::balancedTree);
  const auto plan = ClusterPlan::connect(summaries);
  ASSERT_TRUE(plan.isOk());
  expectWhole(*plan);
  for (int32_t rank = 0; rank < plan->ranks(); rank += 2) {
    const auto& head = plan->neighbours(0, rank);
    EXPECT_EQ(head.treeChildren, (std::array<int32_t, 3>{rank + 1, -1, -1}))
        << "hosts below hang at the second rank";
  }
}

TEST(ClusterPlan, TenThousandRanksTakeFewBytesEach) {
  const Graph h100 = graphOfFile("oci-h100-full.xml");
  const auto host = decodeHostPlan(summaryOf(h100, ranksFrom(0, 8)));
  ASSERT_TRUE(host.isOk());
  std::vector<std::string> summaries;
  size_t exchanged = 0;
  for (int32_t h = 0; h < 1250; ++h) {
    HostPlan plan = *host;
    plan.ranks = ranksFrom(8 * h, 8);
    summaries.push_back(encodeHostPlan(plan));
    exchanged += summaries.back().size();
  }
  const auto plan = ClusterPlan::connect(summaries);
  ASSERT_TRUE(plan.isOk()) << plan.status().message();
  EXPECT_LE(exchanged, 10'000 * 24u);
  EXPECT_LE(plan->bytes(), 10'000 * 8u);
  for (const int32_t rank : {0, 17, 4999, 9999})
    for (const int32_t c : {0, 7, 15}) {
      const ChannelNeighbours own = plan->neighbours(c, rank);
      EXPECT_EQ(plan->neighbours(c, own.ringNext).ringPrevious, rank);
      EXPECT_TRUE(own.treeParent < 0 ||
                  std::ranges::count(plan->neighbours(c, own.treeParent).treeChildren, rank) == 1);
    }
}

TEST(ClusterPlan, RefusesHostsThatDoNotFit) {
  const Graph graph = graphOf(describe(test::pcieMachine(nicText(0, netText(0, 100)))));
  const auto refused = [](const std::vector<std::string>& summaries, const char* message) {
    const auto plan = ClusterPlan::connect(summaries);
    ASSERT_FALSE(plan.isOk()) << message;
    EXPECT_THAT(plan.status().message(), HasSubstr(message));
  };
  refused({}, "at least one host");
  refused({summaryOf(graph, {0, 1}), summaryOf(graph, {1, 2})}, "rank 1 is on two hosts");
  refused({summaryOf(graph, {0, 1}), summaryOf(graph, {3, 4})}, "rank 2 is on no host");
  refused({summaryOf(graph, {0, 1}), "x"}, "plan 1 of 2: a host's plan has version 120");
  EXPECT_FALSE(ClusterPlan::connect({summaryOf(graph, {0})}, 0).isOk());
}

}  // namespace
}  // namespace tutti
