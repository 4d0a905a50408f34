#include "core/variable_calls.h"

#include <utility>
#include <vector>

#include "base/datatype.h"
#include "core/communicator.h"
#include "core/group.h"
#include "core/handle.h"
#include "core/validate.h"

namespace tutti {
namespace {

/// The messages of one call, made ready before any of them is submitted.
class MessageList {
 public:
  MessageList(const CommUse& communicator, ncclDataType_t type, cudaStream_t stream)
      : communicator_(communicator), elementBytes_(sizeOf(type)), stream_(stream) {}

  /// `count` elements from element `offset` of `buffer` on. Empty messages are sent too: the other side may
  /// expect something, and then both are told.
  void send(int peer, const void* buffer, size_t offset, size_t count) {
    add(Operation::Kind::send, peer, count).input = at(buffer, offset);
  }
  void receive(int peer, void* buffer, size_t offset, size_t count) {
    add(Operation::Kind::recv, peer, count).output = at(buffer, offset);
  }
  /// The rank's own block. Nothing where it is in its place already.
  void copy(const void* from, size_t fromOffset, void* to, size_t toOffset, size_t count) {
    const void* source = at(from, fromOffset);
    void* target = at(to, toOffset);
    if (count == 0 || source == target) return;
    Operation& operation = add(Operation::Kind::copy, Operation::kNoPeer, count);
    operation.input = source;
    operation.output = target;
  }

  /// All in one group, so that none waits for another.
  Status submit() {
    TUTTI_TRY(communicator_->error());
    if (operations_.empty()) return Status::ok();
    Group& group = Group::ofThisThread();
    group.start();
    Status status;
    for (const Operation& operation : operations_) {
      status = group.submit(communicator_, operation);
      if (!status.isOk()) break;
    }
    if (!status.isOk()) group.latch(status);
    const Status ended = group.end();
    return status.isOk() ? ended : status;
  }

 private:
  template <typename T>
  T* at(T* buffer, size_t offset) const {
    using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
    return static_cast<Byte*>(buffer) + offset * elementBytes_;
  }
  Operation& add(Operation::Kind kind, int peer, size_t count) {
    Operation operation;
    operation.kind = kind;
    operation.collective = Collective::sendRecv;
    operation.count = count * elementBytes_;  // a message is bytes: its type matters to nobody
    operation.reduction.spec.type = ncclInt8;
    operation.root = peer;
    operation.partOfCollective = true;
    operation.stream = stream_;
    operations_.push_back(std::move(operation));
    return operations_.back();
  }

  const CommUse& communicator_;
  size_t elementBytes_;
  cudaStream_t stream_;
  std::vector<Operation> operations_;
};

/// Sent and received blocks must not overlap. Blocks may have gaps, so that the buffers as wholes may.
Status checkBlockOverlap(const void* input, const BlockSizes& sent, const void* output,
                         const BlockSizes& received, size_t width) {
  const NamedBuffer send{input, sent.extent() * width, "sendbuff"};
  const NamedBuffer recv{output, received.extent() * width, "recvbuff"};
  if (checkOverlap(send, recv, false).isOk()) return Status::ok();
  for (size_t s = 0; s < sent.counts.size(); ++s) {
    const auto* from = static_cast<const std::byte*>(input) + sent.offsets[s] * width;
    for (size_t r = 0; r < received.counts.size(); ++r) {
      const auto* to = static_cast<const std::byte*>(output) + received.offsets[r] * width;
      TUTTI_TRY(checkOverlap({from, sent.counts[s] * width, "a block of sendbuff"},
                             {to, received.counts[r] * width, "a block of recvbuff"}, false));
    }
  }
  return Status::ok();
}

struct Who {
  int rank;
  int ranks;
  auto own() const { return static_cast<size_t>(rank); }
};

/// What the call's arguments are called.
BlockArguments namesOf(const VariableCall& call) {
  const bool sent = call.collective == Collective::reduceScatter || call.collective == Collective::scatter;
  return {call.blocks.counts, call.blocks.displacements, sent ? "sendcounts" : "recvcounts",
          sent ? "senddispls" : "recvdispls", !sent};
}

/// The own block has one size, which two arguments state; buffers are there and do not overlap.
Status checkOwnBlock(const VariableCall& call, const BlockSizes& sizes, const Who& who) {
  const bool sent = call.collective == Collective::reduceScatter || call.collective == Collective::scatter;
  const size_t count = sizes.counts[who.own()];
  if (call.ownCount != count) {
    return invalidArgument("{} is {}, but {}[{}] of this rank is {}", sent ? "recvcount" : "sendcount",
                           call.ownCount, sent ? "sendcounts" : "recvcounts", who.rank, count);
  }
  const BlockSizes one{{count}, {0}};
  const BlockSizes& input = sent ? sizes : one;
  const BlockSizes& output = sent ? one : sizes;
  TUTTI_TRY(checkBuffer(call.input, input.extent(), "sendbuff"));
  TUTTI_TRY(checkBuffer(call.output, output.extent(), "recvbuff"));
  const size_t width = sizeOf(call.type);
  const size_t own = sizes.offsets[who.own()] * width;
  const bool inPlace = reinterpret_cast<uintptr_t>(call.input) + (sent ? own : 0) ==
                       reinterpret_cast<uintptr_t>(call.output) + (sent ? 0 : own);
  return inPlace ? Status::ok() : checkBlockOverlap(call.input, input, call.output, output, width);
}

Status callWithTable(const VariableCall& call, const CommUse& communicator, const Who& who) {
  Operation operation;
  if (call.collective == Collective::reduceScatter) {
    TUTTI_ASSIGN(operation.reduction, communicator->operators().resolve(call.op, call.type));
  }
  operation.reduction.spec.type = call.type;
  TUTTI_ASSIGN(BlockSizes sizes, readBlocks(namesOf(call), who.ranks, sizeOf(call.type)));
  TUTTI_TRY(checkOwnBlock(call, sizes, who));
  operation.count = sizes.total();
  // As for calls with one count: compared where calls are, as other ranks may have given other counts.
  if (operation.count == 0 && !communicator->checksCalls()) return communicator->error();
  operation.collective = call.collective;
  operation.input = call.input;
  operation.output = call.output;
  operation.type = call.type;
  operation.stream = call.stream;
  operation.blocks = std::make_shared<const BlockSizes>(std::move(sizes));
  if (operation.count != 0) TUTTI_TRY(communicator->planner().check(operation));
  return Group::ofThisThread().submit(communicator, operation);
}

Status callAtRoot(const VariableCall& call, const CommUse& communicator, const Who& who) {
  TUTTI_ASSIGN(const BlockSizes sizes, readBlocks(namesOf(call), who.ranks, sizeOf(call.type)));
  TUTTI_TRY(checkOwnBlock(call, sizes, who));
  MessageList messages(communicator, call.type, call.stream);
  const size_t own = sizes.offsets[who.own()];
  if (call.collective == Collective::gather) {
    messages.copy(call.input, 0, call.output, own, call.ownCount);
  } else {
    messages.copy(call.input, own, call.output, 0, call.ownCount);
  }
  for (int distance = 1; distance < who.ranks; ++distance) {
    const int peer = (who.rank + distance) % who.ranks;
    const size_t offset = sizes.offsets[static_cast<size_t>(peer)];
    const size_t count = sizes.counts[static_cast<size_t>(peer)];
    if (call.collective == Collective::gather) {
      messages.receive(peer, call.output, offset, count);
    } else {
      messages.send(peer, call.input, offset, count);
    }
  }
  return messages.submit();
}

Status callTowardsRoot(const VariableCall& call, const CommUse& communicator) {
  TUTTI_TRY(checkSize(call.ownCount, sizeOf(call.type), 1));
  MessageList messages(communicator, call.type, call.stream);
  if (call.collective == Collective::gather) {
    TUTTI_TRY(checkBuffer(call.input, call.ownCount, "sendbuff"));
    messages.send(call.root, call.input, 0, call.ownCount);
  } else {
    TUTTI_TRY(checkBuffer(call.output, call.ownCount, "recvbuff"));
    messages.receive(call.root, call.output, 0, call.ownCount);
  }
  return messages.submit();
}

}  // namespace

Status callVariable(const VariableCall& call) {
  TUTTI_ASSIGN(const CommUse communicator, resolveForWork(call.comm));
  const Who who{communicator->rank(), communicator->ranks()};
  TUTTI_TRY(checkType(call.type));
  if (call.collective == Collective::allGather || call.collective == Collective::reduceScatter)
    return callWithTable(call, communicator, who);
  TUTTI_TRY(checkRoot(call.root, who.ranks));
  if (who.rank == call.root) return callAtRoot(call, communicator, who);
  return callTowardsRoot(call, communicator);
}

Status callAllToAllv(const AllToAllvCall& call) {
  TUTTI_ASSIGN(const CommUse communicator, resolveForWork(call.comm));
  const Who who{communicator->rank(), communicator->ranks()};
  TUTTI_TRY(checkType(call.type));
  const size_t width = sizeOf(call.type);
  TUTTI_ASSIGN(const BlockSizes sent,
               readBlocks({call.sent.counts, call.sent.displacements, "sendcounts", "senddispls", false},
                          who.ranks, width));
  TUTTI_ASSIGN(const BlockSizes received, readBlocks({call.received.counts, call.received.displacements,
                                                      "recvcounts", "recvdispls", true},
                                                     who.ranks, width));
  TUTTI_TRY(checkBuffer(call.input, sent.extent(), "sendbuff"));
  TUTTI_TRY(checkBuffer(call.output, received.extent(), "recvbuff"));
  // There is no form in place: blocks that are sent and received differ in size and place.
  TUTTI_TRY(checkBlockOverlap(call.input, sent, call.output, received, width));
  if (sent.counts[who.own()] != received.counts[who.own()]) {
    return invalidArgument(
        "rank {} sends itself {} elements (sendcounts[{}]), but receives {} (recvcounts[{}])", who.rank,
        sent.counts[who.own()], who.rank, received.counts[who.own()], who.rank);
  }
  MessageList messages(communicator, call.type, call.stream);
  messages.copy(call.input, sent.offsets[who.own()], call.output, received.offsets[who.own()],
                sent.counts[who.own()]);
  for (int distance = 1; distance < who.ranks; ++distance) {
    const int to = (who.rank + distance) % who.ranks;
    const int from = (who.rank + who.ranks - distance) % who.ranks;
    const auto target = static_cast<size_t>(to);
    const auto source = static_cast<size_t>(from);
    messages.send(to, call.input, sent.offsets[target], sent.counts[target]);
    messages.receive(from, call.output, received.offsets[source], received.counts[source]);
  }
  return messages.submit();
}

}  // namespace tutti
