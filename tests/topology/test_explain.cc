#include "topology/explain.h"

#include <gmock/gmock.h>

#include <string>

#include "topology/machines.h"
#include "topology/topology_files.h"

namespace tutti {
namespace {

using test::describe;
using test::graphOf;
using test::graphOfFile;
using test::nodeOf;
using testing::HasSubstr;
using testing::Not;

std::string explain(const Graph& graph, const char* from, const char* to, ConnectionLevels levels = {},
                    PathOptions options = {}) {
  return explainText(graph, nodeOf(graph, from), nodeOf(graph, to), options, levels);
}

TEST(Explain, AFarPortIsReachedThroughAPeer) {
  EXPECT_EQ(explain(graphOfFile("oci-h100-full.xml"), "GPU0", "mlx5_3"),
            R"(GPU0 to mlx5_3: PXN, 22.5 GB/s, 5 links

Route
  GPU0 > NVSwitch                             NVLink  370.8 GB/s  18 links
  NVSwitch > GPU1                             NVLink  370.8 GB/s  18 links
  GPU1 > PCI switch 0000:26:00.0              PCI        48 GB/s
  PCI switch 0000:26:00.0 > NIC 0000:2a:00.0  PCI        48 GB/s
  NIC 0000:2a:00.0 > mlx5_3                   net      22.5 GB/s  < the narrowest

Other ways
  PHB, 6 GB/s: GPU0 > PCI switch 0000:08:00.0 > CPU0 > PCI switch 0000:26:00.0 > NIC 0000:2a:00.0 > mlx5_3
    farther: PHB comes after PXN

Transport
  NET through GPU1 (PXN): its rank sends and receives for GPU0.
  GPUDirect RDMA, the card reads and writes GPU memory: GPU1 and mlx5_3 are PIX apart, within the default of NCCL_NET_GDR_LEVEL here, P2C.
  NCCL_NET_GDR_LEVEL=LOC: through host memory instead.
  NCCL_PXN_DISABLE=1: PHB at 6 GB/s instead of PXN.
)");
}

TEST(Explain, TheEnvironmentDecidesAboutTransports) {
  const Graph h100 = graphOfFile("oci-h100-full.xml");
  EXPECT_THAT(explain(h100, "GPU0", "GPU5"),
              HasSubstr("P2P, one GPU reads and writes the other's memory: NVL is within the "
                        "default of NCCL_P2P_LEVEL here, PXB."));
  EXPECT_THAT(explain(h100, "GPU0", "GPU5", {.p2p = PathType::loc}),
              HasSubstr("SHM, through host memory: NVL is farther than NCCL_P2P_LEVEL=LOC.\n  "
                        "NCCL_P2P_LEVEL=NVL or farther: P2P"));
  EXPECT_THAT(
      explain(h100, "GPU0", "mlx5_0", {.gdr = PathType::loc}),
      HasSubstr("Through host memory: GPU0 and mlx5_0 are PIX apart, farther than NCCL_NET_GDR_LEVEL=LOC.\n"
                "  NCCL_NET_GDR_LEVEL=PIX or farther: GPUDirect RDMA instead."));
  EXPECT_THAT(explain(h100, "mlx5_3", "GPU0", {}, {.pxn = false}),
              HasSubstr("Through host memory: GPU0 and mlx5_3 are PHB apart, farther than the default"));
  const Graph pcie =
      graphOf(describe(test::pcieMachine(test::nicText(0, "<net name=\"eth9\" speed=\"10000\"/>"))));
  EXPECT_THAT(explain(pcie, "GPU0", "GPU1"), HasSubstr("P2P, one GPU reads"));
  EXPECT_THAT(
      explain(pcie, "GPU0", "GPU2"),
      HasSubstr("SHM, through host memory: PHB is farther than the default of NCCL_P2P_LEVEL here, PXB.\n"
                "  NCCL_P2P_LEVEL=PHB or farther: P2P instead."));
  EXPECT_THAT(explain(pcie, "GPU0", "eth9"), HasSubstr("the port is not known to support GPUDirect RDMA"));
  EXPECT_THAT(explain(pcie, "CPU0", "CPU1"), HasSubstr("SHM, shared memory of the host"));
  EXPECT_THAT(explain(pcie, "CPU0", "eth9"), HasSubstr("NET, from and to host memory"));
  EXPECT_THAT(explain(pcie, "CPU0", "GPU0"), HasSubstr("None: ranks are on GPUs or CPUs"));
}

TEST(Explain, TwoGpusOnAmdMayUseAnyWay) {
  const auto pair = [](const char* vendor) {
    return graphOf(describe(fmt::format(
        R"(<system><cpu numaid="0" arch="x86_64" vendor="{}"><pci busid="1:0.0"><gpu dev="0"/></pci></cpu>
      <cpu numaid="1" arch="x86_64" vendor="{}"><pci busid="2:0.0"><gpu dev="1"/></pci></cpu></system>)",
        vendor, vendor)));
  };
  EXPECT_THAT(explain(pair("AuthenticAMD"), "GPU0", "GPU1"), HasSubstr("P2P, one GPU reads"));
  EXPECT_THAT(explain(pair("GenuineIntel"), "GPU0", "GPU1"), HasSubstr("SHM, through host memory"));
}

TEST(Explain, OtherWaysSayWhyTheyWereNotTaken) {
  const std::string cube =
      explain(graphOf(describe(test::nvlinkMachine(8, 70, test::cubeMesh()))), "GPU0", "GPU7");
  EXPECT_THAT(cube, HasSubstr("NVB, 20 GB/s: GPU0 > GPU3 > GPU7\n    narrower: 20 instead of 40 GB/s\n"));
  EXPECT_THAT(cube, HasSubstr("SYS, 22 GB/s: GPU0 > CPU0 > CPU1 > GPU7\n    farther: SYS comes after NVB\n"));
  const Graph single =
      graphOf(describe("<system><cpu><pci busid=\"1:0.0\"><gpu dev=\"0\"/></pci></cpu></system>"));
  EXPECT_THAT(explain(single, "GPU0", "CPU0"), HasSubstr("Other ways: none"));
  EXPECT_EQ(explain(single, "GPU0", "GPU0"), "GPU0 to GPU0: the same device\n");
  const Graph hosts =
      graphOf(describe(R"(<system><cpu host_hash="0x1"><pci busid="1:0.0"><gpu dev="0"/></pci></cpu>
    <cpu host_hash="0x2"><pci busid="1:0.0"><gpu dev="1"/></pci></cpu></system>)"));
  EXPECT_THAT(explain(hosts, "GPU0", "GPU1"), HasSubstr("no path\n  They are on different hosts"));
  EXPECT_THAT(explain(hosts, "GPU0", "GPU1"), HasSubstr("NET: they are on different hosts"));
}

TEST(Explain, DevicesAreFoundByAnyName) {
  const Graph graph = graphOfFile("oci-h100-full.xml");
  const auto is = [&](const char* name, const char* label) {
    const auto found = findNode(graph, name);
    ASSERT_TRUE(found.isOk()) << found.status().message();
    EXPECT_EQ(graph.label(*found), label);
  };
  is("gpu3", "GPU3");
  is("MLX5_16", "mlx5_16");
  is("net14", "mlx5_16");
  is("CPU1", "CPU1");
  is("nvswitch", "NVSwitch");
  is("5b:00.0", "GPU3");
  is("0000:58:00.0", "NIC 0000:58:00.0");
  for (const char* name : {"", "GPU8", "GPU", "ff:00.0", "\x1b[31m"}) {
    const auto found = findNode(graph, name);
    ASSERT_FALSE(found.isOk()) << name;
    EXPECT_THAT(found.status().message(), HasSubstr("; there are GPU0, GPU1,"));
    EXPECT_THAT(found.status().message(), Not(HasSubstr("\x1b")));
  }
  const Graph twice = graphOf(
      describe(R"(<system><cpu><nic><net name="a"/></nic><nic><net name="a"/></nic></cpu></system>)"));
  EXPECT_THAT(findNode(twice, "a").status().message(), HasSubstr("several devices are called \"a\""));
}

}  // namespace
}  // namespace tutti
