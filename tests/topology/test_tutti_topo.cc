// tutti-topo's rings, pictures, explanations and graph files. What it shows of the hardware: test_report.cc.
#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>
#include <pugixml.hpp>
#include <sstream>
#include <string>

#include "support/command.h"
#include "topology/graph_xml.h"
#include "topology/machines.h"
#include "topology/topology_files.h"

namespace tutti {
namespace {

using test::runCommand;
using test::topologyFile;
using testing::HasSubstr;
using testing::StartsWith;

const std::string kTool = TUTTI_BINARY_DIR "/bin/tutti-topo ";

std::string temporary(const std::string& name) {
  return testing::TempDir() + "tutti_topo_" + std::to_string(::getpid()) + "_" + name;
}
std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}
std::string output(const std::string& command, int status = 0) {
  const auto outcome = runCommand(command);
  EXPECT_EQ(outcome.status, status) << command << "\n" << outcome.output;
  return outcome.output;
}

TEST(TuttiTopo, PrintsRingsAndTreesWithWhatLimitsThem) {
  const std::string text = output(kTool + topologyFile("oci-h100-full.xml"));
  EXPECT_THAT(
      text,
      HasSubstr("\nThis host alone\nRings: 16 channels of 23.17 GB/s, 370.8 GB/s in all (NVL between ranks)\n"
                "   0-15  GPU0 > GPU1 > GPU2 > GPU3 > GPU4 > GPU5 > GPU6 > GPU7 > GPU0\n"
                "  Limited by GPU0 to NVSwitch: NVLink of 370.8 GB/s for 16 channels (15 other links are as "
                "full)\n"));
  EXPECT_THAT(
      text, HasSubstr("\nAs one of several hosts\nRings: 16 channels of 22.5 GB/s, 360 GB/s in all (NVL "
                      "between ranks, PXN to the network)\n"
                      "      0  mlx5_0 > GPU0 > GPU1 > GPU2 > GPU3 > GPU4 > GPU5 > GPU6 > GPU7 > mlx5_0\n"));
  EXPECT_THAT(text, HasSubstr("\n      9  mlx5_4 - GPU1 - GPU2 - GPU3 - GPU4 - GPU5 - GPU6 - GPU7 - GPU0\n"));
}

TEST(TuttiTopo, ObeysTheEnvironmentOfAJob) {
  const std::string file = topologyFile("oci-h100-full.xml");
  EXPECT_THAT(output("NCCL_CROSS_NIC=1 NCCL_MAX_NCHANNELS=4 " + kTool + file),
              testing::AllOf(HasSubstr("\nWith NCCL_CROSS_NIC=1, NCCL_MAX_NCHANNELS=4\n"),
                             HasSubstr("rails are crossed"), HasSubstr("Rings: 4 channels")));
  EXPECT_THAT(output("NCCL_PXN_DISABLE=1 " + kTool + file + " --explain GPU0 mlx5_3"),
              StartsWith("GPU0 to mlx5_3: PHB, 6 GB/s"));
  EXPECT_THAT(output("NCCL_P2P_DISABLE=1 " + kTool + file + " --explain GPU0 GPU1"),
              HasSubstr("SHM, through host memory"));
  EXPECT_THAT(output("NCCL_CROSS_NIC=3 " + kTool + file, 1),
              HasSubstr("tutti-topo: NCCL_CROSS_NIC=\"3\" is not in 0 .. 2"));
  EXPECT_THAT(output("NCCL_P2P_LEVEL=far " + kTool + file, 1),
              HasSubstr("NCCL_P2P_LEVEL: \"far\" is no level"));
}

TEST(TuttiTopo, DrawsTheMachineAndItsRings) {
  const std::string path = temporary("h100.svg");
  EXPECT_EQ(output(kTool + topologyFile("oci-h100-full.xml") + " --svg " + path), "");
  const std::string svg = contents(path);
  ::unlink(path.c_str());
  pugi::xml_document document;
  ASSERT_TRUE(document.load_string(svg.c_str())) << svg;
  std::string words;
  for (const auto& text : document.select_nodes("//text"))
    words += std::string(text.node().text().get()) + "\n";
  for (const char* word :
       {"oci-h100-full.xml, as one of several hosts\n",
        "Rings: 16 channels of 22.5 GB/s, 360 GB/s in all, NVL between ranks, PXN to the network\n",
        "Limited by NIC 0000:0c:00.0 to mlx5_0: net of 22.5 GB/s for 1 channel (31 other links are as "
        "full)\n",
        "CPU1\n", "GPU7\n", "NVSwitch\n", "mlx5_17 22.5\n", "ring 15\n", "PCI switch 0000:d1:00.0\n",
        "SYS 22\n",
        "16 rings: GPU0 > GPU1 > GPU2 > GPU3 > GPU4 > GPU5 > GPU6 > GPU7, each beginning at its own port's "
        "GPU\n"})
    EXPECT_THAT(words, HasSubstr(word));
  // Eight steps of the ring, each with its head; all ports full and so red.
  EXPECT_EQ(document.select_nodes("//path[@stroke='#1f5fd0']").size(), 8u);
  EXPECT_EQ(document.select_nodes("//path[@fill='#1f5fd0']").size(), 8u);
  EXPECT_EQ(document.select_nodes("//rect[@stroke='#d01818']").size(), 16u);
}

TEST(TuttiTopo, DrawsAllKindsOfMachines) {
  const auto draw = [](const std::string& xml) {
    const std::string file = temporary("machine.xml"), path = temporary("machine.svg");
    std::ofstream(file) << xml;
    output(kTool + file + " --svg " + path);
    const std::string svg = contents(path);
    ::unlink(file.c_str());
    ::unlink(path.c_str());
    pugi::xml_document document;
    EXPECT_TRUE(document.load_string(svg.c_str()));
    return svg;
  };
  EXPECT_THAT(draw(test::rackDomain(72)), testing::AllOf(HasSubstr("NVSwitch, the same in all rows"),
                                                         HasSubstr(">to GPU10<"), HasSubstr(">from GPU9<")));
  EXPECT_THAT(draw(test::nvlinkMachine(8, 70, test::cubeMesh())), HasSubstr("1 ring: GPU0 &gt; "));
  EXPECT_THAT(draw(test::pcieMachine(test::nicText(0, test::netText(0, 100)))), HasSubstr("mlx5_0 12.5"));
  EXPECT_THAT(draw("<system><cpu><nic><net name=\"a&lt;b\xff\"/></nic></cpu></system>"),
              HasSubstr("a&lt;b?"));
  EXPECT_THAT(draw("<system><cpu/></system>"), HasSubstr("One rank: nothing to move"));
}

TEST(TuttiTopo, WritesPngWhereItWasBuiltForThat) {
  const std::string path = temporary("h100.png");
  // fontconfig, which draws the words, frees nothing at the end, and librsvg's threads synchronise in code
  // that a sanitizer does not see into.
  const std::string tool = "ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=report_bugs=0 " + kTool;
  const auto outcome = runCommand(tool + topologyFile("oci-h100-full.xml") + " --png " + path);
  if (outcome.status != 0) {
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.output, HasSubstr("built without librsvg. Install librsvg2-dev"));
    return;
  }
  const std::string png = contents(path);
  ::unlink(path.c_str());
  EXPECT_THAT(png, StartsWith("\x89PNG"));
  EXPECT_GT(png.size(), 50'000u);
  EXPECT_THAT(output(tool + topologyFile("oci-h100-full.xml") + " --png /no/such/folder/a.png", 1),
              HasSubstr("/no/such/folder/a.png"));
}

TEST(TuttiTopo, WritesAndReadsGraphFiles) {
  const std::string path = temporary("graph.xml"), file = topologyFile("oci-h100-full.xml");
  output(kTool + file + " --graph-xml > " + path);
  const auto graphs = readGraphXml(path);
  ASSERT_TRUE(graphs.isOk()) << graphs.status().message();
  EXPECT_EQ((*graphs)[0].channels.size(), 16u);
  EXPECT_EQ((*graphs)[0].channels[1].netIn, 2u);
  EXPECT_EQ(output(kTool + file + " --graph " + path + " --graph-xml"), contents(path));
  EXPECT_EQ(output(kTool + file + " --graph-xml --alone").find("<net"), std::string::npos);
  // One that a person changed.
  output("sed -i 's/<gpu dev=\"7\"/<gpu dev=\"9\"/' " + path);
  EXPECT_THAT(output(kTool + file + " --graph " + path, 1),
              HasSubstr(path + ":3: <channel>: <gpu dev=\"9\"> is no rank of this host"));
  ::unlink(path.c_str());
}

TEST(TuttiTopo, SaysWhatIsWrongWithRequests) {
  const std::string file = topologyFile("oci-h100-full.xml");
  EXPECT_THAT(output(kTool + file + " --explain GPU0", 2), HasSubstr("--explain needs two devices"));
  EXPECT_THAT(output(kTool + file + " --explain GPU0 GPU9", 1),
              HasSubstr("no device \"GPU9\"; there are GPU0"));
  EXPECT_THAT(output(kTool + file + " --svg", 2), HasSubstr("--svg needs a file"));
  EXPECT_THAT(output(kTool + file + " --svg /no/such/folder/a.svg", 1),
              HasSubstr("open /no/such/folder/a.svg: No such file"));
  EXPECT_THAT(output(kTool + file + " --svg /dev/full", 1), HasSubstr("write /dev/full: No space left"));
  // A picture that fits into the buffer: only its flush fails.
  const std::string small = temporary("small.xml");
  std::ofstream(small) << "<system><cpu/></system>";
  EXPECT_THAT(output(kTool + small + " --svg /dev/full", 1), HasSubstr("write /dev/full: No space left"));
  ::unlink(small.c_str());
  EXPECT_THAT(output(kTool + file + " --graph /no/such.xml", 1), HasSubstr("open graph file /no/such.xml"));
}

}  // namespace
}  // namespace tutti
