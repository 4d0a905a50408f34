#include "base/socket.h"

#include <gmock/gmock.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <csignal>

#include "base/base_test.h"

namespace tutti::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(SocketAddress, ParsesAndPrints) {
  for (const char* text : {"10.0.0.7:4000", "0.0.0.0:0", "[::1]:65535", "[fd00:1::7]:80"})
    EXPECT_EQ(SocketAddress::parse(text)->text(), text);
  EXPECT_EQ(SocketAddress::parse("[fe80::1%lo]:7")->text(), "[fe80::1%lo]:7");
  EXPECT_EQ(SocketAddress::parse("localhost:80", AF_INET)->text(), "127.0.0.1:80");
  EXPECT_EQ(SocketAddress::abstractUnix("tutti-x").text(), "unix:@tutti-x");
}

TEST(SocketAddress, RefusesWhatIsNoAddress) {
  for (const char* text : {"", ":", "1.2.3.4", "1.2.3.4:", ":80", "1.2.3.4:65536", "1.2.3.4:-1", "1.2.3.4:8x",
                           "::1:80", "[::1]80", "[::1", "[::1]:", "1.2.3.4:999999999999"})
    EXPECT_EQ(SocketAddress::parse(text).status().code(), ncclInvalidArgument) << text;
  EXPECT_THAT(SocketAddress::parse("no.such.host.invalid:80").status().message(),
              HasSubstr("no.such.host.invalid"));
}

TEST(SocketAddress, SurvivesEncoding) {
  std::string bytes;
  const SocketAddress addresses[] = {*SocketAddress::parse("10.0.0.7:4000"),
                                     *SocketAddress::parse("[fd00::7]:80"),
                                     SocketAddress::abstractUnix("name")};
  for (const auto& address : addresses) bytes += address.encode();
  std::string_view rest = bytes;
  for (const auto& address : addresses) EXPECT_EQ(SocketAddress::decode(rest).text(), address.text());
  EXPECT_TRUE(rest.empty());
  for (size_t cut = 0; cut < 7; ++cut) {
    rest = std::string_view(bytes).substr(0, cut);
    EXPECT_FALSE(SocketAddress::decode(rest).isValid());
  }
  rest = "\x09zzzzzzz";
  EXPECT_FALSE(SocketAddress::decode(rest).isValid());
}

NetworkInterface interface(const char* name, const char* address, int prefix = 24) {
  NetworkInterface result;
  result.name = name;
  result.address = *SocketAddress::parse(std::string(address).find(':') == std::string::npos
                                             ? fmt::format("{}:0", address)
                                             : fmt::format("[{}]:0", address));
  result.prefixBits = prefix;
  return result;
}

std::vector<std::string> chosen(const std::vector<NetworkInterface>& all, const InterfaceRules& rules) {
  std::vector<std::string> names;
  for (const auto& i : chooseInterfaces(all, rules)) names.push_back(i.name);
  return names;
}

const std::vector<NetworkInterface> kMachine = {
    interface("lo", "127.0.0.1", 8),      interface("docker0", "172.17.0.1", 16),
    interface("virbr0", "192.168.122.1"), interface("eth0", "fe80::1", 64),
    interface("eth0", "10.0.0.7"),        interface("eth1", "10.0.1.7"),
    interface("eth10", "10.0.10.7"),      interface("ib0", "10.9.0.7"),
    interface("lo", "::1", 128),
};

std::vector<NetworkInterface> without(const std::string& prefix) {
  std::vector<NetworkInterface> result;
  for (const auto& i : kMachine)
    if (!i.name.starts_with(prefix)) result.push_back(i);
  return result;
}

TEST(Interfaces, DefaultOrderIsThatOfNccl) {
  EXPECT_THAT(chosen(kMachine, {}), ElementsAre("ib0"));
  const auto noIb = without("ib");
  EXPECT_THAT(chosen(noIb, {}), ElementsAre("eth0", "eth1", "eth10", "eth0")) << "link-local last";
  InterfaceRules subnet;
  subnet.sameSubnet = *SocketAddress::parse("10.0.1.200:5000");
  EXPECT_THAT(chosen(noIb, subnet), ElementsAre("eth1"));
  subnet.sameSubnet = *SocketAddress::parse("10.77.1.200:5000");
  EXPECT_THAT(chosen(noIb, subnet), ElementsAre("eth0", "eth1", "eth10", "eth0"));
  std::vector<NetworkInterface> bare = {kMachine[0], kMachine[1], kMachine[2]};
  EXPECT_THAT(chosen(bare, {}), ElementsAre("docker0"));
  EXPECT_THAT(chosen({kMachine[2], kMachine[0]}, {}), ElementsAre("lo"));
  EXPECT_THAT(chosen({kMachine[0]}, {}), ElementsAre("lo"));
  EXPECT_THAT(chosen({}, {}), IsEmpty());
}

TEST(Interfaces, NamesArePrefixesExactOrExcluded) {
  const auto byNames = [](const char* names) {
    InterfaceRules rules;
    rules.names = names;
    rules.family = AF_INET;
    return chosen(kMachine, rules);
  };
  EXPECT_THAT(byNames("eth"), ElementsAre("eth0", "eth1", "eth10"));
  EXPECT_THAT(byNames("eth1"), ElementsAre("eth1", "eth10"));
  EXPECT_THAT(byNames("=eth1"), ElementsAre("eth1"));
  EXPECT_THAT(byNames("=eth1,lo"), ElementsAre("lo", "eth1"));
  EXPECT_THAT(byNames("^ib"), ElementsAre("eth0", "eth1", "eth10"));
  EXPECT_THAT(byNames("^ib,eth1"), ElementsAre("eth0"));
  EXPECT_THAT(byNames("^=ib0,eth1"), ElementsAre("eth0", "eth10"));
  EXPECT_THAT(byNames("docker"), ElementsAre("docker0"));
  EXPECT_THAT(byNames("lo"), ElementsAre("lo"));
  EXPECT_THAT(byNames("wlan"), IsEmpty());
}

TEST(Interfaces, FamilyIsObeyed) {
  InterfaceRules rules;
  rules.family = AF_INET6;
  EXPECT_THAT(chosen(without("ib"), rules), ElementsAre("eth0"));
  rules.names = "lo";
  EXPECT_THAT(chosen(kMachine, rules), ElementsAre("lo"));
}

TEST(Interfaces, AreListedWithTheLoopback) {
  const auto all = listInterfaces();
  ASSERT_TRUE(all.isOk());
  bool loopback = false;
  for (const auto& i : *all) loopback = loopback || (i.name == "lo" && i.prefixBits == 8);
  EXPECT_TRUE(loopback);
}

struct Connected {
  explicit Connected(int family = AF_INET) {
    listener = std::move(*listenOn(SocketAddress::loopback(family, 0)));
    client = std::move(*connectTo(localAddress(listener.get()), within(5s), nullptr));
    EXPECT_TRUE(waitFor(listener.get(), POLLIN, within(5s), nullptr).isOk());
    server = std::move(*acceptFrom(listener.get()));
  }
  UniqueFd listener, client, server;
};

TEST(Sockets, CarryBytesOverBothFamiliesAndUnix) {
  for (const int family : {AF_INET, AF_INET6}) {
    if (!listenOn(SocketAddress::loopback(family, 0)).isOk()) continue;
    const Connected c(family);
    const std::string big(5 << 20, 'z');
    std::thread sender([&] { EXPECT_TRUE(sendAll(c.client.get(), big, within(5s), nullptr).isOk()); });
    std::string got(big.size(), '\0');
    EXPECT_TRUE(receiveAll(c.server.get(), got.data(), got.size(), within(5s), nullptr).isOk());
    sender.join();
    EXPECT_EQ(got, big);
  }
  const auto address = SocketAddress::abstractUnix(fmt::format("tutti-test-{}", ::getpid()));
  const auto listener = listenOn(address);
  ASSERT_TRUE(listener.isOk()) << listener.status().message();
  const auto client = connectTo(address, within(1s), nullptr);
  ASSERT_TRUE(client.isOk()) << client.status().message();
}

TEST(Sockets, HaveTheOptionsThatNoticeAVanishedHost) {
  const Connected c;
  for (const UniqueFd* fd : {&c.client, &c.server}) {
    const auto option = [&](int level, int name) {
      int value = 0;
      socklen_t length = sizeof value;
      ::getsockopt(fd->get(), level, name, &value, &length);
      return value;
    };
    EXPECT_EQ(option(IPPROTO_TCP, TCP_NODELAY), 1);
    EXPECT_EQ(option(SOL_SOCKET, SO_KEEPALIVE), 1);
    EXPECT_LE(option(IPPROTO_TCP, TCP_KEEPIDLE) + option(IPPROTO_TCP, TCP_KEEPINTVL), 60);
    EXPECT_EQ(option(IPPROTO_TCP, TCP_USER_TIMEOUT), 60000);
  }
}

TEST(Sockets, WaitsEndAtTheDeadlineAndOnFaults) {
  const Connected c;
  char byte;
  EXPECT_THAT(receiveAll(c.server.get(), &byte, 1, within(30ms), nullptr).message(), HasSubstr("timed out"));
  FaultState faults;
  std::thread raiser([&] {
    std::this_thread::sleep_for(50ms);
    faults.raise(Status(ncclRemoteError, "rank 1 died"));
  });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(receiveAll(c.server.get(), &byte, 1, Deadline::never(), &faults).message(),
              HasSubstr("rank 1 died"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 1s);
  raiser.join();
  const std::string big(64 << 20, 'x');
  EXPECT_THAT(sendAll(c.client.get(), big, within(100ms), nullptr).message(), HasSubstr("timed out"));
}

TEST(Sockets, SendingToAClosedPeerIsAnErrorAndNoSignal) {
  Connected c;
  c.server.reset();
  struct sigaction before {};
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  ::sigaction(SIGPIPE, &standard, &before);
  Status status;
  for (int i = 0; i < 100 && status.isOk(); ++i) {
    status = sendAll(c.client.get(), std::string(1000, 'x'), within(1s), nullptr);
    std::this_thread::sleep_for(1ms);
  }
  ::sigaction(SIGPIPE, &before, nullptr);
  EXPECT_EQ(status.code(), ncclRemoteError);
  char byte;
  EXPECT_EQ(receiveAll(c.client.get(), &byte, 1, within(1s), nullptr).code(), ncclRemoteError);
}

TEST(Sockets, ConnectTriesAgainUntilSomebodyListens) {
  UniqueFd holder = std::move(*listenOn(SocketAddress::loopback(AF_INET, 0)));
  const SocketAddress address = localAddress(holder.get());
  holder.reset();
  EXPECT_THAT(connectTo(address, within(5s), nullptr, {2, 1, false}).status().message(),
              ::testing::AllOf(HasSubstr(address.text()), HasSubstr("Connection refused"),
                               HasSubstr("after 3 tries")));
  std::thread late([&] {
    std::this_thread::sleep_for(100ms);
    holder = std::move(*listenOn(address));
  });
  EXPECT_TRUE(connectTo(address, within(5s), nullptr, {0, 10, true}).isOk());
  late.join();
  holder.reset();
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(connectTo(address, within(100ms), nullptr, {0, 10, true}).status().message(),
              HasSubstr("timed out"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 1s);
}

TEST(Sockets, BindErrorsNameTheAddress) {
  const UniqueFd holder = std::move(*listenOn(SocketAddress::loopback(AF_INET, 0)));
  const SocketAddress address = localAddress(holder.get());
  EXPECT_THAT(listenOn(address).status().message(),
              HasSubstr("bind " + address.text() + ": Address already in use"));
  EXPECT_THAT(listenOn(*SocketAddress::parse("203.0.113.5:80")).status().message(),
              HasSubstr("203.0.113.5:80"));
}

}  // namespace
}  // namespace tutti::testing
