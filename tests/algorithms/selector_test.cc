#include "algorithms/selector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "algorithms/checker.h"

namespace tutti {
namespace {

using testing::AnyOf;
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

/// With the text of a tuning file ("t.csv").
Result<Selector> selectorOf(const std::string& tuning, const std::string& algo = "",
                            const std::string& proto = "",
                            CandidateSet candidates = CandidateSet::shipped()) {
  SelectorSettings settings;
  settings.algo = algo;
  settings.proto = proto;
  TUTTI_ASSIGN(TuningFile file, TuningFile::parse(tuning, "t.csv"));
  settings.tuning = std::make_shared<const TuningFile>(std::move(file));
  return Selector::create(std::make_shared<const CandidateSet>(std::move(candidates)), settings);
}

/// "ring (prediction)", or the error.
std::string chosenBy(const Result<Selector>& selector, const SelectorInput& input) {
  if (!selector.isOk()) return selector.status().message();
  const auto choice = selector->choose(input);
  if (!choice.isOk()) return choice.status().message();
  const std::string skipped = selector->skippedText(*choice, input);
  return choice->algorithm->name + " (" + selector->reasonText(*choice) + ")" +
         (skipped.empty() ? "" : "; " + skipped);
}

TEST(Selector, PicksTheFormThatSuitsTheSize) {
  EXPECT_EQ(chosen(host(Collective::allReduce, 4, 8)), "oneshot");
  EXPECT_EQ(chosen(host(Collective::allReduce, 8, 64 << 20)), "twoshot");
  EXPECT_EQ(chosen(host(Collective::allReduce, 4, 64 << 20, true)), "direct");
  EXPECT_EQ(chosen(host(Collective::allReduce, 4, 8, true)), "oneshot");  // not worth the negotiation
  EXPECT_EQ(chosen(network(Collective::allReduce, 8, 8)), "doubling");
  // Large vectors: nothing is sent twice. Small ones: few rounds.
  EXPECT_THAT(chosen(network(Collective::allReduce, 8, 256 << 20)),
              AnyOf("ring", "rabenseifner", "circulant"));
  EXPECT_THAT(chosen(network(Collective::broadcast, 16, 1024)), AnyOf("tree", "binomial", "circulant"));
  EXPECT_EQ(chosen(network(Collective::reduceScatter, 3, 1024)), "ring");
}

TEST(Selector, SendsLargeVectorsBetweenHostsOnceForAllTheirRanks) {
  EXPECT_EQ(chosen(pairs(3, 64 << 20)), "hierarchical");
  EXPECT_THAT(chosen(pairs(3, 8)), testing::EndsWith("doubling"));
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

// More connections are for vectors that one of them would hold up; rails are connections.
TEST(Selector, TakesMoreChannelsWhereAByteOnOneConnectionCostsMore) {
  const auto channels = [](const SelectorInput& input, const char* text) {
    const auto choice = selectorOf(text)->choose(input);
    return choice.isOk() ? choice->channels : -1;
  };
  const char* slow = "@network.streamByte = 2e-9\n@network.beta = 1e-9\n@network.perChannel = 1e-6";
  EXPECT_EQ(channels(network(Collective::allReduce, 8, 64 << 20), slow), 2);
  EXPECT_EQ(channels(network(Collective::allReduce, 8, 8), slow), 1);
  const char* slower = "@network.streamByte = 8e-9\n@network.beta = 1e-9\n@network.perChannel = 1e-6";
  EXPECT_EQ(channels(network(Collective::allReduce, 8, 64 << 20), slower), 4);
  const char* fast = "@network.streamByte = 1e-9\n@network.beta = 1e-9\n@network.perChannel = 1e-6";
  EXPECT_EQ(channels(network(Collective::allReduce, 8, 64 << 20), fast), 1);
  SelectorInput wide = pairs(3, 64 << 20);
  wide.rails = 8;
  const auto choice = choose(wide, "hierarchical");
  ASSERT_TRUE(choice.isOk());
  EXPECT_EQ(choice->channels, 1);
  EXPECT_EQ(channelCounts(*choice->algorithm, pairs(3, 8)), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(channelCounts(*CandidateSet::shipped().find("ring"), pairs(3, 8)),
            (std::vector<int32_t>{1, 2, 4}));
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

// Ranks that outnumber processors pay for every wait: fewer rounds are worth more bytes.
TEST(Selector, CountsWaitsMoreWhereRanksOutnumberProcessors) {
  SelectorInput input = host(Collective::allReduce, 8, 8192, true);
  EXPECT_EQ(chosen(input), "direct");
  input.crowded = true;
  EXPECT_EQ(chosen(input), "oneshot");
  const CostParameters costs = sharedMemoryCosts();
  const CostParameters slower = crowded(costs);
  EXPECT_GT(slower.alpha, costs.alpha);
  EXPECT_GT(slower.signal, costs.signal);
  EXPECT_EQ(slower.beta, costs.beta);
  EXPECT_EQ(crowded(slower).alpha, slower.alpha);  // once is enough
}

// Whoever has no answer to wait for goes on with the next call.
TEST(Selector, DoesNotMakeRanksMeetForAShortCollectiveWithARoot) {
  for (const Collective collective :
       {Collective::broadcast, Collective::reduce, Collective::gather, Collective::scatter}) {
    EXPECT_NE(chosen(host(collective, 8, 64, true)), "oneshot") << name(collective);
    EXPECT_EQ(chosen(host(collective, 8, 4 << 20, true)), "direct") << name(collective);
  }
}

TEST(Selector, GeneralListsAreNotMeantForWhatNcclMakesOfMessages) {
  for (const Collective collective : {Collective::allToAll, Collective::gather, Collective::scatter}) {
    EXPECT_EQ(chosen(network(collective, 4, 8), "Ring"), "spread");
    EXPECT_EQ(chosen(host(collective, 4, 8), "tree"), chosen(host(collective, 4, 8)));
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

TEST(Selector, HonoursNcclProto) {
  const SelectorInput input = host(Collective::allReduce, 4, 8);
  const SelectorInput toAll = host(Collective::allToAll, 4, 8);
  const auto with = [](const char* proto) { return selectorOf("", "", proto); };
  EXPECT_EQ(chosenBy(with("Simple"), input), "oneshot (prediction)");
  EXPECT_EQ(chosenBy(with("LL,LL128,Simple"), input), "oneshot (prediction)");
  EXPECT_EQ(chosenBy(with("^LL128"), input), "oneshot (prediction)");
  EXPECT_EQ(chosenBy(with("broadcast:ll"), input), "oneshot (prediction)");
  EXPECT_EQ(chosenBy(with("LL"), toAll), "oneshot (prediction)");  // NCCL has no choice there
  const char* none = "NCCL_PROTO=LL leaves no protocol for AllReduce: there is only simple on CPUs";
  EXPECT_EQ(chosenBy(with("LL"), input), none);
  EXPECT_THAT(chosenBy(with("^simple"), input), HasSubstr("NCCL_PROTO=^simple leaves no protocol"));
  EXPECT_THAT(chosenBy(with("simple;allreduce:ll"), input), HasSubstr("leaves no protocol for AllReduce"));
  EXPECT_THAT(chosenBy(with("alltoall:ll128"), toAll), HasSubstr("leaves no protocol for AlltoAll"));
  EXPECT_THAT(chosenBy(with("LL64"), input),
              HasSubstr("NCCL_PROTO=LL64: \"ll64\" is no protocol; known are simple, ll, ll128"));
  EXPECT_THAT(chosenBy(with("simple;;all:ll"), input), HasSubstr("\"all\" is no function"));
  EXPECT_TRUE(with("LL")->isLimited());
  EXPECT_FALSE(with("")->isLimited());
}

TEST(Selector, TakesAFamilyOfAlgorithmsByTheirFirstName) {
  const SelectorInput input = pairs(3, 64 << 20);
  EXPECT_EQ(chosen(input, "hierarchical").substr(0, 12), "hierarchical");
  EXPECT_NE(chosen(input, "^hierarchical").substr(0, 12), "hierarchical");
  EXPECT_THAT(chosen(input, "hier"), HasSubstr("\"hier\" is no algorithm"));
  EXPECT_THAT(chosen(input, "hierarchical/"), HasSubstr("is no algorithm"));
}

TEST(Selector, FollowsTheTuningFile) {
  const char* file =
      "allreduce,0,100,ring,simple,-1,-1,2\n"      // 1: not these ranks
      "allreduce,0,100,doubling,simple,-1,2,-1\n"  // 2: not these hosts
      "allreduce,0,100,twoshot,-1,-1,1,4,-1,1\n"   // 3: not with these buffers
      "broadcast,0,100,ring,-1,-1,1,4\n"           // 4
      "allreduce,0,100,tree,simple,1,1,4,1\n"      // 5
      "allreduce,0,100,ring,simple,1,1,4";
  EXPECT_EQ(chosenBy(selectorOf(file), host(Collective::allReduce, 4, 8)), "tree (t.csv:5)");
  EXPECT_EQ(chosenBy(selectorOf(file), host(Collective::allReduce, 4, 100)), "tree (t.csv:5)");
  EXPECT_EQ(chosenBy(selectorOf(file), host(Collective::allReduce, 4, 101)), "oneshot (prediction)");
  EXPECT_EQ(chosenBy(selectorOf(file), host(Collective::allReduce, 4, 8, true)), "twoshot (t.csv:3)");
  EXPECT_EQ(chosenBy(selectorOf(file), host(Collective::allReduce, 2, 8)), "ring (t.csv:1)");
  EXPECT_EQ(chosenBy(selectorOf(file), host(Collective::broadcast, 4, 8)), "ring (t.csv:4)");
  EXPECT_EQ(chosenBy(selectorOf("allreduce,0,-1,tree,-1,-1,-1,-1,2"), host(Collective::allReduce, 4, 8)),
            "oneshot (prediction)");
  const auto selector = selectorOf(file);  // choices point into its candidates
  const auto choice = selector->choose(host(Collective::allReduce, 4, 8));
  EXPECT_EQ(choice->runnerUp->name, "oneshot");
  EXPECT_GT(choice->predictedSeconds, choice->runnerUpSeconds);
}

TEST(Selector, TakesChannelsFromTheTuningFile) {
  const auto channels = [](const char* entry) {
    return selectorOf(entry)->choose(network(Collective::allReduce, 4, 8))->channels;
  };
  EXPECT_EQ(channels("allreduce,0,-1,ring,simple,3,-1,-1"), 3);
  EXPECT_EQ(channels("allreduce,0,-1,ring,simple,64,-1,-1"), 4);  // as many as there are
}

TEST(Selector, SkipsEntriesThatCannotRunTheCallAndSaysSo) {
  const SelectorInput input = network(Collective::allReduce, 4, 8);
  EXPECT_EQ(
      chosenBy(selectorOf("allreduce,0,-1,oneshot,-1,-1,-1,-1\nallreduce,0,-1,ring,-1,-1,-1,-1"), input),
      "ring (t.csv:2); t.csv:1 is not followed: oneshot needs all ranks on one host with shared memory, and "
      "there are 4 hosts");
  EXPECT_THAT(
      chosenBy(selectorOf("allreduce,0,-1,ring,-1,-1,-1,-1", "tree"), input),
      testing::AllOf(HasSubstr("tree (NCCL_ALGO=tree)"), HasSubstr("ring is not allowed for AllReduce")));
  EXPECT_THAT(chosenBy(selectorOf("allreduce,0,-1,ring,ll,-1,-1,-1"), input),
              HasSubstr("does not have the protocol on CPUs"));
  EXPECT_THAT(chosenBy(selectorOf("allreduce,0,-1,nvls,-1,-1,-1,-1"), input),
              HasSubstr("t.csv:1 is not followed: nvls does not exist on CPUs"));
  EXPECT_THAT(
      chosenBy(selectorOf("allreduce,0,-1,rign,-1,-1,-1,-1"), input),
      testing::StartsWith(
          "TUTTI_TUNING_FILE: t.csv:1: \"rign\" is no algorithm, did you mean ring? Known are ring, "));
  EXPECT_THAT(chosenBy(selectorOf("allreduce,0,-1,zzzz,-1,-1,-1,-1"), input),
              HasSubstr("\"zzzz\" is no algorithm; known are ring, "));
  EXPECT_THAT(chosenBy(selectorOf("allreduce,0,-1,ring,-1,-1,-1,-1", "oneshot"), input),
              HasSubstr("leaves no algorithm"));
}

TEST(Selector, NamesEntriesThatNoCommunicatorCanFollow) {
  const auto never = [](const std::string& entry) {
    const auto selector = selectorOf("# a comment\n" + entry);
    if (!selector.isOk()) return selector.status().message();
    const std::vector<std::string> texts = selector->neverFollowed();
    return texts.empty() ? std::string("may be") : texts[0];
  };
  EXPECT_EQ(never("allreduce,0,-1,ring,ll,-1,-1,-1"),
            "t.csv:2 can never be followed: there is no protocol ll on CPUs");
  EXPECT_THAT(never("allreduce,0,-1,nvls,-1,-1,-1,-1"), HasSubstr("nvls does not exist on CPUs"));
  EXPECT_THAT(never("allreduce,0,-1,hierarchical,-1,-1,1,-1"), HasSubstr("needs several hosts"));
  EXPECT_THAT(never("allreduce,0,-1,hierarchical,-1,-1,4,4"), HasSubstr("needs several hosts"));
  EXPECT_THAT(never("allreduce,0,-1,oneshot,-1,-1,2,4"), HasSubstr("needs all ranks on one host"));
  EXPECT_THAT(never("allreduce,0,-1,ring,-1,-1,4,2"), HasSubstr("2 ranks are not on 4 hosts"));
  EXPECT_THAT(never("allreduce,0,-1,pairwise,-1,-1,-1,-1"), HasSubstr("does not implement AllReduce"));
  EXPECT_THAT(never("allreduce,0,-1,ring,-1,-1,-1,-1,2"), HasSubstr("only operations 1 fits"));
  EXPECT_THAT(never("allreduce,0,-1,direct,-1,-1,1,4,-1,0"), HasSubstr("direct needs mapped buffers"));
  for (const char* fine :
       {"allreduce,0,-1,ring,simple,64,-1,-1,1,0", "allreduce,0,-1,hierarchical,-1,-1,-1,-1",
        "allreduce,0,-1,hierarchical,-1,-1,2,4", "allreduce,0,-1,direct,-1,-1,1,4,-1,1",
        "allreduce,0,-1,oneshot,-1,-1,-1,-1", "alltoall,0,-1,pairwise,-1,-1,-1,-1"})
    EXPECT_EQ(never(fine), "may be") << fine;
}

TEST(Selector, TakesMeasuredParameters) {
  const SelectorInput input = host(Collective::allReduce, 4, 8);
  const double usual = selectorOf("")->choose(input)->predictedSeconds;
  const double measured =
      selectorOf("@shared.signal = 1e-3\n@shared.alpha = 1e-3")->choose(input)->predictedSeconds;
  EXPECT_GT(measured, 1000 * usual);
  const SelectorInput far = network(Collective::allReduce, 4, 64 << 20);
  EXPECT_GT(selectorOf("@network.beta = 1e-6")->choose(far)->predictedSeconds, 60);
}

// What algorithms from files need of the set.
TEST(Selector, TakesOtherCandidates) {
  CandidateSet set = CandidateSet::shipped();
  Candidate own;
  own.name = "mine";
  own.collectives = {Collective::allReduce};
  own.exactRanks = 4;
  own.minBytes = 100;
  own.maxBytes = 200;
  own.preferred = true;
  own.price = [](const CostQuery&, const CostParameters&) { return 1.0; };
  own.generator = [](const ScheduleRequest& request) -> Result<Schedule> {
    return makeSchedule(request, "mine", 1);
  };
  ASSERT_TRUE(set.add(own).isOk());
  EXPECT_THAT(set.add(own).message(), HasSubstr("there is an algorithm \"mine\" already"));
  const auto with = [&](const char* tuning, const char* algo) { return selectorOf(tuning, algo, "", set); };
  EXPECT_EQ(chosenBy(with("", ""), host(Collective::allReduce, 4, 150)), "mine (algorithm from a file)");
  EXPECT_EQ(chosenBy(with("", ""), host(Collective::allReduce, 4, 201)), "oneshot (prediction)");
  EXPECT_EQ(chosenBy(with("", ""), host(Collective::allReduce, 4, 99)), "oneshot (prediction)");
  EXPECT_EQ(chosenBy(with("", ""), host(Collective::allReduce, 5, 150)), "oneshot (prediction)");
  EXPECT_EQ(chosenBy(with("", ""), host(Collective::reduceScatter, 4, 150)), "oneshot (prediction)");
  EXPECT_EQ(chosenBy(with("", "^mine"), host(Collective::allReduce, 4, 150)), "oneshot (prediction)");
  EXPECT_EQ(chosenBy(with("allreduce,0,-1,tree,-1,-1,-1,-1", ""), host(Collective::allReduce, 4, 150)),
            "tree (t.csv:1)");
  EXPECT_EQ(chosenBy(with("allreduce,0,-1,mine,-1,-1,-1,-1", ""), host(Collective::allReduce, 4, 150)),
            "mine (t.csv:1)");
  EXPECT_THAT(chosenBy(with("", "mine"), host(Collective::allReduce, 4, 201)),
              HasSubstr("mine is not for 201 bytes"));
  EXPECT_EQ(with("", "")->candidates()->find("mine")->schedule({.ranks = 4})->name, "mine");
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
