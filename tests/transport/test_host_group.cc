// What happens where descriptors or /dev/shm do not work as usual.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>

#include "support/fork_ranks.h"
#include "support/isolation.h"
#include "support/resources.h"
#include "support/traffic.h"

namespace tutti::test {
namespace {

bool mayMakeNamespaces() { return tutti::test::mayMakeNamespaces(CLONE_NEWNS); }

/// An own, empty /dev/shm for the calling thread's process from now on.
void privateDevShm() {
  ASSERT_EQ(::unshare(CLONE_NEWNS | CLONE_FS), 0);
  ASSERT_EQ(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
  ASSERT_EQ(::mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=1m"), 0);
}

void forbidUnixSockets() { ASSERT_TRUE(tutti::test::forbidUnixSockets()); }

/// One rank a process on one host; `prepare` spoils the world for some; `expected` is how ranks 0 and 1 are
/// connected.
void connectWith(const std::function<void(int rank)>& prepare, const std::string& expected) {
  const auto before = namedSegments();
  const auto statuses = runForked({{0}, {1}, {2}}, oneHost, [&](ForkedRank& self) {
    prepare(self.rank);
    auto faults = std::make_shared<FaultState>();
    auto endpoint = Endpoint::create(self.peers, self.rank, smallOptions(), self.oob, faults, soon());
    ASSERT_TRUE(endpoint.isOk()) << endpoint.status().message();
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == self.rank) continue;
      EXPECT_EQ((*endpoint)->transportName(peer), expected);
    }
    EXPECT_EQ(namedSegments().size(), before.size()) << "names go as soon as all have opened the segment";
    everyoneToEveryone(**endpoint, 30);
    EXPECT_TRUE(faults->error().isOk()) << faults->error().message();
    ASSERT_TRUE(self.oob.barrier(soon()).isOk());
  });
  for (const int status : statuses) EXPECT_EQ(status, 0);
  EXPECT_EQ(namedSegments(), before);
}

TEST(HostGroup, NeedsNoDevShm) {
  if (!mayMakeNamespaces()) GTEST_SKIP() << "may not make namespaces";
  connectWith(
      [](int rank) {
        if (rank == 1) privateDevShm();
      },
      "SHM");
}

TEST(HostGroup, FallsBackToANamedSegmentWhereDescriptorsCannotBePassed) {
  connectWith(
      [](int rank) {
        if (rank == 1) forbidUnixSockets();
      },
      "SHM");
}

TEST(HostGroup, FallsBackWhenTheLowestRankCannotOfferAFile) {
  connectWith(
      [](int rank) {
        if (rank == 0) forbidUnixSockets();
      },
      "SHM");
}

TEST(HostGroup, FallsApartIntoProcessesWhereNothingIsShared) {
  if (!mayMakeNamespaces()) GTEST_SKIP() << "may not make namespaces";
  connectWith(
      [](int rank) {
        if (rank != 1) return;
        privateDevShm();
        forbidUnixSockets();
      },
      "NET/Socket");
}

TEST(HostGroup, KeepsRanksOfAProcessTogetherWhenTheHostFallsApart) {
  if (!mayMakeNamespaces()) GTEST_SKIP() << "may not make namespaces";
  const auto statuses = runForked({{0, 2}, {1, 3}}, oneHost, [&](ForkedRank& self) {
    if (self.rank % 2 == 1) {
      // A mount namespace is the thread's own here (CLONE_FS), so each rank's thread gets one.
      privateDevShm();
      forbidUnixSockets();
    }
    auto faults = std::make_shared<FaultState>();
    auto endpoint = Endpoint::create(self.peers, self.rank, smallOptions(), self.oob, faults, soon());
    ASSERT_TRUE(endpoint.isOk()) << endpoint.status().message();
    EXPECT_EQ((*endpoint)->transportName((self.rank + 2) % 4), "P2P/direct");
    EXPECT_EQ((*endpoint)->transportName((self.rank + 1) % 4), "NET/Socket");
    everyoneToEveryone(**endpoint, 20);
    ASSERT_TRUE(self.oob.barrier(soon()).isOk());
  });
  for (const int status : statuses) EXPECT_EQ(status, 0);
}

TEST(Endpoints, FailWithinTheirDeadlineWhenARankIsMissing) {
  const auto start = std::chrono::steady_clock::now();
  const auto statuses = runForked({{0}, {1}}, oneHost, [&](ForkedRank& self) {
    if (self.rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(800));
      return;
    }
    auto endpoint =
        Endpoint::create(self.peers, self.rank, smallOptions(), self.oob, std::make_shared<FaultState>(),
                         Deadline::after(std::chrono::milliseconds(300)));
    EXPECT_FALSE(endpoint.isOk());
  });
  EXPECT_EQ(statuses[0], 0);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(Endpoints, FailEverywhereWithAReasonWhenTheOptionsAreImpossible) {
  EndpointOptions options = smallOptions();
  options.slotBytes = 100;
  const auto statuses = runForked({{0}, {1}}, oneHost, [&](ForkedRank& self) {
    auto endpoint =
        Endpoint::create(self.peers, self.rank, options, self.oob, std::make_shared<FaultState>(), soon());
    ASSERT_FALSE(endpoint.isOk());
    EXPECT_NE(endpoint.status().message().find("slots of 100 bytes"), std::string::npos)
        << endpoint.status().message();
  });
  for (const int status : statuses) EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tutti::test
