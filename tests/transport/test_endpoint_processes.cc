#include <gtest/gtest.h>

#include <cstring>

#include "support/fork_ranks.h"
#include "support/traffic.h"

namespace tutti::test {
namespace {

using Processes = std::vector<std::vector<int>>;

/// What everything that shares memory must be able to do.
void exerciseShared(Endpoint& endpoint) {
  everyoneToEveryone(endpoint, 40);
  const int me = endpoint.rank();
  std::memset(endpoint.scratch(me, 0), 100 + me, endpoint.options().scratchBytes);
  for (const int peer : endpoint.localRanks()) {
    endpoint.flag(me, peer, 0, 5)->fetch_add(1, std::memory_order_release);
    endpoint.bell(peer)->ring();
  }
  for (uint64_t sequence = 1; sequence <= 20; ++sequence) {
    BoardEntry entry;
    entry.call = sequence * 100 + static_cast<uint64_t>(me);
    endpoint.post(sequence, entry);
    for (const int peer : endpoint.localRanks()) {
      const BoardEntry* seen = nullptr;
      waitUntil(endpoint, [&] { return (seen = endpoint.read(peer, sequence)) != nullptr; });
      ASSERT_EQ(seen->call, sequence * 100 + static_cast<uint64_t>(peer));
    }
  }
  for (const int peer : endpoint.localRanks()) {
    waitUntil(endpoint, [&] { return endpoint.flag(peer, me, 0, 5)->load(std::memory_order_acquire) == 1; });
    EXPECT_EQ(static_cast<int>(endpoint.scratch(peer, 0)[7]), 100 + peer);
  }
}

TEST(ProcessEndpoints, ShareMemoryBetweenProcesses) {
  runForkedEndpoints(Processes{{0}, {1}, {2}}, smallOptions(), oneHost, [](Endpoint& endpoint, OobChannel&) {
    EXPECT_EQ(endpoint.localRanks(), (std::vector<int>{0, 1, 2}));
    EXPECT_EQ(endpoint.transportName((endpoint.rank() + 1) % 3), "SHM");
    exerciseShared(endpoint);
  });
}

TEST(ProcessEndpoints, MixThreadsAndProcesses) {
  runForkedEndpoints(Processes{{0, 2}, {1, 3}}, smallOptions(), oneHost, [](Endpoint& endpoint, OobChannel&) {
    const int me = endpoint.rank();
    EXPECT_EQ(endpoint.transportName((me + 2) % 4), "P2P/direct");
    EXPECT_EQ(endpoint.transportName((me + 1) % 4), "SHM");
    EXPECT_TRUE(endpoint.sameProcess((me + 2) % 4));
    EXPECT_FALSE(endpoint.sameProcess((me + 1) % 4));
    exerciseShared(endpoint);
  });
}

TEST(ProcessEndpoints, UseSocketsBetweenHosts) {
  const auto host = [](int rank) { return rank < 2 ? std::string("host-a") : std::string("host-b"); };
  runForkedEndpoints(Processes{{0}, {1}, {2, 3}}, smallOptions(), host, [&](Endpoint& endpoint, OobChannel&) {
    const int me = endpoint.rank();
    for (int peer = 0; peer < 4; ++peer) EXPECT_EQ(endpoint.mapped(peer), (peer < 2) == (me < 2));
    EXPECT_EQ(endpoint.transportName((me + 2) % 4), "NET/Socket");
    EXPECT_EQ(endpoint.scratch((me + 2) % 4, 0), nullptr);
    EXPECT_EQ(endpoint.bell((me + 2) % 4), nullptr);
    EXPECT_EQ(endpoint.flag(me, (me + 2) % 4, 0, 0), nullptr);
    exerciseShared(endpoint);
  });
}

}  // namespace
}  // namespace tutti::test
