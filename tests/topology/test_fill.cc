#include "topology/fill.h"

#include <gtest/gtest.h>

#include "topology/topology_files.h"

namespace tutti {
namespace {

using test::describe;

const char* const kDetected = R"(<system>
  <cpu numaid="0" affinity="f" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="10:0.0" class="0x060400" link_speed="8 GT/s" link_width="16">
      <pci busid="11:0.0" class="0x030200" vendor="0x10de" link_speed="8 GT/s" link_width="16"><gpu dev="0" sm="80"/></pci>
      <pci busid="12:0.0" class="0x020000" link_speed="8 GT/s" link_width="8"><nic><net name="mlx5_0"/></nic></pci>
    </pci></cpu>
  <cpu numaid="1" affinity="f0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="20:0.0" class="0x030200"><gpu dev="1" sm="80"/></pci><nic><net name="eth0"/></nic></cpu></system>)";

std::string filled(const char* file) {
  SystemDescription system = describe(file);
  fillIn(describe(kDetected), &system);
  return systemXmlText(system);
}
/// The text in the form of a dump.
std::string same(const char* text) { return systemXmlText(describe(text)); }

TEST(FillIn, ASkeletonKeepsItsPlacesAndGetsTheRest) {
  // The file puts GPU and card below switches of its own, in the other order of NUMA nodes.
  EXPECT_EQ(
      filled(
          R"(<system><cpu numaid="1"><pci busid="ffff:ff:1.0" class="0x060400" link_speed="32 GT/s" link_width="16">
      <pci busid="11:0.0" link_speed="32 GT/s"/><pci busid="12:0.0"/></pci></cpu>
      <cpu numaid="0" arch="arm64"><pci busid="20:0.0"/></cpu></system>)"),
      same(R"(<system>
      <cpu numaid="1" affinity="f0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
        <pci busid="ffff:ff:1.0" class="0x060400" link_speed="32 GT/s" link_width="16">
          <pci busid="11:0.0" class="0x030200" vendor="0x10de" link_speed="32 GT/s" link_width="16"><gpu dev="0" sm="80"/></pci>
          <pci busid="12:0.0" class="0x020000" link_speed="8 GT/s" link_width="8"><nic><net name="mlx5_0"/></nic></pci>
        </pci><nic><net name="eth0"/></nic></cpu>
      <cpu numaid="0" affinity="f" arch="arm64"><pci busid="20:0.0" class="0x030200"><gpu dev="1" sm="80"/></pci></cpu>
      </system>)"));
}

TEST(FillIn, DevicesThatTheFileDoesNotHaveAreAdded) {
  EXPECT_EQ(filled(R"(<system><cpu numaid="0" affinity="1" arch="x86_64">
      <pci busid="10:0.0"><pci busid="11:0.0"><gpu dev="7"/></pci></pci></cpu></system>)"),
            same(R"(<system><cpu numaid="0" affinity="1" arch="x86_64">
      <pci busid="10:0.0" class="0x060400" link_speed="8 GT/s" link_width="16">
        <pci busid="11:0.0" class="0x030200" vendor="0x10de" link_speed="8 GT/s" link_width="16"><gpu dev="7"/></pci>
        <pci busid="12:0.0" class="0x020000" link_speed="8 GT/s" link_width="8"><nic><net name="mlx5_0"/></nic></pci>
      </pci><pci busid="20:0.0" class="0x030200"><gpu dev="1" sm="80"/></pci><nic><net name="eth0"/></nic></cpu></system>)"))
      << "the card below the switch that is there; the GPU of a NUMA node that is not there below the first";
}

TEST(FillIn, AWholeBranchThatIsMissingIsAddedAsItIs) {
  SystemDescription system = describe("<system><cpu numaid=\"0\"/><cpu numaid=\"1\"/></system>");
  const SystemDescription detected = describe(kDetected);
  fillIn(detected, &system);
  EXPECT_EQ(system, detected);
}

TEST(FillIn, AnEmptyFileBecomesWhatIsDetected) { EXPECT_EQ(filled("<system/>"), same(kDetected)); }

TEST(FillIn, ACompleteFileStaysAsItIs) { EXPECT_EQ(filled(kDetected), same(kDetected)); }

}  // namespace
}  // namespace tutti
