#include "algorithms/selector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "algorithms/checker.h"

namespace tutti {
namespace {

using testing::HasSubstr;

SelectorInput host(Collective collective, int32_t ranks, size_t bytes, bool zeroCopy = false) {
  return {.collective = collective,
          .ranks = ranks,
          .bytes = bytes,
          .allMapped = true,
          .zeroCopyUsable = zeroCopy};
}
SelectorInput network(Collective collective, int32_t ranks, size_t bytes) {
  return {.collective = collective, .ranks = ranks, .bytes = bytes, .hosts = ranks, .maxChannels = 4};
}

/// `hosts` hosts of two ranks.
SelectorInput pairs(int32_t hosts, size_t bytes) {
  return {.collective = Collective::allReduce,
          .ranks = 2 * hosts,
          .bytes = bytes,
          .hosts = hosts,
          .rails = 2,
          .maxChannels = 4};
}

std::string chosen(const SelectorInput& input, const std::string& ncclAlgo = "") {
  const auto choice = choose(input, ncclAlgo);
  return choice.isOk() ? std::string(choice->algorithm->name) : choice.status().message();
}

TEST(Selector, PicksTheFormThatSuitsTheSize) {
  EXPECT_EQ(chosen(host(Collective::allReduce, 4, 8)), "oneshot");
  EXPECT_EQ(chosen(host(Collective::allReduce, 8, 64 << 20)), "twoshot");
  EXPECT_EQ(chosen(host(Collective::allReduce, 4, 64 << 20, true)), "direct");
  EXPECT_EQ(chosen(host(Collective::allReduce, 4, 8, true)), "oneshot");  // not worth the negotiation
  EXPECT_EQ(chosen(network(Collective::allReduce, 8, 8)), "doubling");
  EXPECT_EQ(chosen(network(Collective::allReduce, 8, 256 << 20)), "ring");
  EXPECT_EQ(chosen(network(Collective::broadcast, 16, 1024)), "tree");
  EXPECT_EQ(chosen(network(Collective::reduceScatter, 3, 1024)), "ring");
}

TEST(Selector, SendsLargeVectorsBetweenHostsOnceForAllTheirRanks) {
  EXPECT_EQ(chosen(pairs(3, 64 << 20)), "hierarchical");
  EXPECT_EQ(chosen(pairs(3, 8)), "doubling");
  EXPECT_EQ(chosen(pairs(3, 64 << 20), "ring"), "ring");
  EXPECT_THAT(chosen(network(Collective::allReduce, 4, 8), "hierarchical"),
              HasSubstr("needs several hosts, and one of them with several ranks"));
  EXPECT_THAT(chosen(host(Collective::allReduce, 4, 8), "hierarchical"), HasSubstr("there are 1 hosts"));
}

TEST(Selector, CountsWithTheLinksThatThereAre) {
  SelectorInput fast = network(Collective::allReduce, 8, 64 << 20);
  const double usual = choose(fast, "ring")->predictedSeconds;
  fast.linkBandwidth = 12.5e9;
  EXPECT_LT(choose(fast, "ring")->predictedSeconds, usual / 5);
}

TEST(Selector, CountsTheRailsOfAChannelAsConnections) {
  EXPECT_EQ(choose(pairs(3, 64 << 20), "")->channels, 2);
  EXPECT_EQ(choose(pairs(3, 64 << 20), "ring")->channels, 4);
  EXPECT_EQ(choose(pairs(3, 1 << 20), "")->channels, 1);
  SelectorInput wide = pairs(3, 64 << 20);
  wide.rails = 8;
  EXPECT_EQ(choose(wide, "")->channels, 1);
}

TEST(Selector, AnswersForEveryCallThatExists) {
  for (const Collective collective :
       {Collective::allReduce, Collective::allGather, Collective::reduceScatter, Collective::broadcast,
        Collective::reduce, Collective::allToAll, Collective::gather, Collective::scatter})
    for (int32_t ranks = 1; ranks <= 9; ++ranks)
      for (size_t bytes = 0; bytes <= (size_t{1} << 30); bytes = bytes * 8 + 8)
        for (const SelectorInput& input :
             {host(collective, ranks, bytes), host(collective, ranks, bytes, true),
              network(collective, ranks, bytes)}) {
          const auto choice = choose(input, "");
          ASSERT_TRUE(choice.isOk()) << choice.status().message();
          EXPECT_TRUE(choice->algorithm->implements(collective, ranks));
          EXPECT_TRUE(std::isfinite(choice->predictedSeconds));
          EXPECT_GE(choice->channels, 1);
          EXPECT_LE(choice->channels, 4);
        }
}

TEST(Selector, HonoursNcclAlgo) {
  const SelectorInput input = host(Collective::allReduce, 4, 8);
  EXPECT_EQ(chosen(input, "Ring"), "ring");
  EXPECT_EQ(chosen(input, "tree"), "tree");
  EXPECT_EQ(chosen(input, "TWOSHOT, ring"), "twoshot");
  EXPECT_EQ(chosen(input, "^oneshot,twoshot"), "doubling");
  EXPECT_EQ(chosen(input, "ring;allreduce:tree"), "tree");
  EXPECT_EQ(chosen(input, "broadcast:ring"), "oneshot");
  EXPECT_EQ(chosen(input, "nvls,ring"), "ring");
  EXPECT_EQ(chosen(host(Collective::broadcast, 4, 8), "tree;broadcast:ring;reduce:tree"), "ring");
}

TEST(Selector, GeneralListsAreNotMeantForWhatNcclMakesOfMessages) {
  for (const Collective collective : {Collective::allToAll, Collective::gather, Collective::scatter}) {
    EXPECT_EQ(chosen(network(collective, 4, 8), "Ring"), "spread");
    EXPECT_EQ(chosen(host(collective, 4, 8), "tree"), "oneshot");
  }
  EXPECT_EQ(chosen(host(Collective::allToAll, 4, 8), "ring;alltoall:spread"), "spread");
  EXPECT_EQ(chosen(host(Collective::gather, 4, 64 << 20, true)), "direct");
  EXPECT_THAT(chosen(host(Collective::scatter, 4, 8), "scatter:ring"),
              HasSubstr("ring does not implement Scatter"));
  EXPECT_THAT(chosen(host(Collective::allToAll, 4, 8), "alltoall:direct"),
              HasSubstr("no rank may call in place"));
}

TEST(Selector, RefusesWhatCannotBe) {
  EXPECT_THAT(
      chosen(host(Collective::allGather, 4, 8), "tree"),
      HasSubstr("NCCL_ALGO=tree leaves no algorithm for AllGather on 4 ranks; tree does not implement"));
  EXPECT_THAT(chosen(network(Collective::allReduce, 4, 8), "oneshot"),
              HasSubstr("needs all ranks on one host"));
  EXPECT_THAT(chosen(host(Collective::allReduce, 4, 8), "direct"),
              HasSubstr("buffers that all ranks can map"));
  EXPECT_THAT(chosen(host(Collective::allReduce, 4, 8), "nvls"),
              HasSubstr("none of those named exists here"));
  EXPECT_THAT(chosen(host(Collective::allReduce, 4, 8), "rign"),
              HasSubstr("\"rign\" is no algorithm; known are ring"));
  EXPECT_THAT(chosen(host(Collective::allReduce, 4, 8), "ring,"), HasSubstr("name is missing"));
  EXPECT_THAT(chosen(host(Collective::allReduce, 4, 8), "ring;tree"), HasSubstr("two lists"));
  EXPECT_THAT(chosen(host(Collective::allReduce, 4, 8), "allsum:ring"),
              HasSubstr("\"allsum\" is no function"));
  EXPECT_EQ(choose(host(Collective::allReduce, 4, 8), "rign").status().code(), ncclInvalidUsage);
}

// The closed forms count rounds and memory traffic as the checker does.
TEST(CostModel, AgreesWithTheCertificates) {
  CostParameters onlyAlpha;
  onlyAlpha.alpha = 1;
  CostParameters onlyTraffic;
  onlyTraffic.hostByte = 1;
  for (const int32_t ranks : {2, 4, 8}) {
    for (const char* algorithm : {"ring", "doubling"}) {
      const auto set = generateAll(algorithm, {Collective::allReduce, ranks, 0, 0, {}});
      EXPECT_DOUBLE_EQ(predictSeconds({algorithm, Collective::allReduce, ranks, 0}, onlyAlpha),
                       prove(*set)->rounds);
    }
    for (const char* algorithm : {"oneshot", "twoshot", "direct", "spread"})
      for (const Collective collective : findAlgorithm(algorithm)->collectives) {
        const auto set = generateAll(algorithm, {collective, ranks, 0, 0, {}});
        const ScheduleSet* once[] = {&*set};
        const double negotiation = algorithm == std::string("direct") ? kNegotiationSeconds : 0;
        EXPECT_DOUBLE_EQ(predictSeconds({algorithm, collective, ranks, 1}, onlyTraffic) - negotiation,
                         check(once)->memoryTraffic)
            << algorithm << " " << name(collective) << " " << ranks;
      }
  }
}

}  // namespace
}  // namespace tutti
