// Which blocks run which messages of a group: messages on one connection follow each other, different
// connections run side by side as far as blocks reach.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tutti {

struct MessageKey {
  enum class Kind : uint8_t { send, receive, copy };
  Kind kind = Kind::send;
  int32_t peer = 0;
  uint32_t port = 0;
  uint32_t channels = 1;
};

/// Numbers of messages that the same blocks run, in this order, with `channels` blocks.
struct MessageChain {
  std::vector<uint32_t> messages;
  uint32_t channels = 1;
};

/// Chains for at most `mostBlocks` blocks; empty when they cannot be that few. Where connections outnumber
/// the blocks, sends share blocks with sends and receives with receives, each in the order of rounds: round r
/// is the message from every rank k to rank k + r. So of all unfinished messages of the earliest round, both
/// ends have come to theirs, and a group whose messages match always goes on.
std::vector<MessageChain> arrangeMessages(std::span<const MessageKey> messages, int32_t rank, int32_t ranks,
                                          uint32_t mostBlocks);

}  // namespace tutti
