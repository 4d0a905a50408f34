// The host runtime's virtual GPUs and the library's topology read the same file: they must agree.
#include <gtest/gtest.h>

#include <sstream>

#include "support/command.h"
#include "topology/machines.h"
#include "topology/paths.h"
#include "topology/topology_files.h"

namespace tutti {
namespace {

/// Addresses and capabilities of the devices, as programs are told.
std::vector<std::pair<std::string, std::string>> virtualGpus(const std::string& file) {
  const test::Outcome outcome =
      test::runCommand("TUTTI_HOST_KERNELS=1 NCCL_TOPO_FILE=" + test::topologyFile(file.c_str()) + " " +
                       test::programBeside("hostrt_helper") + " describe-devices");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  std::vector<std::pair<std::string, std::string>> devices;
  std::istringstream lines(outcome.output);
  std::string busId, capability;
  for (std::string rest; lines >> busId >> capability && std::getline(lines, rest);)
    devices.emplace_back(busId, capability);
  return devices;
}

TEST(VirtualGpus, AreTheGpusOfTheGraphInItsOrder) {
  for (const char* file : {"oci-h100-full.xml", "azure-ndv5.xml", "aws-p4d.xml"}) {
    const Graph graph = test::graphOfFile(file);
    const std::vector<NodeId> gpus = graph.all(NodeType::gpu);
    const auto devices = virtualGpus(file);
    ASSERT_EQ(devices.size(), gpus.size()) << file;
    for (size_t i = 0; i < devices.size(); ++i) {
      const auto busId = parseBusId(devices[i].first);
      ASSERT_TRUE(busId) << devices[i].first;
      EXPECT_EQ(graph.gpuAt(*busId), gpus[i]) << file << " device " << i;
      const int sm = graph.node(gpus[i]).sm;
      const std::string capability = std::to_string(sm / 10) + "." + std::to_string(sm % 10);
      EXPECT_EQ(devices[i].second, sm > 0 ? capability : "9.0");
    }
  }
}

TEST(VirtualGpus, OfTheH100HostHaveItsNvlinks) {
  const Graph graph = test::graphOfFile("oci-h100-full.xml");
  const Paths paths(graph);
  const auto devices = virtualGpus("oci-h100-full.xml");
  ASSERT_EQ(devices.size(), 8u);
  for (int i = 0; i < 8; ++i) {
    const NodeId here = graph.gpuAt(*parseBusId(devices[static_cast<size_t>(i)].first));
    ASSERT_NE(here, kNoNode);
    EXPECT_EQ(graph.node(here).number, i);
    int32_t nvlinks = 0;
    for (const HardwareLink& link : graph.node(here).links)
      if (link.type == LinkType::nvlink) nvlinks += link.count;
    EXPECT_EQ(nvlinks, 18);
    const NodeId next = graph.gpuAt(*parseBusId(devices[static_cast<size_t>((i + 1) % 8)].first));
    EXPECT_EQ(paths.between(here, next).type, PathType::nvl);
  }
}

TEST(VirtualGpus, OfHostDevicesAreInNoGraph) {
  const Graph graph = test::graphOfFile("oci-h100-full.xml");
  EXPECT_EQ(graph.gpuAt(*parseBusId("7e00:00:00.0")), kNoNode);
  EXPECT_EQ(graph.gpuAt(*parseBusId("0000:08:00.0")), kNoNode) << "a switch";
}

}  // namespace
}  // namespace tutti
