// What a block knows of the lane that it runs: registers that all threads hold alike, and shared memory.
#pragma once

#include "base/segment_shape.h"
#include "device/memory_order.cuh"

namespace tutti::device::TUTTI_KERNELS {

/// Pieces that are planned at once: a lane of a warp plans each.
constexpr uint32_t kPlanned = kWarp;

/// Where the lane stands.
struct Cursor {
  uint64_t slice = 0;
  int32_t iteration = 0;
  uint32_t step = 0;  // Step::number
};

/// A connection of the lane, while the lane runs.
struct LinkState {
  std::byte* data;  // slots, or lines of the kernel's protocol
  MessageTail* tail;
  uint64_t* head;
  uint64_t* counter;  // where `count` is kept between launches
  uint64_t count;     // messages sent or received
  uint64_t known;     // messages that the other end was last seen to have received or sent
  int32_t peer;
};
static_assert(sizeof(LinkState) == kLinkStateBytes);

/// A piece of a step: offsets from the operands' bases.
struct PiecePlan {
  uint64_t offsets[2];  // of what is read and what is written
  uint64_t bytes;
};

/// Shared memory of a block. What belongs to a step is written before the barrier that begins its movement
/// and read until the one that ends it.
struct Shared {
  // of the lane
  const Comm* comm;
  const Call* call;
  const Program* program;
  uint32_t callNumber;
  uint32_t channel;
  uint32_t lane;
  uint32_t reporter;    // the thread that reports a long wait, + 1
  uint64_t shareFirst;  // of blocks of equal length: a BlockShape
  uint64_t shareCount;
  uint64_t partElements;
  uint64_t sharedSlices;  // ChannelState's, when the lane began
  uint64_t scale;         // bits of the operator's scalar, in the type that multiplies
  uint64_t divisor;
  Op op;
  // of the step
  std::byte* bases[2][kMostMembers];  // of what the step reads and writes: of one rank, or of a team
  PiecePlan pieces[kPlanned];
  uint64_t bytesByLane[kWarp];  // of all pieces that the planner's lane plans
  const std::byte* incoming;    // place of the message in the slots or lines
  std::byte* outgoing;
  uint64_t incomingBytes;   // that arrived (Simple)
  uint64_t incomingNumber;  // of the message, from 1: the flag of its lines
  uint64_t outgoingNumber;
};

static_assert(sizeof(Shared) == kLaneStateBytes && kLaneStateBytes % alignof(LinkState) == 0);

/// What all threads know of their lane.
struct LaneView {
  Shared& shared;
  Cursor cursor;

  TUTTI_DEVICE const Comm& comm() const { return *shared.comm; }
  TUTTI_DEVICE const Call& call() const { return *shared.call; }
  TUTTI_DEVICE const Program& program() const { return *shared.program; }
  TUTTI_DEVICE uint32_t channel() const { return shared.channel; }
  TUTTI_DEVICE std::byte* segment(uint32_t rank) const { return comm().segments[rank]; }
  TUTTI_DEVICE std::byte* ownSegment() const { return segment(static_cast<uint32_t>(comm().rank)); }
};

}  // namespace tutti::device::TUTTI_KERNELS
