#include "base/handshake.h"

#include <gmock/gmock.h>
#include <poll.h>
#include <sys/resource.h>

#include <random>

#include "base/base_test.h"
#include "base/handshake_messages.h"

namespace tutti::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kService = 77;

/// A listener with one service that keeps what comes.
struct Server {
  explicit Server(AuthListener::Limits limits = {}) {
    listener = std::move(*AuthListener::listen({SocketAddress::loopback(AF_INET, 0)}, limits));
    EXPECT_TRUE(listener
                    ->offer(kService, secret,
                            [this](AcceptedConnection c) {
                              const std::lock_guard lock(mutex);
                              accepted.push_back(std::move(c));
                              ++count;
                            })
                    .isOk());
  }
  ~Server() { listener->withdraw(kService); }
  SocketAddress address() const { return listener->addresses()[0]; }
  UniqueFd raw() const { return std::move(*connectTo(address(), within(5s), nullptr)); }
  Result<UniqueFd> dial(const Secret& with, uint64_t service = kService) const {
    return connectAuthenticated({address()}, service, with, "payload", within(5s), nullptr, {0, 1, false});
  }

  Secret secret = *Secret::random();
  std::mutex mutex;
  std::vector<AcceptedConnection> accepted;
  std::atomic<int> count{0};
  std::shared_ptr<AuthListener> listener;
};

bool closedByPeer(const UniqueFd& fd, std::chrono::milliseconds limit = 3000ms) {
  char byte;
  return receiveAll(fd.get(), &byte, 1, within(limit), nullptr).code() == ncclRemoteError;
}

TEST(Handshake, ConnectsThoseWhoKnowTheSecret) {
  Server server;
  auto fd = server.dial(server.secret);
  ASSERT_TRUE(fd.isOk()) << fd.status().message();
  // Sent right behind the proof: must reach the service, not the handshake.
  ASSERT_TRUE(sendAll(fd->get(), "first words", within(1s), nullptr).isOk());
  ASSERT_TRUE(eventually([&] { return server.count == 1; }));
  AcceptedConnection& c = server.accepted[0];
  EXPECT_EQ(c.payload, "payload");
  EXPECT_EQ(c.peer, localAddress(fd->get()));
  char text[11];
  ASSERT_TRUE(receiveAll(c.fd.get(), text, sizeof text, within(1s), nullptr).isOk());
  EXPECT_EQ(std::string(text, sizeof text), "first words");
  EXPECT_EQ(server.listener->unproven(), 0u);
}

TEST(Handshake, TurnsAwayThoseWhoDoNot) {
  Server server;
  EXPECT_THAT(server.dial(*Secret::random()).status().message(),
              HasSubstr("does not know this job's secret"));
  EXPECT_THAT(server.dial(server.secret, 78).status().message(), HasSubstr("refused: nothing here answers"));
  EXPECT_EQ(server.count, 0);
  EXPECT_TRUE(eventually([&] { return server.listener->unproven() == 0; }));
}

/// The connector's side by hand, to do it wrong.
Frame challengeFor(const UniqueFd& fd, const std::string& helloBody) {
  EXPECT_TRUE(sendFrame(fd.get(), kHelloFrame, helloBody, within(1s), nullptr).isOk());
  auto answer = receiveFrame(fd.get(), kMaxRejectBytes, within(1s), nullptr);
  EXPECT_TRUE(answer.isOk()) << answer.status().message();
  return std::move(*answer);
}

TEST(Handshake, AWrongProofAReflectedProofAndAReplayAreDropped) {
  Server server;
  HelloMessage hello;
  hello.service = kService;
  const std::string body = hello.encode();
  ChallengeMessage challenge;
  {
    const UniqueFd fd = server.raw();
    ASSERT_TRUE(challenge.decode(challengeFor(fd, body).body));
    EXPECT_EQ(challenge.proof, proofOf(server.secret, "listener", body, challenge.nonce));
    ASSERT_TRUE(sendFrame(fd.get(), kProofFrame, std::string(32, 'x'), within(1s), nullptr).isOk());
    EXPECT_TRUE(closedByPeer(fd));
  }
  {
    const UniqueFd fd = server.raw();
    ASSERT_TRUE(challenge.decode(challengeFor(fd, body).body));
    ASSERT_TRUE(sendFrame(fd.get(), kProofFrame, challenge.proof, within(1s), nullptr).isOk());
    EXPECT_TRUE(closedByPeer(fd));
  }
  const std::string good = proofOf(server.secret, "connector", body, challenge.nonce);
  {
    const UniqueFd fd = server.raw();  // the same hello, and a proof that was right for an earlier nonce
    challengeFor(fd, body);
    ASSERT_TRUE(sendFrame(fd.get(), kProofFrame, good, within(1s), nullptr).isOk());
    EXPECT_TRUE(closedByPeer(fd));
  }
  EXPECT_EQ(server.count, 0);
}

TEST(Handshake, AListenerWithoutTheSecretIsNotTrusted) {
  const UniqueFd listener = std::move(*listenOn(SocketAddress::loopback(AF_INET, 0)));
  std::thread impostor([&] {
    ASSERT_TRUE(waitFor(listener.get(), POLLIN, within(5s), nullptr).isOk());
    const UniqueFd fd = std::move(*acceptFrom(listener.get()));
    ASSERT_TRUE(receiveFrame(fd.get(), 10000, within(5s), nullptr).isOk());
    ChallengeMessage challenge;
    challenge.proof = std::string(kProofBytes, 'x');
    ASSERT_TRUE(sendFrame(fd.get(), kChallengeFrame, challenge.encode(), within(5s), nullptr).isOk());
    EXPECT_TRUE(closedByPeer(fd)) << "nothing may be proved to an impostor";
  });
  const auto fd = connectAuthenticated({localAddress(listener.get())}, 1, *Secret::random(), "", within(5s),
                                       nullptr, {5, 1, false});
  EXPECT_THAT(fd.status().message(), HasSubstr("does not know this job's secret"));
  impostor.join();
}

TEST(Handshake, SlowPeersDelayNobodyAndAreDroppedInTime) {
  AuthListener::Limits limits;
  limits.proof = 300ms;
  Server server(limits);
  const UniqueFd silent = server.raw(), slow = server.raw();
  std::atomic<bool> stop{false};
  std::thread dripping([&] {  // a byte now and then does not extend the limit
    const std::string hello = makeFrame(kHelloFrame, std::string(24, '\0'));
    for (size_t i = 0; i < hello.size() && !stop; ++i) {
      sendAll(slow.get(), hello.substr(i, 1), within(1s), nullptr).ignore();
      std::this_thread::sleep_for(30ms);
    }
  });
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(server.dial(server.secret).isOk());
  EXPECT_LT(std::chrono::steady_clock::now() - start, 250ms);
  EXPECT_TRUE(closedByPeer(silent));
  EXPECT_TRUE(closedByPeer(slow));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 2s);
  stop = true;
  dripping.join();
}

TEST(Handshake, AFloodOfSilentConnectionsDoesNotKeepOthersOut) {
  AuthListener::Limits limits;
  limits.unproven = 8;
  Server server(limits);
  std::vector<UniqueFd> flood;
  for (int i = 0; i < 40; ++i) flood.push_back(server.raw());
  EXPECT_TRUE(eventually([&] { return closedByPeer(flood[0], 10ms); })) << "the oldest goes";
  EXPECT_LE(server.listener->unproven(), 8u);
  EXPECT_TRUE(server.dial(server.secret).isOk());
}

TEST(Handshake, AFloodDoesNotPushOutWhoIsAboutToProveItself) {
  AuthListener::Limits limits;
  limits.unproven = 8;
  Server server(limits);
  HelloMessage hello;
  hello.service = kService;
  const std::string body = hello.encode();
  const UniqueFd fd = server.raw();
  ChallengeMessage challenge;
  ASSERT_TRUE(challenge.decode(challengeFor(fd, body).body));
  std::vector<UniqueFd> flood;
  for (int i = 0; i < 40; ++i) flood.push_back(server.raw());
  EXPECT_TRUE(eventually([&] { return closedByPeer(flood[0], 10ms); }));
  const std::string proof = proofOf(server.secret, "connector", body, challenge.nonce);
  ASSERT_TRUE(sendFrame(fd.get(), kProofFrame, proof, within(1s), nullptr).isOk());
  EXPECT_TRUE(eventually([&] { return server.count == 1; }));
}

TEST(Handshake, RandomBytesAreDropped) {
  Server server;
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const UniqueFd fd = server.raw();
    // Half of them begin like a good frame.
    HelloMessage hello;
    hello.service = round % 4 == 1 ? kService : random();
    std::string bytes = round % 2 == 0 ? "" : makeFrame(kHelloFrame, hello.encode());
    if (round % 3 == 0 && !bytes.empty()) bytes[random() % bytes.size()] = static_cast<char>(random());
    for (unsigned i = random() % 300; i > 0; --i) bytes.push_back(static_cast<char>(random()));
    sendAll(fd.get(), bytes, within(1s), nullptr).ignore();
  }
  EXPECT_TRUE(eventually([&] { return server.listener->unproven() == 0; }));
  EXPECT_EQ(server.count, 0);
  EXPECT_TRUE(server.dial(server.secret).isOk());
}

TEST(Handshake, SkipsAddressesThatLeadNowhereOrElsewhere) {
  Server server, other;
  SocketAddress refused = server.address();
  {
    const UniqueFd gone = std::move(*listenOn(SocketAddress::loopback(AF_INET, 0)));
    refused = localAddress(gone.get());
  }
  const auto fd = connectAuthenticated({refused, other.address(), server.address()}, kService, server.secret,
                                       "", within(5s), nullptr);
  ASSERT_TRUE(fd.isOk()) << fd.status().message();
  EXPECT_EQ(peerAddress(fd->get()), server.address());
}

TEST(Handshake, WithdrawWaitsForTheHandlerAndStopsIt) {
  Server server;
  std::atomic<bool> inside{false}, finished{false};
  ASSERT_TRUE(server.listener
                  ->offer(5, server.secret,
                          [&](const AcceptedConnection&) {
                            inside = true;
                            std::this_thread::sleep_for(50ms);
                            finished = true;
                          })
                  .isOk());
  EXPECT_FALSE(server.listener->offer(5, server.secret, [](const AcceptedConnection&) {}).isOk());
  ASSERT_TRUE(server.dial(server.secret, 5).isOk());
  ASSERT_TRUE(eventually([&] { return inside.load(); }));
  server.listener->withdraw(5);
  EXPECT_TRUE(finished);
  EXPECT_FALSE(server.dial(server.secret, 5).isOk());
}

TEST(Handshake, TheConnectorsWaitsEndAtTheDeadlineAndOnFaults) {
  const UniqueFd mute = std::move(*listenOn(SocketAddress::loopback(AF_INET, 0)));
  const auto address = localAddress(mute.get());
  EXPECT_THAT(connectAuthenticated({address}, 1, {}, "", within(100ms), nullptr).status().message(),
              HasSubstr("timed out"));
  FaultState faults;
  std::thread raiser([&] {
    std::this_thread::sleep_for(50ms);
    faults.raise(Status(ncclRemoteError, "rank 1 died"));
  });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(connectAuthenticated({address}, 1, {}, "", within(20s), &faults).status().message(),
            "rank 1 died");
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
  raiser.join();
}

TEST(Handshake, RunningOutOfDescriptorsPausesAcceptingOnly) {
  Server server;
  std::vector<UniqueFd> clients;
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  rlimit low = before;
  {
    const UniqueFd next(::dup(0));
    low.rlim_cur = static_cast<rlim_t>(next.get()) + 2;
  }
  ::setrlimit(RLIMIT_NOFILE, &low);
  auto a = connectTo(server.address(), within(1s), nullptr);
  auto b = connectTo(server.address(), within(1s), nullptr);
  std::this_thread::sleep_for(50ms);
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_TRUE(server.dial(server.secret).isOk());
}

TEST(Handshake, WhereNoDescriptorIsLeftConnectionsAreRefusedWithTheReason) {
  Server server;
  const UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  rlimit low = before;
  {
    const UniqueFd next(::dup(0));
    low.rlim_cur = static_cast<rlim_t>(next.get());
  }
  ::setrlimit(RLIMIT_NOFILE, &low);
  EXPECT_EQ(::connect(client.get(), server.address().data(), server.address().length()), 0);
  const Frame answer = challengeFor(client, HelloMessage{}.encode());
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(answer.type, kRejectFrame);
  EXPECT_THAT(answer.body, HasSubstr("takes no more connections"));
  EXPECT_TRUE(server.dial(server.secret).isOk());
}

// However long it may try: that somebody gives one back is not to be waited for.
TEST(Handshake, AConnectorWithoutADescriptorSaysSoAtOnce) {
  Server server;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = ::dup(0);
  ASSERT_GE(next, 0);
  ::close(next);
  const rlimit one{static_cast<rlim_t>(next) + 1, before.rlim_max};  // which its epoll instance takes
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &one), 0);
  const auto start = std::chrono::steady_clock::now();
  const auto connection =
      connectAuthenticated({server.address()}, kService, server.secret, "payload", within(20s), nullptr,
                           {.retries = 0, .pauseMs = 1, .untilDeadline = true});
  const auto took = std::chrono::steady_clock::now() - start;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(connection.status().message(), HasSubstr("create a socket: Too many open files"));
  EXPECT_LT(took, 5s);
}

TEST(Handshake, ClosingTheListenerLeavesNothing) {
  const size_t descriptors = entriesOf("/proc/self/fd");
  {
    Server server;
    const UniqueFd open = server.raw();
    ASSERT_TRUE(server.dial(server.secret).isOk());
    EXPECT_TRUE(eventually([&] { return server.count == 1 && server.listener->unproven() == 1; }));
  }
  EXPECT_TRUE(eventually([] { return ioService().registered() == 0; }));
  EXPECT_TRUE(eventually([&] { return entriesOf("/proc/self/fd") == descriptors; }));
}

TEST(FrameHeader, RefusesWhatIsNone) {
  FrameHeader header;
  header.type = 9;
  header.length = 100;
  std::string bytes = header.encode();
  EXPECT_EQ(FrameHeader::decode(bytes, 100)->length, 100u);
  EXPECT_FALSE(FrameHeader::decode(bytes, 99).isOk());
  EXPECT_FALSE(FrameHeader::decode(bytes.substr(0, 15), 100).isOk());
  EXPECT_THAT(FrameHeader::decode("GET / HTTP/1.1\r\n", 100).status().message(),
              HasSubstr("\"GET / HTTP/1.1\\x0d\\x0a\""));
  bytes[4] = 2;
  EXPECT_THAT(FrameHeader::decode(bytes, 100).status().message(), HasSubstr("version 2"));
}

TEST(Wire, ReadsBackWhatWasWrittenAndNothingElse) {
  const std::string bytes = WireWriter()
                                .u8(1)
                                .u16(0x1234)
                                .u32(0xdeadbeef)
                                .u64(~uint64_t{0} - 1)
                                .i32(-5)
                                .i64(-6)
                                .string("abc")
                                .bytes();
  WireReader in(bytes);
  EXPECT_EQ(in.u8(), 1);
  EXPECT_EQ(in.u16(), 0x1234);
  EXPECT_EQ(in.u32(), 0xdeadbeef);
  EXPECT_EQ(in.u64(), ~uint64_t{0} - 1);
  EXPECT_EQ(in.i32(), -5);
  EXPECT_EQ(in.i64(), -6);
  EXPECT_EQ(in.string(), "abc");
  EXPECT_TRUE(in.finished());
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    WireReader shorter(std::string_view(bytes).substr(0, cut));
    shorter.u8(), shorter.u16(), shorter.u32(), shorter.u64(), shorter.i32(), shorter.i64();
    EXPECT_EQ(shorter.string(), "");
    EXPECT_FALSE(shorter.ok());
  }
  const std::string lie = WireWriter().u32(1000).bytes();
  WireReader liar(lie);
  EXPECT_EQ(liar.string(), "");
  EXPECT_FALSE(liar.ok());
}

}  // namespace
}  // namespace tutti::testing
