#include "topology/cpu_layout.h"

#include <gmock/gmock.h>

#include "topology/device_place.h"
#include "topology/machine.h"
#include "topology/machines.h"
#include "topology/topology_files.h"

namespace tutti {
namespace {

using test::Machine;
using testing::ElementsAre;
using testing::IsEmpty;

/// Two packages of one L3 each, two cores each, two threads each: the threads of a core are 4 apart.
void buildTwoPackages(Machine& machine) {
  machine.file("/sys/devices/system/cpu/online", "0-7");
  const char* cores[] = {"0,4", "1,5", "2,6", "3,7"};
  for (int cpu = 0; cpu < 8; ++cpu)
    machine.cpu(cpu, cores[cpu % 4], cpu % 4 < 2 ? "0-1,4-5" : "2-3,6-7", cpu % 4 / 2);
}

TEST(CpuLayout, CoresThatShareACacheAreAGroup) {
  Machine machine;
  buildTwoPackages(machine);
  const CpuLayout layout = readCpuLayout(Sysfs(machine.root()));
  EXPECT_THAT(layout.groups, ElementsAre(CoreGroup{0, {{0, 4}, {1, 5}}, 1 << 20, 32 << 20},
                                         CoreGroup{1, {{2, 6}, {3, 7}}, 1 << 20, 32 << 20}));
  EXPECT_EQ(layout.cores(), 4u);
  EXPECT_EQ(layout.packages(), 2u);
}

TEST(CpuLayout, CpusThatAreOfflineAreLeftOut) {
  Machine machine;
  buildTwoPackages(machine);
  machine.file("/sys/devices/system/cpu/online", "0-3,6");
  EXPECT_THAT(readCpuLayout(Sysfs(machine.root())).groups,
              ElementsAre(CoreGroup{0, {{0}, {1}}, 1 << 20, 32 << 20},
                          CoreGroup{1, {{2, 6}, {3}}, 1 << 20, 32 << 20}));
}

TEST(CpuLayout, WithoutCachesThePackageIsTheGroup) {
  Machine machine;
  machine.file("/sys/devices/system/cpu/online", "0-1");
  for (const char* cpu : {"cpu0", "cpu1"})
    machine.file(std::string("/sys/devices/system/cpu/") + cpu + "/topology/core_siblings_list", "0-1");
  EXPECT_THAT(readCpuLayout(Sysfs(machine.root())).groups, ElementsAre(CoreGroup{-1, {{0}, {1}}, 0, 0}));
}

TEST(CpuLayout, MadeUpFilesGiveNoLayoutOrASmallOne) {
  Machine machine;
  EXPECT_THAT(readCpuLayout(Sysfs(machine.root())).groups, IsEmpty());
  machine.file("/sys/devices/system/cpu/online", "0-1");
  EXPECT_THAT(readCpuLayout(Sysfs(machine.root())).groups, IsEmpty()) << "CPUs about which nothing is said";
  machine.cpu(0, "5", "7-9");  // lists that it is not in itself
  machine.cpu(1, "0-1", "1");
  machine.file("/sys/devices/system/cpu/cpu0/topology/core_siblings_list", "0");
  machine.file("/sys/devices/system/cpu/cpu0/cache/index2/size", "99999999999G");
  EXPECT_THAT(readCpuLayout(Sysfs(machine.root())).groups,
              ElementsAre(CoreGroup{0, {{0}}, 0, 32 << 20}, CoreGroup{0, {{1}}, 1 << 20, 32 << 20}));
}

/// Where 8 devices are, as text.
std::vector<std::string> places(const SystemDescription& system, const CpuLayout& layout, int devices) {
  std::vector<std::string> texts;
  for (int i = 0; i < devices; ++i) texts.push_back(placeOfDevice(system, layout, i, devices).text());
  return texts;
}

TEST(DevicePlace, DevicesAreSpreadOverNodesAndCores) {
  Machine machine;
  buildTwoPackages(machine);
  const CpuLayout layout = readCpuLayout(Sysfs(machine.root()));
  // 0x33: CPUs 0 1 4 5; 0xcc: 2 3 6 7
  const SystemDescription system = test::describe(
      R"(<system version="1"><cpu numaid="0" affinity="33"/><cpu numaid="1" affinity="cc"/></system>)");
  EXPECT_THAT(places(system, layout, 1),
              ElementsAre("NUMA node 0, package 0, CPUs 0-1,4-5, L2 1 MiB, L3 32 MiB"))
      << "the cores of one node only";
  EXPECT_THAT(places(system, layout, 2),
              ElementsAre("NUMA node 0, package 0, CPUs 0-1,4-5, L2 1 MiB, L3 32 MiB",
                          "NUMA node 1, package 1, CPUs 2-3,6-7, L2 1 MiB, L3 32 MiB"));
  const std::vector<std::string> four = places(system, layout, 4);
  EXPECT_EQ(four[1], "NUMA node 0, package 0, CPUs 1,5, L2 1 MiB, L3 32 MiB") << "whole cores";
  EXPECT_EQ(four[2], "NUMA node 1, package 1, CPUs 2,6, L2 1 MiB, L3 32 MiB");
  const std::vector<std::string> eight = places(system, layout, 8);
  EXPECT_EQ(eight[0], four[0]);
  EXPECT_EQ(eight[1], four[0]) << "neighbours share a core";
  EXPECT_EQ(eight[7], four[3]);
  EXPECT_THAT(placeOfDevice(system, layout, 3, 4).nodeCpus, ElementsAre(2, 3, 6, 7));
  EXPECT_EQ(numaNodesWithCpus(system), 2u);
}

TEST(DevicePlace, NodesAreThoseOfTheDescriptionAlsoWhereTheLayoutSaysNothing) {
  const SystemDescription system = test::describe(
      R"(<system version="1"><cpu numaid="4" affinity="1"/><cpu numaid="5" affinity="0"/><cpu numaid="6" affinity="e"/></system>)");
  EXPECT_THAT(places(system, {}, 2), ElementsAre("NUMA node 4, CPU 0", "NUMA node 6, CPUs 2-3"));
  EXPECT_EQ(numaNodesWithCpus(system), 2u) << "a node of memory is none";
}

TEST(DevicePlace, AGpuIsAtTheNumaNodeThatItHangsOn) {
  Machine machine;
  buildTwoPackages(machine);
  const CpuLayout layout = readCpuLayout(Sysfs(machine.root()));
  const Graph graph = test::graphOf(test::describe(
      R"(<system version="1"><cpu numaid="3" affinity="33"/><cpu numaid="5" affinity="cc">
         <pci busid="1:0.0" class="0x060400"><pci busid="2:0.0" class="0x030200"><gpu/></pci></pci></cpu>
         <cpu numaid="6"><pci busid="3:0.0" class="0x030200"><gpu/></pci></cpu></system>)"));
  EXPECT_EQ(placeOfGpu(graph, layout, graph.gpuAt(*parseBusId("2:0.0"))).text(),
            "NUMA node 5, package 1, CPUs 2-3,6-7");
  EXPECT_THAT(placeOfGpu(graph, layout, graph.gpuAt(*parseBusId("3:0.0"))).cpus, IsEmpty());
}

TEST(DevicePlace, WithoutCpusOrForNoDeviceThereIsNone) {
  EXPECT_THAT(places(SystemDescription{}, {}, 1), ElementsAre("place not known"));
  const SystemDescription one =
      test::describe(R"(<system version="1"><cpu numaid="0" affinity="1"/></system>)");
  EXPECT_THAT(placeOfDevice(one, {}, 3, 3).cpus, IsEmpty());
  EXPECT_THAT(placeOfDevice(one, {}, -1, 3).cpus, IsEmpty());
  EXPECT_THAT(placeOfDevice(one, {}, 1023, 1024).cpus, ElementsAre(0)) << "many more devices than cores";
}

}  // namespace
}  // namespace tutti
