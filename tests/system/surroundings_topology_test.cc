// Machines that do not show what they are: an empty /sys, namespaces of one's own. Communicators come up and
// say what they assumed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "support/files.h"
#include "support/isolation.h"
#include "system/log.h"
#include "system/surroundings.h"

namespace tutti::system_test {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Masked {
  const char* name;
  void (*prepare)();
  bool sysIsEmpty;
};
void PrintTo(const Masked& masked, std::ostream* out) { *out << masked.name; }

void ownNamespaces() {
  enterPidNamespace();
  if (::unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC) != 0) _exit(97);
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) _exit(97);
  (void)::mount("proc", "/proc", "proc", 0, nullptr);  // where it is forbidden, the other /proc remains
}

class MaskedMachine : public testing::TestWithParam<Masked> {};

TEST_P(MaskedMachine, CommunicatorsComeUpAndSayWhatTheyAssumed) {
  constexpr int kKinds = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWIPC;
  if (!test::mayMakeNamespaces(kKinds)) GTEST_SKIP() << "may not make namespaces";
  const Log log;
  // A dump asks libraries, too; they see no more than we do. hwloc is not among them: it may write to
  // standard error.
  const std::string dump = testing::TempDir() + "/tutti-masked-" + std::to_string(::getpid()) + ".xml";
  const Settings settings{{"NCCL_TOPO_DUMP_FILE", dump}};
  RankProcesses ranks(
      3, Path::sharedMemory,
      [](Rank& self, const ChildSide& parent) { return checkAndDestroy(self, parent, kLargeCount); },
      [](int) { GetParam().prepare(); });
  ranks.expectSuccess(kRankLimit);
  const std::string text = log.text();
  const auto assumed = GetParam().sysIsEmpty
                           ? testing::Matcher<std::string>(
                                 HasSubstr("shows no NUMA node: one is assumed; /sys/bus/pci/devices "
                                           "cannot be read: no GPU and no network card is seen"))
                           : testing::Matcher<std::string>(Not(HasSubstr("shows no NUMA node")));
  EXPECT_THAT(text, assumed);
  EXPECT_THAT(text, HasSubstr("rank 2: device 0 is at NUMA node "));
  EXPECT_THAT(text, HasSubstr("rank 0: topology written to " + dump));
  EXPECT_THAT(text, Not(HasSubstr("NCCL WARN")));
  EXPECT_THAT(test::contentOf(dump), HasSubstr("<cpu numaid=\"0\" affinity=\""));
  ::unlink(dump.c_str());
}

INSTANTIATE_TEST_SUITE_P(Kinds, MaskedMachine,
                         testing::Values(Masked{"EmptySys", emptySys, true},
                                         Masked{"OwnNamespaces", ownNamespaces, false},
                                         Masked{"OwnNamespacesAndEmptySys",
                                                [] {
                                                  ownNamespaces();
                                                  emptySys();
                                                },
                                                true}),
                         [](const auto& each) { return std::string(each.param.name); });

/// In a mount namespace of its own from now on: the file with which virtual machines describe their host.
void describeHost(const char* text) {
  if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("tmpfs", "/var/run", "tmpfs", 0, "size=64k") != 0 ||
      ::mkdir("/var/run/nvidia-topologyd", 0755) != 0)
    _exit(97);
  std::ofstream("/var/run/nvidia-topologyd/virtualTopology.xml") << text;
}

std::string logWithHostFile(const char* text) {
  const Log log;
  RankProcesses ranks(
      1, Path::sharedMemory,
      [](Rank& self, const ChildSide& parent) { return checkAndDestroy(self, parent, 1000); },
      [text](int) { describeHost(text); });
  ranks.expectSuccess(kRankLimit);
  return log.text();
}

TEST(VirtualMachine, MayDescribeItsHostInAFileWhichIsNoReasonToFail) {
  if (!test::mayMakeNamespaces(CLONE_NEWNS)) GTEST_SKIP() << "may not make namespaces";
  EXPECT_THAT(
      logWithHostFile("<system version='1'><cpu numaid='0'/><cpu numaid='1' affinity='2'/></system>"),
      HasSubstr("topology of this host (/var/run/nvidia-topologyd/virtualTopology.xml): 2 NUMA node(s)"));
  EXPECT_THAT(logWithHostFile("<system"),
              AllOf(HasSubstr("NCCL WARN /var/run/nvidia-topologyd/virtualTopology.xml:1: not XML"),
                    HasSubstr("; the topology is detected without it")));
}

}  // namespace
}  // namespace tutti::system_test
