#include "base/affinity.h"

#include <gmock/gmock.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>

#include "base/base_test.h"
#include "base/io_service.h"
#include "base/unique_fd.h"

namespace tutti::testing {
namespace {

using Cpus = std::vector<int32_t>;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Affinity, AScopeRestrictsTheThreadAndThoseItStartsAndThenRestoresIt) {
  const Cpus before = threadCpus();
  ASSERT_FALSE(before.empty());
  const Cpus last = {before.back()};
  {
    const AffinityScope scope(last);
    EXPECT_EQ(threadCpus(), last);
    Cpus inside;
    std::thread([&] { inside = threadCpus(); }).join();
    EXPECT_EQ(inside, last);
  }
  EXPECT_EQ(threadCpus(), before);
}

TEST(Affinity, ScopesInsideEachOtherRestoreWhatTheyFound) {
  const Cpus before = threadCpus();
  if (before.size() < 2) GTEST_SKIP() << "one CPU";
  const AffinityScope outer({before[0], before[1]});
  {
    const AffinityScope inner({before[1]});
    EXPECT_THAT(threadCpus(), ElementsAre(before[1]));
  }
  EXPECT_THAT(threadCpus(), ElementsAre(before[0], before[1]));
}

TEST(Affinity, NothingChangesForNoCpusOrThoseThatDoNotExist) {
  const Cpus before = threadCpus();
  for (const Cpus& cpus : {Cpus{}, Cpus{40000}, Cpus{-1}, Cpus{70000}}) {
    const AffinityScope scope(cpus);
    EXPECT_EQ(threadCpus(), before);
  }
  EXPECT_EQ(threadCpus(), before);
  EXPECT_FALSE(setThreadCpus(::pthread_self(), {40000}).isOk());
}

TEST(Affinity, CommonCpusAreThoseOfBoth) {
  EXPECT_THAT(commonCpus({0, 2, 4, 6}, {1, 2, 3, 4}), ElementsAre(2, 4));
  EXPECT_THAT(commonCpus({0}, {1}), IsEmpty());
}

/// The thread that runs handlers: where it may run.
Cpus serviceCpus() {
  const UniqueFd fd(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  std::atomic<bool> ran{false};
  Cpus cpus;
  const auto id = ioService().add(fd.get(), EPOLLIN, [&](uint32_t) {
    if (!ran) cpus = threadCpus();
    ran = true;
  });
  EXPECT_TRUE(id.isOk());
  while (!ran) std::this_thread::sleep_for(1ms);
  ioService().remove(*id);
  return cpus;
}

TEST(Affinity, TheServiceThreadRunsWhereItsRanksAreAlsoInItsNextLife) {
  const Cpus all = threadCpus();
  if (all.size() < 2) GTEST_SKIP() << "one CPU";
  EXPECT_EQ(serviceCpus(), all) << "nobody asked";
  // In a process of its own: a request holds for the life of the process.
  const pid_t child = ::fork();
  if (child == 0) {
    ioService().runOn({all[1]});
    bool right = serviceCpus() == Cpus{all[1]};
    const UniqueFd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    const auto kept = ioService().add(fd.get(), EPOLLIN, [](uint32_t) {});  // the thread lives on
    ioService().runOn({all[0]});
    right = right && kept.isOk() && serviceCpus() == Cpus{all[0], all[1]};
    ::_exit(right && threadCpus() == all ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

/// The NUMA node that the memory at `address` is to come from; -1: no wish, -2: the system does not say.
int preferredNode(void* address) {
  int policy = 0;
  std::array<unsigned long, 16> nodes{};
  constexpr unsigned long kOfAddress = 2;  // MPOL_F_ADDR
  if (::syscall(SYS_get_mempolicy, &policy, nodes.data(), nodes.size() * 64, address, kOfAddress) != 0)
    return -2;
  if (policy == 0) return -1;
  for (size_t node = 0; node < nodes.size() * 64; ++node)
    if ((nodes[node / 64] >> node % 64 & 1) != 0) return static_cast<int>(node);
  return -1;
}

TEST(Affinity, MemoryIsAskedOfANodeForWholePagesOfTheRange) {
  constexpr size_t kPage = 4096;
  void* map = ::mmap(nullptr, 8 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(map, MAP_FAILED);
  auto* bytes = static_cast<std::byte*>(map);
  if (preferredNode(map) == -2) GTEST_SKIP() << "get_mempolicy is forbidden";
  preferNode(bytes + kPage + 1, 4 * kPage, 0);  // pages 2, 3 and 4 are whole
  if (preferredNode(bytes + 2 * kPage) == -1) GTEST_SKIP() << "mbind is forbidden";
  EXPECT_EQ(preferredNode(bytes + kPage), -1);
  for (size_t page : {2, 3, 4}) EXPECT_EQ(preferredNode(bytes + page * kPage), 0) << page;
  EXPECT_EQ(preferredNode(bytes + 5 * kPage), -1);
  preferNode(bytes, 8 * kPage, 900);  // no such node: nothing happens
  preferNode(bytes, 8 * kPage, -1);
  EXPECT_EQ(preferredNode(bytes), -1);
  ::munmap(map, 8 * kPage);
}

}  // namespace
}  // namespace tutti::testing
