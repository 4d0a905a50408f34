#include "core/calls.h"

#include "base/datatype.h"
#include "core/communicator.h"
#include "core/group.h"
#include "core/handle.h"
#include "core/validate.h"

namespace tutti {
namespace {

/// Whether this rank's call uses the buffer at all: broadcast reads the input on the root only, reduce writes
/// the output on the root only.
bool uses(Collective collective, Buffer buffer, bool isRoot) {
  if (isRoot) return true;
  if (buffer == Buffer::input)
    return collective != Collective::broadcast && collective != Collective::scatter;
  return collective != Collective::reduce && collective != Collective::gather;
}

/// Whether the buffers lie as NCCL defines calls in place: the same memory, where the smaller of the two is
/// this rank's block of the larger.
bool isInPlace(const CollectiveCall& call, int rank, size_t blockBytes) {
  const auto own = static_cast<size_t>(rank) * blockBytes;
  const bool inputIsLarger =
      holdsAllBlocks(call.collective, Buffer::input) && !holdsAllBlocks(call.collective, Buffer::output);
  const bool outputIsLarger =
      holdsAllBlocks(call.collective, Buffer::output) && !holdsAllBlocks(call.collective, Buffer::input);
  const auto input = reinterpret_cast<uintptr_t>(call.input) + (inputIsLarger ? own : 0);
  const auto output = reinterpret_cast<uintptr_t>(call.output) + (outputIsLarger ? own : 0);
  return input == output;
}

Status checkBuffers(const CollectiveCall& call, bool readsInput, bool writesOutput, int rank, int ranks) {
  const size_t block = call.count * sizeOf(call.type);
  if (readsInput) TUTTI_TRY(checkBuffer(call.input, call.count, "sendbuff"));
  if (writesOutput) TUTTI_TRY(checkBuffer(call.output, call.count, "recvbuff"));
  if (!readsInput || !writesOutput) return Status::ok();
  const auto bytesOf = [&](Buffer buffer) {
    return holdsAllBlocks(call.collective, buffer) ? block * static_cast<size_t>(ranks) : block;
  };
  return checkOverlap({call.input, bytesOf(Buffer::input), "sendbuff"},
                      {call.output, bytesOf(Buffer::output), "recvbuff"}, isInPlace(call, rank, block));
}

/// A message to oneself needs its counterpart in the same group, or it waits for ever; the group checks that.
Status submitMessage(Operation operation, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                     cudaStream_t stream) {
  TUTTI_ASSIGN(const CommUse communicator, resolveForWork(comm));
  TUTTI_TRY(checkType(type));
  TUTTI_TRY(checkPeer(peer, communicator->ranks()));
  TUTTI_TRY(checkSize(count, sizeOf(type), 1));
  const bool sends = operation.kind == Operation::Kind::send;
  TUTTI_TRY(checkBuffer(sends ? operation.input : operation.output, count, sends ? "sendbuff" : "recvbuff"));
  operation.collective = Collective::sendRecv;
  operation.count = count * sizeOf(type);  // a message is bytes: its type matters to nobody
  operation.type = ncclInt8;
  operation.reduction.spec.type = ncclInt8;
  operation.root = peer;
  operation.stream = stream;
  return Group::ofThisThread().submit(communicator, operation);
}

}  // namespace

Status callCollective(const CollectiveCall& call) {
  TUTTI_ASSIGN(const CommUse communicator, resolveForWork(call.comm));
  const int ranks = communicator->ranks();
  TUTTI_TRY(checkType(call.type));
  if (hasRoot(call.collective)) TUTTI_TRY(checkRoot(call.root, ranks));
  Operation operation;
  if (isReduction(call.collective)) {
    TUTTI_ASSIGN(operation.reduction, communicator->operators().resolve(call.op, call.type));
  }
  operation.reduction.spec.type = call.type;
  TUTTI_TRY(checkSize(call.count, sizeOf(call.type), ranks));
  const bool isRoot = !hasRoot(call.collective) || call.root == communicator->rank();
  const bool readsInput = uses(call.collective, Buffer::input, isRoot);
  const bool writesOutput = uses(call.collective, Buffer::output, isRoot);
  TUTTI_TRY(checkBuffers(call, readsInput, writesOutput, communicator->rank(), ranks));
  // Other ranks may have given another count: where calls are compared, this one is, too.
  if (call.count == 0 && !communicator->checksCalls()) return communicator->error();
  operation.collective = call.collective;
  operation.input = readsInput ? call.input : nullptr;
  operation.output = writesOutput ? call.output : nullptr;
  operation.count = call.count;
  operation.type = call.type;
  operation.root = hasRoot(call.collective) ? call.root : 0;
  operation.stream = call.stream;
  if (call.count != 0) TUTTI_TRY(communicator->planner().check(operation));
  return Group::ofThisThread().submit(communicator, operation);
}

Status callSend(const void* buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                cudaStream_t stream) {
  Operation operation;
  operation.kind = Operation::Kind::send;
  operation.input = buffer;
  return submitMessage(operation, count, type, peer, comm, stream);
}

Status callRecv(void* buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                cudaStream_t stream) {
  Operation operation;
  operation.kind = Operation::Kind::recv;
  operation.output = buffer;
  return submitMessage(operation, count, type, peer, comm, stream);
}

}  // namespace tutti
