#include "topology/fusion.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <string>

#include "topology/machines.h"
#include "topology/report.h"
#include "topology/search.h"
#include "topology/topology_files.h"

namespace tutti {
namespace {

using test::describe;
using test::graphOf;
using testing::ElementsAre;
using testing::IsEmpty;

/// What a container sees of the H100 host that has been given GPU `gpu` and the card beside it, which it both
/// numbers from 0 on.
SystemDescription container(int gpu) {
  SystemDescription system = *readSystemXml(test::topologyFile("oci-h100-full.xml"));
  SystemDescription seen;
  for (const CpuDescription& cpu : system.cpus)
    for (const PciDescription& outer : cpu.pci)
      for (const PciDescription& inner : outer.children)
        for (const PciDescription& device : inner.children)
          if (device.gpu && device.gpu->dev == gpu) {
            CpuDescription& own = seen.cpus.emplace_back(cpu);
            own.pci = {outer};
          }
  for (PciDescription& inner : seen.cpus[0].pci[0].children)
    for (PciDescription& device : inner.children) {
      if (device.gpu) device.gpu->dev = 0;
      for (NicDescription& nic : device.nics)
        for (size_t n = 0; n < nic.nets.size(); ++n) nic.nets[n].dev = static_cast<int32_t>(n);
    }
  return seen;
}

TEST(Fusion, ContainersWithOneGpuEachMakeTheWholeHost) {
  std::vector<SystemDescription> views;
  for (int gpu = 0; gpu < 8; ++gpu) views.push_back(container(gpu));
  EXPECT_EQ(views[5].cpus.size(), 1u);
  const FusedSystem fused = fuseSystems(views);
  EXPECT_THAT(fused.notes, ElementsAre("ranks number their GPUs differently: numbered by address",
                                       "ranks number their network ports differently: numbered by address"));
  const Graph graph = graphOf(fused.system);
  const SystemDescription whole = *readSystemXml(test::topologyFile("oci-h100-full.xml"));
  EXPECT_EQ(treeText(graph), treeText(graphOf(fuseSystems({whole}).system)));
  SearchRequest request;
  request.members = membersOfRanks(graph, {0, 1, 2, 3, 4, 5, 6, 7});
  request.acrossHosts = true;
  const auto plan = searchChannels(graph, Paths(graph), request);
  ASSERT_TRUE(plan.isOk()) << plan.status().message();
  EXPECT_NEAR(plan->rings.total(), 360, 0.01);
  EXPECT_EQ(membersOfRanks(graph, {8}), std::vector<NodeId>{kNoNode});
}

TEST(Fusion, TheOrderOfTheViewsDoesNotMatter) {
  std::vector<int> gpus = {0, 1, 2, 3, 4, 5, 6, 7};
  std::mt19937 random(3);
  std::vector<SystemDescription> views;
  for (const int gpu : gpus) views.push_back(container(gpu));
  const FusedSystem fused = fuseSystems(views);
  for (int round = 0; round < 10; ++round) {
    std::ranges::shuffle(views, random);
    EXPECT_EQ(fuseSystems(views).system, fused.system);
    EXPECT_EQ(fuseSystems(views).notes, fused.notes);
  }
}

TEST(Fusion, EqualViewsStayAsTheyAre) {
  const SystemDescription h100 = *readSystemXml(test::topologyFile("oci-h100-full.xml"));
  const FusedSystem fused = fuseSystems({h100, h100, h100});
  EXPECT_THAT(fused.notes, IsEmpty());
  const Graph one = graphOf(fused.system), other = graphOf(h100);
  EXPECT_EQ(matrixText(one, Paths(one)), matrixText(other, Paths(other)));
  EXPECT_EQ(fuseSystems({fused.system}).system, fused.system);
  EXPECT_TRUE(fuseSystems({}).system.cpus.empty());
}

TEST(Fusion, WhatOneLeavesOpenTheOthersFillIn) {
  const FusedSystem fused = fuseSystems({
      describe(
          R"(<system><cpu numaid="1"><pci busid="5:0.0" class="0x030200"><gpu dev="0" rank="-1"><nvlink target="f:0.0"/></gpu></pci></cpu></system>)"),
      describe(R"(<system><cpu numaid="0" affinity="f"/><cpu numaid="1" vendor="AuthenticAMD">
        <pci busid="5:0.0" link_width="16"><gpu sm="90" rank="3"><nvlink target="f:0.0" count="4" tclass="0x068000"/><nvlink target="e:0.0"/></gpu></pci>
        <pci busid="6:0.0"><nic><net name="a" dev="0"/></nic></pci></cpu></system>)"),
      describe(
          R"(<system><cpu numaid="1"><pci busid="6:0.0"><nic><net name="a" speed="100" gdr="1"/><net name="b" dev="1"/></nic></pci></cpu></system>)"),
  });
  EXPECT_THAT(fused.notes, IsEmpty());
  EXPECT_EQ(systemXmlText(fused.system), R"(<system version="1">
  <cpu numaid="0" affinity="f"/>
  <cpu numaid="1" vendor="AuthenticAMD">
    <pci busid="0000:05:00.0" class="0x030200" link_width="16">
      <gpu dev="0" sm="90" rank="3">
        <nvlink target="0000:0e:00.0"/>
        <nvlink target="0000:0f:00.0" count="4" tclass="0x068000"/>
      </gpu>
    </pci>
    <pci busid="0000:06:00.0">
      <nic>
        <net name="a" dev="0" speed="100" gdr="1"/>
        <net name="b" dev="1"/>
      </nic>
    </pci>
  </cpu>
</system>
)");
}

TEST(Fusion, ASwitchThatOneViewShowsStandsAboveWhatItHasBelow) {
  const std::string flat =
      R"(<system><cpu numaid="0"><pci busid="5:0.0"><gpu dev="0"/></pci><pci busid="6:0.0"><gpu dev="1"/></pci></cpu></system>)";
  const std::string deep =
      R"(<system><cpu numaid="0"><pci busid="1:0.0" class="0x060400"><pci busid="2:0.0" class="0x060400">
    <pci busid="5:0.0"/></pci><pci busid="7:0.0" class="0x020000"/></pci></cpu></system>)";
  const FusedSystem fused = fuseSystems({describe(flat), describe(deep)});
  EXPECT_EQ(fused.system, fuseSystems({describe(deep), describe(flat)}).system);
  EXPECT_EQ(systemXmlText(fused.system), R"(<system version="1">
  <cpu numaid="0">
    <pci busid="0000:01:00.0" class="0x060400">
      <pci busid="0000:02:00.0" class="0x060400">
        <pci busid="0000:05:00.0">
          <gpu dev="0"/>
        </pci>
      </pci>
      <pci busid="0000:07:00.0" class="0x020000"/>
    </pci>
    <pci busid="0000:06:00.0">
      <gpu dev="1"/>
    </pci>
  </cpu>
</system>
)");
}

TEST(Fusion, ContradictionsAreNoted) {
  const FusedSystem fused = fuseSystems({
      describe(
          R"(<system><cpu numaid="0" vendor="A"><pci busid="5:0.0" link_width="16"><nic><net name="a" speed="100"/></nic></pci></cpu></system>)"),
      describe(
          R"(<system><cpu numaid="0" vendor="B"><pci busid="5:0.0" link_width="8"><nic><net name="a" speed="200"/></nic></pci></cpu></system>)"),
  });
  EXPECT_THAT(fused.notes,
              ElementsAre("0000:05:00.0: link_width is 16 for one rank and 8 for another: taken as 16",
                          "NUMA node 0: vendor is \"A\" for one rank and \"B\" for another: taken as \"A\"",
                          "a: speed is 100 for one rank and 200 for another: taken as 100"));
}

// Two views that put two switches into each other the other way round: no tree is right, but there is an end.
TEST(Fusion, ViewsThatDisagreeAboutThePlaceComeToAnEnd) {
  const FusedSystem fused = fuseSystems({
      describe(
          R"(<system><cpu><pci busid="1:0.0"><pci busid="2:0.0"><pci busid="3:0.0"/></pci></pci></cpu></system>)"),
      describe(
          R"(<system><cpu><pci busid="2:0.0"><pci busid="4:0.0"><pci busid="1:0.0"/></pci></pci></cpu></system>)"),
  });
  const std::string text = systemXmlText(fused.system);
  for (const char* bus : {"01", "02", "03", "04"})
    EXPECT_NE(text.find(fmt::format("busid=\"0000:{}:00.0\"", bus)), std::string::npos) << text;
}

}  // namespace
}  // namespace tutti
