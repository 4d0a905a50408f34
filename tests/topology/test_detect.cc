#include "topology/detect.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/params.h"
#include "topology/cpu_mask.h"
#include "topology/machine.h"
#include "topology/paths.h"
#include "topology/sysfs.h"
#include "topology/topology_files.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using test::Machine;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// What a bridge port, a GPU and a card have in /sys.
std::map<std::string, std::string> fields(const char* classCode, const char* numa,
                                          const char* speed = "16.0 GT/s PCIe") {
  return {{"class", classCode}, {"vendor", "0x10de"},      {"device", "0x20b0"},
          {"numa_node", numa},  {"max_link_speed", speed}, {"max_link_width", "16"}};
}

/// Two sockets; in the second a switch with a GPU and an RDMA card, and a GPU at a root port.
void buildTwoSockets(Machine& machine) {
  machine.intel();
  machine.numa(0, "0000ffff");
  machine.numa(1, "ffff0000");
  const std::string up = "pci0000:80/0000:80:01.0/0000:81:00.0";
  machine.pci("pci0000:80/0000:80:01.0", fields("0x060400", "1"));
  machine.pci(up, fields("0x060400", "1"));
  machine.pci(up + "/0000:82:00.0", fields("0x060400", "1"));
  machine.pci(up + "/0000:82:00.0/0000:83:00.0", fields("0x030200", "1", "32.0 GT/s PCIe"));
  machine.pci(up + "/0000:82:01.0", fields("0x060400", "1"));
  machine.pci(up + "/0000:82:01.0/0000:84:00.0", fields("0x020700", "1"));
  machine.ib("mlx5_0", up + "/0000:82:01.0/0000:84:00.0", "200 Gb/sec (4X HDR)", "4: ACTIVE");
  machine.net("ib0", up + "/0000:82:01.0/0000:84:00.0", "200000");
  machine.pci("pci0000:80/0000:80:02.0", fields("0x060400", "1"));
  machine.pci("pci0000:80/0000:80:02.0/0000:90:00.0", fields("0x030200", "1"));
  machine.pci("pci0000:00/0000:00:1f.0", fields("0x010802", "0"));
}

TEST(Detect, TwoSocketsWithASwitch) {
  Machine machine;
  buildTwoSockets(machine);
  const Detection found = detectSystem(machine.root());
  EXPECT_THAT(found.assumptions, IsEmpty());
  EXPECT_EQ(systemXmlText(found.system),
            R"(<system version="1">
  <cpu numaid="0" affinity="ffff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143"/>
  <cpu numaid="1" affinity="ffff0000" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:81:00.0" class="0x060400" vendor="0x10de" device="0x20b0" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:83:00.0" class="0x030200" vendor="0x10de" device="0x20b0" link_speed="16.0 GT/s PCIe" link_width="16"/>
      <pci busid="0000:84:00.0" class="0x020700" vendor="0x10de" device="0x20b0" link_speed="16.0 GT/s PCIe" link_width="16">
        <nic>
          <net name="mlx5_0" dev="0" speed="200000" port="1" guid="0xc42a10300123456"/>
        </nic>
      </pci>
    </pci>
    <pci busid="0000:90:00.0" class="0x030200" vendor="0x10de" device="0x20b0" link_speed="16.0 GT/s PCIe" link_width="16"/>
  </cpu>
</system>
)") << "the switch's upstream port stands for it; 32 GT/s below a port of 16 are 16; the card's ib0 is "
       "mlx5_0";
  const Graph graph = test::graphOf(found.system);
  const Paths paths(graph);
  const NodeId gpu = test::nodeOf(graph, "GPU0"), net = test::nodeOf(graph, "mlx5_0");
  EXPECT_EQ(paths.between(gpu, net).type, PathType::pix);
  EXPECT_EQ(paths.between(gpu, test::nodeOf(graph, "GPU1")).type, PathType::phb);
}

TEST(Detect, AVirtualMachineWithoutNumaNodesOfDevices) {
  // One NUMA node, virtio on the root bus, numa_node -1, no link speeds: all as usual, nothing to explain.
  Machine machine;
  machine.numa(0, "3");
  machine.file("/proc/cpuinfo",
               "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n");
  machine.pci("pci0000:00/0000:00:03.0", {{"class", "0x020000"}, {"vendor", "0x1af4"}, {"numa_node", "-1"}});
  machine.net("eth0", "pci0000:00/0000:00:03.0/virtio2", "-1");
  machine.net("lo", "virtual", "");
  fs::remove(machine.root() + "/sys/devices/virtual/net/lo/device");
  const Detection found = detectSystem(machine.root());
  EXPECT_THAT(found.assumptions, IsEmpty());
  ASSERT_EQ(found.system.cpus.size(), 1u);
  EXPECT_EQ(found.system.cpus[0].vendor, "AuthenticAMD");
  EXPECT_EQ(found.system.cpus[0].family, 25);
  EXPECT_EQ(found.system.cpus[0].model, 17) << "not the model name";
  ASSERT_EQ(found.system.cpus[0].pci.size(), 1u);
  const NetDescription expected = {"eth0", 0, std::nullopt};
  EXPECT_THAT(found.system.cpus[0].pci[0].nics.at(0).nets, ElementsAre(expected));
  EXPECT_THAT(found.system.cpus[0].nics, IsEmpty()) << "lo is no card";
}

TEST(Detect, NothingAtAllGivesOneCpu) {
  for (const std::string& root : {Machine().root(), std::string("/no/such/folder")}) {
    const Detection found = detectSystem(root);
    ASSERT_EQ(found.system.cpus.size(), 1u);
    EXPECT_EQ(found.system.cpus[0].numaId, 0);
    EXPECT_THAT(found.assumptions,
                ElementsAre("/sys/devices/system/node shows no NUMA node: one is assumed",
                            "/proc/cpuinfo names no processor: constants for unknown ones are used",
                            "/sys/bus/pci/devices cannot be read: no GPU and no network card is seen"));
    EXPECT_TRUE(Graph::build(found.system).isOk());
  }
}

TEST(Detect, AssumptionsAreOneInfoLine) {
  Machine machine;
  const std::string log = machine.root() + "/log";
  ::setenv("NCCL_DEBUG", "INFO", 1);
  ::setenv("NCCL_DEBUG_FILE", log.c_str(), 1);
  params().reload();
  detectSystem(machine.root());
  Machine whole;
  buildTwoSockets(whole);
  detectSystem(whole.root());
  ::unsetenv("NCCL_DEBUG");
  ::unsetenv("NCCL_DEBUG_FILE");
  params().reload();
  std::ostringstream text;
  text << std::ifstream(log).rdbuf();
  int lines = 0;
  std::istringstream in(text.str());
  for (std::string line; std::getline(in, line);)
    lines += line.find("Topology: ") != std::string::npos ? 1 : 0;
  EXPECT_EQ(lines, 1) << text.str();
  EXPECT_THAT(text.str(),
              HasSubstr("NCCL INFO Topology: /sys/devices/system/node shows no NUMA node: one is assumed; "
                        "/proc/cpuinfo"));
}

TEST(Detect, ANumaNodeThatDoesNotExistIsSaid) {
  Machine machine;
  machine.intel();
  machine.numa(0, "1");
  machine.numa(2, "2");
  machine.pci("pci0000:00/0000:00:03.0", fields("0x030200", "-1"));
  machine.pci("pci0000:00/0000:00:04.0", fields("0x030200", "1"));
  machine.pci("pci0000:00/0000:00:05.0", fields("0x030200", "2"));
  const Detection found = detectSystem(machine.root());
  EXPECT_THAT(found.assumptions, ElementsAre("the NUMA node of 2 PCI devices is not known: taken as 0"));
  EXPECT_EQ(found.system.cpus.at(0).pci.size(), 2u);
  EXPECT_EQ(found.system.cpus.at(1).pci.size(), 1u);
}

TEST(Detect, GarbageInFilesIsAbsent) {
  Machine machine;
  machine.intel();
  machine.numa(0, "rubbish");
  machine.file("/sys/devices/system/node/node0/cpulist", "0-3");
  machine.numa(7, "rubbish");
  machine.numa(3, "0");
  machine.file("/sys/devices/system/node/nodeX/cpumap", "1");
  machine.pci("pci0000:00/0000:00:03.0", {{"class", "0x030200"},
                                          {"vendor", "NVIDIA"},
                                          {"device", "0x20b0"},
                                          {"subsystem_vendor", "0x12345"},
                                          {"max_link_speed", "Unknown"},
                                          {"max_link_width", "255"}});
  machine.pci("pci0000:00/0000:00:04.0", {{"class", "none"}});
  machine.pci("pci0000:00/0000:00:05.0", {{"class", "0x020000"}});
  machine.ib("mlx5_0", "pci0000:00/0000:00:05.0", "fast", "4: ACTIVE");
  machine.file("/sys/bus/pci/devices/stray", "x");
  const Detection found = detectSystem(machine.root());
  ASSERT_EQ(found.system.cpus.size(), 1u) << "nodes without CPUs do not count";
  EXPECT_EQ(found.system.cpus[0].affinity, "f");
  ASSERT_EQ(found.system.cpus[0].pci.size(), 2u);
  const PciDescription& gpu = found.system.cpus[0].pci[0];
  EXPECT_EQ(gpu.classCode, 0x030200);
  EXPECT_EQ(gpu.vendor, std::nullopt);
  EXPECT_EQ(gpu.device, 0x20b0);
  EXPECT_EQ(gpu.subsystemVendor, std::nullopt);
  EXPECT_EQ(gpu.linkSpeed, "");
  EXPECT_EQ(gpu.linkWidth, std::nullopt);
  EXPECT_EQ(found.system.cpus[0].pci[1].nics.at(0).nets.at(0).speed, std::nullopt);
}

TEST(Detect, PortsThatAreDownAndIdleVirtualFunctionsAreLeftOut) {
  Machine machine;
  machine.intel();
  machine.numa(0, "1");
  machine.pci("pci0000:00/0000:00:03.0", fields("0x020000", "0"));
  machine.ib("mlx5_0", "pci0000:00/0000:00:03.0", "100 Gb/sec (4X EDR)", "1: DOWN");
  machine.pci("pci0000:00/0000:00:03.1", fields("0x020000", "0"));
  machine.link("/sys/devices/pci0000:00/0000:00:03.1/physfn", "/sys/devices/pci0000:00/0000:00:03.0");
  machine.pci("pci0000:00/0000:00:03.2", fields("0x020000", "0"));
  machine.link("/sys/devices/pci0000:00/0000:00:03.2/physfn", "/sys/devices/pci0000:00/0000:00:03.0");
  machine.net("eth1", "pci0000:00/0000:00:03.2", "25000");
  machine.net("eth2", "pci0000:00/0000:00:03.2", "25000");
  machine.file("/sys/devices/pci0000:00/0000:00:03.2/net/eth2/operstate", "down");
  const Detection found = detectSystem(machine.root());
  const std::vector<PciDescription>& pci = found.system.cpus.at(0).pci;
  ASSERT_EQ(pci.size(), 2u);
  EXPECT_THAT(pci[0].nics, IsEmpty());
  EXPECT_EQ(pci[1].busId.function, 2);
  const NetDescription expected = {"eth1", 0, 25000};
  EXPECT_THAT(pci[1].nics.at(0).nets, ElementsAre(expected));
}

TEST(Detect, NetworkDevicesThatAreNotPciHangAtTheirCpu) {
  Machine machine;
  machine.intel();
  machine.numa(0, "1");
  machine.numa(1, "2");
  machine.net("eth0", "vmbus/abcd-1234", "50000");
  machine.file("/sys/devices/vmbus/abcd-1234/numa_node", "1");
  const Detection found = detectSystem(machine.root());
  const NetDescription expected = {"eth0", 0, 50000};
  ASSERT_EQ(found.system.cpus.at(1).nics.size(), 1u);
  EXPECT_THAT(found.system.cpus[1].nics[0].nets, ElementsAre(expected));
}

TEST(Detect, ATreeThatContradictsItselfEnds) {
  Machine machine;
  machine.intel();
  machine.numa(0, "1");
  // 01 above 03 above 01: no machine is like that.
  machine.pci("pci0000:00/0000:01:00.0/0000:02:00.0/0000:03:00.0", fields("0x030200", "0"));
  machine.pci("pci0000:00/0000:03:00.0/0000:02:01.0/0000:01:00.0", fields("0x030200", "0"));
  const Detection found = detectSystem(machine.root());
  EXPECT_TRUE(parseSystemXml(systemXmlText(found.system), "again.xml").isOk())
      << "each device stands there once";
}

TEST(Detect, ThisMachineHasTheCpusThatTheKernelCounts) {
  const Detection found = detectSystem();
  ASSERT_FALSE(found.system.cpus.empty());
  EXPECT_EQ(test::describe(systemXmlText(found.system)), found.system);
  EXPECT_TRUE(Graph::build(found.system).isOk());
  if (!found.assumptions.empty()) GTEST_SKIP() << found.assumptions[0];
  size_t cpus = 0;
  for (const CpuDescription& cpu : found.system.cpus) cpus += parseCpuMask(cpu.affinity)->size();
  EXPECT_EQ(cpus, static_cast<size_t>(::sysconf(_SC_NPROCESSORS_CONF)));
}

TEST(Sysfs, NeverLeavesItsRoot) {
  Machine machine;
  machine.file("/sys/a", " 0x1F ");
  fs::create_symlink("/etc", machine.root() + "/sys/out");
  fs::create_symlink("a", machine.root() + "/sys/in");
  const Sysfs sysfs(machine.root() + "/");
  EXPECT_EQ(sysfs.resolve("/sys/in"), "/sys/a");
  EXPECT_EQ(sysfs.resolve("/sys/out"), std::nullopt);
  EXPECT_EQ(sysfs.resolve("/sys/none"), std::nullopt);
  EXPECT_EQ(sysfs.number("/sys/a"), 31);
  EXPECT_EQ(sysfs.text("/sys"), std::nullopt) << "a folder is no file";
  EXPECT_EQ(Sysfs("/").resolve("/proc/self/.."), "/proc");
}

}  // namespace
}  // namespace tutti
