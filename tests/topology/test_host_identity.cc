#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "base/params.h"
#include "topology/host_identity.h"

namespace tutti {
namespace {

/// Runs `child` in a forked process and gives what it wrote: a number and the host id.
template <typename Child>
std::string outputOfChild(Child&& child) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const std::string text = child();
    const bool ok = ::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    ::_exit(ok ? 0 : 1);
  }
  ::close(ends[1]);
  char buffer[1024];
  std::string text;
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof(buffer))) > 0;)
    text.append(buffer, static_cast<size_t>(n));
  ::close(ends[0]);
  int status = -1;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  return text;
}

TEST(HostIdentity, TokenIsTheSameOnAllThreads) {
  const uint64_t mine = thisProcess()->processToken;
  EXPECT_NE(mine, 0U);
  uint64_t other = 0;
  std::thread([&] { other = thisProcess()->processToken; }).join();
  EXPECT_EQ(other, mine);
}

TEST(HostIdentity, TokenChangesInAForkedChild) {
  const std::string mine = std::to_string(thisProcess()->processToken);
  const std::string first = outputOfChild([] { return std::to_string(thisProcess()->processToken); });
  const std::string second = outputOfChild([] { return std::to_string(thisProcess()->processToken); });
  EXPECT_NE(first, mine);
  EXPECT_NE(second, mine);
  EXPECT_NE(first, second);
  EXPECT_EQ(std::to_string(thisProcess()->processToken), mine) << "the parent keeps its own";
}

TEST(HostIdentity, ProcessesOfOneHostHaveTheSameId) {
  const HostIdentity mine = *thisProcess();
  EXPECT_EQ(mine.pid, ::getpid());
  EXPECT_FALSE(mine.hostName.empty());
  EXPECT_EQ(mine.hostName.find('.'), std::string::npos);
  EXPECT_EQ(outputOfChild([] { return thisProcess()->hostId; }), mine.hostId);
}

TEST(HostIdentity, AnotherNetworkNamespaceIsAnotherHost) {
  const std::string other = outputOfChild([]() -> std::string {
    if (::unshare(CLONE_NEWNET) != 0) return "not permitted";
    return thisProcess()->hostId;
  });
  if (other == "not permitted") GTEST_SKIP() << "may not make network namespaces";
  EXPECT_NE(other, thisProcess()->hostId);
}

TEST(HostIdentity, EnvironmentOverridesTheId) {
  ::setenv("NCCL_HOSTID", "rack-7", 1);
  params().reload();
  EXPECT_EQ(thisProcess()->hostId, "rack-7");
  ::unsetenv("NCCL_HOSTID");
  params().reload();
  EXPECT_NE(thisProcess()->hostId, "rack-7");
}

}  // namespace
}  // namespace tutti
