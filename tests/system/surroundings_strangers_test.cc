// Strangers: garbage at every socket that ranks listen at, in init and during collectives, and names that
// somebody else has taken.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <thread>

#include "support/command.h"
#include "support/scale.h"
#include "system/attack.h"
#include "system/process_probe.h"
#include "system/surroundings.h"

namespace tutti::system_test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

/// Fewer than a hundred connections at each listener would use up.
void fewDescriptors(int) {
  const rlimit limit{160, 160};
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(97);
}

/// Waits until this process has no more descriptors than that.
bool descriptorsReturnTo(int before) {
  const auto deadline = in(5s);
  while (countDescriptors() > before && Child::Clock::now() < deadline) std::this_thread::sleep_for(5ms);
  return countDescriptors() <= before;
}

/// Collectives, and communicators that come and go, until the test sends a byte to rank 0.
int workUntilToldToStop(Rank& self, const ChildSide& parent) {
  constexpr size_t kCount = test::scaled(100000, 20000);
  int* data = nullptr;
  must(cudaMalloc(reinterpret_cast<void**>(&data), kCount * sizeof(int)), "cudaMalloc", parent);
  std::atomic<int> stop{0};
  std::thread waiter;
  if (self.rank == 0)
    waiter = std::thread([&] {
      char go = 0;
      parent.receive(&go, 1);
      stop = 1;
    });
  int before = 0;
  bool right = true;
  bool stopped = false;
  int calls = 0;
  for (; !stopped; ++calls) {
    if (calls == 20) {
      before = countDescriptors();
      parent.say("running");
    }
    std::fill_n(data, kCount, self.rank + calls);
    data[0] = stop.load();
    must(ncclAllReduce(data, data, kCount, ncclInt32, ncclSum, self.comm, nullptr), "ncclAllReduce", parent,
         self.comm);
    must(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", parent);
    ncclResult_t state = ncclSuccess;
    must(ncclCommGetAsyncError(self.comm, &state), "ncclCommGetAsyncError", parent);
    must(state, "AllReduce", parent, self.comm);
    stopped = data[0] != 0;
    const int sum = self.ranks * calls + self.ranks * (self.ranks - 1) / 2;
    for (size_t i = 1; i < kCount; ++i) right = right && data[i] == sum;
    if (calls % 16 != 15) continue;
    ncclComm_t other = nullptr;
    must(ncclCommSplit(self.comm, 0, self.rank, &other, nullptr), "ncclCommSplit", parent, self.comm);
    must(ncclAllReduce(data, data, 1000, ncclInt32, ncclSum, other, nullptr), "ncclAllReduce", parent, other);
    must(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", parent);
    must(ncclCommDestroy(other), "ncclCommDestroy", parent);
  }
  if (waiter.joinable()) waiter.join();
  parent.say("calls " + std::to_string(calls));
  const bool returned = descriptorsReturnTo(before);
  must(cudaFree(data), "cudaFree", parent);
  must(ncclCommDestroy(self.comm), "ncclCommDestroy", parent);
  return !right ? 11 : returned ? 0 : 12;
}

/// Half-open connections, so many at each listener; they stay as long as what is returned.
std::vector<Connection> halfOpen(const std::vector<Listener>& listeners, int each) {
  std::vector<Connection> connections;
  for (const Listener& listener : listeners)
    for (int i = 0; i < each; ++i) {
      connections.emplace_back(listener);
      if (i % 3 == 1) connections.back().say("TUTI");
    }
  return connections;
}

std::string freeAddress() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ::bind(fd, reinterpret_cast<sockaddr*>(&address), length);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  ::close(fd);
  return "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
}

/// Half-open connections are dropped after 10 s: who waits for that takes longer.
constexpr auto kUndisturbed = 9s;

class Garbage : public testing::TestWithParam<Path> {};

TEST_P(Garbage, DuringCollectivesDisturbsNobody) {
  const Settings local{{"NCCL_SOCKET_IFNAME", "lo"}};
  const Settings ras{{"NCCL_RAS_ADDR", freeAddress()}};
  const Settings quiet{{"NCCL_DEBUG_FILE", "/dev/null"}};
  RankProcesses ranks(3, GetParam(), workUntilToldToStop, fewDescriptors);
  std::vector<Listener> listeners;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    ranks[rank].expectLine("running", in(kRankLimit));
    const auto more = listenersOf(ranks[rank].pid());
    EXPECT_GE(more.size(), 2u) << "the rank's TCP port, and its socket for tutti-ras";
    listeners.insert(listeners.end(), more.begin(), more.end());
  }
  int connected = 0;
  const auto start = Child::Clock::now();
  {
    const auto held = halfOpen(listeners, 120);
    const auto end = in(500ms);
    for (unsigned round = 0; Child::Clock::now() < end; ++round)
      for (const Listener& listener : listeners) connected += sendGarbage(listener, round);
    std::this_thread::sleep_for(100ms);
  }
  EXPECT_GT(connected, 20);
  ranks[0].send("x", 1);
  for (int rank = 0; rank < ranks.size(); ++rank) ranks[rank].expectLine("calls ", in(kRankLimit));
  ranks.expectSuccess(kRankLimit);
  EXPECT_LT(Child::Clock::now() - start, kUndisturbed);
}

TEST_P(Garbage, InInitDisturbsNobody) {
  const Settings local{{"NCCL_SOCKET_IFNAME", "lo"}};
  const Settings quiet{{"NCCL_DEBUG_FILE", "/dev/null"}};
  int gate[2];
  ASSERT_EQ(::pipe2(gate, O_CLOEXEC), 0);
  RankProcesses ranks(
      2, GetParam(), [](Rank& self, const ChildSide& parent) { return checkAndDestroy(self, parent, 1000); },
      [&](int rank) {
        fewDescriptors(rank);
        char go = 0;
        if (rank == 1 && ::read(gate[0], &go, 1) != 1) _exit(97);
      });
  const auto listeners = listenersOf(ranks[0].pid());
  EXPECT_FALSE(listeners.empty());
  const auto start = Child::Clock::now();
  const auto held = halfOpen(listeners, 120);
  int connected = 0;
  for (unsigned round = 0; round < 10; ++round)
    for (const Listener& listener : listeners) connected += sendGarbage(listener, round);
  EXPECT_GT(connected, 20);
  EXPECT_EQ(::write(gate[1], "x", 1), 1);  // rank 1 comes, while the half-open ones are there
  ranks.expectSuccess(kRankLimit);
  EXPECT_LT(Child::Clock::now() - start, kUndisturbed);
  ::close(gate[0]);
  ::close(gate[1]);
}

INSTANTIATE_TEST_SUITE_P(Paths, Garbage, testing::Values(Path::sharedMemory, Path::sockets),
                         [](const auto& each) { return std::string(nameOf(each.param)); });

/// A process that has taken a name and answers whoever comes with the same words.
class Stranger {
 public:
  Stranger(const std::string& abstractName, uid_t user, const std::string& answer)
      : process_([=](const ChildSide& parent) {
          const int fd = listenAt(abstractName);
          if (user != 0 && ::setresuid(user, user, user) != 0) _exit(97);
          if (::listen(fd, 16) != 0) _exit(96);
          parent.say("at " + portOf(fd));
          for (;;) {
            const int peer = ::accept4(fd, nullptr, nullptr, SOCK_CLOEXEC);
            if (peer < 0) continue;
            char heard[512];
            for (int lines = 0; lines < 3 && ::recv(peer, heard, sizeof heard, 0) > 0; ++lines)
              (void)!::send(peer, answer.data(), answer.size(), MSG_NOSIGNAL);
            ::close(peer);
          }
          return 0;
        }) {
    port_ = process_.expectLine("at ", in(kRankLimit));
  }
  const std::string& port() const { return port_; }
  pid_t pid() const { return process_.pid(); }

 private:
  /// An abstract Unix name, with the process id for "PID"; or a TCP port of 127.0.0.1 when it is empty.
  static int listenAt(std::string name) {
    const int fd = ::socket(name.empty() ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int bound = -1;
    if (name.empty()) {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      bound = ::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
    } else {
      name.replace(name.find("PID"), 3, std::to_string(::getpid()));
      sockaddr_storage address{};
      address.ss_family = AF_UNIX;
      name.copy(reinterpret_cast<char*>(&address) + sizeof(sa_family_t) + 1, 100);
      bound = ::bind(fd, reinterpret_cast<sockaddr*>(&address),
                     static_cast<socklen_t>(sizeof(sa_family_t) + 1 + name.size()));
    }
    if (bound != 0) _exit(95);
    return fd;
  }
  static std::string portOf(int fd) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
    return std::to_string(ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port));
  }

  Child process_;
  std::string port_;
};

TEST(TakenNames, TheRendezvousPortOfAnotherProcessIsNamedAndNotTrusted) {
  const Stranger stranger({}, 0, "HTTP/1.1 200 OK\r\n\r\n");
  const std::string address = "127.0.0.1:" + stranger.port();
  const Settings id{{"NCCL_COMM_ID", address}};
  const Settings patience{{"TUTTI_INIT_TIMEOUT", "1"}};
  const Settings local{{"NCCL_SOCKET_IFNAME", "lo"}};
  const Settings quiet{{"NCCL_DEBUG_FILE", "/dev/null"}};
  std::vector<std::unique_ptr<Child>> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.push_back(std::make_unique<Child>([rank](const ChildSide& parent) {
      ncclUniqueId unique{};
      ncclComm_t comm = nullptr;
      ncclResult_t result = ncclGetUniqueId(&unique);
      if (result == ncclSuccess) result = ncclCommInitRank(&comm, 2, unique, rank);
      parent.say("result " + std::string(result == ncclSuccess ? "success" : ncclGetLastError(nullptr)));
      return 0;
    }));
  EXPECT_THAT(ranks[0]->expectLine("result ", in(kRankLimit)),
              testing::AllOf(HasSubstr(address), HasSubstr("Address already in use")));
  EXPECT_THAT(ranks[1]->expectLine("result ", in(kRankLimit)),
              testing::AllOf(HasSubstr(address), HasSubstr("HTTP")));
}

TEST(TakenNames, ASocketOfAnotherUserIsNotAskedByTuttiRas) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may make processes of another user";
  const Stranger stranger("tutti-ras-PID-0123456789abcdef", 54321, "\033[31mgarbage\n");
  const std::string tool = test::programBeside("tutti-ras");
  // As root everyone is asked, but what strangers say cannot steer the terminal.
  const test::Outcome byRoot = test::runCommand(tool + " --pid " + std::to_string(stranger.pid()));
  EXPECT_THAT(byRoot.output, testing::AllOf(HasSubstr("?[31mgarbage"), testing::Not(HasSubstr("\033"))));
  const test::Outcome byUser = test::runCommand("setpriv --reuid 54322 --clear-groups " + tool + " --pid " +
                                                std::to_string(stranger.pid()));
  EXPECT_NE(byUser.status, 0);
  EXPECT_THAT(byUser.output, testing::AllOf(HasSubstr("user 54321"), testing::Not(HasSubstr("garbage"))));
}

}  // namespace
}  // namespace tutti::system_test
