#include "topology/search.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>
#include <string>

#include "topology/channel_search.h"
#include "topology/machines.h"
#include "topology/plan_report.h"
#include "topology/topology_files.h"

namespace tutti {
namespace {

using test::cubeMesh;
using test::describe;
using test::graphOf;
using test::graphOfFile;
using test::netText;
using test::nicText;
using test::nvlinkMachine;
using test::nvswitchMachine;
using test::pcieMachine;
using test::rackDomain;
using testing::StartsWith;

/// A graph, its members and what the search says.
struct Found {
  Found(Graph g, SearchRequest r, PathOptions options = {}) : graph(std::move(g)), request(std::move(r)) {
    if (request.members.empty()) request.members = defaultMembers(graph);
    const Paths paths(graph, options);
    auto found = searchChannels(graph, paths, request);
    EXPECT_TRUE(found.isOk()) << found.status().message();
    if (found.isOk()) plan = std::move(*found);
    for (const ChannelSet* set : {&plan.rings, &plan.trees})
      for (const Channel& channel : set->channels) {
        std::set<int32_t> all(channel.order.begin(), channel.order.end());
        EXPECT_EQ(all.size(), request.members.size()) << "every member once";
        EXPECT_EQ(channel.order.size(), request.members.size());
        EXPECT_EQ(channel.netIn == kNoNode, channel.netOut == kNoNode);
      }
  }
  std::string text() const { return planText(graph, request.members, plan); }
  /// "GPU0 to NVSwitch".
  std::string bottleneck(const ChannelSet& set) const {
    if (set.bottleneck.to == kNoNode) return "none";
    return graph.label(set.bottleneck.from) + " to " + graph.label(set.bottleneck.to);
  }

  Graph graph;
  SearchRequest request;
  ChannelPlan plan;
};

Found alone(const std::string& xml) { return {graphOf(describe(xml)), {}}; }
Found amongHosts(const std::string& xml) { return {graphOf(describe(xml)), {.acrossHosts = true}}; }

TEST(Search, APortSlowerThanRatesCanSayDoesNotCountAsNone) {
  const std::string port = R"(<net name="mlx5_0" dev="0" speed="1" gdr="1"/>)";
  const Found found = amongHosts(nvlinkMachine(2, 80, {{0, 1, 4}}, 1, nicText(0, port)));
  ASSERT_TRUE(found.plan.rings.hasPorts());
  const Paths paths(found.graph);
  for (const LinkLoad& load : linkLoads(found.graph, paths, found.request, found.plan.rings))
    EXPECT_LE(load.load, load.bandwidth * 1.001f + 0.001f);
  EXPECT_LT(found.plan.rings.rate(), 0.001f);
  EXPECT_THAT(found.text(), testing::HasSubstr("to the network"));
}

TEST(Search, AnH100HostAloneUsesAllItsNvlink) {
  const Found found{graphOfFile("oci-h100-full.xml"), {}};
  EXPECT_NEAR(found.plan.rings.total(), 18 * 20.6, 0.01);
  EXPECT_GE(found.plan.rings.total(), 360) << "what NCCL's own speeds reach";
  EXPECT_EQ(found.plan.rings.typeIntra, PathType::nvl);
  EXPECT_EQ(found.plan.rings.channels.size(), 16u) << "no faster than one thread block can copy";
  EXPECT_EQ(found.plan.rings.channels[0].order, (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_TRUE(found.plan.rings.sameChannels);
  EXPECT_EQ(found.plan.rings.inter, 0);
  EXPECT_EQ(found.bottleneck(found.plan.rings), "GPU0 to NVSwitch");
  EXPECT_EQ(found.plan.rings.bottleneck.alike, 15) << "all eight GPUs, both ways";
  EXPECT_NEAR(found.plan.trees.total(), 18 * 20.6, 0.01);
  EXPECT_FALSE(found.plan.limitReached);
}

// One rail a GPU: whoever comes in by GPU g's port begins at GPU g, and leaves by the same port, through GPU
// g (PXN). All 16 ports are full, which NVLink (370.8 GB/s) just allows.
TEST(Search, AnH100HostAmongOthersPairsEachGpuWithItsOwnRailsPorts) {
  const Found found{graphOfFile("oci-h100-full.xml"), {.acrossHosts = true}};
  const ChannelSet& rings = found.plan.rings;
  ASSERT_EQ(rings.channels.size(), 16u);
  EXPECT_NEAR(rings.total(), 16 * 22.5, 0.01);
  EXPECT_NEAR(rings.inter, 22.5, 0.001);
  EXPECT_NEAR(rings.intra, 18 * 20.6 / 16, 0.001);
  EXPECT_EQ(rings.typeInter, PathType::pxn);
  EXPECT_FALSE(rings.crossNic);
  const std::vector<NodeId> nets = found.graph.all(NodeType::net);
  std::set<NodeId> used;
  for (const ChannelSet* set : {&rings, &found.plan.trees})
    for (const Channel& channel : set->channels) {
      const auto net = std::ranges::find(nets, channel.netIn) - nets.begin();
      EXPECT_EQ(channel.order.front(), net / 2) << found.text();
      EXPECT_EQ(channel.netIn, channel.netOut);
      used.insert(channel.netIn);
    }
  EXPECT_EQ(used.size(), 16u);
  // The first half of the channels has all eight cards already.
  for (size_t c = 0; c < 8; ++c) EXPECT_EQ(rings.channels[c].order.front(), static_cast<int32_t>(c));
  EXPECT_EQ(found.plan.trees.typeInter, PathType::pix);
  EXPECT_NEAR(found.plan.trees.total(), 16 * 22.5, 0.01);
  EXPECT_LT(found.plan.work, 20'000u) << "steps of some 50 ns";
}

// Two GPUs are near each port: a ring comes in at one and leaves from the other, by the same port. PCIe Gen4
// gives 24 GB/s of the port's 25, and each GPU's link serves one ring each way.
TEST(Search, TwoGpusAtAPortAreTheTwoEndsOfItsRing) {
  const Found found = amongHosts(test::sharedSwitchMachine());
  const ChannelSet& rings = found.plan.rings;
  EXPECT_EQ(rings.channels.size(), 8u) << found.text();
  EXPECT_NEAR(rings.total(), 8 * 24, 0.01);
  EXPECT_EQ(rings.typeInter, PathType::pix);
  EXPECT_FALSE(rings.crossNic);
  for (const Channel& channel : rings.channels)
    EXPECT_EQ(channel.order.front() / 2, channel.order.back() / 2);
  EXPECT_EQ(found.plan.trees.pattern, ChannelPattern::balancedTree) << "parent at one, children at the other";
  EXPECT_LT(found.plan.work, 20'000u);
}

TEST(Search, WithoutPxnRailsAreCrossedUnlessThatIsForbidden) {
  const Found crossing{graphOfFile("oci-h100-full.xml"), {.acrossHosts = true}, {.pxn = false}};
  EXPECT_TRUE(crossing.plan.rings.crossNic);
  EXPECT_EQ(crossing.plan.rings.typeInter, PathType::pix);
  EXPECT_NEAR(crossing.plan.rings.total(), 360, 0.01);
  const Found straight{
      graphOfFile("oci-h100-full.xml"), {.acrossHosts = true, .crossNic = CrossNic::never}, {.pxn = false}};
  EXPECT_FALSE(straight.plan.rings.crossNic);
  EXPECT_GE(straight.plan.rings.typeInter, PathType::phb);
  EXPECT_LT(straight.plan.rings.total(), 100) << "through the processors";
  const Found always{graphOfFile("oci-h100-full.xml"), {.acrossHosts = true, .crossNic = CrossNic::always}};
  EXPECT_EQ(always.plan.rings.typeInter, PathType::pix) << "where it costs nothing, the closest ports";
  EXPECT_NEAR(always.plan.rings.total(), 360, 0.01);
}

// Data goes up to the processor's memory and down again, in and out: four times through uplinks of 6 GB/s, of
// which each direction of each switch has two.
TEST(Search, WithoutGpuDirectTheUplinksLimit) {
  const Found found{graphOfFile("oci-h100-full.xml"), {.acrossHosts = true, .gdrLevel = PathType::loc}};
  EXPECT_NEAR(found.plan.rings.total(), 8 * 6 / 2, 0.05) << found.text();
  EXPECT_THAT(found.bottleneck(found.plan.rings), testing::HasSubstr("PCI switch"));
}

TEST(Search, EightGpusOnPcieCrossTheSocketsOnce) {
  const Found found = alone(pcieMachine());
  const ChannelSet& rings = found.plan.rings;
  EXPECT_NEAR(rings.total(), 22, 0.01);
  ASSERT_EQ(rings.channels.size(), 1u) << "a second ring would share the sockets' link";
  EXPECT_EQ(rings.channels[0].order, (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(rings.typeIntra, PathType::sys);
  EXPECT_EQ(found.bottleneck(rings), "CPU0 to CPU1");
  EXPECT_EQ(rings.bottleneck.alike, 1) << "the other direction";
  // A chain crosses once, at half the rate each way: the GPUs' own links limit before the sockets do.
  EXPECT_NEAR(found.plan.trees.total(), 24, 0.01) << found.text();
}

TEST(Search, APortPerSocketIsCrossedOnPcieMachines) {
  // In by one socket's port and out by the other's, each link between sockets is used once a ring; with the
  // same port twice: 11 GB/s a ring, 22 in all.
  const std::string xml = pcieMachine(nicText(0, netText(0, 100)), nicText(1, netText(1, 100)));
  const Found found = amongHosts(xml);
  EXPECT_TRUE(found.plan.rings.crossNic);
  EXPECT_GT(found.plan.rings.total(), 22.3) << found.text();
  const Found straight{graphOf(describe(xml)), {.acrossHosts = true, .crossNic = CrossNic::never}};
  EXPECT_FALSE(straight.plan.rings.crossNic);
  EXPECT_LE(straight.plan.rings.total(), 22.01);
}

// PCI is full duplex: two rings in opposite directions use each link once a direction.
TEST(Search, TwoNvlinkPairsAreJoinedTwiceOverPcie) {
  const Found found = alone(nvlinkMachine(4, 80, {{0, 2, 4}, {1, 3, 4}}, 1));
  const ChannelSet& rings = found.plan.rings;
  ASSERT_EQ(rings.channels.size(), 2u) << found.text();
  EXPECT_NEAR(rings.total(), 48, 0.01);
  for (const Channel& channel : rings.channels) {
    // Partners stand side by side.
    const auto at = [&](size_t i) { return channel.order[i % 4]; };
    const size_t first = at(0) + 2 == at(1) || at(1) + 2 == at(0) ? 0 : 1;
    EXPECT_EQ(std::abs(at(first) - at(first + 1)), 2) << found.text();
    EXPECT_EQ(std::abs(at(first + 2) - at(first + 3)), 2) << found.text();
  }
  EXPECT_EQ(rings.typeIntra, PathType::phb);
  EXPECT_EQ(rings.bottleneck.type, LinkType::pci);
}

TEST(Search, SixteenGpusOnNvswitchesUseAllLinks) {
  const Found found = alone(nvswitchMachine(16, 70, 6));
  EXPECT_NEAR(found.plan.rings.total(), 6 * 20, 0.01);
  EXPECT_NEAR(found.plan.trees.total(), 6 * 20, 0.01);
  EXPECT_EQ(found.plan.rings.typeIntra, PathType::nvl);
}

TEST(Search, ADeadNvlinkSlowsAllAndIsNamed) {
  const Found found = alone(nvswitchMachine(8, 90, 18, 3, 1));
  EXPECT_NEAR(found.plan.rings.total(), 17 * 20.6, 0.01);
  EXPECT_EQ(found.bottleneck(found.plan.rings), "GPU3 to NVSwitch");
  EXPECT_EQ(found.plan.rings.bottleneck.alike, 1);
  // Without any link it is reached over PCI.
  const Found without = alone(nvswitchMachine(8, 90, 18, 3, 18));
  EXPECT_EQ(without.plan.rings.typeIntra, PathType::phb) << "between two GPUs of its socket";
  EXPECT_NEAR(without.plan.rings.total(), 24, 0.01) << without.text();
}

TEST(Search, TheCubeMeshOfADgx1HasSixRings) {
  const Found found = alone(nvlinkMachine(8, 70, cubeMesh()));
  EXPECT_NEAR(found.plan.rings.total(), 6 * 20, 0.01) << found.text();
  EXPECT_EQ(found.plan.rings.channels.size(), 6u);
  EXPECT_EQ(found.plan.rings.typeIntra, PathType::nvl);
}

TEST(Search, ADeadNvlinkOfACubeMeshCostsOneRing) {
  std::vector<test::Nvlinks> links = cubeMesh();
  ASSERT_EQ(links[3].to, 4);
  links[3].count = 1;  // GPU0 to GPU4: five links between the halves are left
  const Found found = alone(nvlinkMachine(8, 70, links));
  EXPECT_NEAR(found.plan.rings.total(), 5 * 20, 0.01) << found.text();
}

// A square of single NVLinks: 40 GB/s by NVLink alone, the two ways round. The diagonals over PCIe add at
// most 6 GB/s where that has four lanes, and 24 where it has 16.
TEST(Search, AFartherWayMustBringAQuarterMore) {
  std::string xml = nvlinkMachine(4, 80, {{0, 1, 1}, {1, 2, 1}, {2, 3, 1}, {3, 0, 1}}, 1);
  const Found wide{graphOf(describe(xml)), {}, {.throughGpu = false}};
  EXPECT_EQ(wide.plan.rings.typeIntra, PathType::phb);
  EXPECT_GT(wide.plan.rings.total(), 50);
  for (size_t at = 0; (at = xml.find("link_width=\"16\"", at)) != std::string::npos;)
    xml.replace(at, 15, "link_width=\"4\"");
  const Found narrow{graphOf(describe(xml)), {}, {.throughGpu = false}};
  EXPECT_EQ(narrow.plan.rings.typeIntra, PathType::nvl) << narrow.text();
  EXPECT_NEAR(narrow.plan.rings.total(), 40, 0.01);
}

TEST(Search, OneGpuNeedsNoLink) {
  const Found found = alone(nvlinkMachine(1, 80, {}, 1));
  EXPECT_EQ(found.plan.rings.channels, (std::vector<Channel>{{{0}}}));
  EXPECT_EQ(found.bottleneck(found.plan.rings), "none");
  EXPECT_GT(found.plan.rings.total(), 1000);
  const Found withPort = amongHosts(nvlinkMachine(1, 80, {}, 1, nicText(0, netText(0, 100))));
  ASSERT_EQ(withPort.plan.rings.channels.size(), 1u);
  EXPECT_EQ(withPort.graph.label(withPort.plan.rings.channels[0].netOut), "mlx5_0");
  EXPECT_NEAR(withPort.plan.rings.total(), 12.5, 0.001);
}

TEST(Search, ANicOnTheWrongSocketIsReachedThroughBoth) {
  const std::string nic = nicText(0, netText(0, 200));
  std::string xml = "<system><cpu numaid=\"0\" arch=\"x86_64\" vendor=\"GenuineIntel\" modelid=\"143\">" +
                    nic + "</cpu><cpu numaid=\"1\" arch=\"x86_64\" vendor=\"GenuineIntel\" modelid=\"143\">";
  for (int gpu = 0; gpu < 2; ++gpu)
    xml +=
        test::gpuText(gpu, 80, fmt::format(R"(<nvlink target="{}" count="12"/>)", test::gpuAddress(1 - gpu)));
  const Found found = amongHosts(xml + "</cpu></system>");
  EXPECT_EQ(found.plan.rings.typeInter, PathType::sys);
  EXPECT_EQ(found.plan.rings.typeIntra, PathType::nvl);
  EXPECT_NEAR(found.plan.rings.total(), 22, 0.01);
  EXPECT_EQ(found.bottleneck(found.plan.rings), "CPU0 to CPU1");
}

TEST(Search, ARackOf72GpusUsesAllItsNvlink) {
  const Found found{graphOf(describe(rackDomain(72))), {}};
  EXPECT_NEAR(found.plan.rings.total(), 18 * 40.1, 0.01);
  EXPECT_LE(found.plan.rings.rate(), 24);
  EXPECT_LT(found.plan.work, 5'000'000u);
  const Found ports{graphOf(describe(rackDomain(72))), {.acrossHosts = true}};
  EXPECT_NEAR(ports.plan.rings.total(), 18 * 40.1, 1) << "72 ports could carry more";
}

TEST(Search, RanksOnHostDevicesFollowTheNumaNodes) {
  const Graph graph = graphOf(describe(R"(<system><cpu numaid="0" arch="x86_64" vendor="AuthenticAMD"/>
    <cpu numaid="1" arch="x86_64" vendor="AuthenticAMD"/></system>)"));
  const NodeId a = test::nodeOf(graph, "CPU0"), b = test::nodeOf(graph, "CPU1");
  const Found found{graph, {.members = {a, b, a, b}}};
  EXPECT_EQ(found.plan.rings.channels, (std::vector<Channel>{{{0, 2, 3, 1}}})) << found.text();
  EXPECT_NEAR(found.plan.rings.total(), 16, 0.01);
  EXPECT_THAT(found.text(), testing::HasSubstr("CPU0/0 > CPU0/2 > CPU1/3 > CPU1/1 > CPU0/0"));
}

TEST(ChannelSearch, GoesThroughAllSetsAndUsesNoLinkTwice) {
  const Graph graph = graphOf(describe(nvlinkMachine(8, 70, cubeMesh())));
  const Paths paths(graph);
  SearchRequest request;
  request.members = defaultMembers(graph);
  SearchSpace space(graph, paths, request);
  ChannelSearch search(&space);
  ChannelSearch::Task task{.levelIntra = PathType::nvl, .rate = 20'000'000, .wanted = 6, .limit = 1'000'000};
  for (int round = 0; round < 2; ++round) {
    const std::vector<Channel> found = search.find(task, false);
    ASSERT_EQ(found.size(), 6u);
    EXPECT_FALSE(search.limitReached());
    std::vector<Rate> used(space.links().size());
    for (const Channel& channel : found)
      for (size_t i = 0; i < 8; ++i)
        for (const LinkId link : space.route(static_cast<size_t>(channel.order[i]),
                                             static_cast<size_t>(channel.order[(i + 1) % 8])))
          used[link] += kHalves * task.rate;
    for (LinkId link = 0; link < used.size(); ++link) EXPECT_LE(used[link], space.links()[link].capacity);
  }
  // Seven: more than the links carry. With a limit it ends, and says so.
  task.wanted = 7;
  task.limit = 5000;
  EXPECT_EQ(search.find(task, false).size(), 6u);
  EXPECT_TRUE(search.limitReached());
}

TEST(ChannelSearch, MayEndAtAnyStep) {
  const Graph graph = graphOf(describe(test::sharedSwitchMachine()));
  const Paths paths(graph);
  SearchRequest request;
  request.members = defaultMembers(graph);
  request.acrossHosts = true;
  SearchSpace space(graph, paths, request);
  ChannelSearch search(&space);
  ChannelSearch::Task task{
      .levelIntra = PathType::nvl, .levelInter = PathType::pix, .rate = 24'000'000, .wanted = 9};
  size_t most = 0;
  for (task.limit = 1; task.limit < 300; ++task.limit) {
    const std::vector<Channel> found = search.find(task, false);
    EXPECT_GE(found.size(), most) << "more steps, no fewer channels";
    most = found.size();
    EXPECT_LE(search.work(), task.limit);
    for (const Channel& channel : found) EXPECT_EQ(channel.order.size(), 8u);
  }
  EXPECT_EQ(most, 8u);
}

TEST(Search, ChannelsStayInTheRange) {
  const Found few{graphOfFile("oci-h100-full.xml"), {.maxChannels = 4}};
  EXPECT_EQ(few.plan.rings.channels.size(), 4u);
  EXPECT_NEAR(few.plan.rings.total(), 370.8, 0.01);
  const Found many{graphOf(describe(pcieMachine())), {.minChannels = 5}};
  EXPECT_EQ(many.plan.rings.channels.size(), 5u);
  EXPECT_EQ(many.plan.trees.channels.size(), 5u);
  EXPECT_NEAR(many.plan.rings.total(), 22, 0.01) << "the same, shared by more";
}

TEST(Search, ItsLimitIsInStepsAndKept) {
  const std::string xml = nvlinkMachine(8, 70, cubeMesh());
  const Found little{graphOf(describe(xml)), {.workLimit = 100}};
  EXPECT_TRUE(little.plan.limitReached);
  EXPECT_GT(little.plan.rings.total(), 0);
  EXPECT_THAT(little.text(), testing::HasSubstr("The search ended at its limit"));
  const Found nothing{graphOf(describe(xml)), {.workLimit = 1}};
  EXPECT_EQ(nothing.plan.rings.channels, (std::vector<Channel>{{{0, 1, 2, 3, 4, 5, 6, 7}}}));
}

TEST(Search, SaysTheSameEveryTime) {
  for (const char* name : {"oci-h100-full.xml", "azure-ndv5.xml", "aws-p4d.xml", "aws-g5.xml"}) {
    const Found one{graphOfFile(name), {.acrossHosts = true}},
        other{graphOfFile(name), {.acrossHosts = true}};
    EXPECT_EQ(one.text(), other.text());
    EXPECT_EQ(one.plan.work, other.plan.work);
    EXPECT_GT(one.plan.rings.total(), 0) << name;
  }
}

TEST(Search, MembersWithoutAWayAreChainedInTheirOrder) {
  const Graph graph = graphOf(describe(R"(<system><cpu host_hash="0x1"><pci busid="1:0.0"><gpu dev="0"/></pci>
    </cpu></system>)"));
  const NodeId gpu = test::nodeOf(graph, "GPU0");
  EXPECT_THAT(searchChannels(graph, Paths(graph), {}).status().message(), StartsWith("a search needs"));
  EXPECT_THAT(searchChannels(graph, Paths(graph), {.members = {gpu, 77}}).status().message(),
              StartsWith("member 77 is no node"));
  EXPECT_THAT(searchChannels(graph, Paths(graph), {.members = {gpu}, .maxChannels = 65}).status().message(),
              StartsWith("1 to 65 channels"));
  const Graph two = graphOf(describe(R"(<system><cpu host_hash="0x1"><pci busid="1:0.0"><gpu dev="0"/></pci>
    </cpu><cpu host_hash="0x2"><pci busid="1:0.0" class="0x020000"/></cpu></system>)"));
  EXPECT_THAT(searchChannels(two, Paths(two), {.members = {0, 2}}).status().message(),
              testing::HasSubstr("on different hosts"));
  EXPECT_THAT(searchChannels(two, Paths(two), {.members = {3}}).status().message(),
              testing::HasSubstr("neither GPU nor CPU"));
}

}  // namespace
}  // namespace tutti
