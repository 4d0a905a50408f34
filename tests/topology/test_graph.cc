#include "topology/graph.h"

#include <gmock/gmock.h>

#include "topology/topology_files.h"

namespace tutti {
namespace {

using test::describe;
using test::graphOf;
using test::graphOfFile;
using test::nodeOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const HardwareLink* linkBetween(const Graph& graph, NodeId from, NodeId to) {
  for (const HardwareLink& link : graph.node(from).links)
    if (link.to == to) return &link;
  return nullptr;
}

float bandwidthBetween(const Graph& graph, const std::string& from, const std::string& to) {
  const HardwareLink* link = linkBetween(graph, nodeOf(graph, from), nodeOf(graph, to));
  return link == nullptr ? -1 : link->bandwidth;
}

TEST(Graph, OfTheH100HostIsWhatItsMakerSells) {
  const Graph graph = graphOfFile("oci-h100-full.xml");
  EXPECT_EQ(graph.all(NodeType::gpu).size(), 8u);
  EXPECT_EQ(graph.all(NodeType::nic).size(), 8u);
  EXPECT_EQ(graph.all(NodeType::net).size(), 16u);
  EXPECT_EQ(graph.all(NodeType::cpu).size(), 2u);
  EXPECT_EQ(graph.all(NodeType::nvswitch).size(), 1u) << "the four count as one";
  EXPECT_EQ(graph.all(NodeType::pci).size(), 8u) << "the two levels of a Broadcom switch are one chip";
  EXPECT_THAT(graph.assumptions(), IsEmpty());
  for (const NodeId gpu : graph.all(NodeType::gpu)) {
    const HardwareLink* nvlink = linkBetween(graph, gpu, graph.all(NodeType::nvswitch)[0]);
    ASSERT_NE(nvlink, nullptr);
    EXPECT_EQ(nvlink->count, 18);
    EXPECT_NEAR(nvlink->bandwidth, 18 * 20.6, 0.01);
    EXPECT_EQ(graph.node(gpu).rank, graph.node(gpu).number);
    EXPECT_TRUE(graph.node(gpu).gdr);
  }
  EXPECT_FLOAT_EQ(bandwidthBetween(graph, "GPU0", "PCI switch 0000:08:00.0"), 48);
  EXPECT_FLOAT_EQ(bandwidthBetween(graph, "PCI switch 0000:08:00.0", "CPU0"), 6) << "5 GT/s, says the file";
  EXPECT_FLOAT_EQ(bandwidthBetween(graph, "mlx5_0", "NIC 0000:0c:00.0"), 22.5);
  EXPECT_FLOAT_EQ(bandwidthBetween(graph, "CPU0", "CPU1"), 22) << "Sapphire Rapids";
  EXPECT_EQ(graph.label(graph.cpuOf(nodeOf(graph, "GPU3"))), "CPU0");
  EXPECT_EQ(graph.label(graph.cpuOf(nodeOf(graph, "GPU4"))), "CPU1");
}

TEST(Graph, OfASkeletonHasTheGpusThatItsClassesTell) {
  const Graph azure = graphOfFile("azure-ndv5.xml");
  ASSERT_EQ(azure.all(NodeType::gpu).size(), 8u);
  EXPECT_EQ(azure.all(NodeType::nic).size(), 8u);
  EXPECT_EQ(azure.node(azure.all(NodeType::gpu)[3]).busId.text(), "0008:00:00.0") << "numbered in order";
  EXPECT_THAT(azure.assumptions(), ElementsAre("GPU without a number: numbered in order (8 times)"));
  const Graph p4d = graphOfFile("aws-p4d.xml");
  EXPECT_EQ(p4d.all(NodeType::gpu).size(), 8u);
  EXPECT_EQ(p4d.all(NodeType::nic).size(), 4u);
  EXPECT_FLOAT_EQ(bandwidthBetween(p4d, "GPU0", "PCI switch ffff:ff:01.0"), 12);
}

TEST(Graph, OfASkeletonWithoutClassesKeepsTheDevices) {
  const Graph g5 = graphOfFile("aws-g5.xml");
  EXPECT_EQ(g5.all(NodeType::gpu).size(), 0u);
  EXPECT_EQ(g5.all(NodeType::pci).size(), 9u);
  EXPECT_EQ(g5.label(g5.all(NodeType::pci)[0]), "device 0000:00:16.0");
  EXPECT_THAT(g5.assumptions(), testing::Contains(HasSubstr("unknown class")));
  EXPECT_THAT(g5.assumptions(), testing::Contains("PCI link speed not known: taken as 8 GT/s (9 times)"));
}

TEST(Graph, BranchesWithoutGpuOrNicAreTrimmed) {
  const Graph graph = graphOf(describe(R"(<system><cpu numaid="0">
    <pci busid="1:0.0" class="0x060400"><pci busid="2:0.0" class="0x010802"/></pci>
    <pci busid="3:0.0" class="0x030000" vendor="0x1a03"/>
    <pci busid="4:0.0" class="0x060400"><pci busid="5:0.0" class="0x030200"/></pci></cpu></system>)"));
  EXPECT_EQ(graph.nodes().size(), 3u);
  EXPECT_NE(linkBetween(graph, nodeOf(graph, "PCI switch 0000:04:00.0"), nodeOf(graph, "GPU0")), nullptr);
}

TEST(Graph, ADeadNvlinkCountsLess) {
  const Graph graph = graphOf(describe(R"(<system><cpu numaid="0">
    <pci busid="1:0.0"><gpu dev="0" sm="80"><nvlink target="9:0.0" count="0" tclass="0x068000"/>
      <nvlink target="a:0.0" count="2" tclass="0x068000"/><nvlink target="b:0.0" tclass="0x068000"/></gpu></pci>
    </cpu></system>)"));
  EXPECT_FLOAT_EQ(bandwidthBetween(graph, "GPU0", "NVSwitch"), 60) << "0 + 2 + 1 links of 20 GB/s";
  EXPECT_FLOAT_EQ(bandwidthBetween(graph, "NVSwitch", "GPU0"), 60);
}

TEST(Graph, AGpuWhoseNvlinksAreAllDeadHasNone) {
  const Graph graph = graphOf(describe(R"(<system><cpu numaid="0"><pci busid="1:0.0"><gpu dev="0" sm="80">
    <nvlink target="9:0.0" count="0" tclass="0x068000"/></gpu></pci></cpu></system>)"));
  EXPECT_THAT(graph.all(NodeType::nvswitch), IsEmpty());
  EXPECT_EQ(graph.node(nodeOf(graph, "GPU0")).links.size(), 1u) << "PCI";
}

TEST(Graph, NvlinksBetweenGpusAreEachSidesOwn) {
  const Graph graph = graphOf(describe(R"(<system><cpu numaid="0">
    <pci busid="1:0.0"><gpu dev="0" sm="60"><nvlink target="2:0.0" count="2" tclass="0x030200"/></gpu></pci>
    <pci busid="2:0.0"><gpu dev="1" sm="60"><nvlink target="1:0.0" count="1"/>
      <nvlink target="7:0.0" count="1" tclass="0x030200"/></gpu></pci></cpu></system>)"));
  EXPECT_FLOAT_EQ(bandwidthBetween(graph, "GPU0", "GPU1"), 36);
  EXPECT_FLOAT_EQ(bandwidthBetween(graph, "GPU1", "GPU0"), 18);
  EXPECT_THAT(graph.assumptions(), testing::Contains(HasSubstr("NVLink to 0000:07:00.0")));
}

TEST(Graph, NumbersLeftOutAreFilledWithTheFreeOnes) {
  const Graph graph = graphOf(describe(R"(<system><cpu>
    <pci busid="1:0.0"><gpu/></pci><pci busid="2:0.0"><gpu dev="0"/></pci><pci busid="3:0.0"><gpu/></pci></cpu>
    <cpu/></system>)"));
  EXPECT_EQ(graph.node(nodeOf(graph, "GPU0")).busId.bus, 2);
  EXPECT_EQ(graph.node(nodeOf(graph, "GPU1")).busId.bus, 1);
  EXPECT_EQ(graph.node(nodeOf(graph, "GPU2")).busId.bus, 3);
  EXPECT_EQ(graph.label(graph.all(NodeType::cpu)[1]), "CPU1");
}

TEST(Graph, HostsAreNotConnected) {
  const Graph graph = graphOf(describe(R"(<system><cpu numaid="0" host_hash="0x1"/>
    <cpu numaid="1" host_hash="0x1"/><cpu numaid="0" host_hash="0x2"/></system>)"));
  EXPECT_NE(linkBetween(graph, 0, 1), nullptr);
  EXPECT_EQ(linkBetween(graph, 0, 2), nullptr);
  EXPECT_EQ(graph.node(2).host, 1);
}

TEST(Graph, ConstantsAreNccls) {
  const auto socket = [](const char* arch, const char* vendor, int32_t model) {
    CpuDescription cpu;
    cpu.arch = arch;
    cpu.vendor = vendor;
    cpu.model = model;
    bool known = false;
    const float bandwidth = socketBandwidth(cpu, &known);
    return known ? bandwidth : -bandwidth;
  };
  EXPECT_FLOAT_EQ(socket("x86_64", "GenuineIntel", 0x4f), 6);
  EXPECT_FLOAT_EQ(socket("x86_64", "GenuineIntel", 0x55), 10);
  EXPECT_FLOAT_EQ(socket("x86_64", "GenuineIntel", 0x8f), 22);
  EXPECT_FLOAT_EQ(socket("x86_64", "GenuineIntel", 0xcf), 40);
  EXPECT_FLOAT_EQ(socket("x86_64", "AuthenticAMD", 17), 16);
  EXPECT_FLOAT_EQ(socket("arm64", "", 0), 6);
  EXPECT_FLOAT_EQ(socket("ppc64", "", 0), 32);
  EXPECT_FLOAT_EQ(socket("x86_64", "Unheard", 1), -6) << "assumed, and said so";
  EXPECT_FLOAT_EQ(nvlinkBandwidth(60), 18);
  EXPECT_FLOAT_EQ(nvlinkBandwidth(70), 20);
  EXPECT_FLOAT_EQ(nvlinkBandwidth(80), 20);
  EXPECT_FLOAT_EQ(nvlinkBandwidth(86), 12);
  EXPECT_FLOAT_EQ(nvlinkBandwidth(90), 20.6f);
  EXPECT_FLOAT_EQ(nvlinkBandwidth(100), 40.1f);
}

TEST(Graph, MoreNodesThanTheLimitAreRefused) {
  SystemDescription system;
  system.cpus.resize(kMaxGraphNodes + 1);
  for (size_t i = 0; i < system.cpus.size(); ++i) system.cpus[i].hostHash = i;  // not all connected to all
  const auto built = Graph::build(system);
  ASSERT_FALSE(built.isOk());
  EXPECT_EQ(built.status().message(), "the topology has more than 2048 nodes");
}

}  // namespace
}  // namespace tutti
