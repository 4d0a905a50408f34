#include <gtest/gtest.h>

#include <cstring>

#include "support/thread_ranks.h"
#include "support/traffic.h"

namespace tutti::test {
namespace {

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
      waitUntil(endpoint,
                [&] { return endpoint.flag(peer, me, 1, 3)->load(std::memory_order_acquire) == 1; });
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
        waitUntil(endpoint, [&] { return (seen = endpoint.read(peer, sequence)) != nullptr; });
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
