#include "base/memory_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>

#include "base/base_test.h"

namespace tutti::testing {
namespace {

using ::testing::HasSubstr;

struct Pair {
  Pair() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    a.reset(fds[0]);
    b.reset(fds[1]);
  }
  UniqueFd a, b;
};

MemoryFile made(size_t bytes) {
  auto file = MemoryFile::create("test", bytes);
  EXPECT_TRUE(file.isOk()) << file.status().message();
  return std::move(*file);
}

TEST(MemoryFile, IsZeroedAndWholePages) {
  const MemoryFile file = made(5000);
  EXPECT_EQ(file.size(), 8192u);
  EXPECT_TRUE(
      std::all_of(file.data(), file.data() + file.size(), [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_NE(::fcntl(file.fd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(MemoryFile, CanBeNeitherShrunkNorGrown) {
  const MemoryFile file = made(8192);
  EXPECT_NE(::ftruncate(file.fd(), 4096), 0);
  EXPECT_NE(::ftruncate(file.fd(), 16384), 0);
}

TEST(MemoryFile, IsReadableByAnotherProcess) {
  const Pair sockets;
  const pid_t pid = ::fork();
  if (pid == 0) {
    auto got = receiveDescriptor(sockets.b.get(), 5, within(5s), nullptr);
    if (!got.isOk() || got->payload != "hello") ::_exit(1);
    auto file = MemoryFile::attach(std::move(got->fd), 100000);
    if (!file.isOk()) ::_exit(2);
    if (file->data()[99999] != std::byte{42}) ::_exit(3);
    file->data()[0] = std::byte{43};
    ::_exit(0);
  }
  const MemoryFile file = made(100000);
  file.data()[99999] = std::byte{42};
  ASSERT_TRUE(sendDescriptor(sockets.a.get(), file.fd(), "hello", within(5s), nullptr).isOk());
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(file.data()[0], std::byte{43});
}

TEST(MemoryFile, RefusesFilesOfAnotherSizeOrWithoutSeal) {
  const MemoryFile file = made(8192);
  EXPECT_THAT(MemoryFile::attach(UniqueFd(::dup(file.fd())), 4096).status().message(),
              HasSubstr("has 8192 bytes, expected 4096"));
  EXPECT_THAT(MemoryFile::attach(UniqueFd(::dup(file.fd())), 16384).status().message(),
              HasSubstr("expected 16384"));
  UniqueFd unsealed(::memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), 4096), 0);
  EXPECT_THAT(MemoryFile::attach(std::move(unsealed), 4096).status().message(), HasSubstr("not sealed"));
  EXPECT_FALSE(MemoryFile::attach(UniqueFd(::open("/dev/null", O_RDWR)), 4096).isOk());
  EXPECT_FALSE(MemoryFile::attach(UniqueFd(), 4096).isOk());
}

TEST(MemoryFile, RefusesSizesThatMakeNoSense) {
  EXPECT_FALSE(MemoryFile::create("x", 0).isOk());
  EXPECT_FALSE(MemoryFile::create("x", SIZE_MAX).isOk());
  EXPECT_FALSE(MemoryFile::create("x", size_t{1} << 62).isOk());
}

TEST(MemoryFile, MovesWithoutUnmapping) {
  MemoryFile file = made(4096);
  std::byte* const data = file.data();
  MemoryFile other = std::move(file);
  EXPECT_EQ(other.data(), data);
  data[0] = std::byte{1};
  other = made(4096);
  EXPECT_EQ(other.data()[0], std::byte{0});
}

TEST(NamedSegment, IsSharedByNameUntilUnlinked) {
  auto file = MemoryFile::createNamed(10000);
  ASSERT_TRUE(file.isOk()) << file.status().message();
  auto other = MemoryFile::openNamed(file->name(), 10000);
  ASSERT_TRUE(other.isOk()) << other.status().message();
  file->data()[9999] = std::byte{7};
  EXPECT_EQ(other->data()[9999], std::byte{7});
  const std::string name = file->name();
  EXPECT_THAT(MemoryFile::openNamed(name, 5000).status().message(), HasSubstr("expected 8192"));
  file->unlink();
  EXPECT_THAT(MemoryFile::openNamed(name, 10000).status().message(), HasSubstr("No such file"));
  EXPECT_EQ(other->data()[9999], std::byte{7});
}

TEST(NamedSegment, LeavesNothingInDevShm) {
  const size_t before = entriesOf("/dev/shm");
  { auto file = MemoryFile::createNamed(10000); }
  EXPECT_EQ(entriesOf("/dev/shm"), before);
}

TEST(NamedSegment, AFullDevShmIsAnErrorAndNoSignal) {
  const size_t before = entriesOf("/dev/shm");
  const auto file = MemoryFile::createNamed(size_t{1} << 44);
  EXPECT_FALSE(file.isOk());
  EXPECT_EQ(entriesOf("/dev/shm"), before);
}

TEST(NamedSegment, RefusesForeignNames) {
  EXPECT_FALSE(MemoryFile::openNamed("/somebody-elses", 4096).isOk());
  EXPECT_FALSE(MemoryFile::openNamed("/tutti-/../x", 4096).isOk());
}

TEST(Descriptors, LongPayloadsArriveWholeDespiteSignals) {
  const Pair sockets;
  const int small = 4096;
  ::setsockopt(sockets.a.get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) {};
  ::sigaction(SIGALRM, &action, &before);
  const itimerval storm{{0, 500}, {0, 500}}, calm{};
  ::setitimer(ITIMER_REAL, &storm, nullptr);
  std::string payload(3 << 20, 'x');
  payload.back() = 'y';
  const MemoryFile file = made(4096);
  std::thread sender(
      [&] { EXPECT_TRUE(sendDescriptor(sockets.a.get(), file.fd(), payload, within(5s), nullptr).isOk()); });
  auto got = receiveDescriptor(sockets.b.get(), payload.size(), within(5s), nullptr);
  sender.join();
  ::setitimer(ITIMER_REAL, &calm, nullptr);
  ::sigaction(SIGALRM, &before, nullptr);
  ASSERT_TRUE(got.isOk()) << got.status().message();
  EXPECT_EQ(got->payload, payload);
  EXPECT_TRUE(MemoryFile::attach(std::move(got->fd), 4096).isOk());
}

TEST(Descriptors, MessagesWithNoneOrSeveralAreRefusedWithoutLeaks) {
  const size_t before = entriesOf("/proc/self/fd");
  {
    const Pair sockets;
    ASSERT_EQ(::send(sockets.a.get(), "x", 1, 0), 1);
    EXPECT_THAT(receiveDescriptor(sockets.b.get(), 1, within(1s), nullptr).status().message(),
                HasSubstr("without one"));
    const int fds[2] = {0, 1};
    iovec part{const_cast<char*>("x"), 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof fds)] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fds);
    std::memcpy(CMSG_DATA(header), fds, sizeof fds);
    ASSERT_EQ(::sendmsg(sockets.a.get(), &message, 0), 1);
    EXPECT_THAT(receiveDescriptor(sockets.b.get(), 1, within(1s), nullptr).status().message(),
                HasSubstr("more than one"));
  }
  EXPECT_EQ(entriesOf("/proc/self/fd"), before);
}

TEST(Descriptors, TheDescriptorLimitIsNamed) {
  const Pair sockets;
  const MemoryFile file = made(4096);
  ASSERT_TRUE(sendDescriptor(sockets.a.get(), file.fd(), "x", within(1s), nullptr).isOk());
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const UniqueFd highest(::dup(0));
  rlimit low = before;
  low.rlim_cur = static_cast<rlim_t>(highest.get()) + 1;  // the next descriptor would be one too many
  ::setrlimit(RLIMIT_NOFILE, &low);
  const auto got = receiveDescriptor(sockets.b.get(), 1, within(1s), nullptr);
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_THAT(got.status().message(), HasSubstr("ulimit -n"));
}

TEST(Descriptors, WaitsEndAtTheDeadlineAndOnFaults) {
  const Pair sockets;
  EXPECT_THAT(receiveDescriptor(sockets.b.get(), 1, within(30ms), nullptr).status().message(),
              HasSubstr("timed out"));
  FaultState faults;
  faults.raise(Status(ncclRemoteError, "rank 3 died"));
  EXPECT_THAT(receiveDescriptor(sockets.b.get(), 1, Deadline::never(), &faults).status().message(),
              HasSubstr("rank 3 died"));
}

}  // namespace
}  // namespace tutti::testing
