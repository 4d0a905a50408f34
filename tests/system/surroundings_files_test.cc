// /dev/shm that is missing, tiny, or another one for each rank; PID namespaces; equal host names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "support/scale.h"
#include "system/process_probe.h"
#include "system/surroundings.h"

namespace tutti::system_test {
namespace {

using namespace std::chrono_literals;

/// What of the host's memory this process has mapped: "memory file", "named segment" or "none".
std::string sharedBy() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:tutti-host-segment") != std::string::npos) return "memory file";
    if (line.find("/dev/shm/tutti-") != std::string::npos) return "named segment";
  }
  return "none";
}

struct DevShm {
  const char* name;
  int ranks;
  void (*prepare)();
  bool common;  // one for all ranks, not one for each
  /// How ranks 0 and 1 share memory when descriptors cannot be passed.
  const char* withoutDescriptors;
};

void PrintTo(const DevShm& shm, std::ostream* out) { *out << shm.name; }

class DevShmOf : public testing::TestWithParam<DevShm> {};

/// A process that does nothing in the surroundings that all ranks are to enter.
Child surroundingsHolder(const DevShm& shm) {
  return Child([&](const ChildSide& parent) {
    if (shm.common) shm.prepare();
    parent.say("made");
    char end = 0;
    parent.receive(&end, 1);
    return 0;
  });
}

void runRanks(const DevShm& shm, bool descriptors, const std::string& expected) {
  if (!mayMakeNamespaces()) GTEST_SKIP() << "may not make mount namespaces";
  const auto before = sharedMemoryFiles();
  Child holder = surroundingsHolder(shm);
  holder.expectLine("made", in(kRankLimit));
  RankProcesses ranks(
      shm.ranks, Path::sharedMemory,
      [](Rank& self, const ChildSide& parent) {
        parent.say("shares " + sharedBy());
        const auto names = sharedMemoryFiles();
        const bool left = std::any_of(names.begin(), names.end(),
                                      [](const std::string& name) { return name.starts_with("tutti-"); });
        return left ? 3 : checkAndDestroy(self, parent, kLargeCount);
      },
      [&, pid = holder.pid()](int rank) {
        if (shm.common) {
          enterMounts(pid);
        } else {
          shm.prepare();
        }
        if (!descriptors && rank == 1) forbidUnixSockets();
      });
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(ranks[rank].expectLine("shares ", in(kRankLimit)), expected);
  ranks.expectSuccess(kRankLimit);
  EXPECT_EQ(sharedMemoryFiles(), before);
}

TEST_P(DevShmOf, RanksThatPassMemoryFilesIsNotUsed) { runRanks(GetParam(), true, "memory file"); }

TEST_P(DevShmOf, RanksThatCannotPassThemIsUsedOrReplacedBySockets) {
  runRanks(GetParam(), false, GetParam().withoutDescriptors);
}

INSTANTIATE_TEST_SUITE_P(Kinds, DevShmOf,
                         testing::Values(DevShm{"None", 3, noDevShm, true, "none"},
                                         DevShm{"OneOf64KiB", 2, [] { ownDevShm("64k"); }, true, "none"},
                                         DevShm{"OneForEach", 2, [] { ownDevShm("2g"); }, false, "none"},
                                         DevShm{"OneOf2GiB", 4, [] { ownDevShm("2g"); }, true,
                                                "named segment"}),
                         [](const auto& each) { return std::string(each.param.name); });

/// As containers of one pod see it: the same host name and network, but files and process ids of their own.
void becomeContainer() {
  enterPidNamespace();
  if (::unshare(CLONE_NEWUTS) != 0 || ::sethostname("box", 3) != 0) _exit(97);
  ownDevShm("64k");
  (void)::mount("proc", "/proc", "proc", 0, nullptr);  // where it is forbidden, the other /proc remains
}

class Containers : public testing::TestWithParam<bool> {};

TEST_P(Containers, WithEqualHostNamesAndProcessIdsWork) {
  if (!mayMakeNamespaces()) GTEST_SKIP() << "may not make namespaces";
  const bool descriptors = GetParam();
  const auto before = sharedMemoryFiles();
  RankProcesses ranks(
      3, Path::sharedMemory,
      [](Rank& self, const ChildSide& parent) {
        parent.say("process " + std::to_string(::getpid()) + " shares " + sharedBy());
        return checkAndDestroy(self, parent, kLargeCount);
      },
      [&](int rank) {
        becomeContainer();
        if (!descriptors && rank != 0) forbidUnixSockets();
      });
  for (int rank = 0; rank < ranks.size(); ++rank)
    EXPECT_EQ(ranks[rank].expectLine("process ", in(kRankLimit)),
              descriptors ? "1 shares memory file" : "1 shares none");
  ranks.expectSuccess(kRankLimit);
  EXPECT_EQ(sharedMemoryFiles(), before);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Containers, testing::Bool(),
                         [](const auto& each) { return each.param ? "PassMemoryFiles" : "UseSockets"; });

TEST(Containers, AreToldApartInMessagesWhenOneDies) {
  if (!mayMakeNamespaces()) GTEST_SKIP() << "may not make namespaces";
  RankProcesses ranks(
      2, Path::sharedMemory,
      [](Rank& self, const ChildSide& parent) {
        parent.say("there");
        char go = 0;
        parent.receive(&go, 1);
        if (self.rank == 1) _exit(0);
        ncclResult_t state = ncclSuccess;
        while (state == ncclSuccess && ncclCommGetAsyncError(self.comm, &state) == ncclSuccess)
          std::this_thread::sleep_for(1ms);
        parent.say(std::string("error ") + ncclGetLastError(self.comm));
        return ncclCommAbort(self.comm) == ncclSuccess ? 0 : 1;
      },
      [](int) { becomeContainer(); });
  for (int rank = 0; rank < 2; ++rank) {
    ranks[rank].expectLine("there", in(kRankLimit));
    ranks[rank].send("x", 1);
  }
  EXPECT_THAT(ranks[0].expectLine("error ", in(10s)), testing::HasSubstr("rank 1 (host box, pid 1) died"));
  ranks.expectSuccess(kRankLimit);
}

}  // namespace
}  // namespace tutti::system_test
