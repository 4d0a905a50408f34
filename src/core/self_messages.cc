#include "core/self_messages.h"

#include <algorithm>

namespace tutti {

void pairSelfMessages(int self, std::vector<Operation>& messages) {
  const auto isSelf = [self](const Operation& operation, Operation::Kind kind) {
    return operation.kind == kind && operation.root == self;
  };
  auto receive = messages.begin();
  for (Operation& send : messages) {
    if (!isSelf(send, Operation::Kind::send)) continue;
    receive = std::find_if(receive, messages.end(),
                           [&](const Operation& other) { return isSelf(other, Operation::Kind::recv); });
    if (receive == messages.end()) break;
    send.output = receive->output;
    send.receivedCount = receive->count;
    ++receive;
  }
  std::erase_if(messages,
                [&](const Operation& operation) { return isSelf(operation, Operation::Kind::recv); });
}

Status checkSelfMessage(int self, const Operation& message) {
  if (message.root != self || message.count == message.receivedCount) return Status::ok();
  return invalidUsage("rank {} sends itself {} bytes, but receives {}", self, message.count,
                      message.receivedCount);
}

}  // namespace tutti
