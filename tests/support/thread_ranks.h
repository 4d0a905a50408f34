// Runs one function a rank, each on its own thread with its own endpoint, in one process.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "support/local_oob.h"
#include "transport/endpoint.h"

namespace tutti::test {

/// The limit of waits that should be short.
inline Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }

using RankBody = std::function<void(Endpoint& endpoint, OobChannel& oob)>;

/// `place` may change what a rank says about itself (fake hosts, fake processes).
inline void runThreadRanks(int ranks, const EndpointOptions& options, const RankBody& body,
                           const std::function<void(PeerInfo&)>& place = {}) {
  auto hub = std::make_shared<LocalOobHub>(ranks);
  std::vector<PeerInfo> peers;
  for (int r = 0; r < ranks; ++r) {
    peers.push_back({r, "testhost", "testhost-id", 4711, 4711, r});
    if (place) place(peers.back());
  }
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      LocalOob oob(hub, r);
      auto faults = std::make_shared<FaultState>();
      auto endpoint =
          Endpoint::create(peers, r, options, oob, faults, Deadline::after(std::chrono::seconds(20)));
      ASSERT_TRUE(endpoint.isOk()) << endpoint.status().message();
      body(**endpoint, oob);
      EXPECT_TRUE(faults->error().isOk()) << "rank " << r << ": " << faults->error().message();
      ASSERT_TRUE(oob.barrier(Deadline::after(std::chrono::seconds(20))).isOk());
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace tutti::test
