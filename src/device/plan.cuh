// Where the data of a step lie. One warp plans the pieces, a thread each; teams' addresses are looked up by
// all threads.
#pragma once

#include "device/lane.cuh"

namespace tutti::device::TUTTI_KERNELS {

/// Affine::at without a 64-bit division where 32 bits do.
TUTTI_DEVICE int32_t valueAt(const Affine& affine, int32_t i) {
  if (affine.stride == 0 && affine.modulus <= 0) return affine.base;
  const int64_t value = affine.base + static_cast<int64_t>(affine.stride) * i;
  if (affine.modulus <= 0) return static_cast<int32_t>(value);
  if (value != static_cast<int32_t>(value)) return affine.at(i);
  const int32_t wrapped = static_cast<int32_t>(value) % affine.modulus;
  return wrapped < 0 ? wrapped + affine.modulus : wrapped;
}

TUTTI_DEVICE int32_t segmentAt(const Segments& segments, int32_t iteration, int32_t piece) {
  const int32_t offset = segments.run == 1 ? piece * segments.stride
                                           : piece / segments.run * segments.stride + piece % segments.run;
  int32_t segment = valueAt(segments.first, iteration) + offset;
  // No location has a segment twice, so neighbours wrap once at most.
  if (segment >= segments.segments) segment -= segments.segments;
  if (segment < 0 || segment >= segments.segments) {
    segment %= segments.segments;
    if (segment < 0) segment += segments.segments;
  }
  return segment;
}

/// The cut of blocks of equal length, once a call, by one thread.
template <uint32_t kElementBytes>
TUTTI_DEVICE void planCall(const LaneView& view) {
  const BlockShape shape = blockShape(view.call().count, view.channel(), view.call().channels,
                                      static_cast<uint32_t>(view.program().parts), kElementBytes);
  view.shared.shareFirst = shape.shareFirst;
  view.shared.shareCount = shape.shareCount;
  view.shared.partElements = shape.partElements;
  const auto* state = reinterpret_cast<const ChannelState*>(view.ownSegment() +
                                                            view.comm().layout.channelState(view.channel()));
  view.shared.sharedSlices = view.program().sharedScratch ? state->sharedSlices : 0;
}

struct DataPosition {
  uint64_t firstBytes;  // of the piece in its block
  uint64_t bytes;
  uint32_t block;
};

/// Of a segment of a user's buffer, in the running slice.
template <uint32_t kElementBytes>
TUTTI_DEVICE DataPosition positionOf(const LaneView& view, int32_t segment) {
  const Call& call = view.call();
  uint32_t block = static_cast<uint32_t>(segment);
  uint32_t part = 0;
  const auto parts = static_cast<uint32_t>(view.program().parts);
  if (parts != 1) {
    part = block % parts;
    block /= parts;
  }
  BlockShape shape;
  if (call.blockCounts != nullptr) {
    shape = blockShape(call.blockCounts[block], view.channel(), call.channels, parts, kElementBytes);
  } else {
    shape = {view.shared.shareFirst, view.shared.shareCount, view.shared.partElements};
  }
  const PieceShape piece = pieceShape(shape, part, view.cursor.slice, call.sliceElements);
  return {piece.first * kElementBytes, piece.count * kElementBytes, block};
}

/// Of piece `piece` of a location, from the base of its buffer.
template <uint32_t kElementBytes>
TUTTI_DEVICE uint64_t offsetOf(const LaneView& view, const Location& location, int32_t piece) {
  const Call& call = view.call();
  const int32_t segment = segmentAt(location.segments, view.cursor.iteration, piece);
  if (location.buffer == BufferKind::scratch) {
    return static_cast<uint64_t>(segment) * call.sliceElements * kElementBytes;
  }
  const DataPosition at = positionOf<kElementBytes>(view, segment);
  const bool holdsAll =
      location.buffer == BufferKind::input ? view.program().inputHoldsAll : view.program().outputHoldsAll;
  uint64_t blockFirst = 0;
  if (holdsAll)
    blockFirst = call.blockOffsets != nullptr ? call.blockOffsets[at.block] : at.block * call.count;
  return blockFirst * kElementBytes + at.firstBytes;
}

/// Start of rank `rank`'s memory that the location's segments are counted from.
TUTTI_DEVICE std::byte* baseOf(const LaneView& view, const Location& location, int32_t rank) {
  const Comm& comm = view.comm();
  if (location.buffer == BufferKind::scratch) {
    const bool isShared = view.program().sharedScratch != 0;
    const uint64_t half = ((isShared ? view.shared.sharedSlices : 0) + view.cursor.slice) & 1;
    return view.segment(static_cast<uint32_t>(rank)) +
           (isShared ? comm.layout.sharedScratch(view.channel())
                     : comm.layout.privateScratch(view.channel())) +
           half * comm.layout.scratchHalfBytes;
  }
  const bool isInput = location.buffer == BufferKind::input;
  if (rank == comm.rank) return isInput ? const_cast<std::byte*>(view.call().input) : view.call().output;
  // Relaxed: the peer wrote it before the signal that this lane waited for.
  const auto* board = reinterpret_cast<const Board*>(
      view.ownSegment() + comm.layout.board(view.channel(), static_cast<uint32_t>(rank)));
  return reinterpret_cast<std::byte*>(loadRelaxed(isInput ? &board->input : &board->output));
}

/// Bases of what the step reads (side 0) and writes (side 1): of the location, or of each member of a team.
/// By all threads.
TUTTI_DEVICE void planBases(const LaneView& view, const Step& step) {
#pragma unroll 1
  for (uint32_t side = 0; side < 2; ++side) {
    if (!(side == 0 ? step.hasSource : step.hasDestination)) continue;
    const Location& location = side == 0 ? step.source : step.destination;
    const uint32_t team = side == 0 ? step.sourceTeam : step.destinationTeam;
    const uint32_t teamCount = side == 0 ? step.sourceTeamCount : step.destinationTeamCount;
    // Without a team: by the thread that plans the first piece.
    const uint32_t first = teamCount != 0 ? threadIdx.x : threadIdx.x - (blockDim.x - kWarp);
#pragma unroll 1
    for (uint32_t i = first; i < (teamCount != 0 ? teamCount : 1); i += blockDim.x) {
      int32_t rank = view.comm().rank;
      if (teamCount != 0) {
        rank = view.program().rankNumbers()[team + i];
      } else if (location.ofPeer) {
        rank = valueAt(location.rank, view.cursor.iteration);
      }
      view.shared.bases[side][i] = baseOf(view, location, rank);
    }
  }
}

/// Pieces first .. first + kPlanned of the step; with the first ones, the bytes of all. By the last warp.
template <uint32_t kElementBytes>
TUTTI_DEVICE void planPieces(const LaneView& view, const Step& step, uint32_t first) {
  if (threadIdx.x < blockDim.x - kWarp) return;
  const uint32_t lane = threadIdx.x % kWarp;
  const auto pieces = static_cast<uint32_t>(step.pieces);
  uint64_t sum = 0;
#pragma unroll 1
  for (uint32_t piece = first + lane; piece < pieces; piece += kPlanned) {
    const int32_t segment = segmentAt(step.size, view.cursor.iteration, static_cast<int32_t>(piece));
    const uint64_t bytes = positionOf<kElementBytes>(view, segment).bytes;
    sum += bytes;
    if (piece == first + lane) {
      view.shared.pieces[lane].bytes = bytes;
#pragma unroll 1
      for (uint32_t side = 0; side < 2; ++side) {
        if (!(side == 0 ? step.hasSource : step.hasDestination)) continue;
        const Location& location = side == 0 ? step.source : step.destination;
        view.shared.pieces[lane].offsets[side] =
            offsetOf<kElementBytes>(view, location, static_cast<int32_t>(piece));
      }
    }
    if (first != 0) break;
  }
  if (first == 0) view.shared.bytesByLane[lane] = sum;
}

/// Of the whole message that a step expects.
TUTTI_DEVICE uint64_t expectedBytes(const Shared& shared, const Step& step) {
  uint64_t bytes = 0;
  const int32_t lanes = step.pieces < static_cast<int32_t>(kWarp) ? step.pieces : static_cast<int32_t>(kWarp);
#pragma unroll 1
  for (int32_t lane = 0; lane < lanes; ++lane) bytes += shared.bytesByLane[lane];
  return bytes;
}

/// What a piece is made of and goes to. In the order in which sources are added:
///   [destination 0 (reduceLocal) or the message, when it is first]  members or source  [the message, else]
/// Addresses stay in shared memory, since registers are few.
struct Operands {
  const Shared& shared;
  uint32_t sourceCount;       // all
  uint32_t destinationCount;  // all in memory
  uint32_t extraAt;           // which source is the message or the destination; none: sourceCount
  bool reducesLocally;
  bool hasSlot;        // the last destination is the outgoing message's slot
  uint32_t piece;      // among the planned ones
  uint64_t inMessage;  // offset of the piece in the messages

  TUTTI_DEVICE const std::byte* source(uint32_t k) const {
    if (k == extraAt) return reducesLocally ? destination(0) : shared.incoming + inMessage;
    return shared.bases[0][k - (extraAt == 0 ? 1 : 0)] + shared.pieces[piece].offsets[0];
  }
  TUTTI_DEVICE std::byte* destination(uint32_t k) const {
    if (hasSlot && k == destinationCount - 1) return shared.outgoing + inMessage;
    return shared.bases[1][k] + shared.pieces[piece].offsets[1];
  }
};

TUTTI_DEVICE Operands operandsOf(const Shared& shared, const Step& step, bool messagesInSlots) {
  const bool reducesLocally = step.kind == StepKind::reduceLocal;
  const bool hasExtra = step.receives || reducesLocally;
  const bool hasSlot = step.sends && messagesInSlots;
  const uint32_t own = step.hasSource ? (step.sourceTeamCount != 0 ? step.sourceTeamCount : 1) : 0;
  const uint32_t kept =
      step.hasDestination ? (step.destinationTeamCount != 0 ? step.destinationTeamCount : 1) : 0;
  const bool last = step.receives && step.hasSource && !step.messageFirst;
  return {shared,
          own + (hasExtra ? 1 : 0),
          kept + (hasSlot ? 1 : 0),
          !hasExtra || last ? own : 0,
          reducesLocally,
          hasSlot,
          0,
          0};
}

}  // namespace tutti::device::TUTTI_KERNELS
