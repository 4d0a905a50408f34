// Traffic for tests of endpoints.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "transport/endpoint.h"

namespace tutti::test {

inline EndpointOptions smallOptions() {
  EndpointOptions options;
  options.channels = 2;
  options.slotBytes = 4096;
  options.scratchBytes = 1000;
  return options;
}

/// Waits until the condition holds, as an executor does: looks, moves messages, sleeps on the bell.
template <typename Condition>
void waitUntil(Endpoint& endpoint, Condition&& condition) {
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
inline void everyoneToEveryone(Endpoint& endpoint, uint32_t count) {
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
  waitUntil(endpoint, [&] {
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
      while (end.received < count) {  // not more: a fast peer may be in its next call
        const std::byte* slot = end.in->tryPeek(&bytes);
        if (!slot) break;
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

}  // namespace tutti::test
