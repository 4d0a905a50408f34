#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/handshake.h"
#include "base/io_service.h"
#include "base/params.h"
#include "base/socket.h"
#include "base/wire.h"
#include "support/fork_ranks.h"
#include "support/resources.h"
#include "support/thread_ranks.h"
#include "support/traffic.h"
#include "transport/message_transport.h"

namespace tutti::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

std::string ownHost(int rank) { return "host-" + std::to_string(rank); }
void eachOnItsOwnHost(PeerInfo& peer) { peer.hostId = peer.hostName = ownHost(peer.rank); }

class SocketEndpoints : public testing::TestWithParam<int> {};

TEST_P(SocketEndpoints, DeliverMessagesInOrderUnderBackPressure) {
  runThreadRanks(
      GetParam(), smallOptions(), [](Endpoint& endpoint, OobChannel&) { everyoneToEveryone(endpoint, 50); },
      eachOnItsOwnHost);
  // The service thread may be about to let go of the last one.
  for (int i = 0; i < 200 && ioService().registered() != 0; ++i) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(ioService().registered(), 0U);
}
INSTANTIATE_TEST_SUITE_P(Ranks, SocketEndpoints, testing::Values(1, 2, 3, 5, 9));

TEST(SocketEndpoint, CarriesSlotsOfEverySizeUnchanged) {
  EndpointOptions options;
  options.slotBytes = 512 << 10;
  runThreadRanks(
      2, options,
      [](Endpoint& endpoint, OobChannel&) {
        const int peer = 1 - endpoint.rank();
        const std::vector<uint32_t> sizes{0,     1,      63,        4095, 4096,      4097,
                                          65536, 300001, 512 << 10, 0,    512 << 10, 7};
        FifoSender* out = *endpoint.sender(peer, 0, 0);
        FifoReceiver* in = *endpoint.receiver(peer, 0, 0);
        size_t sent = 0;
        size_t received = 0;
        constexpr size_t kMessages = 120;
        waitUntil(endpoint, [&] {
          while (sent < kMessages) {
            std::byte* slot = out->tryAcquire();
            if (slot == nullptr) break;
            const uint32_t bytes = sizes[sent % sizes.size()];
            for (uint32_t i = 0; i < bytes; ++i)
              slot[i] = static_cast<std::byte>(sent * 31 + i * 7 + (i >> 8));
            out->publish(bytes);
            ++sent;
          }
          uint32_t bytes = 0;
          while (const std::byte* slot = in->tryPeek(&bytes)) {
            EXPECT_EQ(bytes, sizes[received % sizes.size()]);
            uint32_t wrong = 0;
            for (uint32_t i = 0; i < bytes; ++i)
              wrong += slot[i] != static_cast<std::byte>(received * 31 + i * 7 + (i >> 8));
            EXPECT_EQ(wrong, 0U) << "message " << received;
            in->release();
            ++received;
          }
          return sent == kMessages && received == kMessages;
        });
      },
      eachOnItsOwnHost);
}

TEST(SocketEndpoint, SendsToAPeerThatIsBusyElsewhere) {
  runThreadRanks(
      2, smallOptions(),
      [](Endpoint& endpoint, OobChannel& oob) {
        if (endpoint.rank() == 0) {
          FifoSender* out = *endpoint.sender(1, 0, 0);
          for (uint32_t i = 0; i < 8; ++i) {
            std::byte* slot = nullptr;
            waitUntil(endpoint, [&] { return (slot = out->tryAcquire()) != nullptr; });
            std::memcpy(slot, &i, sizeof(i));
            out->publish(sizeof(i));
          }
          endpoint.beginSleep();
          // Only now, over another channel, the peer learns that it should receive.
          ASSERT_TRUE(oob.send(1, 1, "go", soon()).isOk());
        } else {
          ASSERT_TRUE(oob.receive(0, 1, soon()).isOk());
          FifoReceiver* in = *endpoint.receiver(0, 0, 0);
          for (uint32_t i = 0; i < 8; ++i) {
            uint32_t bytes = 0;
            const std::byte* slot = nullptr;
            waitUntil(endpoint, [&] { return (slot = in->tryPeek(&bytes)) != nullptr; });
            EXPECT_EQ(std::memcmp(slot, &i, sizeof(i)), 0);
            in->release();
          }
        }
      },
      eachOnItsOwnHost);
}

TEST(SocketEndpoint, DeliversWhatWasPublishedBeforeItIsDestroyed) {
  auto hub = std::make_shared<LocalOobHub>(2);
  std::vector<PeerInfo> peers{{0, "a", "a", 1, 1, 0}, {1, "b", "b", 1, 1, 1}};
  EndpointOptions options;
  options.slotBytes = 2 << 20;  // 8 MiB in flight do not fit into the kernel's buffers
  auto sending = std::thread([&] {
    LocalOob oob(hub, 0);
    auto faults = std::make_shared<FaultState>();
    auto endpoint = Endpoint::create(peers, 0, options, oob, faults, soon());
    ASSERT_TRUE(endpoint.isOk());
    FifoSender* out = *(*endpoint)->sender(1, 0, 0);
    for (int i = 0; i < 4; ++i) {
      std::memset(out->tryAcquire(), i, options.slotBytes);
      out->publish(static_cast<uint32_t>(options.slotBytes));
    }
    endpoint->reset();  // at once
    EXPECT_TRUE(faults->error().isOk()) << faults->error().message();
  });
  LocalOob oob(hub, 1);
  auto faults = std::make_shared<FaultState>();
  auto endpoint = Endpoint::create(peers, 1, options, oob, faults, soon());
  ASSERT_TRUE(endpoint.isOk());
  std::this_thread::sleep_for(milliseconds(50));
  FifoReceiver* in = *(*endpoint)->receiver(0, 0, 0);
  for (int i = 0; i < 4; ++i) {
    uint32_t bytes = 0;
    const std::byte* slot = nullptr;
    waitUntil(**endpoint, [&] { return (slot = in->tryPeek(&bytes)) != nullptr; });
    EXPECT_EQ(bytes, options.slotBytes);
    EXPECT_EQ(static_cast<int>(slot[options.slotBytes - 1]), i);
    in->release();
  }
  sending.join();
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_TRUE(faults->error().isOk()) << "a goodbye is no fault: " << faults->error().message();
}

TEST(SocketEndpoint, MayBeDestroyedLongBeforeItsPeersAre) {
  runThreadRanks(
      2, smallOptions(),
      [](Endpoint&, OobChannel& oob) {
        // A second communicator over the same channel: rank 0 leaves it, rank 1 stays.
        std::vector<PeerInfo> peers{{0, "a", "a", 1, 1, 0}, {1, "b", "b", 1, 1, 1}};
        auto faults = std::make_shared<FaultState>();
        auto endpoint = Endpoint::create(peers, oob.rank(), smallOptions(), oob, faults, soon());
        ASSERT_TRUE(endpoint.isOk());
        everyoneToEveryone(**endpoint, 20);
        ASSERT_TRUE(oob.barrier(soon()).isOk());
        if (oob.rank() == 0) endpoint->reset();
        ASSERT_TRUE(oob.barrier(soon()).isOk());
        for (int i = 0; i < 20; ++i) {
          std::this_thread::sleep_for(milliseconds(5));
          if (oob.rank() == 1) (*endpoint)->progress();
        }
        EXPECT_TRUE(faults->error().isOk()) << "a goodbye is no fault: " << faults->error().message();
      },
      eachOnItsOwnHost);
}

TEST(SocketEndpoint, LooksAfterMessagesOfAThreadThatLeavesWithoutParking) {
  runThreadRanks(
      2, smallOptions(),
      [](Endpoint& endpoint, OobChannel& oob) {
        if (endpoint.rank() == 0) {
          FifoSender* out = *endpoint.sender(1, 0, 0);
          ASSERT_NE(out->tryAcquire(), nullptr);
          out->publish(1);
          ASSERT_TRUE(oob.receive(1, 1, soon()).isOk());  // connected, then
          endpoint.progress();                            // this thread has the connections,
          ASSERT_NE(out->tryAcquire(), nullptr);
          out->publish(2);  // publishes, and has other things to do.
          ASSERT_TRUE(oob.receive(1, 1, soon()).isOk());
        } else {
          FifoReceiver* in = *endpoint.receiver(0, 0, 0);
          uint32_t bytes = 0;
          for (uint32_t i = 1; i <= 2; ++i) {
            waitUntil(endpoint, [&] { return in->tryPeek(&bytes) != nullptr; });
            EXPECT_EQ(bytes, i);
            in->release();
            ASSERT_TRUE(oob.send(0, 1, "", soon()).isOk());
          }
        }
      },
      eachOnItsOwnHost);
}

TEST(SocketEndpoint, SendsWhatIsPublishedBetweenTwoParkings) {
  runThreadRanks(
      2, smallOptions(),
      [](Endpoint& endpoint, OobChannel& oob) {
        constexpr uint32_t kMessages = 20;
        if (endpoint.rank() == 0) {
          FifoSender* out = *endpoint.sender(1, 0, 0);
          for (uint32_t i = 1; i <= kMessages; ++i) {
            ASSERT_NE(out->tryAcquire(), nullptr);
            out->publish(i);  // never takes the connections, never calls progress()
            endpoint.beginSleep();
            ASSERT_TRUE(oob.receive(1, 1, soon()).isOk());
          }
        } else {
          FifoReceiver* in = *endpoint.receiver(0, 0, 0);
          for (uint32_t i = 1; i <= kMessages; ++i) {
            uint32_t bytes = 0;
            waitUntil(endpoint, [&] { return in->tryPeek(&bytes) != nullptr; });
            EXPECT_EQ(bytes, i);
            in->release();
            ASSERT_TRUE(oob.send(0, 1, "", soon()).isOk());
          }
        }
      },
      eachOnItsOwnHost);
}

/// Rank 0 sends one message at a time, each when rank 1 is about to sleep; rank 1 receives it with `receive`.
template <typename Receive>
void sendToASleeper(Receive receive) {
  runThreadRanks(
      2, smallOptions(),
      [&](Endpoint& endpoint, OobChannel& oob) {
        constexpr uint32_t kMessages = 5;
        if (endpoint.rank() == 0) {
          FifoSender* out = *endpoint.sender(1, 0, 0);
          for (uint32_t i = 1; i <= kMessages; ++i) {
            ASSERT_TRUE(oob.receive(1, 1, soon()).isOk());
            std::this_thread::sleep_for(milliseconds(i % 2 == 0 ? 20 : 0));
            ASSERT_NE(out->tryAcquire(), nullptr);
            out->publish(i);
            endpoint.beginSleep();
          }
          ASSERT_TRUE(oob.receive(1, 1, soon()).isOk());
        } else {
          FifoReceiver* in = *endpoint.receiver(0, 0, 0);
          for (uint32_t i = 1; i <= kMessages; ++i) {
            Doorbell* bell = endpoint.bell(1);
            const uint32_t ticket = bell->prepare();
            endpoint.beginSleep();
            ASSERT_TRUE(oob.send(0, 1, "", soon()).isOk());
            EXPECT_EQ(receive(endpoint, in, ticket), i);
            bell->finish();
            in->release();
          }
          ASSERT_TRUE(oob.send(0, 1, "", soon()).isOk());
        }
      },
      eachOnItsOwnHost);
}

TEST(SocketEndpoint, WakesASleeperThatThenMovesWhatCameItself) {
  int movedItself = 0;  // not each time: on a busy machine the service thread's timer may be first
  sendToASleeper([&](Endpoint& endpoint, FifoReceiver* in, uint32_t ticket) {
    uint32_t bytes = 0;
    const auto limit = steady_clock::now() + seconds(5);
    Doorbell* bell = endpoint.bell(1);
    while (in->tryPeek(&bytes) == nullptr && steady_clock::now() < limit) {
      bell->sleep(ticket, 10'000'000);  // without a ring it sleeps beyond the limit
      endpoint.endSleep();
      if (endpoint.progress()) ++movedItself;
      ticket = bell->prepare();
      bell->finish();
      endpoint.beginSleep();
    }
    EXPECT_LT(steady_clock::now(), limit);
    return bytes;
  });
  EXPECT_GT(movedItself, 0);
}

/// Two ranks of one host and one of another in one process: rank 1 sleeps, rank `from` sends to it.
/// Gives how often rank 1 found itself what had come.
int sendToARankAsleepOnItsConnections(int from) {
  int movedItself = 0;
  runThreadRanks(
      3, smallOptions(),
      [&](Endpoint& endpoint, OobChannel& oob) {
        constexpr uint32_t kMessages = 20;
        everyoneToEveryone(endpoint, 3);  // connections are up
        ASSERT_TRUE(oob.barrier(soon()).isOk());
        if (endpoint.rank() == from) {
          FifoSender* out = *endpoint.sender(1, 0, 0);
          for (uint32_t i = 1; i <= kMessages; ++i) {
            ASSERT_TRUE(oob.receive(1, 1, soon()).isOk());
            std::this_thread::sleep_for(milliseconds(i % 2 == 0 ? 2 : 0));
            ASSERT_NE(out->tryAcquire(), nullptr);
            out->publish(i);
            endpoint.beginSleep();
          }
        } else if (endpoint.rank() == 1) {
          FifoReceiver* in = *endpoint.receiver(from, 0, 0);
          Doorbell* bell = endpoint.bell(1);
          for (uint32_t i = 1; i <= kMessages; ++i) {
            ASSERT_TRUE(oob.send(from, 1, "", soon()).isOk());
            endpoint.endSleep();
            uint32_t bytes = 0;
            const auto limit = steady_clock::now() + seconds(5);
            for (;;) {
              const uint32_t ticket = bell->prepare();
              if (endpoint.progress()) ++movedItself;
              const bool there = in->tryPeek(&bytes) != nullptr;
              if (!there && !endpoint.sleepOnConnections(ticket, 10'000'000)) std::this_thread::yield();
              bell->finish();
              if (there || steady_clock::now() > limit) break;
            }
            ASSERT_LT(steady_clock::now(), limit) << "nothing woke it";
            EXPECT_EQ(bytes, i);
            in->release();
          }
          endpoint.beginSleep();
        }
        ASSERT_TRUE(oob.barrier(soon()).isOk());
      },
      [](PeerInfo& peer) { peer.hostId = peer.rank < 2 ? "first" : "second"; });
  return movedItself;
}

TEST(SocketEndpoint, WakesARankAsleepOnItsConnectionsForAMessageOfAnotherHost) {
  EXPECT_GE(sendToARankAsleepOnItsConnections(2), 10) << "of 20: the service thread's timer was first";
}
TEST(SocketEndpoint, WakesARankAsleepOnItsConnectionsForAMessageOfItsOwnHost) {
  sendToARankAsleepOnItsConnections(0);
}

void bindTo(pthread_t thread, int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  EXPECT_EQ(::pthread_setaffinity_np(thread, sizeof cores, &cores), 0);
}

// The service thread's timer comes while a rank that was rung has not got its core back yet: it moves what
// came and reads all events. Here the timer's part is played by a thread that keeps the rank off its core
// meanwhile.
TEST(SocketEndpoint, WakesARankAsleepOnItsConnectionsThoughOthersReadAllEventsBeforeItRuns) {
  runThreadRanks(
      2, smallOptions(),
      [](Endpoint& endpoint, OobChannel& oob) {
        everyoneToEveryone(endpoint, 3);  // connections are up
        ASSERT_TRUE(oob.barrier(soon()).isOk());
        if (endpoint.rank() != 0) return;
        Doorbell* bell = endpoint.bell(0);
        cpu_set_t before;
        ASSERT_EQ(::pthread_getaffinity_np(::pthread_self(), sizeof before, &before), 0);
        const int core = ::sched_getcpu();
        bindTo(::pthread_self(), core);
        const sched_param none{};
        for (int round = 0; round < 5 && !testing::Test::HasFailure(); ++round) {
          std::atomic<bool> ready{false};
          std::atomic<bool> slept{false};
          std::atomic<bool> awake{false};
          milliseconds took{0};
          std::thread rank([&] {
            while (!ready) std::this_thread::yield();
            const auto start = steady_clock::now();
            slept = endpoint.sleepOnConnections(bell->prepare(), 10'000'000);
            bell->finish();
            took = std::chrono::duration_cast<milliseconds>(steady_clock::now() - start);
            awake = true;
          });
          bindTo(rank.native_handle(), core);
          endpoint.endSleep();
          ready = true;
          // (What is left of the messages before may wake it first.)
          while (bell->inPoll == 0 && !awake) std::this_thread::sleep_for(std::chrono::microseconds(50));
          std::this_thread::sleep_for(milliseconds(1));
          // From here on the rank has a turn only when nobody else wants its core.
          EXPECT_EQ(::pthread_setschedparam(rank.native_handle(), SCHED_IDLE, &none), 0);
          bell->ring();
          endpoint.beginSleep();
          // Without privileges it cannot be taken back, and on a busy machine the test takes longer.
          (void)::pthread_setschedparam(rank.native_handle(), SCHED_OTHER, &none);
          rank.join();
          EXPECT_TRUE(slept);
          EXPECT_LT(took, milliseconds(9000)) << "the ring was lost";
        }
        EXPECT_EQ(::pthread_setaffinity_np(::pthread_self(), sizeof before, &before), 0);
      },
      eachOnItsOwnHost);
}

TEST(SocketEndpoint, DeliversToASleeperThatNeverMovesAnything) {
  sendToASleeper([](Endpoint&, FifoReceiver* in, uint32_t) {
    uint32_t bytes = 0;
    const auto limit = steady_clock::now() + seconds(5);
    while (in->tryPeek(&bytes) == nullptr && steady_clock::now() < limit)
      std::this_thread::sleep_for(milliseconds(1));
    return bytes;
  });
}

TEST(SocketEndpoint, CostsNothingWhileIdle) {
  runThreadRanks(
      2, smallOptions(),
      [](Endpoint& endpoint, OobChannel& oob) {
        everyoneToEveryone(endpoint, 20);
        ASSERT_TRUE(oob.barrier(soon()).isOk());
        if (endpoint.rank() == 0) {
          std::this_thread::sleep_for(milliseconds(100));
          const double before = cpuSeconds();
          std::this_thread::sleep_for(milliseconds(400));
          EXPECT_LT(cpuSeconds() - before, 0.02);
          ASSERT_TRUE(oob.send(1, 1, "", soon()).isOk());
        } else {
          // Not the barrier: waiting in the test's channel polls.
          std::this_thread::sleep_for(milliseconds(600));
          ASSERT_TRUE(oob.receive(0, 1, soon()).isOk());
        }
      },
      eachOnItsOwnHost);
}

/// Rank 1 is killed after some traffic, rank 0 waits for a message (or only for time) and must be told.
void killAPeer(bool waits) {
  const auto statuses = runForked({{0}, {1}}, ownHost, [&](ForkedRank& self) {
    auto faults = std::make_shared<FaultState>();
    auto endpoint = Endpoint::create(self.peers, self.rank, smallOptions(), self.oob, faults, soon());
    ASSERT_TRUE(endpoint.isOk()) << endpoint.status().message();
    everyoneToEveryone(**endpoint, 20);
    ASSERT_TRUE(self.oob.barrier(soon()).isOk());
    if (self.rank == 1) ::kill(::getpid(), SIGKILL);
    const auto start = steady_clock::now();
    FifoReceiver* in = *(*endpoint)->receiver(1, 0, 0);
    uint32_t bytes = 0;
    if (waits) {
      waitUntil(**endpoint, [&] { return faults->stopped() || in->tryPeek(&bytes) != nullptr; });
    } else {
      while (!faults->stopped() && steady_clock::now() - start < seconds(5))
        std::this_thread::sleep_for(milliseconds(1));
    }
    EXPECT_LT(steady_clock::now() - start, seconds(4));
    const std::string text = faults->error().message();
    EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
    EXPECT_NE(text.find("host-1"), std::string::npos) << text;
    endpoint->reset();
    EXPECT_LT(steady_clock::now() - start, seconds(4));
    EXPECT_EQ(ioService().registered(), 0U);
  });
  EXPECT_EQ(statuses[0], 0);
  EXPECT_TRUE(WIFSIGNALED(statuses[1]));
}
TEST(SocketEndpoint, NamesAPeerThatIsKilledWhileItWaits) { killAPeer(true); }
TEST(SocketEndpoint, NamesAPeerThatIsKilledWhileNobodyWaits) { killAPeer(false); }

TEST(SocketEndpoint, SeesTheDeathOfAPeerWhoseForkedChildLivesOn) {
  const auto statuses = runForked({{0}, {1}}, ownHost, [&](ForkedRank& self) {
    auto faults = std::make_shared<FaultState>();
    auto endpoint = Endpoint::create(self.peers, self.rank, smallOptions(), self.oob, faults, soon());
    ASSERT_TRUE(endpoint.isOk()) << endpoint.status().message();
    everyoneToEveryone(**endpoint, 20);
    ASSERT_TRUE(self.oob.barrier(soon()).isOk());
    if (self.rank == 1) {
      if (::fork() == 0) {  // as a data loader does
        std::this_thread::sleep_for(seconds(3));
        ::_exit(0);
      }
      ::kill(::getpid(), SIGKILL);
    }
    const auto start = steady_clock::now();
    while (!faults->stopped() && steady_clock::now() - start < seconds(3))
      std::this_thread::sleep_for(milliseconds(1));
    EXPECT_LT(steady_clock::now() - start, seconds(2));
  });
  EXPECT_EQ(statuses[0], 0);
}

TEST(SocketEndpoint, SharedMemoryPeersThatDieDoNotDisturbDestruction) {
  const auto statuses = runForked({{0}, {1}, {2}}, oneHost, [&](ForkedRank& self) {
    auto faults = std::make_shared<FaultState>();
    auto endpoint = Endpoint::create(self.peers, self.rank, smallOptions(), self.oob, faults, soon());
    ASSERT_TRUE(endpoint.isOk()) << endpoint.status().message();
    everyoneToEveryone(**endpoint, 20);
    ASSERT_TRUE(self.oob.barrier(soon()).isOk());
    if (self.rank != 1) ::kill(::getpid(), SIGKILL);
    const size_t before = memoryFileMappings();
    EXPECT_GT(before, 0U);
    endpoint->reset();
    EXPECT_EQ(memoryFileMappings(), 0U);
  });
  EXPECT_EQ(statuses[1], 0);
}

TEST(SocketEndpoint, IsNotDisturbedByStrangers) {
  runThreadRanks(
      2, smallOptions(),
      [](Endpoint& endpoint, OobChannel&) {
        auto listener = AuthListener::ofProcess();
        ASSERT_TRUE(listener.isOk());
        const SocketAddress address = (*listener)->addresses().front();
        for (const char* bytes : {"GET / HTTP/1.0\r\n\r\n", "", "\x16\x03\x01"}) {
          auto fd = connectTo(address, soon(), nullptr);
          ASSERT_TRUE(fd.isOk());
          EXPECT_TRUE(sendAll(fd->get(), bytes, soon(), nullptr).isOk());
          everyoneToEveryone(endpoint, 10);
        }
      },
      eachOnItsOwnHost);
}

TEST(MessageTransport, DropsAuthenticatedConnectionsThatAskForNonsense) {
  std::vector<PeerInfo> peers{{0, "a", "a", 1, 1, 0}, {1, "b", "b", 1, 1, 1}};
  EndpointOptions options = smallOptions();
  options.secret[0] = 42;
  Doorbell bell;
  auto faults = std::make_shared<FaultState>();
  auto transport = MessageTransport::listen(peers, 0, options, &bell, false, faults);
  ASSERT_TRUE(transport.isOk()) << transport.status().message();
  const auto address = (*transport)->address();
  const auto hello = [](int source, int destination, int channel, int port) {
    return WireWriter().i32(source).i32(destination).i32(channel).i32(port).bytes();
  };
  const auto survives = [&](const std::string& payload) {
    auto fd = connectAuthenticated(address.sockets, address.service, transportSecret(options), payload,
                                   soon(), nullptr, RetryPolicy{});
    EXPECT_TRUE(fd.isOk()) << fd.status().message();
    char byte = 0;
    return !waitFor(fd->get(), POLLIN, Deadline::after(milliseconds(150)), nullptr).isOk() ||
           ::recv(fd->get(), &byte, 1, MSG_DONTWAIT) != 0;
  };
  EXPECT_FALSE(survives(hello(2, 0, 0, 0)));
  EXPECT_FALSE(survives(hello(-1, 0, 0, 0)));
  EXPECT_FALSE(survives(hello(1, 1, 0, 0)));
  EXPECT_FALSE(survives(hello(1, 0, options.channels, 0)));
  EXPECT_FALSE(survives(hello(1, 0, 0, kEndpointPorts)));
  EXPECT_FALSE(survives("short"));
  EXPECT_TRUE(faults->error().isOk());
  EXPECT_TRUE(survives(hello(1, 0, 0, 0)));
}

TEST(Endpoints, LeaveNothingBehind) {
  const auto cycle = [] {
    const auto host = [](PeerInfo& peer) {
      peer.hostId = peer.hostName = peer.rank < 2 ? "host-a" : "host-b";
      peer.processToken =
          peer.rank < 2 ? static_cast<uint64_t>(peer.rank) + 1 : 3;  // 0 and 1 use memory files
    };
    runThreadRanks(
        3, smallOptions(), [](Endpoint& endpoint, OobChannel&) { everyoneToEveryone(endpoint, 3); }, host);
  };
  cycle();
  const size_t descriptors = openDescriptors();
  const size_t threadsBefore = threads();
  const auto segments = namedSegments();
  for (int i = 0; i < 100; ++i) cycle();
  // The service thread ends with its own last handler, a moment after the endpoints.
  for (int i = 0; i < 500 && (openDescriptors() > descriptors || threads() > threadsBefore); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_LE(openDescriptors(), descriptors);
  EXPECT_LE(threads(), threadsBefore);
  EXPECT_EQ(memoryFileMappings(), 0U);
  EXPECT_EQ(namedSegments(), segments);
  EXPECT_EQ(ioService().registered(), 0U);
}

TEST(Endpoints, HonourShmAndP2pDisable) {
  const auto with = [](const char* shm, const char* p2p,
                       const std::function<void(Endpoint&, OobChannel&)>& check) {
    ::setenv("NCCL_SHM_DISABLE", shm, 1);
    ::setenv("NCCL_P2P_DISABLE", p2p, 1);
    params().reload();
    runForkedEndpoints({{0, 1}, {2}}, smallOptions(), oneHost, [&](Endpoint& endpoint, OobChannel& oob) {
      check(endpoint, oob);
      everyoneToEveryone(endpoint, 10);
    });
    ::unsetenv("NCCL_SHM_DISABLE");
    ::unsetenv("NCCL_P2P_DISABLE");
    params().reload();
  };
  with("1", "0", [](Endpoint& endpoint, OobChannel&) {
    if (endpoint.rank() != 2) {
      EXPECT_EQ(endpoint.transportName(1 - endpoint.rank()), "P2P/direct");
    }
    EXPECT_EQ(endpoint.transportName(endpoint.rank() == 2 ? 0 : 2), "NET/Socket");
  });
  with("0", "1", [](Endpoint& endpoint, OobChannel&) {
    for (int peer = 0; peer < 3; ++peer) EXPECT_EQ(endpoint.transportName(peer), "SHM");
    const BufferDescriptor buffer = endpoint.describe(&endpoint, 8);
    EXPECT_EQ(buffer.address, 0U);
    EXPECT_EQ(buffer.fileId, 0U);
    EXPECT_FALSE(endpoint.mapPeerBuffer(0, buffer, soon()).isOk());
  });
  ::setenv("NCCL_P2P_LEVEL", "LOC", 1);  // as NCCL_P2P_DISABLE; other levels are not
  with("0", "0",
       [](Endpoint& endpoint, OobChannel&) { EXPECT_EQ(endpoint.describe(&endpoint, 8).address, 0U); });
  ::setenv("NCCL_P2P_LEVEL", "NVL", 1);
  with("0", "0",
       [](Endpoint& endpoint, OobChannel&) { EXPECT_NE(endpoint.describe(&endpoint, 8).address, 0U); });
  ::unsetenv("NCCL_P2P_LEVEL");
  with("1", "1", [](Endpoint& endpoint, OobChannel&) {
    EXPECT_EQ(endpoint.transportName((endpoint.rank() + 1) % 3), "NET/Socket");
    EXPECT_EQ(endpoint.localRanks(), std::vector<int>{endpoint.rank()});
  });
}

}  // namespace
}  // namespace tutti::test
