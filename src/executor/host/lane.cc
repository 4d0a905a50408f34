// The lane machine: what one step does, and how a lane goes from step to step.
#include <algorithm>
#include <array>
#include <cstring>

#include "algorithms/layout.h"
#include "executor/host/host_executor.h"
#include "executor/host/run.h"

namespace tutti {
namespace {

/// Messages of this size are sent before other lanes work.
constexpr size_t kSendNowBytes = 64 * 1024;

struct Position {
  int32_t block;
  int32_t part;
};

/// Segment of the location's `piece`-th piece, as block and part (part alone for scratch).
inline Position locate(const BoundLocation& location, int32_t parts, int32_t iteration, int32_t piece) {
  if (location.fixed) return {location.block, location.part};
  int32_t segment = location.segment.at(iteration) + location.pattern.offset(piece);
  // No location has a segment twice, so neighbours wrap once at most; others need a division.
  if (segment >= location.segments) segment -= location.segments;
  if (segment < 0 || segment >= location.segments) segment = wrap(segment, location.segments);
  if (location.buffer == Buffer::scratch) return {0, segment};
  return {segment / parts, segment % parts};
}

}  // namespace

/// Moves on: next step, else next iteration, else next block, else next slice, else done.
void HostRun::nextStep(const LaunchState& launch, LaneState* lane) {
  const BoundSchedule& bound = *launch.bound;
  const BoundBlock& block = bound.blocks[lane->block];
  if (++lane->step < block.firstStep + block.stepCount) return;
  if (++lane->iteration < block.iterations) {
    lane->step = block.firstStep;
    return;
  }
  lane->iteration = 0;
  const BoundLane& text = bound.lanes[static_cast<size_t>(lane - &lanes_[launch.firstLane])];
  if (++lane->block == text.firstBlock + text.blockCount) {
    lane->block = text.firstBlock;
    if (++lane->slice == launch.table.slices()) lane->done = true;
  }
  lane->step = bound.blocks[lane->block].firstStep;
}

HostRun::StepResult HostRun::advanceLane(const LaunchState& launch, LaneState* lane, bool* moved) {
  while (!lane->done) {
    if (budgetLeft_ == 0) {
      *moved = true;
      return StepResult::blocked;
    }
    const StepResult result = runStep(launch, launch.bound->steps[lane->step], lane);
    if (result != StepResult::ran) return result;
    *moved = true;
    nextStep(launch, lane);
  }
  return StepResult::ran;
}

HostRun::StepResult HostRun::runStep(const LaunchState& launch, const BoundStep& step, LaneState* lane) {
  switch (step.kind) {
    case StepKind::signal:
      return raiseFlags(launch, step, *lane);
    case StepKind::wait:
      return waitFlags(launch, step, lane);
    default:
      return moveData(launch, step, *lane);
  }
}

HostRun::StepResult HostRun::raiseFlags(const LaunchState& launch, const BoundStep& step,
                                        const LaneState& lane) {
  const uint32_t first = step.table + (step.perIteration ? static_cast<uint32_t>(lane.iteration) : 0);
  const FlagRaise* raises = launch.bound->raises.data() + first;
  for (uint32_t i = 0; i < step.tableCount; ++i) {
    // This rank is the counter's only writer. release: everything it wrote or read so far comes first.
    raises[i].counter->store(raises[i].counter->load(std::memory_order_relaxed) + 1,
                             std::memory_order_release);
  }
  Doorbell::fenceBeforeRinging();
  for (uint32_t i = 0; i < step.tableCount; ++i) raises[i].bell->ringFenced();
  return StepResult::ran;
}

HostRun::StepResult HostRun::waitFlags(const LaunchState& launch, const BoundStep& step, LaneState* lane) {
  const uint32_t first = step.table + (step.perIteration ? static_cast<uint32_t>(lane->iteration) : 0);
  const FlagWait* waits = launch.bound->waits.data() + first;
  for (; lane->raised < step.tableCount; ++lane->raised) {
    const FlagWait& wait = waits[lane->raised];
    // acquire: pairs with the release of the signal
    if (wait.counter->load(std::memory_order_acquire) <= *wait.consumed) return StepResult::blocked;
    ++*wait.consumed;
  }
  lane->raised = 0;
  return StepResult::ran;
}

HostRun::StepResult HostRun::moveData(const LaunchState& launch, const BoundStep& step,
                                      const LaneState& lane) {
  const BoundSchedule& bound = *launch.bound;
  FifoReceiver* receiver = nullptr;
  const std::byte* message = nullptr;
  uint32_t messageBytes = 0;
  if (step.receives) {
    receiver =
        bound.receivers[step.receiver + (step.receiverVaries ? static_cast<uint32_t>(lane.iteration) : 0)];
    message = receiver->tryPeek(&messageBytes);
    if (message == nullptr) return StepResult::blocked;
  }
  FifoSender* sender = nullptr;
  std::byte* slot = nullptr;
  if (step.sends) {
    sender = bound.senders[step.sender + (step.senderVaries ? static_cast<uint32_t>(lane.iteration) : 0)];
    slot = sender->tryAcquire();
    if (slot == nullptr) return StepResult::blocked;
  }

  size_t total = 0;
  if (receiver != nullptr && sender != nullptr && !step.hasSource && !step.hasDestination) {  // recvSend
    total = messageBytes;
    if (total > sender->slotBytes()) return failSize(launch, step, lane, total, sender->slotBytes());
    std::memcpy(slot, message, total);
  } else {
    const int32_t parts = launch.table.shape().parts;
    const auto bytesOf = [&](int32_t piece) {
      const Position at = locate(step.size, parts, lane.iteration, piece);
      return launch.table.bytes(at.block, at.part, lane.slice);
    };
    if (receiver != nullptr) {
      // The whole message is checked before any of it is used.
      size_t expected = 0;
      for (int32_t piece = 0; piece < step.pieces; ++piece) expected += bytesOf(piece);
      if (expected != messageBytes) return failSize(launch, step, lane, messageBytes, expected);
    }
    for (int32_t piece = 0; piece < step.pieces; ++piece) {
      const size_t bytes = bytesOf(piece);
      if (bytes == 0) continue;
      movePiece(launch, step, lane, piece, bytes, message == nullptr ? nullptr : message + total,
                slot == nullptr ? nullptr : slot + total);
      total += bytes;
    }
  }
  if (sender != nullptr) sender->publish(static_cast<uint32_t>(total));
  if (receiver != nullptr) receiver->release();
  // From this core's cache into the kernel: other lanes would push it out.
  if (sender != nullptr && total >= kSendNowBytes) executor_->endpoint().sendNow();
  budgetLeft_ -= std::min(budgetLeft_, total);
  return StepResult::ran;
}

std::byte* HostRun::address(const LaunchState& launch, const BoundLocation& location, const LaneState& lane,
                            int32_t piece, int32_t rank) const {
  const BoundSchedule& bound = *launch.bound;
  const Position at = locate(location, launch.table.shape().parts, lane.iteration, piece);
  if (location.buffer == Buffer::scratch) {
    std::byte* base = location.ofPeer ? bound.scratch[static_cast<size_t>(rank)] : bound.ownScratch;
    const size_t half = (launch.firstParity + lane.slice) & 1;
    return base + half * bound.scratchHalfBytes +
           static_cast<size_t>(at.part) * launch.table.shape().sliceBytes;
  }
  const bool input = location.buffer == Buffer::input;
  std::byte* base = input ? launch.input : launch.output;
  if (location.ofPeer) base = (input ? launch.peerInput : launch.peerOutput)[static_cast<size_t>(rank)];
  return base + launch.table.piece(location.buffer, at.block, at.part, lane.slice, rank).offset;
}

/// Sources (memory of this rank, of a peer, or of each rank of a team; a message) into destinations (the
/// same; a slot).
void HostRun::movePiece(const LaunchState& launch, const BoundStep& step, const LaneState& lane,
                        int32_t piece, size_t bytes, const std::byte* message, std::byte* slot) {
  const auto place = [&](const BoundLocation& location) {
    const int32_t rank = location.ofPeer ? location.rank.at(lane.iteration) : launch.bound->schedule().rank;
    return address(launch, location, lane, piece, rank);
  };
  int32_t destinationCount = 0;
  const auto addDestination = [&](std::byte* destination) {
    destinations_[static_cast<size_t>(destinationCount++)] = destination;
  };
  if (step.destinationTeam != nullptr) {
    for (const int32_t rank : *step.destinationTeam)
      addDestination(address(launch, step.destination, lane, piece, rank));
  } else if (step.hasDestination) {
    addDestination(place(step.destination));
  }
  if (slot != nullptr) addDestination(slot);

  int32_t sourceCount = 0;
  const auto addSource = [&](const std::byte* source) {
    sources_[static_cast<size_t>(sourceCount++)] = source;
  };
  const bool messageLast = message != nullptr && step.hasSource && !step.messageFirst;
  if (step.kind == StepKind::reduceLocal) addSource(destinations_[0]);
  if (message != nullptr && !messageLast) addSource(message);
  if (step.sourceTeam != nullptr) {
    for (const int32_t rank : *step.sourceTeam) addSource(address(launch, step.source, lane, piece, rank));
  } else if (step.hasSource) {
    addSource(place(step.source));
  }
  if (messageLast) addSource(message);
  // What goes into a slot is read at once by a peer, and so should stay in a cache.
  const bool stream = launch.stream && slot == nullptr && step.destination.buffer == Buffer::output;
  launch.reducer.run(sources_.data(), sourceCount, destinations_.data(), destinationCount, bytes, step.scaled,
                     step.finalize, stream);
}

HostRun::StepResult HostRun::failSize(const LaunchState& launch, const BoundStep& step, const LaneState& lane,
                                      size_t got, size_t expected) {
  fail(
      invalidUsage("rank {}: rank {} sent {} bytes where {} were expected: the ranks' calls do not match ({} "
                   "channel {} {})",
                   launch.bound->schedule().rank, step.text->peerFrom.at(lane.iteration), got, expected,
                   launch.bound->schedule().name, launch.channel, describe(launch, lane)));
  return StepResult::failed;
}

}  // namespace tutti
