// The simulator's engines against closed forms, against each other, and against known answers.
#include "algorithms/simulator/simulate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "algorithms/registry.h"
#include "algorithms/simulator/fabrics.h"
#include "algorithms/simulator/max_min.h"
#include "topology/system_xml.h"

namespace tutti::sim {
namespace {

std::vector<double> ratesOf(std::vector<double> capacity, const std::vector<std::vector<Hop>>& ways,
                            std::vector<double> limits = {}) {
  FairShares shares(std::move(capacity));
  std::vector<Flow> flows;
  for (size_t i = 0; i < ways.size(); ++i) {
    flows.push_back({ways[i], 1});
    if (i < limits.size()) flows.back().limit = limits[i];
  }
  std::vector<double> rates;
  shares.rates(flows, &rates);
  return rates;
}

TEST(FairShares, GivesKnownAnswers) {
  EXPECT_EQ(ratesOf({12}, {{{0}}, {{0}}, {{0}}}), (std::vector<double>{4, 4, 4}));
  // The drawing of max_min.h.
  EXPECT_EQ(ratesOf({10, 4}, {{{0}, {1}}, {{1}}, {{0}}}), (std::vector<double>{2, 2, 8}));
  // A chain of links of one flow each beside one that passes all (Bertsekas and Gallager's parking lot).
  EXPECT_EQ(ratesOf({1, 1, 1}, {{{0}, {1}, {2}}, {{0}}, {{1}}, {{2}}}),
            (std::vector<double>{0.5, 0.5, 0.5, 0.5}));
  // Weights: 1 x + 2 x = 6.
  EXPECT_EQ(ratesOf({6}, {{{0, 1}}, {{0, 2}}}), (std::vector<double>{2, 2}));
  EXPECT_EQ(ratesOf({10}, {{{0}}, {{0}}}, {1}), (std::vector<double>{1, 9}));
  EXPECT_TRUE(std::isinf(ratesOf({1}, {{}})[0]));
  EXPECT_EQ(ratesOf({1}, {{}}, {3}), (std::vector<double>{3}));
  EXPECT_EQ(ratesOf({0, 5}, {{{0}, {1}}, {{1}}}), (std::vector<double>{0, 5}));
}

// Max-min fair exactly when every flow has a full link on which nobody gets more.
TEST(FairShares, GivesEveryFlowABottleneck) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const size_t links = 1 + random() % 8, flows = 1 + random() % 20;
    std::vector<double> capacity;
    for (size_t l = 0; l < links; ++l) capacity.push_back(1 + random() % 10);
    std::vector<std::vector<Hop>> ways(flows);
    for (std::vector<Hop>& way : ways) {
      for (uint32_t l = 0; l < links; ++l)
        if (random() % 3 == 0) way.push_back({l, random() % 2 == 0 ? 1.0F : 0.5F});
      if (way.empty()) way.push_back({static_cast<uint32_t>(random() % links)});
    }
    const std::vector<double> rates = ratesOf(capacity, ways);
    std::vector<double> load(links), most(links);
    for (size_t f = 0; f < flows; ++f)
      for (const Hop& hop : ways[f]) {
        load[hop.link] += static_cast<double>(hop.weight) * rates[f];
        most[hop.link] = std::max(most[hop.link], rates[f]);
      }
    for (size_t l = 0; l < links; ++l) ASSERT_LE(load[l], capacity[l] * (1 + 1e-9));
    for (size_t f = 0; f < flows; ++f) {
      bool hasBottleneck = false;
      for (const Hop& hop : ways[f])
        hasBottleneck = hasBottleneck || (load[hop.link] >= capacity[hop.link] * (1 - 1e-9) &&
                                          rates[f] >= most[hop.link] * (1 - 1e-9));
      ASSERT_TRUE(hasBottleneck) << "trial " << trial << " flow " << f;
    }
  }
}

TEST(FairShares, SharesAnewWhatEndedFlowsLeave) {
  FairShares shares({10});
  const std::vector<Hop> way = {{0}};
  std::vector<double> seconds;
  // 5 each until 10 are through; the other 20 of the second go at 10.
  shares.finishTimes(std::vector<Flow>{{way, 10}, {way, 30}, {way, 0}}, &seconds);
  EXPECT_DOUBLE_EQ(seconds[0], 2);
  EXPECT_DOUBLE_EQ(seconds[1], 4);
  EXPECT_DOUBLE_EQ(seconds[2], 0);
}

/// Ranks of one host, each with a link in and out; nothing else is shared.
Cluster uniform(int32_t ranks, const CostParameters& costs) {
  PlainHostOptions options;
  options.places = ranks;
  options.inside = costs;
  auto cluster = Cluster::build(plainHost(options), ranks, 1, {}, cpuLatencies(costs, costs));
  EXPECT_TRUE(cluster.isOk()) << cluster.status().message();
  return std::move(cluster).value();
}

CostParameters alphaBetaGamma() {
  CostParameters costs;
  costs.alpha = costs.sliceAlpha = 5e-6;
  costs.beta = 1e-9;
  costs.gamma = 0.2e-9;
  costs.signal = 1e-6;
  costs.perPeer = 0.1e-6;
  return costs;
}

double secondsOf(const Cluster& cluster, std::string_view algorithm, Collective collective, double bytes,
                 Engine engine) {
  Job job;
  job.algorithm = algorithm;
  job.collective = collective;
  job.bytes = bytes;
  job.engine = engine;
  const auto outcome = simulate(cluster, job);
  EXPECT_TRUE(outcome.isOk()) << outcome.status().message();
  return outcome.isOk() ? outcome->seconds : NAN;
}

constexpr Collective kEvery[] = {Collective::allReduce, Collective::allGather, Collective::reduceScatter,
                                 Collective::broadcast, Collective::reduce,    Collective::allToAll,
                                 Collective::gather,    Collective::scatter};

TEST(Simulator, AgreesWithClosedFormsWhereTheyAreExact) {
  const CostParameters costs = alphaBetaGamma();
  for (const Engine engine : {Engine::events, Engine::rounds, Engine::symmetric})
    for (const char* algorithm : {"ring", "doubling"})
      for (const Collective collective :
           {Collective::allReduce, Collective::allGather, Collective::reduceScatter})
        for (const int32_t ranks : {2, 4, 8, 16}) {
          if (!findAlgorithm(algorithm)->implements(collective, ranks)) continue;
          const Cluster cluster = uniform(ranks, costs);
          for (const double bytes : {0.0, 64.0, 8192.0, 4194304.0}) {  // the last in several slices
            const CostQuery query{algorithm, collective, ranks, static_cast<size_t>(bytes)};
            const double expected = predictSeconds(query, costs);
            // The forms do not know of rounds in which a rank waits to be sent to; these have none.
            EXPECT_NEAR(secondsOf(cluster, algorithm, collective, bytes, engine), expected, 1e-9 * expected)
                << algorithm << " " << name(collective) << " " << ranks << " ranks, " << bytes << ", "
                << name(engine);
          }
        }
}

TEST(Simulator, AgreesWithClosedFormsOfSharedMemory) {
  CostParameters costs = alphaBetaGamma();
  costs.coreByte = 1e-10;
  for (const char* algorithm : {"oneshot", "twoshot", "direct"})
    for (const int32_t ranks : {2, 3, 8}) {
      const CostQuery query{algorithm, Collective::allReduce, ranks, 65536};
      // Agreeing to work in users' buffers is not simulated.
      const double barrier = costs.signal + (ranks - 2) * costs.perPeer;
      const double negotiation = algorithm == std::string("direct") ? kNegotiationSeconds + barrier : 0;
      const double expected = predictSeconds(query, costs) - negotiation;
      const Cluster cluster = uniform(ranks, costs);
      for (const Engine engine : {Engine::events, Engine::rounds}) {
        const double seconds = secondsOf(cluster, algorithm, Collective::allReduce, 65536, engine);
        // Two-shot copies its own part while the second signal is under way; the form does not count with
        // that.
        const double hidden = algorithm == std::string("twoshot") ? costs.signal : 0;
        EXPECT_LE(seconds, expected * (1 + 1e-6)) << algorithm << " " << ranks << " " << name(engine);
        EXPECT_GE(seconds, (expected - hidden) * (1 - 1e-6))
            << algorithm << " " << ranks << " " << name(engine);
      }
      // And when the host's memory is what limits.
      CostParameters shared = costs;
      shared.hostByte = 1e-10;
      const double slow = predictSeconds(query, shared) - negotiation;
      EXPECT_NEAR(secondsOf(uniform(ranks, shared), algorithm, Collective::allReduce, 65536, Engine::events),
                  slow, 0.02 * slow)
          << algorithm << " " << ranks;
    }
}

/// Hosts of `perHost` ranks on a fat-tree, TCP between them.
Cluster tcpCluster(int32_t ranks, int32_t hosts, std::vector<int32_t> placement = {}) {
  FabricOptions options;
  options.ranks = ranks;
  options.hosts = hosts;
  options.placement = std::move(placement);
  auto cluster = cpuCluster(options);
  EXPECT_TRUE(cluster.isOk()) << cluster.status().message();
  return std::move(cluster).value();
}

// Where ranks are not in step with each other, or copies of unequal ranks share a memory, rounds are an
// estimate.
TEST(Simulator, RunsEverythingThatExistsAndEnginesAgree) {
  int compared = 0;
  for (const Algorithm& algorithm : algorithms())
    for (const Collective collective : kEvery)
      for (const int32_t ranks : {2, 3, 8}) {
        if (algorithm.medium == Medium::hosts || !algorithm.implements(collective, ranks)) continue;
        const bool inStep =
            algorithm.medium == Medium::messages && !hasRoot(collective) && algorithm.name != "pairwise";
        const double near = inStep ? 0.02 : 0.35;
        const Cluster cluster = tcpCluster(ranks, algorithm.medium == Medium::messages ? ranks : 1);
        for (const double bytes : {8.0, 65536.0}) {
          const double a = secondsOf(cluster, algorithm.name, collective, bytes, Engine::events);
          const double b = secondsOf(cluster, algorithm.name, collective, bytes, Engine::rounds);
          EXPECT_GT(a, 0);
          EXPECT_NEAR(a, b, near * a)
              << algorithm.name << " " << name(collective) << " " << ranks << ", " << bytes;
          ++compared;
        }
      }
  EXPECT_GT(compared, 50);
}

TEST(Simulator, OneRankStandsForAllWhereTheyAreAlike) {
  for (const int32_t hosts : {1, 4, 16}) {
    const Cluster cluster = tcpCluster(64, hosts);
    // AllGather copies its own block, which shares memory with the first messages; and where some messages of
    // a round leave hosts and others do not, ranks get out of step.
    const double near = hosts == 1 ? 0.02 : 0.1;
    for (const auto& [algorithm, collective] : {std::pair{"ring", Collective::allReduce},
                                                {"ring", Collective::allGather},
                                                {"doubling", Collective::allReduce},
                                                {"spread", Collective::allToAll}})
      for (const double bytes : {64.0, 1048576.0, 67108864.0}) {
        const double one = secondsOf(cluster, algorithm, collective, bytes, Engine::symmetric);
        const double all = secondsOf(cluster, algorithm, collective, bytes, Engine::rounds);
        EXPECT_NEAR(one, all, (collective == Collective::allReduce ? 1e-6 : near) * all)
            << algorithm << " on " << hosts << " hosts, " << bytes;
      }
  }
  Job job;
  job.algorithm = "tree";
  job.engine = Engine::symmetric;
  EXPECT_FALSE(simulate(tcpCluster(8, 1), job).isOk());
}

TEST(Simulator, AnswersForThousandsOfRanks) {
  const Cluster cluster = tcpCluster(2048, 256);  // 16384 take a second; sanitizers' patience is short
  // The network takes what a ring sends out of each host; its latencies are hidden behind that.
  const double port = cluster.host().portBytesPerSecond;
  const double ring = secondsOf(cluster, "ring", Collective::allReduce, 1e9, Engine::automatic);
  EXPECT_GT(ring, 2e9 * 2047 / 2048 / port * 0.999);
  EXPECT_LT(ring, 2e9 / port * 1.1);
  // Every rank sends the whole vector in 8 rounds between hosts, 8 ranks through each port.
  const double doubling = secondsOf(cluster, "doubling", Collective::allReduce, 1e9, Engine::automatic);
  EXPECT_NEAR(doubling, 8 * 8 * 1e9 / port, 0.3 * doubling);
}

// Every rank starts more messages than are kept apart, then takes them.
TEST(Simulator, ExchangesWithThousandsAtOnce) {
  const Cluster cluster = tcpCluster(1024, 128);
  Job job;
  job.algorithm = "spread";
  job.collective = Collective::allToAll;
  job.bytes = 1e8;
  const auto outcome = simulate(cluster, job);
  ASSERT_TRUE(outcome.isOk()) << outcome.status().message();
  EXPECT_EQ(outcome->engine, Engine::symmetric);
  // A port carries what 8 ranks send to the other 1016.
  const double bound = 8 * 1016.0 / 1024 * 1e8 / cluster.host().portBytesPerSecond;
  EXPECT_GE(outcome->seconds, bound * (1 - 1e-6));
  EXPECT_LE(outcome->seconds, 1.15 * bound);
  // One rank with many: few steps in all.
  job.collective = Collective::gather;
  EXPECT_TRUE(simulate(tcpCluster(16384, 2048), job).isOk());
}

TEST(Simulator, KeepsMoreMessagesWaitingThanAFifoHoldsAtTheSender) {
  // Rank 0 feeds a chain whose links are as fast: one slot at a time costs a round trip of latency each.
  const Cluster cluster = uniform(3, alphaBetaGamma());
  Job job;
  job.algorithm = "ring";
  job.collective = Collective::broadcast;
  job.bytes = 64 * 1024;
  job.slotBytes = 1024;
  job.engine = Engine::events;
  job.fifoSlots = 1;
  const double tight = simulate(cluster, job)->seconds;
  job.fifoSlots = 16;
  const double roomy = simulate(cluster, job)->seconds;
  EXPECT_GT(tight, 3 * roomy);
}

TEST(Cluster, SharesLeafSwitchesAndTheirLinksToTheCore) {
  FabricOptions options;
  options.ranks = options.hosts = 64;
  options.network.oversubscription = 4;
  const auto cluster = cpuCluster(options);
  ASSERT_TRUE(cluster.isOk());
  EXPECT_EQ(cluster->route(0, 1).hops.size(), 2u);   // below one switch: out and in
  EXPECT_EQ(cluster->route(0, 63).hops.size(), 4u);  // over the core
  EXPECT_GT(cluster->route(0, 63).latency, cluster->route(0, 1).latency);
  // Half of an AlltoAll crosses: 32 hosts x n / 2 through 8 ports' worth of links; 2.11 n when rounds do not
  // overlap.
  const double n = 1e9, port = cluster->host().portBytesPerSecond;
  const double seconds = secondsOf(*cluster, "spread", Collective::allToAll, n, Engine::automatic);
  EXPECT_GE(seconds, 2 * n / port * (1 - 1e-6));
  EXPECT_LE(seconds, 2.15 * n / port);
  Job job;
  job.algorithm = "spread";
  job.collective = Collective::allToAll;
  job.bytes = n;
  EXPECT_NE(simulate(*cluster, job)->limit.find("leaf switch"), std::string::npos);
}

TEST(Cluster, LeavesByTheReceiversRail) {
  FabricOptions options;
  options.ranks = 4;
  options.hosts = 2;
  options.ports = 2;
  options.network.kind = NetworkKind::rail;
  const auto cluster = cpuCluster(options);
  ASSERT_TRUE(cluster.isOk());
  for (const Hop& hop : cluster->route(0, 3).hops)
    EXPECT_EQ(cluster->label(hop.link).find("core"), std::string::npos) << cluster->label(hop.link);
  // Two ports, half of the message each.
  EXPECT_EQ(cluster->route(0, 3).hops.size(), 4u);
  EXPECT_EQ(cluster->route(0, 3).hops[0].weight, 0.5F);
}

TEST(Cluster, KnowsDragonflies) {
  FabricOptions options;
  options.ranks = options.hosts = 2048;
  options.network.kind = NetworkKind::dragonfly;
  auto cluster = cpuCluster(options);
  ASSERT_TRUE(cluster.isOk());
  EXPECT_EQ(cluster->route(0, 1).hops.size(), 2u);     // 16 hosts a router
  EXPECT_EQ(cluster->route(0, 17).hops.size(), 5u);    // 32 routers a group
  EXPECT_EQ(cluster->route(0, 2047).hops.size(), 7u);  // another group
  bool labelled = false;
  for (const Hop& hop : cluster->route(0, 2047).hops)
    labelled = labelled || cluster->label(hop.link) == "group 0 to group 3";
  EXPECT_TRUE(labelled);
}

TEST(Cluster, RefusesWhatDoesNotFit) {
  const auto build = [](int32_t ranks, int32_t hosts, std::vector<int32_t> placement) {
    PlainHostOptions options;
    options.places = 2;
    return Cluster::build(plainHost(options), ranks, hosts, {}, {}, std::move(placement)).status().message();
  };
  EXPECT_EQ(build(4, 2, {}), "");
  EXPECT_NE(build(5, 2, {}), "");
  EXPECT_NE(build(2, 1, {0, 0}), "");
  EXPECT_NE(build(2, 1, {0, 2}), "");
  EXPECT_NE(build(2, 1, {0}), "");
  NetworkOptions none;
  none.kind = NetworkKind::none;
  EXPECT_FALSE(Cluster::build(plainHost({}), 2, 2, none, {}).isOk());
}

TEST(Simulator, NoticesBadPlacements) {
  std::vector<int32_t> roundRobin;
  for (int32_t rank = 0; rank < 16; ++rank) roundRobin.push_back(rank % 4 * 4 + rank / 4);
  const Cluster scattered = tcpCluster(16, 4, roundRobin);
  Job job;
  job.algorithm = "ring";
  job.bytes = 1 << 20;
  job.inRankOrder = true;
  const double byNumber = simulate(scattered, job)->seconds;
  job.inRankOrder = false;
  const double byHost = simulate(scattered, job)->seconds;
  // Four ranks of each host send out at once instead of one.
  EXPECT_GT(byNumber, 3 * byHost);
  EXPECT_NEAR(byHost, secondsOf(tcpCluster(16, 4), "ring", Collective::allReduce, 1 << 20, Engine::automatic),
              1e-9);
}

Cluster h100(int32_t hosts, Protocol protocol = Protocol::simple) {
  auto system = readSystemXml(std::string(TUTTI_SOURCE_DIR) + "/tests/topology/data/oci-h100-full.xml");
  EXPECT_TRUE(system.isOk()) << system.status().message();
  FabricOptions options;
  options.ranks = 8 * hosts;
  options.hosts = hosts;
  options.network.kind = NetworkKind::rail;
  options.ports = 8;
  options.portBytesPerSecond = 50e9;
  auto cluster = gpuCluster(*system, options, gpuLatencies(protocol, false));
  EXPECT_TRUE(cluster.isOk()) << cluster.status().message();
  return std::move(cluster).value();
}

double h100Ring(int32_t hosts, double bytes, Engine engine = Engine::automatic) {
  Job job;
  job.algorithm = "ring";
  job.bytes = bytes;
  job.slotBytes = gpuMessageBytes(Protocol::simple);
  job.engine = engine;
  const auto outcome = simulate(h100(hosts), job);
  EXPECT_TRUE(outcome.isOk()) << outcome.status().message();
  return bytes / outcome->seconds * busFactor(Collective::allReduce, 8 * hosts) / 1e9;
}

// Where operators measure it: 330 to 370 GB/s a GPU.
TEST(Simulator, RingsOf64H100MoveWhatTheyAreMeasuredToMove) {
  const double ring = h100Ring(8, 1 << 30);
  EXPECT_GT(ring, 330);
  EXPECT_LT(ring, 370);
  EXPECT_NEAR(ring, 345.4, 2);  // docs/simulation.md explains each term
  EXPECT_NEAR(h100Ring(8, 1 << 30, Engine::events), ring, 0.01 * ring);
  // More hosts: more latency. Small vectors: nothing but latency.
  EXPECT_LT(h100Ring(64, 1 << 30), ring);
  EXPECT_LT(h100Ring(8, 1 << 20), 0.1 * ring);
}

TEST(HostModel, TakesSpeedsFromTheTopologyFile) {
  const Cluster cluster = h100(2);
  const HostModel& host = cluster.host();
  EXPECT_EQ(host.places, 8);
  EXPECT_EQ(host.ports, 8);
  EXPECT_NEAR(host.portBytesPerSecond, 50e9 * 4096 / 4122, 0.01e9);
  ASSERT_EQ(host.between[1].size(), 2u);  // to the switch and from it
  EXPECT_NEAR(host.links[host.between[1][0].link].bytesPerSecond, 370.8e9, 0.1e9);
  EXPECT_EQ(host.rings.size(), 16u);
  // LL carries half of that.
  EXPECT_NEAR(h100(2, Protocol::ll).capacity()[host.between[1][0].link], 185.4e9, 0.1e9);

  auto system = readSystemXml(std::string(TUTTI_SOURCE_DIR) + "/tests/topology/data/oci-h100-full.xml");
  EXPECT_FALSE(hostOfTopology(*system, 9, {}).isOk());
  NetworkReplacement many;
  many.ports = 100;
  EXPECT_FALSE(hostOfTopology(*system, 8, many).isOk());
  const auto asItIs = hostOfTopology(*system, 4, {});
  ASSERT_TRUE(asItIs.isOk());
  EXPECT_EQ(asItIs->ports, 16);
  EXPECT_EQ(asItIs->places, 4);
  EXPECT_FALSE(hostOfTopology({}, 1, {}).isOk());
}

TEST(Simulator, SaysWhatItCannotDo) {
  const auto message = [](const Cluster& cluster, std::string_view algorithm, Collective collective) {
    Job job;
    job.algorithm = algorithm;
    job.collective = collective;
    job.bytes = 8;
    return simulate(cluster, job).status().message();
  };
  EXPECT_EQ(message(tcpCluster(4, 2), "magic", Collective::allReduce), "there is no algorithm \"magic\"");
  EXPECT_NE(message(tcpCluster(4, 2), "oneshot", Collective::allReduce), "");
  EXPECT_NE(message(tcpCluster(4, 1), "hierarchical", Collective::allReduce), "");
  EXPECT_NE(message(tcpCluster(6, 1), "doubling", Collective::allGather), "");
  EXPECT_NE(message(h100(1), "oneshot", Collective::allReduce), "");
  EXPECT_EQ(message(tcpCluster(1, 1), "ring", Collective::allReduce), "");
}

}  // namespace
}  // namespace tutti::sim
