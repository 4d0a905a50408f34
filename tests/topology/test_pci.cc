#include "topology/pci.h"

#include <gtest/gtest.h>

#include "topology/cpu_mask.h"

namespace tutti {
namespace {

TEST(BusId, TakesTheFormsThatFilesAndNvmlHave) {
  const BusId expected = {0, 0x0f, 0x1c, 3};
  for (const char* text : {"0000:0f:1c.3", "00000000:0F:1C.3", "0:f:1c.3", "0f:1c.3", "0000:0F:1c.3"})
    EXPECT_EQ(parseBusId(text), expected) << text;
  EXPECT_EQ(parseBusId("ffff:ff:01.0"), (BusId{0xffff, 0xff, 1, 0}));
  EXPECT_EQ(parseBusId("10000:e1:00.0"), (BusId{0x10000, 0xe1, 0, 0})) << "a domain of Intel VMD";
}

TEST(BusId, RefusesEverythingElse) {
  for (const char* text :
       {"", ":", "0000:0f:1c", "0000:0f:1c.", "0000:0f:1c.8", "0000:0f:20.0", "0000:100:00.0",
        "0000:0f:1c.30", "0000:0f:1c.3 ", " 0000:0f:1c.3", "0000:0f:1c:3", "000000000:0f:1c.3", "-1:0f:1c.3",
        "0x0:0f:1c.3", "0000:0f.1c.3", "g:0f:1c.3", "1:2:3:4.5"})
    EXPECT_FALSE(parseBusId(text).has_value()) << text;
}

TEST(BusId, IsWrittenAsSysfsWritesIt) {
  EXPECT_EQ((BusId{0, 0x0f, 0x1c, 3}.text()), "0000:0f:1c.3");
  EXPECT_EQ((BusId{0x10000, 0xe1, 0, 0}.text()), "10000:e1:00.0");
}

TEST(PciKind, TellsGpusFromTheBoardsManagementController) {
  EXPECT_EQ(pciKind(0x030200, 0x10de), PciKind::gpu);
  EXPECT_EQ(pciKind(0x030200, -1), PciKind::gpu);
  EXPECT_EQ(pciKind(0x030000, 0x10de), PciKind::gpu);
  EXPECT_EQ(pciKind(0x030000, 0x1a03), PciKind::other) << "ASPEED's VGA adapter";
  EXPECT_EQ(pciKind(0x020000, 0x15b3), PciKind::nic);
  EXPECT_EQ(pciKind(0x020700, -1), PciKind::nic);
  EXPECT_EQ(pciKind(0x060400, -1), PciKind::bridge);
  EXPECT_EQ(pciKind(0x068000, 0x10de), PciKind::nvswitch);
  EXPECT_EQ(pciKind(0x010802, -1), PciKind::other);
  EXPECT_EQ(pciKind(-1, -1), PciKind::unknown);
}

TEST(PciBandwidth, IsNcclsForEveryGenerationAndForm) {
  const auto is = [](const char* speed, int32_t width, float expected) {
    const PciBandwidth link = pciBandwidth(speed, width);
    EXPECT_FLOAT_EQ(link.gigabytes, expected) << speed << " x" << width;
    EXPECT_FALSE(link.speedAssumed) << speed;
    EXPECT_FALSE(link.widthAssumed) << width;
  };
  is("8 GT/s", 16, 12);
  is("8.0 GT/s PCIe", 16, 12);
  is("16.0 GT/s PCIe", 16, 24);
  is("32.0 GT/s PCIe", 16, 48);
  is("64 GT/s", 16, 96);
  is("5.0 GT/s PCIe", 16, 6);
  is("2.5 GT/s", 1, 0.1875f);
  is("32.0 GT/s PCIe", 8, 24);
}

TEST(PciBandwidth, SaysWhatItAssumes) {
  for (const char* speed :
       {"", "Unknown", "Unknown speed", "7 GT/s", "GT/s", "16", "16 MT/s", "nan GT/s", "-8 GT/s"}) {
    const PciBandwidth link = pciBandwidth(speed, 16);
    EXPECT_FLOAT_EQ(link.gigabytes, 12) << speed;
    EXPECT_TRUE(link.speedAssumed) << speed;
    EXPECT_FALSE(link.widthAssumed) << speed;
  }
  for (const int32_t width : {0, -1, 255, 33}) {
    const PciBandwidth link = pciBandwidth("16 GT/s", width);
    EXPECT_FLOAT_EQ(link.gigabytes, 24) << width;
    EXPECT_TRUE(link.widthAssumed) << width;
    EXPECT_FALSE(link.speedAssumed) << width;
  }
}

TEST(CpuMask, HasTheHighestWordFirst) {
  EXPECT_EQ(parseCpuMask("3"), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(parseCpuMask("00000001,80000000,00000002"), (std::vector<int32_t>{1, 63, 64}));
  EXPECT_EQ(parseCpuMask("0"), std::vector<int32_t>{});
  for (const char* text : {"", ",", "1,", "g", "0x1", "100000000", "1 ", "-1"})
    EXPECT_FALSE(parseCpuMask(text).has_value()) << text;
}

TEST(CpuMask, IsWrittenAsItIsRead) {
  for (const char* text : {"0", "3", "1,80000000,00000002", "ff,00000000"})
    EXPECT_EQ(cpuMaskText(*parseCpuMask(text)), text);
}

TEST(CpuList, IsReadAndWritten) {
  EXPECT_EQ(parseCpuList("0-2,5,7-8"), (std::vector<int32_t>{0, 1, 2, 5, 7, 8}));
  EXPECT_EQ(parseCpuList(""), std::vector<int32_t>{});
  for (const char* text : {"0-2,5,7-8", "0", "31-32", ""}) EXPECT_EQ(cpuListText(*parseCpuList(text)), text);
  for (const char* text : {",", "1-", "-1", "2-1", "1,1", "1-3,2", "a", "0-65536", "1-2-3"})
    EXPECT_FALSE(parseCpuList(text).has_value()) << text;
}

}  // namespace
}  // namespace tutti
