#include "topology/paths.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>

#include "topology/topology_files.h"

namespace tutti {
namespace {

using test::describe;
using test::graphOf;
using test::graphOfFile;
using test::nodeOf;

/// "PIX 22.5 GB/s 3 hops: GPU0 > PCI switch 0000:08:00.0 > ..."
std::string pathText(const Graph& graph, const Paths& paths, const std::string& from, const std::string& to) {
  const NodeId a = nodeOf(graph, from), b = nodeOf(graph, to);
  const Path path = paths.between(a, b);
  std::string text = fmt::format("{} {:g} GB/s {} hops:", pathTypeName(path.type), path.bandwidth, path.hops);
  for (const NodeId id : paths.route(a, b)) text += " > " + graph.label(id);
  return text;
}
std::string pathText(const Graph& graph, const std::string& from, const std::string& to,
                     PathOptions options = {}) {
  return pathText(graph, Paths(graph, options), from, to);
}
PathType typeOf(const Graph& graph, const std::string& from, const std::string& to) {
  return Paths(graph).between(nodeOf(graph, from), nodeOf(graph, to)).type;
}

/// Two sockets, two GPUs in each, one switch a GPU and a NIC beside GPU0; no NVLink unless given.
std::string twoSockets(const char* nvlink0 = "", const char* nvlink1 = "", const char* nvlink2 = "") {
  return fmt::format(R"(<system><cpu numaid="0" arch="x86_64" vendor="GenuineIntel" modelid="143">
    <pci busid="1:0.0" class="0x060400" link_speed="16 GT/s" link_width="16">
      <pci busid="2:0.0" link_speed="16 GT/s" link_width="16"><gpu dev="0" sm="80">{}</gpu></pci>
      <pci busid="3:0.0" link_speed="16 GT/s" link_width="16"><nic><net name="mlx5_0" dev="0" speed="100000"/>
      </nic></pci></pci>
    <pci busid="4:0.0" class="0x060400" link_speed="16 GT/s" link_width="16">
      <pci busid="5:0.0" link_speed="16 GT/s" link_width="16"><gpu dev="1" sm="80">{}</gpu></pci></pci></cpu>
    <cpu numaid="1" arch="x86_64" vendor="GenuineIntel" modelid="143">
    <pci busid="6:0.0" link_speed="16 GT/s" link_width="16"><gpu dev="2" sm="80">{}</gpu></pci>
    </cpu></system>)",
                     nvlink0, nvlink1, nvlink2);
}

TEST(Paths, OfTheH100Host) {
  const Graph graph = graphOfFile("oci-h100-full.xml");
  const Paths paths(graph);
  EXPECT_EQ(pathText(graph, paths, "GPU0", "GPU7"), "NVL 370.8 GB/s 2 hops: > GPU0 > NVSwitch > GPU7");
  EXPECT_EQ(pathText(graph, paths, "GPU0", "mlx5_0"),
            "PIX 22.5 GB/s 3 hops: > GPU0 > PCI switch 0000:08:00.0 > NIC 0000:0c:00.0 > mlx5_0");
  EXPECT_EQ(pathText(graph, paths, "GPU0", "CPU0"),
            "PHB 6 GB/s 2 hops: > GPU0 > PCI switch 0000:08:00.0 > CPU0");
  EXPECT_EQ(pathText(graph, paths, "GPU0", "CPU1"),
            "SYS 6 GB/s 3 hops: > GPU0 > PCI switch 0000:08:00.0 > CPU0 > CPU1");
  EXPECT_EQ(pathText(graph, paths, "GPU0", "GPU0"), "LOC inf GB/s 0 hops: > GPU0");
  // Each GPU has exactly its own card's two ports close; to the others it goes through their GPUs.
  const std::vector<NodeId> gpus = graph.all(NodeType::gpu), nets = graph.all(NodeType::net);
  for (size_t g = 0; g < gpus.size(); ++g)
    for (size_t n = 0; n < nets.size(); ++n)
      EXPECT_EQ(paths.between(gpus[g], nets[n]).type, n / 2 == g ? PathType::pix : PathType::pxn) << g << n;
  EXPECT_EQ(pathText(graph, paths, "GPU0", "mlx5_17"),
            "PXN 22.5 GB/s 5 hops: > GPU0 > NVSwitch > GPU7 > PCI switch 0000:d1:00.0 > NIC 0000:d5:00.0 > "
            "mlx5_17");
}

TEST(Paths, WithoutPxnAFarNicIsReachedThroughTheCpus) {
  const Graph graph = graphOfFile("oci-h100-full.xml");
  const Paths paths(graph, {.pxn = false});
  EXPECT_EQ(paths.between(nodeOf(graph, "GPU0"), nodeOf(graph, "mlx5_3")).type, PathType::phb);
  EXPECT_EQ(paths.between(nodeOf(graph, "GPU0"), nodeOf(graph, "mlx5_17")).type, PathType::sys);
  EXPECT_EQ(paths.between(nodeOf(graph, "mlx5_17"), nodeOf(graph, "GPU0")).type, PathType::sys);
}

TEST(Paths, LookTheSameFromBothEnds) {
  const Graph graph = graphOfFile("oci-h100-full.xml");
  const Paths paths(graph);
  for (NodeId a = 0; a < graph.nodes().size(); ++a)
    for (NodeId b = 0; b < graph.nodes().size(); ++b)
      EXPECT_EQ(paths.between(a, b), paths.between(b, a)) << graph.label(a) << " " << graph.label(b);
}

TEST(Paths, RoutesAreMadeOfLinksAndHaveTheSaidWidthAndLength) {
  for (const std::string& text :
       {twoSockets(), systemXmlText(*readSystemXml(test::topologyFile("oci-h100-full.xml")))}) {
    const Graph graph = graphOf(describe(text));
    const Paths paths(graph);
    for (NodeId a = 0; a < graph.nodes().size(); ++a)
      for (NodeId b = 0; b < graph.nodes().size(); ++b) {
        const std::vector<NodeId> route = paths.route(a, b);
        if (paths.between(a, b).type == PathType::dis) {
          EXPECT_TRUE(route.empty());
          continue;
        }
        ASSERT_EQ(route.size(), paths.between(a, b).hops + 1u);
        EXPECT_EQ(route.front(), a);
        EXPECT_EQ(route.back(), b);
        float narrowest = std::numeric_limits<float>::infinity();
        for (size_t i = 0; i + 1 < route.size(); ++i) {
          const auto& links = graph.node(route[i]).links;
          const auto link = std::ranges::find(links, route[i + 1], &HardwareLink::to);
          ASSERT_NE(link, links.end()) << graph.label(route[i]) << " " << graph.label(route[i + 1]);
          narrowest = std::min(narrowest, link->bandwidth);
        }
        EXPECT_EQ(paths.between(a, b).bandwidth, narrowest);
      }
  }
}

TEST(Paths, TypesFollowWhatLiesBetween) {
  const Graph graph = graphOf(describe(twoSockets()));
  EXPECT_EQ(typeOf(graph, "GPU0", "mlx5_0"), PathType::pix);
  EXPECT_EQ(typeOf(graph, "GPU0", "GPU1"), PathType::phb);
  EXPECT_EQ(typeOf(graph, "GPU1", "mlx5_0"), PathType::phb);
  EXPECT_EQ(typeOf(graph, "GPU0", "GPU2"), PathType::sys);
  EXPECT_EQ(pathText(graph, "GPU0", "GPU2"),
            "SYS 22 GB/s 4 hops: > GPU0 > PCI switch 0000:01:00.0 > CPU0 > CPU1 > GPU2");
  const Graph p4d = graphOfFile("aws-p4d.xml");
  EXPECT_EQ(typeOf(p4d, "GPU0", "GPU1"), PathType::pix);
  EXPECT_EQ(typeOf(p4d, "GPU0", "GPU2"), PathType::phb);
  EXPECT_EQ(typeOf(p4d, "GPU0", "NIC 0000:10:1b.0"), PathType::pix);
  const Graph azure = graphOfFile("azure-ndv5.xml");
  EXPECT_EQ(typeOf(azure, "GPU0", "NIC 0101:00:00.0"), PathType::pix);
  EXPECT_EQ(typeOf(azure, "GPU0", "GPU7"), PathType::sys);
}

TEST(Paths, SeveralSwitchesArePxb) {
  const Graph graph = graphOf(describe(R"(<system><cpu><pci busid="1:0.0" class="0x060400">
    <pci busid="2:0.0" class="0x060400"><pci busid="3:0.0"><gpu dev="0"/></pci></pci>
    <pci busid="4:0.0" class="0x060400"><pci busid="5:0.0"><gpu dev="1"/></pci></pci></pci></cpu></system>)"));
  EXPECT_EQ(pathText(graph, "GPU0", "GPU1"),
            "PXB 12 GB/s 4 hops: > GPU0 > PCI switch 0000:02:00.0 > PCI switch 0000:01:00.0 > PCI switch "
            "0000:04:00.0 > GPU1");
}

TEST(Paths, NvlinkThroughOneGpuIsNvb) {
  const Graph graph =
      graphOf(describe(twoSockets(R"(<nvlink target="5:0.0" count="4"/>)",
                                  R"(<nvlink target="2:0.0" count="4"/><nvlink target="6:0.0" count="2"/>)",
                                  R"(<nvlink target="5:0.0" count="2"/>)")));
  EXPECT_EQ(pathText(graph, "GPU0", "GPU1"), "NVL 80 GB/s 1 hops: > GPU0 > GPU1");
  EXPECT_EQ(pathText(graph, "GPU0", "GPU2"), "NVB 40 GB/s 2 hops: > GPU0 > GPU1 > GPU2");
  EXPECT_EQ(pathText(graph, "GPU0", "GPU2", {.throughGpu = false}).substr(0, 3), "SYS");
  // Two GPUs between are too many, whatever the links.
  EXPECT_EQ(pathText(graph, "GPU1", "mlx5_0"),
            "PXN 12.5 GB/s 4 hops: > GPU1 > GPU0 > PCI switch 0000:01:00.0 > NIC 0000:03:00.0 > mlx5_0");
  EXPECT_EQ(typeOf(graph, "GPU2", "mlx5_0"), PathType::sys);
}

TEST(Paths, OfTwoGpusBetweenTheWiderOneIsTaken) {
  // GPU0 to GPU3: by GPU1 with one link, or by GPU2 with three.
  const Graph graph = graphOf(describe(R"(<system><cpu>
    <pci busid="1:0.0"><gpu dev="0" sm="80"><nvlink target="2:0.0" count="1"/><nvlink target="3:0.0" count="3"/></gpu></pci>
    <pci busid="2:0.0"><gpu dev="1" sm="80"><nvlink target="4:0.0" count="1"/></gpu></pci>
    <pci busid="3:0.0"><gpu dev="2" sm="80"><nvlink target="4:0.0" count="3"/></gpu></pci>
    <pci busid="4:0.0"><gpu dev="3" sm="80"/></pci></cpu></system>)"));
  EXPECT_EQ(pathText(graph, "GPU0", "GPU3"), "NVB 60 GB/s 2 hops: > GPU0 > GPU2 > GPU3");
  EXPECT_TRUE(isBetter({PathType::nvl, 9, 1}, {PathType::nvb, 1, 9})) << "type first";
  EXPECT_TRUE(isBetter({PathType::nvl, 9, 2}, {PathType::nvl, 1, 1})) << "then width";
  EXPECT_TRUE(isBetter({PathType::nvl, 1, 1}, {PathType::nvl, 2, 1})) << "then hops";
  EXPECT_FALSE(isBetter({PathType::nvl, 1, 1}, {PathType::nvl, 1, 1}));
}

TEST(Paths, NothingElsePassesThroughAGpu) {
  // GPU0 - GPU1 by NVLink, in two sockets: CPU0 to CPU1 stays with the sockets' link.
  const Graph graph = graphOf(describe(R"(<system>
    <cpu numaid="0"><pci busid="1:0.0"><gpu dev="0" sm="80"><nvlink target="2:0.0" count="9"/></gpu></pci></cpu>
    <cpu numaid="1"><pci busid="2:0.0"><gpu dev="1" sm="80"><nvlink target="1:0.0" count="9"/></gpu></pci></cpu>
    </system>)"));
  EXPECT_EQ(pathText(graph, "CPU0", "CPU1"), "SYS 6 GB/s 1 hops: > CPU0 > CPU1");
  EXPECT_EQ(pathText(graph, "CPU0", "GPU1"), "SYS 6 GB/s 2 hops: > CPU0 > CPU1 > GPU1");
}

TEST(Paths, C2cGivesP2cToNics) {
  const Graph graph = graphOf(describe(R"(<system><cpu numaid="0" arch="arm64">
    <pci busid="1:0.0" link_speed="16 GT/s" link_width="16"><gpu dev="0" sm="90"><c2c bw="44712" count="10"/></gpu></pci>
    <pci busid="2:0.0" class="0x060400" link_speed="32 GT/s" link_width="16">
      <pci busid="3:0.0" link_speed="32 GT/s" link_width="16"><nic><net name="mlx5_0" speed="400000"/></nic></pci></pci>
    </cpu></system>)"));
  EXPECT_EQ(pathText(graph, "GPU0", "CPU0"), "C2C 447.12 GB/s 1 hops: > GPU0 > CPU0");
  EXPECT_EQ(pathText(graph, "GPU0", "mlx5_0"),
            "P2C 48 GB/s 4 hops: > GPU0 > CPU0 > PCI switch 0000:02:00.0 > NIC 0000:03:00.0 > mlx5_0");
}

TEST(Paths, WidthComesBeforeHopsAndTypeBeforeWidth) {
  // GPU0 to GPU1: one NVLink directly (20 GB/s), or two hops through the NVSwitch (80 GB/s): the wide one.
  // PCI of 96 GB/s is wider still, and no NVLink.
  const std::string gpu = R"(<pci busid="{0}:0.0" link_speed="64 GT/s" link_width="16"><gpu dev="{1}" sm="80">
    <nvlink target="{2}:0.0" count="1"/><nvlink target="f:0.0" count="4" tclass="0x068000"/></gpu></pci>)";
  const Graph graph = graphOf(describe("<system><cpu>" + fmt::format(fmt::runtime(gpu), 1, 0, 2) +
                                       fmt::format(fmt::runtime(gpu), 2, 1, 1) + "</cpu></system>"));
  EXPECT_EQ(pathText(graph, "GPU0", "GPU1"), "NVL 80 GB/s 2 hops: > GPU0 > NVSwitch > GPU1");
}

TEST(Paths, OfTheSameTypeAndWidthTheShortestWins) {
  // GPU2 is reached through the NVSwitch in two hops, also where a wide detour starts better: GPU0's direct
  // links are as wide as the narrow end of any way.
  const Graph graph = graphOf(describe(R"(<system><cpu>
    <pci busid="1:0.0"><gpu dev="0" sm="80"><nvlink target="f:0.0" count="8" tclass="0x068000"/>
      <nvlink target="2:0.0" count="2"/></gpu></pci>
    <pci busid="2:0.0"><gpu dev="1" sm="80"><nvlink target="f:0.0" count="2" tclass="0x068000"/>
      <nvlink target="1:0.0" count="2"/></gpu></pci></cpu></system>)"));
  EXPECT_EQ(pathText(graph, "GPU0", "GPU1"), "NVL 40 GB/s 1 hops: > GPU0 > GPU1");
}

TEST(Paths, BetweenHostsThereAreNone) {
  const Graph graph =
      graphOf(describe(R"(<system><cpu host_hash="0x1"><pci busid="1:0.0"><gpu dev="0"/></pci></cpu>
    <cpu host_hash="0x2"><pci busid="1:0.0"><gpu dev="1"/></pci></cpu></system>)"));
  EXPECT_EQ(pathText(graph, "GPU0", "GPU1"), "DIS 0 GB/s 0 hops:");
}

TEST(PathLevel, TakesNamesInAnyCaseAndOldNumbers) {
  const auto is = [](const char* text, PathType expected) {
    const auto level = parsePathLevel(text);
    ASSERT_TRUE(level.isOk()) << text;
    EXPECT_EQ(*level, expected) << text;
  };
  is("LOC", PathType::loc);
  is("NVL", PathType::nvl);
  is("nvb", PathType::nvb);
  is("C2C", PathType::c2c);
  is("Pix", PathType::pix);
  is("PXB", PathType::pxb);
  is("P2C", PathType::p2c);
  is("PXN", PathType::pxn);
  is("phb", PathType::phb);
  is("SYS", PathType::sys);
  is("0", PathType::loc);
  is("1", PathType::pix);
  is("2", PathType::pxb);
  is("3", PathType::phb);
  is("4", PathType::sys);
  is("99999999999999999999", PathType::sys);
  for (const char* text : {"", "-1", "DIS", "NET", "NODE", "1x", "PIX ", "1.0"}) {
    const auto level = parsePathLevel(text);
    ASSERT_FALSE(level.isOk()) << text;
    EXPECT_THAT(level.status().message(), testing::StartsWith("\"" + std::string(text) + "\" is no level"));
  }
}

/// A domain of that many GPUs on NVSwitches, one NIC each, two GPUs a NUMA node.
SystemDescription largeDomain(int gpus) {
  std::string text = "<system>";
  for (int g = 0; g < gpus; ++g) {
    if (g % 2 == 0) text += fmt::format("<cpu numaid=\"{}\" arch=\"arm64\">", g / 2);
    text += fmt::format(
        "<pci busid=\"{0:x}:1:0.0\" class=\"0x060400\"><pci busid=\"{0:x}:2:0.0\"><gpu dev=\"{0}\" "
        "sm=\"100\">"
        "<nvlink target=\"0:0.0\" count=\"18\" tclass=\"0x068000\"/></gpu></pci>"
        "<pci busid=\"{0:x}:3:0.0\"><nic><net dev=\"{0}\" speed=\"400000\"/></nic></pci></pci>",
        g);
    if (g % 2 == 1) text += "</cpu>";
  }
  return describe(text + "</system>");
}

TEST(Paths, OfLargeDomainsAreFound) {
  const Graph graph = graphOf(largeDomain(72));
  const Paths paths(graph);
  for (const NodeId a : graph.all(NodeType::gpu))
    for (const NodeId b : graph.all(NodeType::gpu))
      if (a != b) {
        EXPECT_EQ(paths.between(a, b), (Path{PathType::nvl, 2, 18 * 40.1f}));
      }
}

}  // namespace
}  // namespace tutti
