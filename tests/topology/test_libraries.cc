// NVML, libibverbs, the CUDA driver and hwloc as sources: fakes that answer as a machine would, and the
// libraries themselves where they are installed.
#include <gmock/gmock.h>

#include <cstddef>
#include <functional>

#include "base/params.h"
#include "topology/cpu_mask.h"
#include "topology/fake_libraries.h"
#include "topology/machine.h"
#include "topology/merge.h"
#include "topology/paths.h"
#include "topology/topology_files.h"
#if __has_include(<infiniband/verbs.h>)
#include <infiniband/verbs.h>
#endif
#if __has_include(<hwloc.h>)
#include <hwloc.h>
#endif

namespace tutti {
namespace {

using test::fakeLibraries;
using test::fakeMachine;
using test::Machine;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

#if __has_include(<infiniband/verbs.h>)
static_assert(offsetof(VerbsDeviceAttributes, systemImageGuid) == offsetof(ibv_device_attr, sys_image_guid));
static_assert(offsetof(VerbsDeviceAttributes, maxQueuePairs) == offsetof(ibv_device_attr, max_qp));
static_assert(sizeof(VerbsDeviceAttributes) > sizeof(ibv_device_attr));
static_assert(offsetof(VerbsPortAttributes, gidTableLength) == offsetof(ibv_port_attr, gid_tbl_len));
static_assert(offsetof(VerbsPortAttributes, activeWidth) == offsetof(ibv_port_attr, active_width));
static_assert(offsetof(VerbsPortAttributes, activeSpeed) == offsetof(ibv_port_attr, active_speed));
static_assert(offsetof(VerbsPortAttributes, linkLayer) == offsetof(ibv_port_attr, link_layer));
static_assert(sizeof(VerbsPortAttributes) > sizeof(ibv_port_attr));
static_assert(kVerbsPortActive == IBV_PORT_ACTIVE);
static_assert(IBV_LINK_LAYER_INFINIBAND == 1 && IBV_LINK_LAYER_ETHERNET == 2);
#endif
#if __has_include(<hwloc.h>)
static_assert(offsetof(HwlocObject, osIndex) == offsetof(hwloc_obj, os_index));
static_assert(offsetof(HwlocObject, attributes) == offsetof(hwloc_obj, attr));
static_assert(offsetof(HwlocObject, parent) == offsetof(hwloc_obj, parent));
static_assert(offsetof(HwlocObject, cpuset) == offsetof(hwloc_obj, cpuset));
static_assert(kHwlocPackage == HWLOC_OBJ_PACKAGE && kHwlocCore == HWLOC_OBJ_CORE);
static_assert(kHwlocL2 == HWLOC_OBJ_L2CACHE && kHwlocL3 == HWLOC_OBJ_L3CACHE);
static_assert(kHwlocNumaNode == HWLOC_OBJ_NUMANODE);
#endif

SystemDescription h100() {
  auto read = readSystemXml(test::topologyFile("oci-h100-full.xml"));
  EXPECT_TRUE(read.isOk());
  return *read;
}

void forEach(std::vector<PciDescription>& devices, const std::function<void(PciDescription&)>& visit) {
  for (PciDescription& device : devices) {
    visit(device);
    forEach(device.children, visit);
  }
}
void forEach(SystemDescription& system, const std::function<void(PciDescription&)>& visit) {
  for (CpuDescription& cpu : system.cpus) forEach(cpu.pci, visit);
}

/// The facts of both libraries in a description, with what was noted.
std::vector<std::string> merge(SystemDescription* system) {
  std::vector<std::string> notes;
  mergeGpus(readNvml(test::fakeNvml(), &notes), system, &notes);
  mergePorts(readVerbs(test::fakeVerbs(), &notes), system, &notes);
  return notes;
}

TEST(Libraries, GiveTheH100HostItsNvlinksAndPorts) {
  const SystemDescription whole = h100();
  test::pretend(whole);
  SystemDescription skeleton = whole, expected = whole;
  forEach(skeleton, [](PciDescription& pci) {
    pci.gpu.reset();
    pci.nics.clear();
  });
  // The cards, as /sys shows them: RDMA devices with a port, and nothing else.
  forEach(expected, [&](PciDescription& pci) {
    if (pci.gpu) pci.gpu->rank = pci.gpu->gdr = std::nullopt;  // of the job; of the CUDA driver
    for (NicDescription& nic : pci.nics)
      for (NetDescription& net : nic.nets) {
        net.speed = 200000;  // HDR, four lanes
        net.latency = std::nullopt;
        net.gdr = std::nullopt;
      }
  });
  forEach(skeleton, [&](PciDescription& pci) {
    forEach(expected, [&](PciDescription& known) {
      if (known.busId != pci.busId || known.nics.empty()) return;
      pci.nics.emplace_back();
      for (const NetDescription& net : known.nics[0].nets)
        pci.nics[0].nets.push_back({net.name, net.dev, 1, net.port});  // at 1 Mb/s
    });
  });
  EXPECT_THAT(merge(&skeleton), IsEmpty());
  EXPECT_EQ(systemXmlText(skeleton), systemXmlText(expected));
  const Graph graph = test::graphOf(skeleton);
  const Path path = Paths(graph).between(test::nodeOf(graph, "GPU0"), test::nodeOf(graph, "GPU7"));
  EXPECT_EQ(path.type, PathType::nvl);
  EXPECT_FLOAT_EQ(path.bandwidth, 18 * 20.6f);
  EXPECT_EQ(fakeMachine().nvmlStarted, 0) << "NVML is shut down as often as it is started";
  EXPECT_EQ(fakeMachine().rdmaOpen, 0);
}

TEST(Libraries, NvmlTellsWhoIsWho) {
  test::pretend(h100());
  fakeMachine().gpus[1].cluster = 0xab;
  fakeMachine().gpus[1].clique = 7;
  std::vector<std::string> notes;
  const std::vector<GpuFacts> gpus = readNvml(test::fakeNvml(), &notes);
  EXPECT_THAT(notes, IsEmpty());
  ASSERT_EQ(gpus.size(), 8u);
  EXPECT_EQ(gpus[0].uuid, "GPU-00000000:0f:00.0");
  EXPECT_EQ(gpus[0].name, "Fake GPU");
  EXPECT_EQ(gpus[0].dev, 0);
  EXPECT_EQ(gpus[0].fabricCluster, "") << "a cluster of zeros is none";
  EXPECT_EQ(gpus[1].fabricCluster, "abababababababababababababababab");
  EXPECT_EQ(gpus[1].fabricClique, 7u);
  EXPECT_EQ(gpus[0].nvlinks.size(), 18u);
  EXPECT_EQ(gpus[0].nvlinks[3].version, 4);
  EXPECT_EQ(gpus[0].peers.size(), 7u);
  EXPECT_EQ(gpus[0].peers.at(gpus[1].busId), (PeerAccessFacts{true, true, true, false}));
}

TEST(Libraries, NvlinksThatAreDownOrCannotReachPeersAreNone) {
  fakeMachine() = {};
  fakeMachine().gpus = {{"00000000:0A:00.0",
                         8,
                         0,
                         {{"00000000:0B:00.0", 0},
                          {"00000000:0B:00.0", 0, false},
                          {"00000000:0B:00.0", 0, true, false},
                          {"00000000:0B:00.0", 0}}},
                        {"00000000:0B:00.0", 8, 0, {}}};
  SystemDescription system = test::describe(R"(<system version="1"><cpu numaid="0">
    <pci busid="0000:0a:00.0" class="0x030200"/><pci busid="0000:0b:00.0" class="0x030000"/></cpu></system>)");
  EXPECT_THAT(merge(&system), IsEmpty());
  const NvlinkDescription expected = {*parseBusId("0b:00.0"), 2, 0x030000};
  EXPECT_THAT(system.cpus[0].pci[0].gpu->nvlinks, ElementsAre(expected)) << "the class is the one of /sys";
  std::vector<std::string> notes;
  EXPECT_EQ(readNvml(test::fakeNvml(), &notes)[0].nvlinksDown, 1);
}

TEST(Libraries, SwitchesThatAVirtualMachineCannotSeeAreSwitches) {
  fakeMachine() = {};
  fakeMachine().gpus = {{"0000:0a:00.0", 9, 0, {{"fffffff:ffff:ff", -1}, {"FFFFFFFF:FF:1F.0", 2}, {"", 2}}},
                        {"0000:0b:00.0", 9, 0, {{"fffffff:ffff:ff", -1}}}};
  SystemDescription system = test::describe(R"(<system version="1"><cpu numaid="0">
    <pci busid="0000:0a:00.0" class="0x030200"/><pci busid="0000:0b:00.0" class="0x030200"/></cpu></system>)");
  merge(&system);
  const std::string text = systemXmlText(system);
  EXPECT_THAT(text, HasSubstr(R"(<nvlink target="fffffff:ffff:ff" count="3" tclass="0x068000"/>)"));
  EXPECT_EQ(test::describe(text), system) << "NCCL writes such addresses, and we read them";
  const Graph graph = test::graphOf(system);
  EXPECT_EQ(Paths(graph).between(test::nodeOf(graph, "GPU0"), test::nodeOf(graph, "GPU1")).type,
            PathType::nvl);
}

TEST(Libraries, LinksBetweenChipsHaveTheBandwidthOfThoseThatAreUp) {
  fakeMachine() = {};
  fakeMachine().gpus = {{"0000:0a:00.0", 9, 0, {}, {44712, 0, 44712}}};
  SystemDescription system = test::describe(
      R"(<system version="1"><cpu numaid="0"><pci busid="0000:0a:00.0" class="0x030200"/></cpu></system>)");
  merge(&system);
  const C2cDescription expected = {44712, 2};
  EXPECT_THAT(system.cpus[0].pci[0].gpu->c2c, ElementsAre(expected));
}

TEST(Libraries, GpusThatSysHidesStandAtTheFirstNodeWithANote) {
  test::pretend(h100());
  SystemDescription system =
      test::describe(R"(<system version="1"><cpu numaid="3"/><cpu numaid="4"/></system>)");
  std::vector<std::string> notes;
  mergeGpus(readNvml(test::fakeNvml(), &notes), &system, &notes);
  EXPECT_THAT(notes, ElementsAre("where 8 GPUs are in the machine is not known: taken as NUMA node 3"));
  ASSERT_EQ(system.cpus[0].pci.size(), 8u);
  EXPECT_EQ(system.cpus[0].pci[0].linkSpeed, "32.0 GT/s PCIe");
  EXPECT_EQ(system.cpus[0].pci[0].linkWidth, 16);
  EXPECT_EQ(test::graphOf(system).all(NodeType::gpu).size(), 8u);
}

TEST(Libraries, WhatNvmlRefusesToSayIsNoted) {
  test::pretend(h100());
  std::vector<std::string> notes;
  fakeMachine().nvmlInit = 9;
  EXPECT_THAT(readNvml(test::fakeNvml(), &notes), IsEmpty());
  EXPECT_THAT(notes, ElementsAre("NVML does not start: Driver Not Loaded"));
  EXPECT_EQ(fakeMachine().nvmlStarted, 0);
  fakeMachine().nvmlInit = 0;
  fakeMachine().gpus[2].busId = "nonsense";
  fakeMachine().gpus[3].major = 0;
  notes.clear();
  EXPECT_EQ(readNvml(test::fakeNvml(), &notes).size(), 7u);
  EXPECT_THAT(notes, ElementsAre("NVML does not say where GPU 2 is: its address is malformed",
                                 "NVML does not tell the compute capability of GPU 0000:5b:00.0"));
}

TEST(Libraries, AnOldNvmlWithOnlyTheNecessaryFunctionsGivesAddresses) {
  test::pretend(h100());
  const NvmlApi all = test::fakeNvml();
  NvmlApi old;
  old.init = all.init;
  old.shutdown = all.shutdown;
  old.deviceCount = all.deviceCount;
  old.deviceByIndex = all.deviceByIndex;
  old.pciInfo = all.pciInfo;
  std::vector<std::string> notes;
  const std::vector<GpuFacts> gpus = readNvml(old, &notes);
  ASSERT_EQ(gpus.size(), 8u);
  EXPECT_EQ(gpus[0].sm, std::nullopt);
  EXPECT_THAT(gpus[0].nvlinks, IsEmpty());
}

TEST(Libraries, TheCudaDriverSaysWhatNvmlDoesNot) {
  test::pretend(h100());
  SystemDescription system = h100();
  forEach(system, [](PciDescription& pci) {
    if (pci.gpu) pci.gpu.emplace().dev = 5;
  });
  std::vector<std::string> notes;
  mergeGpus(readCudaDriver(test::fakeCuda(), &notes), &system, &notes);
  EXPECT_THAT(notes, IsEmpty());
  forEach(system, [](PciDescription& pci) {
    if (!pci.gpu) return;
    EXPECT_EQ(pci.gpu->sm, 90);
    EXPECT_EQ(pci.gpu->gdr, 1);
    EXPECT_EQ(pci.gpu->dev, 5) << "what is known stays";
  });
}

TEST(Libraries, VerbsAreBelievedAboutPorts) {
  fakeMachine() = {};
  fakeMachine().rdma = {{"mlx5_0", 0x100, 1000, true, {{1, 2, 64, 2, {}}, {4, 2, 128, 1, {0xfe, 0, 0x20}}}},
                        {"mlx5_1", 0x101, 1000, true, {{4, 1, 32, 2, {}}}},
                        {"mlx5_2", 0x102, 1000, false, {{}}}};
  SystemDescription system = test::describe(R"(<system version="1"><cpu numaid="0">
    <pci busid="0000:0a:00.0" class="0x020000"><nic>
      <net name="mlx5_0" dev="0" port="1"/></nic></pci></cpu></system>)");
  std::vector<std::string> notes;
  const std::vector<PortFacts> ports = readVerbs(test::fakeVerbs(), &notes);
  EXPECT_THAT(notes, ElementsAre("RDMA device mlx5_2 cannot be opened: Permission denied"));
  ASSERT_EQ(ports.size(), 3u);
  EXPECT_EQ(ports[0].layer, LinkLayer::ethernet);
  EXPECT_EQ(ports[1].layer, LinkLayer::infiniband);
  EXPECT_THAT(ports[1].gids, ElementsAre("0 fe00:0000:0000:0000:0000:0000:0000:0000",
                                         "2 2000:0000:0000:0000:0000:0000:0000:0000"));
  notes.clear();
  mergePorts(ports, &system, &notes);
  EXPECT_THAT(notes, ElementsAre("mlx5_0 port 1 is down, says libibverbs; /sys says it is up: left out",
                                 "where mlx5_0 is in the machine is not known: taken as NUMA node 0",
                                 "where mlx5_1 is in the machine is not known: taken as NUMA node 0"));
  ASSERT_EQ(system.cpus[0].nics.size(), 2u);
  const NetDescription expected = {"mlx5_1", 2, 25000, 1, std::nullopt, 0x101, 1000};
  EXPECT_EQ(system.cpus[0].nics[1].nets[0], expected);
  EXPECT_EQ(fakeMachine().rdmaOpen, 0);
}

TEST(Libraries, SpeedsOfPortsAreThoseOfTheStandards) {
  EXPECT_EQ(verbsSpeed(2, 64), 200000) << "4x HDR";
  EXPECT_EQ(verbsSpeed(2, 128), 400000) << "4x NDR";
  EXPECT_EQ(verbsSpeed(2, 32), 100000) << "4x EDR";
  EXPECT_EQ(verbsSpeed(1, 32), 25000);
  EXPECT_EQ(verbsSpeed(16, 64), 100000) << "2x HDR";
  EXPECT_EQ(verbsSpeed(0, 64), 0);
  EXPECT_EQ(verbsSpeed(2, 3), 0) << "two bits";
}

TEST(Libraries, LibrariesThatAreMissingAreNamedOnceWhenThereIsSomethingToAskThem) {
  int opened = 0;
  MachineLibraries libraries;
  libraries.nvml = [&] { return ++opened, openNvml("libnone-nvml.so.1"); };
  libraries.verbs = [&] { return ++opened, openVerbs("libnone-verbs.so.1"); };
  libraries.cuda = [&] { return ++opened, openCudaDriver(DynamicLibrary::If::present, "libnone-cuda.so.1"); };
  libraries.hwloc = [&] { return ++opened, openHwloc("libnone-hwloc.so.1"); };
  Machine machine;
  machine.intel();
  machine.numa(0, "1");
  machine.file("/sys/devices/system/cpu/online", "0");
  machine.cpu(0, "0", "0");
  machine.file("/sys/bus/pci/devices/none", "");
  EXPECT_THAT(detectSystem(machine.root(), libraries).assumptions, IsEmpty());
  EXPECT_EQ(opened, 0) << "nothing to ask for";
  machine.file("/dev/infiniband/uverbs0", "");
  machine.file("/dev/nvidiactl", "");
  EXPECT_THAT(
      detectSystem(machine.root(), libraries).assumptions,
      ElementsAre(
          HasSubstr("NVLinks of the GPUs are not known, as NVML does not tell them (libnone-nvml.so.1"),
          HasSubstr("RDMA ports are as /sys shows them: libnone-verbs.so.1")));
  EXPECT_EQ(opened, 3);
  std::filesystem::remove_all(machine.root() + "/sys");
  EXPECT_THAT(
      detectSystem(machine.root(), libraries).assumptions,
      Contains(HasSubstr("cores and caches are not known: /sys does not show them, and libnone-hwloc.so.1")));
}

TEST(Libraries, AreOpenedByTheNamesOfTheirFunctions) {
  const std::string driver = TUTTI_BINARY_DIR "/lib/tests/libtest_fake_driver.so";
  EXPECT_FALSE(openCudaDriver(DynamicLibrary::If::loaded, driver).isOk()) << "nobody has loaded it";
  const auto nvml = openNvml(driver);
  ASSERT_TRUE(nvml.isOk()) << nvml.status().message();
  std::vector<std::string> notes;
  const std::vector<GpuFacts> gpus = readNvml(*nvml, &notes);
  EXPECT_THAT(notes, IsEmpty());
  ASSERT_EQ(gpus.size(), 1u);
  GpuFacts expected;
  expected.busId = *parseBusId("0000:0a:00.0");
  expected.dev = 0;
  expected.sm = 103;
  expected.name = "Fake";
  expected.uuid = "GPU-1";
  expected.pciGeneration = 6;
  expected.pciWidth = 8;
  expected.nvlinks = {{0, 5, {*parseBusId("0000:1c:00.0"), 1, kPciClassNvswitch}}};
  expected.c2c = {{42000, 1}};
  expected.fabricCluster = "000102030405060708090a0b0c0d0e0f";
  expected.fabricClique = 77;
  EXPECT_EQ(gpus[0], expected);
  const auto cuda = openCudaDriver(DynamicLibrary::If::loaded, driver);
  ASSERT_TRUE(cuda.isOk()) << cuda.status().message();
  const std::vector<GpuFacts> seen = readCudaDriver(*cuda, &notes);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].busId, expected.busId);
  EXPECT_EQ(seen[0].sm, 103);
  EXPECT_EQ(seen[0].gdr, 1);
  EXPECT_THAT(openVerbs(driver).status().message(), HasSubstr("has no function ibv_get_device_list"));
}

TEST(Libraries, VerbsOfThisMachineAnswer) {
  const auto verbs = openVerbs();
  if (!verbs.isOk()) GTEST_SKIP() << verbs.status().message();
  std::vector<std::string> notes;
  for (const PortFacts& port : readVerbs(*verbs, &notes)) EXPECT_FALSE(port.device.empty());
}

TEST(Libraries, DetectionAsksThemWhenSysShowsAGpuAndAnRdmaCard) {
  Machine machine;
  machine.intel();
  machine.numa(0, "1");
  machine.pci("pci0000:00/0000:00:01.0/0000:0a:00.0",
              {{"class", "0x030200"}, {"vendor", "0x10de"}, {"numa_node", "0"}});
  machine.pci("pci0000:00/0000:00:02.0/0000:0c:00.0",
              {{"class", "0x020700"}, {"vendor", "0x15b3"}, {"numa_node", "0"}});
  machine.ib("mlx5_0", "pci0000:00/0000:00:02.0/0000:0c:00.0", "100 Gb/sec (4X EDR)", "4: ACTIVE");
  fakeMachine() = {};
  fakeMachine().gpus = {{"0000:0a:00.0", 9, 0, {{"0000:1c:00.0"}}}};
  fakeMachine().rdma = {{"mlx5_0", 0x55, 77, true, {{}}}};
  const Detection found = detectSystem(machine.root(), fakeLibraries());
  EXPECT_THAT(systemXmlText(found.system), HasSubstr(R"(<gpu dev="0" sm="90" gdr="1">)"));
  EXPECT_THAT(systemXmlText(found.system),
              HasSubstr(R"(<nvlink target="0000:1c:00.0" count="1" tclass="0x068000"/>)"));
  EXPECT_THAT(systemXmlText(found.system),
              HasSubstr(R"(<net name="mlx5_0" dev="0" speed="200000" port="1" guid="0x55" maxconn="77"/>)"));
  EXPECT_EQ(found.gpus.size(), 1u);
  EXPECT_EQ(found.ports.size(), 1u);
  EXPECT_THAT(systemXmlText(detectSystem(machine.root()).system), Not(HasSubstr("<gpu")))
      << "files alone ask nobody";
}

TEST(Libraries, LevelsAreTheSameInSettingsAndPaths) {
  // base/params may not know topology/paths: two lists of names.
  for (const char* text : {"LOC", "nvl", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "0", "1",
                           "2", "3", "4", "5", "99999999999999999999"}) {
    ::setenv("NCCL_NET_GDR_LEVEL", text, 1);
    params().reload();
    const auto level = parsePathLevel(text);
    ASSERT_TRUE(level.isOk()) << text;
    EXPECT_FALSE(params().netGdrLevel.isAuto()) << text;
    EXPECT_EQ(params().netGdrLevel.level(), static_cast<int>(*level)) << text;
  }
  ::unsetenv("NCCL_NET_GDR_LEVEL");
  params().reload();
}

TEST(Hwloc, SeesTheCoresThatSysShows) {
  const auto hwloc = openHwloc();
  if (!hwloc.isOk()) GTEST_SKIP() << hwloc.status().message();
  const CpuLayout expected = readCpuLayout(Sysfs("/"));
  if (expected.groups.empty()) GTEST_SKIP() << "/sys shows no cores";
  const auto facts = readHwloc(*hwloc);
  ASSERT_TRUE(facts.isOk()) << facts.status().message();
  EXPECT_EQ(facts->cpus, expected);
  std::vector<std::pair<int32_t, std::string>> nodes, shown;
  for (const auto& node : facts->numaNodes) nodes.emplace_back(node.id, cpuMaskText(node.cpus));
  for (const CpuDescription& cpu : detectSystem().system.cpus) shown.emplace_back(*cpu.numaId, cpu.affinity);
  EXPECT_EQ(nodes, shown);
}

TEST(Hwloc, OfAnotherMajorVersionIsNotUsed) {
  HwlocApi hwloc;
  hwloc.version = [] { return 0x00030000u; };
  EXPECT_THAT(readHwloc(hwloc).status().message(), HasSubstr("hwloc has version 3, version 2 is needed"));
  hwloc.version = [] { return 0x00020900u; };
  hwloc.init = [](HwlocApi::Topology*) { return -1; };
  EXPECT_THAT(readHwloc(hwloc).status().message(), HasSubstr("hwloc does not start"));
}

TEST(Hwloc, FillsInNodesAndCoresWhereFilesShowNone) {
  HwlocFacts facts;
  facts.cpus.groups = {{0, {{0}, {1}}, 1, 2}};
  facts.numaNodes = {{0, {0}}, {2, {1}}};
  SystemDescription system = test::describe(R"(<system version="1"><cpu numaid="0" arch="arm64">
    <pci busid="0000:0a:00.0" class="0x030200"/></cpu></system>)");
  CpuLayout cpus;
  SystemDescription untouched = system;
  mergeHwloc(facts, false, &untouched, &cpus);
  EXPECT_EQ(untouched, system) << "a node that /sys shows stays";
  EXPECT_EQ(cpus, facts.cpus);
  mergeHwloc(facts, true, &system, &cpus);
  EXPECT_EQ(system, test::describe(R"(<system version="1"><cpu numaid="0" affinity="1" arch="arm64">
    <pci busid="0000:0a:00.0" class="0x030200"/></cpu><cpu numaid="2" affinity="2" arch="arm64"/></system>)"));
}

}  // namespace
}  // namespace tutti
