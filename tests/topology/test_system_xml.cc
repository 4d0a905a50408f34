#include "topology/system_xml.h"

#include <gmock/gmock.h>

#include "support/files.h"
#include "topology/topology_files.h"

namespace tutti {
namespace {

using test::contentOf;
using test::describe;
using test::topologyFile;
using testing::HasSubstr;
using testing::StartsWith;

std::string errorOf(std::string_view text) {
  const auto parsed = parseSystemXml(text, "test.xml");
  EXPECT_FALSE(parsed.isOk()) << text;
  EXPECT_EQ(parsed.status().code(), ncclInvalidUsage);
  return parsed.status().message();
}

TEST(SystemXml, EveryRealFileRoundTrips) {
  for (const char* name : {"oci-h100-full.xml", "azure-ndv5.xml", "aws-p4d.xml", "aws-g5.xml"}) {
    const auto first = readSystemXml(topologyFile(name));
    ASSERT_TRUE(first.isOk()) << first.status().message();
    EXPECT_EQ(first->cpus.size(), 2u) << name;
    const std::string text = systemXmlText(*first);
    EXPECT_EQ(describe(text), *first) << name;
    EXPECT_EQ(systemXmlText(describe(text)), text) << name;
  }
}

TEST(SystemXml, ADumpOfNcclIsWrittenAgainByteForByte) {
  const std::string original = contentOf(topologyFile("oci-h100-full.xml"));
  ASSERT_THAT(original, StartsWith("\n<system"));
  std::string expected = original.substr(1);
  if (!expected.ends_with('\n')) expected += '\n';
  EXPECT_EQ(systemXmlText(describe(original)), expected);
}

TEST(SystemXml, AllThatAFileSaysIsKept) {
  const SystemDescription system = describe(R"(<?xml version="1.0"?>
<!-- before the root -->
<system version="1">
  <cpu numaid="1" host_hash="0xfedcba9876543210" affinity="ff,00000000" arch="arm64" vendor="ARM" familyid="8" modelid="0">
    <pci busid="0000:0F:00.0" class="0x060400" vendor="0X10DE" device="0xABcd" subsystem_vendor="0x1" subsystem_device="65535" link_speed="32.0 GT/s PCIe" link_width="8">
      <pci busid="0000:10:00.0">
        <gpu dev="3" sm="90" rank="7" gdr="1"><nvlink target="0000:AB:00.0" count="18" tclass="0x068000"/><c2c bw="44712" count="10"/></gpu>
      </pci>
      <pci busid="0000:11:00.0">
        <nic><net name="mlx5_0" dev="2" speed="400000" port="1" latency="1.5" guid="0xffffffffffffffff" maxconn="131072" gdr="0" coll="1"/></nic>
      </pci>
    </pci>
    <nic><net name="eth0"/></nic>
  </cpu>
</system>)");
  ASSERT_EQ(system.cpus.size(), 1u);
  const CpuDescription& cpu = system.cpus[0];
  EXPECT_EQ(cpu.numaId, 1);
  EXPECT_EQ(cpu.hostHash, 0xfedcba9876543210u);
  EXPECT_EQ(cpu.affinity, "ff,00000000");
  EXPECT_EQ(cpu.arch + cpu.vendor, "arm64ARM");
  EXPECT_EQ(cpu.family, 8);
  EXPECT_EQ(cpu.model, 0);
  ASSERT_EQ(cpu.nics.size(), 1u);
  EXPECT_EQ(cpu.nics[0].nets.at(0).name, "eth0");
  EXPECT_EQ(cpu.nics[0].nets.at(0).speed, std::nullopt);
  const PciDescription& bridge = cpu.pci.at(0);
  EXPECT_EQ(bridge.busId, (BusId{0, 0x0f, 0, 0}));
  EXPECT_EQ(bridge.classCode, 0x060400);
  EXPECT_EQ(bridge.vendor, 0x10de);
  EXPECT_EQ(bridge.device, 0xabcd);
  EXPECT_EQ(bridge.subsystemVendor, 1);
  EXPECT_EQ(bridge.subsystemDevice, 0xffff);
  EXPECT_EQ(bridge.linkSpeed, "32.0 GT/s PCIe");
  EXPECT_EQ(bridge.linkWidth, 8);
  const PciDescription& device = bridge.children.at(0);
  EXPECT_EQ(device.classCode, std::nullopt);
  EXPECT_EQ(device.linkSpeed, "");
  EXPECT_EQ(device.linkWidth, std::nullopt);
  const GpuDescription expectedGpu = {3, 90, 7, 1, {{{0, 0xab, 0, 0}, 18, 0x068000}}, {{44712, 10}}};
  EXPECT_EQ(device.gpu, expectedGpu);
  const NetDescription expectedNet = {"mlx5_0", 2, 400000, 1, 1.5, UINT64_MAX, 131072, 0, 1};
  EXPECT_EQ(bridge.children.at(1).nics.at(0).nets.at(0), expectedNet);
  EXPECT_EQ(describe(systemXmlText(system)), system);
}

TEST(SystemXml, ElementsAndAttributesThatNobodyKnowsAreSkipped) {
  const SystemDescription system = describe(R"(<system version="1" keep="1">
  <future><pci busid="nonsense"/></future>
  <cpu numaid="0" color="red"><pci busid="0000:10:00.0" keep="1"><gpu dev="0"><nvlink target="0000:11:00.0"/>
  <telepathy/></gpu><wlan/></pci></cpu></system>)");
  EXPECT_EQ(system.cpus.at(0).pci.at(0).gpu->nvlinks.size(), 1u);
}

TEST(SystemXml, AnEmptySystemIsOne) {
  EXPECT_EQ(describe("<system version=\"1\"/>"), SystemDescription{});
  EXPECT_EQ(describe("<system/>"), SystemDescription{});
  EXPECT_EQ(describe(systemXmlText({})), SystemDescription{});
}

TEST(SystemXml, TextIsEscapedWhenWritten) {
  SystemDescription system;
  system.cpus.emplace_back().vendor = "<\"a&b\">\n\t'";
  const std::string text = systemXmlText(system);
  EXPECT_THAT(text, HasSubstr("vendor=\"&lt;&quot;a&amp;b&quot;&gt;&#10;&#9;'\""))
      << "also for stricter readers";
  EXPECT_EQ(describe(text), system);
}

TEST(SystemXml, ErrorsNameFileLineElementAndReason) {
  EXPECT_EQ(
      errorOf("<system>\n<cpu numaid=\"0\">\n  <pci busid=\"10:00\"/></cpu></system>"),
      "test.xml:3: <system> <cpu numaid=\"0\"> <pci busid=\"10:00\">: attribute busid=\"10:00\" is no PCI "
      "address such as 0000:0f:00.0");
  EXPECT_EQ(errorOf("<system><cpu><pci/></cpu></system>"),
            "test.xml:1: <system> <cpu> <pci>: attribute busid is missing");
  EXPECT_EQ(errorOf("<system><cpu numaid=\"zero\"/></system>"),
            "test.xml:1: <system> <cpu numaid=\"zero\">: attribute numaid=\"zero\" is not an integer");
  EXPECT_EQ(errorOf("<system>\n<cpu><pci busid=\"1:0.0\"/>\n<pci busid=\"0000:01:00.0\"/></cpu></system>"),
            "test.xml:3: <system> <cpu> <pci busid=\"0000:01:00.0\">: this device stands at line 2 already");
}

TEST(SystemXml, MalformedFilesAreRefused) {
  EXPECT_THAT(errorOf(""), StartsWith("test.xml:1: not XML"));
  EXPECT_THAT(errorOf("<system>\n<cpu>\n</system>"), StartsWith("test.xml:3: not XML"));
  EXPECT_THAT(errorOf("<graphs version=\"1\"/>"), HasSubstr("the outermost element must be <system>"));
  EXPECT_THAT(errorOf("<system/><system/>"), HasSubstr("one <system> is all"));
  EXPECT_THAT(errorOf("<system>words</system>"), HasSubstr("text where only elements belong"));
  EXPECT_THAT(errorOf("<system version=\"2\"/>"), HasSubstr("only version 1 is known"));
  const auto inPci = [](const char* what) {
    return errorOf("<system><cpu><pci busid=\"1:0.0\" " + std::string(what) + "</pci></cpu></system>");
  };
  EXPECT_THAT(inPci("class=\"0x1000000\">"),
              HasSubstr("attribute class=\"0x1000000\" is not in 0 .. 16777215"));
  EXPECT_THAT(inPci("link_width=\"-1\">"), HasSubstr("link_width=\"-1\" is not in"));
  EXPECT_THAT(inPci("vendor=\"0x\">"), HasSubstr("vendor=\"0x\" is not an integer"));
  EXPECT_THAT(inPci("vendor=\"0x-1\">"), HasSubstr("vendor=\"0x-1\" is not"));
  EXPECT_THAT(inPci("><gpu/><gpu/>"), HasSubstr("a second <gpu> in one device"));
  EXPECT_THAT(inPci("><gpu><nvlink/></gpu>"), HasSubstr("attribute target is missing"));
  EXPECT_THAT(inPci("><gpu><nvlink target=\"x\"/></gpu>"), HasSubstr("target=\"x\" is no PCI address"));
  for (const char* latency : {"fast", "-1", "inf", "nan", "1us", ""})
    EXPECT_THAT(inPci((std::string("><nic><net latency=\"") + latency + "\"/></nic>").c_str()),
                HasSubstr("is no time in microseconds"));
  EXPECT_THAT(errorOf("<system><cpu affinity=\"all\"/></system>"),
              HasSubstr("affinity=\"all\" is no CPU mask"));
}

TEST(SystemXml, TheSameAddressOnTwoHostsIsTwoDevices) {
  const auto system = describe(R"(<system><cpu host_hash="0x1"><pci busid="1:0.0"/></cpu>
                                  <cpu host_hash="0x2"><pci busid="1:0.0"/></cpu></system>)");
  EXPECT_EQ(system.cpus.size(), 2u);
}

TEST(SystemXml, DepthCountAndSizeHaveLimits) {
  const auto nested = [](int levels) {
    std::string text = "<system><cpu>";
    for (int i = 0; i < levels; ++i) text += fmt::format("<pci busid=\"{:x}:0:0.0\">", i);
    for (int i = 0; i < levels; ++i) text += "</pci>";
    return text + "</cpu></system>";
  };
  EXPECT_TRUE(parseSystemXml(nested(kSystemXmlMaxDepth - 2), "test.xml").isOk());
  EXPECT_THAT(errorOf(nested(kSystemXmlMaxDepth - 1)), HasSubstr("more than 64 elements inside each other"));
  EXPECT_THAT(errorOf(nested(100000)), HasSubstr("more than 64 elements inside each other"));

  const auto wide = [](int count) {
    std::string text = "<system>";
    for (int i = 0; i < count; ++i) text += "<cpu/>";
    return text + "</system>";
  };
  EXPECT_EQ(describe(wide(kSystemXmlMaxElements)).cpus.size(), size_t{kSystemXmlMaxElements});
  EXPECT_THAT(errorOf(wide(kSystemXmlMaxElements + 1)), HasSubstr("more than 65536 elements"));

  EXPECT_THAT(errorOf(std::string(kSystemXmlMaxBytes + 1, ' ')), HasSubstr("at most 16777216 are read"));
}

TEST(SystemXml, AFileThatCannotBeReadIsNamed) {
  const auto missing = readSystemXml("/no/such/topology.xml");
  ASSERT_FALSE(missing.isOk());
  EXPECT_EQ(missing.status().code(), ncclSystemError);
  EXPECT_EQ(missing.status().message(),
            "open topology file /no/such/topology.xml: No such file or directory");
  const auto folder = readSystemXml("/tmp");
  ASSERT_FALSE(folder.isOk());
  EXPECT_THAT(folder.status().message(), HasSubstr("/tmp: Is a directory"));
}

}  // namespace
}  // namespace tutti
