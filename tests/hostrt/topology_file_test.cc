// Virtual GPUs that stand for the GPUs of a topology file.
#include <gmock/gmock.h>

#include "hostrt/support.h"
#include "support/files.h"

namespace {

using testing::HasSubstr;
using tutti::test::TemporaryFile;

std::string dataFile(const std::string& name) {
  return std::string(TUTTI_SOURCE_DIR "/tests/topology/data/") + name;
}

/// What the devices say of themselves in a process with these settings.
Outcome describe(const std::string& file, const std::string& environment = "") {
  return runHelper("describe-devices", "TUTTI_HOST_KERNELS=1 NCCL_TOPO_FILE=" + file + " " + environment);
}
std::string describeText(const std::string& text, const std::string& environment = "") {
  const TemporaryFile file(text);
  const Outcome outcome = describe(file.path(), environment);
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  return outcome.output;
}

/// Two GPUs with what stands inside of their <gpu>.
std::string twoGpus(const std::string& first, const std::string& second) {
  return "<system version=\"1\"><cpu numaid=\"0\">"
         "<pci busid=\"0000:0A:00.0\" class=\"0x030200\"><gpu dev=\"0\" sm=\"70\">" +
         first + "</gpu></pci><pci busid=\"0000:0b:1f.0\" class=\"0x030200\"><gpu dev=\"1\" sm=\"103\">" +
         second + "</gpu></pci></cpu></system>";
}

TEST(TopologyFileGpus, OfAnH100HostAreEightOnNvswitches) {
  const Outcome outcome = describe(dataFile("oci-h100-full.xml"));
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(outcome.output,
            "0000:0f:00.0 9.0 -nnnnnnn Tutti virtual H100\n"
            "0000:2d:00.0 9.0 n-nnnnnn Tutti virtual H100\n"
            "0000:44:00.0 9.0 nn-nnnnn Tutti virtual H100\n"
            "0000:5b:00.0 9.0 nnn-nnnn Tutti virtual H100\n"
            "0000:89:00.0 9.0 nnnn-nnn Tutti virtual H100\n"
            "0000:a8:00.0 9.0 nnnnn-nn Tutti virtual H100\n"
            "0000:c0:00.0 9.0 nnnnnn-n Tutti virtual H100\n"
            "0000:d8:00.0 9.0 nnnnnnn- Tutti virtual H100\n");
}

TEST(TopologyFileGpus, OfASkeletonAreKnownByTheirClass) {
  const Outcome outcome = describe(dataFile("azure-ndv5.xml"));
  EXPECT_EQ(outcome.output.substr(0, outcome.output.find('\n')),
            "0001:00:00.0 9.0 -ppppppp Tutti virtual GPU");
}

TEST(TopologyFileGpus, AreThereOnlyForTheLibrarysKernels) {
  const Outcome outcome =
      runHelper("describe-devices", "TUTTI_HOST_KERNELS=0 NCCL_TOPO_FILE=" + dataFile("oci-h100-full.xml"));
  EXPECT_THAT(outcome.output, HasSubstr("7e00:00:00.0 9.0 -nnnnnnn Tutti host device"));
}

TEST(TopologyFileGpus, CanBeFewerButNotMore) {
  const std::string file = dataFile("oci-h100-full.xml");
  const Outcome fewer = describe(file, "TUTTI_HOST_DEVICES=2");
  EXPECT_EQ(fewer.output,
            "0000:0f:00.0 9.0 -n Tutti virtual H100\n"
            "0000:2d:00.0 9.0 n- Tutti virtual H100\n");
  const Outcome more = describe(file, "TUTTI_HOST_DEVICES=9");
  EXPECT_THAT(more.output, HasSubstr("TUTTI_HOST_DEVICES=9"));
  EXPECT_THAT(more.output, HasSubstr("0000:d8:00.0 9.0 nnnnnnn- "));
  EXPECT_THAT(more.output, testing::Not(HasSubstr("7e00")));
}

TEST(TopologyFileGpus, AreChosenByCudaVisibleDevices) {
  EXPECT_EQ(describe(dataFile("oci-h100-full.xml"), "CUDA_VISIBLE_DEVICES=7,0").output,
            "0000:d8:00.0 9.0 -n Tutti virtual H100\n"
            "0000:0f:00.0 9.0 n- Tutti virtual H100\n");
}

TEST(TopologyFileGpus, LinksAreDirectOrThroughACommonSwitch) {
  const auto link = [](const std::string& target) {
    return "<nvlink target=\"" + target + "\" count=\"1\"/>";
  };
  EXPECT_EQ(describeText(twoGpus("", "")),
            "0000:0a:00.0 7.0 -p Tutti virtual V100\n0000:0b:1f.0 10.3 p- Tutti virtual B300\n");
  EXPECT_THAT(describeText(twoGpus(link("0000:0B:1F.0"), "")), HasSubstr(" -n "));
  EXPECT_THAT(describeText(twoGpus("", link("0000:0a:00.0"))), HasSubstr(" n- "));
  EXPECT_THAT(describeText(twoGpus(link("0000:01:00.0"), link("0000:01:00.0"))), HasSubstr(" -n "));
  EXPECT_THAT(describeText(twoGpus(link("0000:01:00.0"), link("0000:02:00.0"))), HasSubstr(" -p "));
}

TEST(TopologyFileGpus, StandInTheOrderOfTheirNumbers) {
  const std::string text =
      "<system><cpu><pci busid=\"0:1:0.0\"><gpu sm=\"80\"/></pci><pci busid=\"0:2:0.0\"><gpu "
      "dev=\"0\"/></pci>"
      "<pci busid=\"0:3:0.0\"><gpu dev=\"1\" sm=\"62\"/></pci></cpu></system>";
  EXPECT_EQ(describeText(text),
            "0000:02:00.0 9.0 -pp Tutti virtual GPU\n"
            "0000:03:00.0 6.2 p-p Tutti virtual GPU sm_62\n"
            "0000:01:00.0 8.0 pp- Tutti virtual A100\n");
}

TEST(TopologyFileGpus, OfAnotherHostAreNotTaken) {
  const std::string text =
      "<system><cpu host_hash=\"0x1\"><pci busid=\"0:1:0.0\"><gpu/></pci></cpu>"
      "<cpu host_hash=\"0x2\"><pci busid=\"0:1:0.0\"><gpu/></pci></cpu></system>";
  EXPECT_EQ(describeText(text), "0000:01:00.0 9.0 - Tutti virtual GPU\n");
}

TEST(TopologyFileGpus, AFileThatCannotBeUsedIsNamedOnceAndLeft) {
  const auto expectWarning = [](const std::string& text, const std::string& reason) {
    const std::string output = describeText(text);
    EXPECT_THAT(output, HasSubstr(reason));
    EXPECT_THAT(output, HasSubstr("7e00:07:00.0 9.0 nnnnnnn- Tutti host device"));
    const size_t first = output.find("NCCL WARN");
    EXPECT_NE(first, std::string::npos);
    EXPECT_EQ(output.find("NCCL WARN", first + 1), std::string::npos) << output;
  };
  expectWarning("<system><cpu>\n<pci busid=\"zz\"><gpu/></pci></cpu></system>",
                ":2: <pci>: attribute busid=\"zz\" is no PCI address");
  expectWarning("<system><cpu><pci busid=\"0:1:0.0\">\n\n<gpu sm=\"x\"/></pci></cpu></system>",
                ":3: <gpu>: attribute sm=\"x\" is no number");
  expectWarning(
      "<system><cpu><pci busid=\"0:1:0.0\"><gpu/></pci><pci busid=\"0:1:0.0\"><gpu/></pci></cpu></system>",
      "a second device 0000:01:00.0");
  expectWarning("<system><cpu/></system>", "it has no GPU");
  expectWarning("<graphs/>", "the outermost element must be <system>");
  expectWarning("<system><cpu>", "not XML");
  const Outcome missing = describe("/nowhere/topo.xml");
  EXPECT_THAT(missing.output, HasSubstr("/nowhere/topo.xml: No such file or directory"));
  EXPECT_THAT(missing.output, HasSubstr("7e00:07:00.0"));
}

}  // namespace
