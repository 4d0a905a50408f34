#include <gtest/gtest.h>

#include <cstring>

#include "support/thread_ranks.h"

namespace tutti::test {
namespace {

EndpointOptions smallOptions() {
  EndpointOptions options;
  options.channels = 2;
  options.slotBytes = 4096;
  options.scratchBytes = 1000;
  return options;
}

template <typename Condition>
void waitFor(Endpoint& endpoint, Condition&& condition) {
  endpoint.endSleep();
  while (!condition()) {
    if (endpoint.progress()) continue;
    Doorbell* bell = endpoint.bell(endpoint.rank());
    const uint32_t ticket = bell->prepare();
    if (!condition()) {
      endpoint.beginSleep();
      bell->sleep(ticket, 1000000);
      endpoint.endSleep();
    }
    bell->finish();
  }
  endpoint.beginSleep();
}

/// Every rank sends `count` numbered messages of varying size to every rank (itself included) on every
/// channel; receivers check order, size and content.
void everyoneToEveryone(Endpoint& endpoint, uint32_t count) {
  const int n = endpoint.ranks();
  const int channels = endpoint.options().channels;
  struct Ends {
    FifoSender* out;
    FifoReceiver* in;
    uint32_t sent = 0;
    uint32_t received = 0;
  };
  std::vector<Ends> ends;
  for (int peer = 0; peer < n; ++peer) {
    for (int channel = 0; channel < channels; ++channel) {
      auto out = endpoint.sender(peer, channel, 1);
      auto in = endpoint.receiver(peer, channel, 1);
      ASSERT_TRUE(out.isOk() && in.isOk());
      ends.push_back({*out, *in});
    }
  }
  const auto bytesOf = [&](uint32_t i) {
    return std::min<size_t>(8 + (i * 977) % 4200, endpoint.options().slotBytes);
  };
  bool done = false;
  waitFor(endpoint, [&] {
    done = true;
    for (size_t e = 0; e < ends.size(); ++e) {
      auto& end = ends[e];
      const int peer = static_cast<int>(e) / channels;
      while (end.sent < count) {
        std::byte* slot = end.out->tryAcquire();
        if (!slot) break;
        const uint32_t head[2] = {static_cast<uint32_t>(endpoint.rank()), end.sent};
        const size_t bytes = bytesOf(end.sent);
        std::memset(slot, static_cast<int>(end.sent & 0xff), bytes);
        std::memcpy(slot, head, sizeof(head));
        end.out->publish(static_cast<uint32_t>(bytes));
        ++end.sent;
      }
      uint32_t bytes = 0;
      while (const std::byte* slot = end.in->tryPeek(&bytes)) {
        uint32_t head[2];
        std::memcpy(head, slot, sizeof(head));
        EXPECT_EQ(head[0], static_cast<uint32_t>(peer));
        EXPECT_EQ(head[1], end.received);
        EXPECT_EQ(bytes, bytesOf(end.received));
        for (size_t i = sizeof(head); i < bytes; i += 97)
          EXPECT_EQ(static_cast<uint32_t>(slot[i]), end.received & 0xff);
        end.in->release();
        ++end.received;
      }
      if (end.sent < count || end.received < count) done = false;
    }
    return done;
  });
}

class ThreadEndpoints : public testing::TestWithParam<int> {};

TEST_P(ThreadEndpoints, DeliverMessagesInOrderUnderBackPressure) {
  runThreadRanks(GetParam(), smallOptions(),
                 [](Endpoint& endpoint, OobChannel&) { everyoneToEveryone(endpoint, 50); });
}

TEST_P(ThreadEndpoints, SeeEachOthersScratchAndFlags) {
  runThreadRanks(GetParam(), smallOptions(), [](Endpoint& endpoint, OobChannel&) {
    const int n = endpoint.ranks();
    const int me = endpoint.rank();
    const size_t bytes = endpoint.options().scratchBytes;
    for (int channel = 0; channel < 2; ++channel)
      std::memset(endpoint.scratch(me, channel), 10 * channel + me, 2 * bytes);
    for (int peer = 0; peer < n; ++peer) {
      endpoint.flag(me, peer, 1, 3)->fetch_add(1, std::memory_order_release);
      endpoint.bell(peer)->ring();
    }
    for (int peer = 0; peer < n; ++peer) {
      waitFor(endpoint, [&] { return endpoint.flag(peer, me, 1, 3)->load(std::memory_order_acquire) == 1; });
      for (int channel = 0; channel < 2; ++channel)
        for (size_t i = 0; i < 2 * bytes; ++i)
          ASSERT_EQ(static_cast<int>(endpoint.scratch(peer, channel)[i]), 10 * channel + peer);
    }
  });
}

TEST_P(ThreadEndpoints, ReadTheBoardOfTheRightNegotiation) {
  runThreadRanks(GetParam(), smallOptions(), [](Endpoint& endpoint, OobChannel&) {
    const int n = endpoint.ranks();
    for (uint64_t sequence = 1; sequence <= 100; ++sequence) {
      BoardEntry entry;
      entry.call = sequence * 1000 + static_cast<uint64_t>(endpoint.rank());
      entry.usable = sequence & 1;
      endpoint.post(sequence, entry);
      for (int peer = 0; peer < n; ++peer) {
        const BoardEntry* seen = nullptr;
        waitFor(endpoint, [&] { return (seen = endpoint.read(peer, sequence)) != nullptr; });
        ASSERT_EQ(seen->call, sequence * 1000 + static_cast<uint64_t>(peer));
        ASSERT_EQ(seen->usable, sequence & 1);
        ASSERT_EQ(endpoint.read(peer, sequence + 2), nullptr);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ThreadEndpoints, testing::Values(1, 2, 3, 5, 9));

TEST(ThreadEndpoint, NamesItsTransport) {
  runThreadRanks(2, smallOptions(), [](Endpoint& endpoint, OobChannel&) {
    EXPECT_EQ(endpoint.transportName(1 - endpoint.rank()), "P2P/direct");
    EXPECT_TRUE(endpoint.mapped(1 - endpoint.rank()));
    EXPECT_EQ(endpoint.localRanks(), (std::vector<int>{0, 1}));
  });
}

TEST(ThreadEndpoint, RefusesConnectionsThatDoNotExist) {
  runThreadRanks(1, smallOptions(), [](Endpoint& endpoint, OobChannel&) {
    EXPECT_FALSE(endpoint.sender(1, 0, 0).isOk());
    EXPECT_FALSE(endpoint.sender(0, 2, 0).isOk());
    EXPECT_FALSE(endpoint.receiver(0, 0, kEndpointPorts).isOk());
    EXPECT_FALSE(endpoint.receiver(-1, 0, 0).isOk());
  });
}

}  // namespace
}  // namespace tutti::test
