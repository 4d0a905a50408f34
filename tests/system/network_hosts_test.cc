// Hosts whose network is not what one expects: which addresses ranks find each other by, and when they share
// memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>

#include "system/log.h"
#include "system/network.h"
#include "system/ranks.h"

namespace tutti::system_test::network_hosts {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr auto kPatience = 20s;
constexpr size_t kCount = 100'000;

/// One AllReduce; says "right" when each value is.
int reduceOnce(Rank& self, const ChildSide& parent) {
  void* memory = nullptr;
  must(cudaMalloc(&memory, kCount * sizeof(float)), "cudaMalloc", parent);
  auto* data = static_cast<float*>(memory);
  for (size_t i = 0; i < kCount; ++i) data[i] = static_cast<float>(self.rank + 1) + static_cast<float>(i % 7);
  must(ncclAllReduce(data, data, kCount, ncclFloat, ncclSum, self.comm, nullptr), "ncclAllReduce", parent);
  if (cudaStreamSynchronize(nullptr) != cudaSuccess) {
    parent.say(std::string("failed AllReduce: ") + ncclGetLastError(self.comm));
    return 3;
  }
  const int n = self.ranks;
  for (size_t i = 0; i < kCount; ++i)
    if (data[i] != static_cast<float>(n * (n + 1) / 2 + n * static_cast<int>(i % 7))) return 2;
  must(ncclCommDestroy(self.comm), "ncclCommDestroy", parent);
  return 0;
}

class NetworkHosts : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = Network::whatIsMissing(); !missing.empty()) GTEST_SKIP() << missing;
  }
  /// Ranks of `hosts`, one number for each rank, reduce. Returns how long it took.
  static std::chrono::milliseconds reduce(const Network& network, const std::vector<int>& hosts,
                                          const std::function<void(int rank)>& prepare = {},
                                          Path path = Path::sharedMemory) {
    const auto start = Clock::now();
    RankProcesses ranks(static_cast<int>(hosts.size()), path, reduceOnce, [&](int rank) {
      if (!network.enter(hosts[static_cast<size_t>(rank)])) _exit(98);
      if (prepare) prepare(rank);
    });
    ranks.expectSuccess(kPatience);
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
  }
};

TEST_F(NetworkHosts, WithLoopbackOnlyServeTheirOwnRanks) {
  const Network network(1);
  for (const Path path : {Path::sharedMemory, Path::sockets}) {
    const Log log;
    reduce(network, {0, 0, 0}, {}, path);
    EXPECT_THAT(log.text(),
                HasSubstr(path == Path::sockets ? "via NET/Socket" : "1 host(s), 3 local rank(s)"));
  }
}

TEST_F(NetworkHosts, WithALinkLocalAddressFirstUseTheRoutableOne) {
  Network network(2);
  for (int host = 0; host < 2; ++host) {
    network.plug(host, true);
    network.ip(host, "address add " + Network::addressOf(host) + "/24 dev eth0\n");
  }
  const Log log;
  reduce(network, {0, 1});
  EXPECT_THAT(log.text(), HasSubstr("via NET/Socket"));
  const std::string text = log.text();
  for (const char* number : {"1", "2"})  // the order in which peers are told of them
    EXPECT_LT(text.find(std::string("using eth0 10.77.0.") + number),
              text.find(std::string("using eth0 [fe80::") + number));
}

TEST_F(NetworkHosts, WithIPv6OnlyFindEachOther) {
  Network network(2);
  for (int host = 0; host < 2; ++host) {
    network.plug(host, true);
    network.ip(host, "address add fd77::" + std::to_string(host + 1) + "/64 dev eth0\n");
  }
  const Log log;
  reduce(network, {0, 1});
  EXPECT_THAT(log.text(), HasSubstr("Bootstrap: using eth0 [fd77::1]"));
}

TEST_F(NetworkHosts, WithLinkLocalAddressesOnlyFindEachOtherOnTheirCommonLink) {
  Network network(2);
  // Another interface comes first, with a link-local address of its own that leads nowhere.
  for (int host = 0; host < 2; ++host) {
    network.ip(host,
               "link add name aaa0 type veth peer name aaa1\n"
               "link set aaa1 addrgenmode none up\n"
               "link set aaa0 addrgenmode none\n"
               "address add fe80::99" +
                   std::to_string(host) +
                   "/64 dev aaa0\n"
                   "link set aaa0 up\n");
    network.plug(host, true);
  }
  const Log log;
  reduce(network, {0, 1});
  EXPECT_THAT(log.text(), HasSubstr("via NET/Socket"));
}

TEST_F(NetworkHosts, WithTwentyInterfacesFindTheOneThatWorks) {
  Network network(2);
  for (int host = 0; host < 2; ++host) {
    std::string lines;
    for (int i = 1; i < 20; ++i) {
      // Wires without a host at their other end: half of them ask for it in vain, half of them do not even
      // ask.
      const std::string name = "net" + std::to_string(i);
      lines += "link add name " + name + " type veth peer name " + name + "peer\n" + "address add 10." +
               std::to_string(100 + i) + ".0." + std::to_string(host + 1) + "/24 dev " + name +
               "\nlink set " + name + "peer up\n";
      if (i % 2 == 0) lines += "link set " + name + " arp off\n";
      if (i % 5 != 0) lines += "link set " + name + " up\n";
    }
    network.ip(host, lines);
    network.plug(host);
  }
  const Log log;
  EXPECT_LT(reduce(network, {0, 1, 1, 0}), 3s);
  EXPECT_THAT(log.text(), HasSubstr("via NET/Socket"));
}

TEST_F(NetworkHosts, WhoseNamesMeanLoopbackFindEachOther) {
  if (!mayBecomeHost()) GTEST_SKIP() << "may not mount an /etc/hosts of its own";
  Network network(2);
  network.plug(0);
  network.plug(1);
  const auto become = [](int rank) {
    const std::string own = "127.0.0.1 localhost\n127.0.1.1 node" + std::to_string(rank) + "\n";
    if (!becomeHost("node" + std::to_string(rank), own + (rank == 0 ? "" : "10.77.0.1 node0\n"))) _exit(97);
  };
  reduce(network, {0, 1}, become);
  const Settings settings{{"NCCL_COMM_ID", "node0:2001"}};
  reduce(network, {0, 1}, become);
}

TEST_F(NetworkHosts, WithEqualNamesAreDifferentHosts) {
  if (!mayBecomeHost()) GTEST_SKIP() << "may not mount an /etc/hosts of its own";
  Network network(2);
  network.plug(0);
  network.plug(1);
  const Log log;
  reduce(network, {0, 0, 1, 1}, [](int) { becomeHost("node", "127.0.0.1 localhost\n"); });
  EXPECT_THAT(log.text(), AllOf(HasSubstr("via NET/Socket"), HasSubstr("2 host(s), 2 local rank(s)")));
}

TEST_F(NetworkHosts, WithEqualHostIdsByMistakeUseWhatWorks) {
  if (!mayBecomeHost()) GTEST_SKIP() << "may not mount an /etc/hosts of its own";
  Network network(2);
  network.plug(0);
  network.plug(1);
  const Settings settings{{"NCCL_HOSTID", "same"}};
  const Log log;
  EXPECT_LT(reduce(network, {0, 1, 0, 1}, [](int) { becomeHost("node", "127.0.0.1 localhost\n"); }), 3s);
  EXPECT_THAT(log.text(), AllOf(HasSubstr("via NET/Socket"), HasSubstr("using sockets")));
}

}  // namespace
}  // namespace tutti::system_test::network_hosts
