#include "topology/report.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <string>

#include "support/command.h"
#include "topology/topology_files.h"

namespace tutti {
namespace {

using test::describe;
using test::graphOf;
using test::graphOfFile;
using test::runCommand;
using test::topologyFile;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string kTool = TUTTI_BINARY_DIR "/bin/tutti-topo ";

/// Two GPUs with NVLink, a dual-port card beside the first.
const char* const kSmall = R"(<system version="1">
  <cpu numaid="0" affinity="ff,00000000" arch="x86_64" vendor="GenuineIntel" modelid="143">
    <pci busid="1:0.0" class="0x060400" link_speed="16 GT/s" link_width="16">
      <pci busid="2:0.0" link_speed="32 GT/s" link_width="16"><gpu dev="0" sm="90" rank="4" gdr="1"><nvlink target="4:0.0" count="4"/></gpu></pci>
      <pci busid="3:0.0" link_speed="16 GT/s" link_width="16"><nic><net name="mlx5_0" dev="0" speed="200000" gdr="1"/><net name="mlx5_1" dev="1" speed="200000"/></nic></pci>
    </pci>
  </cpu>
  <cpu numaid="1" arch="x86_64" vendor="GenuineIntel" modelid="143">
    <pci busid="4:0.0" link_speed="32 GT/s" link_width="16"><gpu dev="1" sm="90"><nvlink target="2:0.0" count="4"/></gpu></pci>
  </cpu>
</system>)";

TEST(Report, TheTreeShowsEveryNodeAndLink) {
  EXPECT_EQ(treeText(graphOf(describe(kSmall))), R"(CPU0  (CPUs 32-39)  SYS to CPU1 22 GB/s
  PCI switch 0000:01:00.0  24 GB/s
    GPU0 0000:02:00.0  48 GB/s  sm 90  rank 4  GDR  NVLink to GPU1 82.4 GB/s (4 links)
    NIC 0000:03:00.0  24 GB/s
      mlx5_0  25 GB/s  net 0  GDR
      mlx5_1  25 GB/s  net 1
CPU1  SYS to CPU0 22 GB/s
  GPU1 0000:04:00.0  48 GB/s  sm 90  NVLink to GPU0 82.4 GB/s (4 links)
)");
}

TEST(Report, TheMatrixIsThatOfNvidiaSmi) {
  const Graph graph = graphOf(describe(kSmall));
  EXPECT_EQ(matrixText(graph, Paths(graph)),
            R"(        GPU0  GPU1  mlx5_0  mlx5_1  CPU Affinity  NUMA Affinity
GPU0    X     NV4   PIX     PIX     32-39         0
GPU1    NV4   X     PXN     PXN     ?             1
mlx5_0  PIX   PXN   X       LOC     32-39         0
mlx5_1  PIX   PXN   LOC     X       32-39         0

Legend:
  LOC  ports of the same card
  NVL  NVLink; NV#: so many links
  PIX  at most one PCI switch between
  PXN  NVLink to a GPU that is close to the NIC, and PCI from there
)");
}

TEST(Report, TheH100HostsMatrixHasItsEighteenLinks) {
  const Graph graph = graphOfFile("oci-h100-full.xml");
  const std::string text = matrixText(graph, Paths(graph));
  EXPECT_THAT(text,
              HasSubstr("\nGPU0     X     NV18  NV18  NV18  NV18  NV18  NV18  NV18  PIX     PIX     PXN "));
  EXPECT_THAT(text, HasSubstr("0-55,112-167    0\n"));
}

TEST(Report, AHostWithoutGpusShowsItsCpus) {
  const Graph graph =
      graphOf(describe(R"(<system><cpu numaid="0" affinity="3"><pci busid="3:0.0" class="0x020000"/></cpu>
    <cpu numaid="1" affinity="c"/></system>)"));
  EXPECT_THAT(matrixText(graph, Paths(graph)),
              StartsWith("                  CPU0  CPU1  NIC 0000:03:00.0  CPU Affinity  NUMA Affinity\n"
                         "CPU0              X     SYS   PHB               0-1           0\n"));
}

TEST(Report, NamesFromFilesDoNotSteerTheTerminal) {
  const Graph graph = graphOf(describe("<system><cpu><nic><net name=\"a\x1b[31m\"/></nic></cpu></system>"));
  EXPECT_EQ(treeText(graph), "CPU0\n  NIC\n    a?[31m  1.25 GB/s\n");
  EXPECT_THAT(matrixText(graph, Paths(graph)), Not(HasSubstr("\x1b")));
}

TEST(TuttiTopo, ShowsThisMachine) {
  const auto outcome = runCommand(kTool);
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, StartsWith("CPU0"));
  EXPECT_THAT(outcome.output, HasSubstr("NUMA Affinity"));
}

TEST(TuttiTopo, ShowsAFileAndWhatItLeavesOpen) {
  const auto outcome = runCommand(kTool + topologyFile("aws-g5.xml"));
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("  device 0000:00:16.0  12 GB/s\n"));
  EXPECT_THAT(outcome.output, HasSubstr("\nAssumed:\n  PCI device of unknown class"));
}

TEST(TuttiTopo, WritesAFileThatItReadsAgain) {
  const auto first = runCommand(kTool + "--xml " + topologyFile("oci-h100-full.xml"));
  EXPECT_EQ(first.status, 0);
  EXPECT_EQ(describe(first.output), *readSystemXml(topologyFile("oci-h100-full.xml")));
}

TEST(TuttiTopo, AnEmptyRootIsAMachineOfOneCpu) {
  const std::string root = testing::TempDir() + "tutti_topo_empty_" + std::to_string(::getpid());
  ASSERT_EQ(runCommand("mkdir -p " + root).status, 0);
  const auto outcome = runCommand(kTool + "--root " + root);
  runCommand("rmdir " + root);
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, StartsWith("CPU0\n\n"));
  EXPECT_THAT(outcome.output, HasSubstr("\nAssumed:\n  /sys/devices/system/node shows no NUMA node"));
}

TEST(TuttiTopo, RefusesWhatContradictsItself) {
  const auto nowhere = runCommand(kTool + "--root /no/such/folder 2>&1");
  EXPECT_EQ(nowhere.status, 1);
  EXPECT_THAT(nowhere.output, HasSubstr("--root /no/such/folder: no such folder"));
  for (const char* both : {"--xml --graph-xml", "--xml --png /dev/null", "--explain CPU0 CPU0 --xml"}) {
    const auto outcome = runCommand(kTool + both + " 2>&1");
    EXPECT_EQ(outcome.status, 2) << both;
    EXPECT_THAT(outcome.output, HasSubstr("only one of --xml")) << both;
  }
}

TEST(TuttiTopo, DoesNotWaitForAPipeThatNobodyWritesTo) {
  const std::string pipe = testing::TempDir() + "tutti_topo_pipe_" + std::to_string(::getpid());
  ASSERT_EQ(runCommand("mkfifo " + pipe).status, 0);
  const auto outcome = runCommand("timeout 20 " + kTool + pipe + " 2>&1");
  runCommand("rm " + pipe);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.output, HasSubstr("a pipe that nobody writes to"));
}

TEST(TuttiTopo, FillsAFileFromTheMachine) {
  const std::string root = testing::TempDir() + "tutti_topo_" + std::to_string(::getpid());
  const std::string node = root + "/sys/devices/system/node/node0";
  ASSERT_EQ(runCommand("mkdir -p " + node + " && echo f0 > " + node + "/cpumap").status, 0);
  const auto outcome = runCommand(kTool + topologyFile("aws-g5.xml") + " --fill --root " + root);
  runCommand("rm -r " + root);
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, StartsWith("CPU0  (CPUs 4-7)"));
  EXPECT_THAT(outcome.output, HasSubstr("device 0000:00:16.0"));
}

TEST(TuttiTopo, SaysWhatIsWrong) {
  const auto status = [](const std::string& arguments, int expected, const char* text) {
    const auto outcome = runCommand(kTool + arguments);
    EXPECT_EQ(outcome.status, expected) << arguments;
    EXPECT_THAT(outcome.output, HasSubstr(text)) << arguments;
  };
  status("/no/such/file.xml", 1,
         "tutti-topo: open topology file /no/such/file.xml: No such file or directory\n");
  status(topologyFile("README.md"), 1, "README.md:8: not XML: No document element found");
  status("--wrong", 2, "unknown argument --wrong");
  status("a.xml b.xml", 2, "one FILE at a time");
  status("--root", 2, "--root needs a folder");
  status("--root / a.xml", 2, "--root with FILE needs --fill");
  status("--fill", 2, "--fill needs a FILE");
  status("--help", 0, "usage: tutti-topo");
}

}  // namespace
}  // namespace tutti
