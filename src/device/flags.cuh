// Signals between ranks, the boards that carry buffers' addresses, and what a channel remembers.
#pragma once

#include "device/waits.cuh"

namespace tutti::device::TUTTI_KERNELS {

TUTTI_DEVICE uint64_t* counterAt(std::byte* segment, uint64_t offset) {
  return reinterpret_cast<uint64_t*>(segment + offset);
}

/// Ranks that a signal raises or a wait waits for, now.
struct Partners {
  const int32_t* ranks;
  uint32_t count;
};
TUTTI_DEVICE Partners partnersOf(const LaneView& view, const Step& step) {
  const int32_t* ranks = view.program().rankNumbers() + step.sourceTeam;
  if (step.flagVaries) return {ranks + view.cursor.iteration, 1};
  return {ranks, step.sourceTeamCount};
}

/// After a barrier: the release covers what all threads did.
TUTTI_DEVICE void raiseFlags(const LaneView& view, const Step& step) {
  const Partners partners = partnersOf(view, step);
  const SegmentLayout& layout = view.comm().layout;
  const auto self = static_cast<uint32_t>(view.comm().rank);
  for (uint32_t i = threadIdx.x; i < partners.count; i += blockDim.x) {
    const auto rank = static_cast<uint32_t>(partners.ranks[i]);
    // Plain: one lane of this rank raises it, and a barrier follows.
    uint64_t* raised = counterAt(view.ownSegment(), layout.raised(view.channel(), step.flag, rank));
    const uint64_t count = *raised + 1;
    *raised = count;
    storeRelease(counterAt(view.segment(rank), layout.flag(view.channel(), step.flag, self)), count);
  }
}

/// False when the communicator is aborted. A barrier must follow: it passes on what the threads acquired.
TUTTI_DEVICE bool awaitFlags(const LaneView& view, const Step& step) {
  const Partners partners = partnersOf(view, step);
  const SegmentLayout& layout = view.comm().layout;
  for (uint32_t i = threadIdx.x; i < partners.count; i += blockDim.x) {
    const auto rank = static_cast<uint32_t>(partners.ranks[i]);
    uint64_t* consumed = counterAt(view.ownSegment(), layout.consumed(view.channel(), step.flag, rank));
    const uint64_t count = *consumed;
    Spin spin(view, WaitFor::signal, partners.ranks[i], step.flag);
    if (waitBeyond(counterAt(view.ownSegment(), layout.flag(view.channel(), step.flag, rank)), count, spin) ==
        0) {
      return false;
    }
    *consumed = count + 1;
  }
  return true;
}

/// Tells all ranks whose memory is mapped where this call's buffers are. Relaxed: the first signal releases
/// it. All lanes write the same.
TUTTI_DEVICE void writeBoards(const LaneView& view) {
  const Comm& comm = view.comm();
  for (uint32_t rank = threadIdx.x; rank < static_cast<uint32_t>(comm.ranks); rank += blockDim.x) {
    std::byte* segment = comm.segments[rank];
    if (segment == nullptr || rank == static_cast<uint32_t>(comm.rank)) continue;
    auto* board = reinterpret_cast<Board*>(
        segment + comm.layout.board(view.channel(), static_cast<uint32_t>(comm.rank)));
    storeRelaxed(&board->input, reinterpret_cast<uint64_t>(view.call().input));
    storeRelaxed(&board->output, reinterpret_cast<uint64_t>(view.call().output));
  }
}

/// By one thread, after a barrier behind the lane's last step. The last lane of the call advances the
/// channel; the others have read what they need of it, before they came here.
TUTTI_DEVICE void leaveChannel(const LaneView& view) {
  auto* state =
      reinterpret_cast<ChannelState*>(view.ownSegment() + view.comm().layout.channelState(view.channel()));
  if (addAcquireRelease(&state->lanesEnded, 1) + 1 != view.program().laneCount) return;
  state->sharedSlices += view.call().slices;
  state->lanesEnded = 0;
}

}  // namespace tutti::device::TUTTI_KERNELS
