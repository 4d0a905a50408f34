// Groups of messages are spread over blocks such that matching ones always go on.
#include "executor/cuda/cuda_messages.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <tuple>
#include <vector>

namespace tutti {
namespace {

using Kind = MessageKey::Kind;

uint32_t blocksOf(const std::vector<MessageChain>& chains) {
  uint32_t blocks = 0;
  for (const MessageChain& chain : chains) blocks += chain.channels;
  return blocks;
}

/// Messages without any buffer between: one moves when both ends have come to it. True when all move.
bool allMove(const std::vector<std::vector<MessageKey>>& messages,
             const std::vector<std::vector<MessageChain>>& chains) {
  const auto ranks = messages.size();
  std::vector<std::vector<size_t>> at(ranks);
  for (size_t r = 0; r < ranks; ++r) at[r].resize(chains[r].size());
  const auto current = [&](size_t r, size_t chain) -> const MessageKey* {
    const auto& numbers = chains[r][chain].messages;
    return at[r][chain] == numbers.size() ? nullptr : &messages[r][numbers[at[r][chain]]];
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t r = 0; r < ranks; ++r) {
      for (size_t chain = 0; chain < chains[r].size(); ++chain) {
        const MessageKey* send = current(r, chain);
        if (send == nullptr || send->kind == Kind::receive) continue;
        if (send->kind == Kind::copy) {
          ++at[r][chain];
          moved = true;
          continue;
        }
        const auto peer = static_cast<size_t>(send->peer);
        for (size_t other = 0; other < chains[peer].size(); ++other) {
          const MessageKey* receive = current(peer, other);
          if (receive == nullptr || receive->kind != Kind::receive || receive->port != send->port ||
              receive->peer != static_cast<int32_t>(r))
            continue;
          ++at[r][chain];
          ++at[peer][other];
          moved = true;
          break;
        }
      }
    }
  }
  for (size_t r = 0; r < ranks; ++r)
    for (size_t chain = 0; chain < chains[r].size(); ++chain)
      if (current(r, chain) != nullptr) return false;
  return true;
}

TEST(Messages, MatchingGroupsMoveWithAnyNumberOfBlocks) {
  std::mt19937 random(5);
  for (int round = 0; round < 400; ++round) {
    const auto ranks = static_cast<int32_t>(1 + random() % 8);
    std::vector<std::vector<MessageKey>> messages(static_cast<size_t>(ranks));
    const bool allToAll = round % 3 == 0;
    const size_t count = allToAll ? static_cast<size_t>(ranks * ranks) : random() % 60;
    for (size_t m = 0; m < count; ++m) {
      const auto from = static_cast<int32_t>(allToAll ? m / static_cast<size_t>(ranks) : random()) % ranks;
      const auto to = static_cast<int32_t>(allToAll ? m : random() % 1000) % ranks;
      const uint32_t port = allToAll ? 7 : 6 + random() % 2;
      auto& sender = messages[static_cast<size_t>(from < 0 ? from + ranks : from)];
      const int32_t source = from < 0 ? from + ranks : from;
      if (source == to) {
        sender.push_back({Kind::copy, to, 0, 1});
        continue;
      }
      sender.push_back({Kind::send, to, port, 1});
      messages[static_cast<size_t>(to)].push_back({Kind::receive, source, port, 1});
    }
    std::vector<std::vector<MessageChain>> chains;
    for (int32_t r = 0; r < ranks; ++r) {
      const auto& own = messages[static_cast<size_t>(r)];
      const uint32_t most = 2 + random() % 6;
      chains.push_back(arrangeMessages(own, r, ranks, most));
      ASSERT_EQ(chains.back().empty(), own.empty());
      EXPECT_LE(blocksOf(chains.back()), most);
    }
    ASSERT_TRUE(allMove(messages, chains)) << "round " << round;
  }
}

TEST(Messages, EachIsInOneChainAndThoseOnOneConnectionKeepTheirOrder) {
  std::mt19937 random(9);
  for (int round = 0; round < 300; ++round) {
    std::vector<MessageKey> messages;
    const size_t count = random() % 40;
    for (size_t m = 0; m < count; ++m)
      messages.push_back({static_cast<Kind>(random() % 3), static_cast<int32_t>(random() % 6),
                          static_cast<uint32_t>(6 + random() % 2), 1 + static_cast<uint32_t>(random() % 3)});
    const auto chains = arrangeMessages(messages, 2, 6, 6 + random() % 40);
    std::vector<int> seen(count);
    using Connection = std::tuple<Kind, int32_t, uint32_t>;
    std::map<Connection, std::pair<size_t, uint32_t>> latest;  // chain, message
    for (size_t c = 0; c < chains.size(); ++c) {
      for (const uint32_t number : chains[c].messages) {
        ++seen[number];
        const MessageKey& key = messages[number];
        EXPECT_LE(key.channels, chains[c].channels);
        if (key.kind == Kind::copy) continue;
        const auto [found, isNew] = latest.try_emplace({key.kind, key.peer, key.port}, c, number);
        if (isNew) continue;
        EXPECT_EQ(found->second.first, c);
        EXPECT_LT(found->second.second, number);
        found->second.second = number;
      }
    }
    EXPECT_EQ(seen, std::vector<int>(count, 1));
  }
}

TEST(Messages, ConnectionsThatFitHaveBlocksOfTheirOwn) {
  const std::vector<MessageKey> messages = {
      {Kind::send, 1, 7, 2}, {Kind::receive, 1, 7, 2}, {Kind::send, 2, 7, 1}, {Kind::send, 1, 7, 2}};
  EXPECT_EQ(arrangeMessages(messages, 0, 3, 5).size(), 3u);
  EXPECT_EQ(blocksOf(arrangeMessages(messages, 0, 3, 5)), 5u);
  EXPECT_EQ(arrangeMessages(messages, 0, 3, 4).size(), 2u);
  EXPECT_TRUE(arrangeMessages(messages, 0, 3, 3).empty());  // two channels in both directions
}

}  // namespace
}  // namespace tutti
