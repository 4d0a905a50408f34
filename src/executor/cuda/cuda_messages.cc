#include "executor/cuda/cuda_messages.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace tutti {
namespace {

using Chains = std::vector<MessageChain>;

uint32_t blocksOf(const Chains& chains) {
  uint32_t blocks = 0;
  for (const MessageChain& chain : chains) blocks += chain.channels;
  return blocks;
}

void append(const MessageChain& chain, MessageChain* to) {
  to->messages.insert(to->messages.end(), chain.messages.begin(), chain.messages.end());
  to->channels = std::max(to->channels, chain.channels);
}

/// Chain k of the result gets every `count`-th one, so that neighbouring rounds run side by side.
Chains merged(const Chains& chains, size_t count) {
  Chains result(std::min(count, chains.size()));
  for (size_t i = 0; i < chains.size(); ++i) append(chains[i], &result[i % result.size()]);
  return result;
}

}  // namespace

std::vector<MessageChain> arrangeMessages(std::span<const MessageKey> messages, int32_t rank, int32_t ranks,
                                          uint32_t mostBlocks) {
  // In the order of rounds; a copy waits for nobody, and so may stand before any send.
  std::map<std::tuple<int32_t, uint32_t>, MessageChain> sends;
  std::map<std::tuple<int32_t, uint32_t>, MessageChain> receives;
  for (uint32_t n = 0; n < messages.size(); ++n) {
    const MessageKey& key = messages[n];
    const bool receiving = key.kind == MessageKey::Kind::receive;
    const int32_t ahead = receiving ? rank - key.peer : key.peer - rank;
    const int32_t round = key.kind == MessageKey::Kind::copy ? 0 : (ahead % ranks + ranks) % ranks;
    append({{n}, key.channels}, &(receiving ? receives : sends)[{round, key.port}]);
  }
  Chains sending;
  Chains receiving;
  for (auto& [round, chain] : sends) sending.push_back(std::move(chain));
  for (auto& [round, chain] : receives) receiving.push_back(std::move(chain));

  if (const uint32_t all = blocksOf(sending) + blocksOf(receiving); all > mostBlocks) {
    uint32_t widest = 1;
    for (const MessageKey& key : messages) widest = std::max(widest, key.channels);
    const size_t places = mostBlocks / widest;
    const size_t least = (sending.empty() ? 0 : 1) + (receiving.empty() ? 0 : 1);
    if (places < least) return {};
    const size_t total = sending.size() + receiving.size();
    const size_t wanted = std::max<size_t>(places * sending.size() / total, sending.empty() ? 0 : 1);
    const size_t forSends = std::min(wanted, places - (receiving.empty() ? 0 : 1));
    if (!sending.empty()) sending = merged(sending, forSends);
    if (!receiving.empty()) receiving = merged(receiving, places - forSends);
  }
  sending.insert(sending.end(), receiving.begin(), receiving.end());
  return sending;
}

}  // namespace tutti
