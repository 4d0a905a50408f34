#include "executor/host/bound_schedule.h"

#include <algorithm>
#include <utility>

#include "executor/step_rules.h"

namespace tutti {
namespace {

// What the checker lets a schedule use must exist between any two ranks.
static_assert(kMaxPorts <= kEndpointPorts, "a schedule may use ports that endpoints do not have");
static_assert(kMaxFlags <= kEndpointFlags, "a schedule may use flags that endpoints do not have");

}  // namespace

/// Fills a BoundSchedule; the first failure is kept and ends the work.
class Binder {
 public:
  Binder(Endpoint& endpoint, ChannelState& channel, std::shared_ptr<const Schedule> schedule)
      : endpoint_(endpoint),
        channel_(channel),
        schedule_(*schedule),
        bound_(std::make_shared<BoundSchedule>()) {
    bound_->schedule_ = std::move(schedule);
  }

  Result<std::shared_ptr<const BoundSchedule>> bind() {
    TUTTI_TRY(checkSchedule());
    bound_->reduces_ = isReduction(schedule_.collective);
    bound_->maxSliceBytes_ =
        schedule_.maxSliceBytes(endpoint_.options().slotBytes, endpoint_.options().scratchBytes);
    for (const auto& team : schedule_.teams) {
      bound_->widestTeam_ = std::max(bound_->widestTeam_, static_cast<int32_t>(team.size()));
    }
    for (size_t lane = 0; lane < schedule_.lanes.size(); ++lane) {
      TUTTI_TRY(bindLane(schedule_.lanes[lane]).withContext("schedule {} lane {}", schedule_.name, lane));
    }
    TUTTI_TRY(bindScratch());
    if (usesFlags_ || schedule_.scratchSegments > 0) bound_->resources.push_back(&channel_.flagsAndScratch);
    return std::shared_ptr<const BoundSchedule>(bound_);
  }

 private:
  Status checkSchedule() const {
    if (schedule_.ranks != endpoint_.ranks() || schedule_.rank != endpoint_.rank()) {
      return internalError("schedule {} is made for rank {} of {}, this is rank {} of {}", schedule_.name,
                           schedule_.rank, schedule_.ranks, endpoint_.rank(), endpoint_.ranks());
    }
    if (channel_.channel < 0 || channel_.channel >= endpoint_.options().channels) {
      return internalError("schedule {} on channel {}: there are {} channels", schedule_.name,
                           channel_.channel, endpoint_.options().channels);
    }
    return Status::ok();
  }

  Status bindLane(const Lane& lane) {
    BoundLane boundLane{static_cast<uint32_t>(bound_->blocks.size()), 0};
    for (const Block& block : lane.blocks) {
      if (block.iterations <= 0 || block.steps.empty()) continue;
      bound_->blocks.push_back({static_cast<uint32_t>(bound_->steps.size()),
                                static_cast<uint32_t>(block.steps.size()), block.iterations});
      ++boundLane.blockCount;
      for (const Step& step : block.steps) {
        TUTTI_TRY(bindStep(step, block.iterations).withContext("step {}", name(step.kind)));
      }
    }
    if (boundLane.blockCount != 0) bound_->lanes.push_back(boundLane);
    return Status::ok();
  }

  Status bindStep(const Step& step, int32_t iterations) {
    if (reduces(step.kind) && !bound_->reduces_) {
      return internalError("{} reduces nothing, but the schedule does", name(schedule_.collective));
    }
    BoundStep out;
    out.text = &step;
    out.kind = step.kind;
    out.hasSource = readsSource(step.kind);
    out.hasDestination = writesDestination(step.kind);
    out.receives = receives(step.kind);
    out.sends = sends(step.kind);
    out.messageFirst = step.messageFirst;
    out.finalize = step.finalize;
    out.pieces = movedSegments(step);
    if (out.hasSource) TUTTI_TRY(bindLocation(step.src, iterations, &out.source));
    if (out.hasDestination) TUTTI_TRY(bindLocation(step.dst, iterations, &out.destination));
    if (const SizeSegments size = sizeSegments(step); size.first != Affine(kNoSegment)) {
      TUTTI_TRY(
          bindLocation({Buffer::input, size.first, out.pieces, kSelf, size.pattern}, iterations, &out.size));
    }
    out.scaled = scaledSources(step);
    if (out.receives) TUTTI_TRY(bindReceivers(step, iterations, &out));
    if (out.sends) TUTTI_TRY(bindSenders(step, iterations, &out));
    if (onlyOrders(step.kind)) {
      TUTTI_TRY(bindFlags(step, iterations, &out));
    } else {
      TUTTI_TRY(bindTeams(step, &out));
    }
    notePeerBuffers(out.source);
    notePeerBuffers(out.destination);
    bound_->steps.push_back(out);
    return Status::ok();
  }

  void notePeerBuffers(const BoundLocation& location) {
    if (location.ofPeer && location.buffer == Buffer::input) bound_->needsPeerInput_ = true;
    if (location.ofPeer && location.buffer == Buffer::output) bound_->needsPeerOutput_ = true;
  }

  Status bindLocation(const Location& location, int32_t iterations, BoundLocation* out) {
    out->buffer = location.buffer;
    out->segment = location.segment;
    out->count = location.count;
    out->rank = location.rank;
    out->pattern = location.pattern;
    out->segments = location.buffer == Buffer::scratch ? schedule_.scratchSegments : schedule_.segments();
    if (location.pattern.run < 1) return internalError("runs of {} segments", location.pattern.run);
    for (int32_t i = 0; i < iterations; ++i) {
      const int32_t segment = location.segment.at(i);
      if (segment < 0 || segment >= out->segments || location.count < 1 || location.count > out->segments) {
        return internalError("{} segments from {} on, there are {}", location.count, segment, out->segments);
      }
      const int32_t rank = location.rank.at(i);
      if (location.rank == Affine(kSelf) || (rank == schedule_.rank && location.rank.stride == 0)) continue;
      out->ofPeer = true;
      TUTTI_TRY(checkMapped(rank));
    }
    if (location.count == 1 && location.segment.stride == 0) {
      out->fixed = true;
      const int32_t segment = location.segment.at(0);
      out->block = location.buffer == Buffer::scratch ? 0 : segment / schedule_.parts;
      out->part = location.buffer == Buffer::scratch ? segment : segment % schedule_.parts;
    }
    return Status::ok();
  }

  Status checkMapped(int32_t rank) const {
    if (rank < 0 || rank >= schedule_.ranks) {
      return internalError("rank {} of {}", rank, schedule_.ranks);
    }
    if (!endpoint_.mapped(rank)) {
      return internalError("rank {} shares no memory with rank {}, which this schedule needs",
                           endpoint_.rank(), rank);
    }
    return Status::ok();
  }

  Status checkPeer(int32_t peer) const {
    if (peer < 0 || peer >= schedule_.ranks)
      return internalError("peer {} of {} ranks", peer, schedule_.ranks);
    return Status::ok();
  }

  Status bindReceivers(const Step& step, int32_t iterations, BoundStep* out) {
    out->receiver = static_cast<uint32_t>(bound_->receivers.size());
    out->receiverVaries = step.peerFrom.stride != 0;
    for (int32_t i = 0; i < (out->receiverVaries ? iterations : 1); ++i) {
      const int32_t peer = step.peerFrom.at(i);
      TUTTI_TRY(checkPeer(peer));
      TUTTI_ASSIGN(FifoReceiver * receiver, endpoint_.receiver(peer, channel_.channel, step.portFrom));
      bound_->receivers.push_back(receiver);
      useStream(peer, step.portFrom, false);
    }
    return Status::ok();
  }

  Status bindSenders(const Step& step, int32_t iterations, BoundStep* out) {
    out->sender = static_cast<uint32_t>(bound_->senders.size());
    out->senderVaries = step.peerTo.stride != 0;
    for (int32_t i = 0; i < (out->senderVaries ? iterations : 1); ++i) {
      const int32_t peer = step.peerTo.at(i);
      TUTTI_TRY(checkPeer(peer));
      TUTTI_ASSIGN(FifoSender * sender, endpoint_.sender(peer, channel_.channel, step.portTo));
      bound_->senders.push_back(sender);
      useStream(peer, step.portTo, true);
    }
    return Status::ok();
  }

  void useStream(int peer, int port, bool sending) {
    OrderedResource*& stream = channel_.streamOf[{peer, port, sending}];
    if (stream == nullptr) stream = &channel_.streams.emplace_back();
    auto& used = bound_->resources;
    if (std::find(used.begin(), used.end(), stream) == used.end()) used.push_back(stream);
  }

  Result<const std::vector<int32_t>*> team(int number) const {
    if (number < 0 || static_cast<size_t>(number) >= schedule_.teams.size()) {
      return internalError("team {} of {}", number, schedule_.teams.size());
    }
    return &schedule_.teams[static_cast<size_t>(number)];
  }

  Status bindTeams(const Step& step, BoundStep* out) {
    if (step.team >= 0) {
      if (!out->hasSource) return internalError("nothing to sum over team {}", step.team);
      if (out->receives && !step.messageFirst)
        return internalError("a message comes before the members of a team");
      TUTTI_ASSIGN(out->sourceTeam, mappedTeam(step.team));
      out->source.ofPeer = true;
    } else if (step.kind == StepKind::reduceTeam) {
      return internalError("team {} of {}", step.team, schedule_.teams.size());
    }
    if (step.dstTeam >= 0) {
      if (!out->hasDestination) return internalError("nothing to store for team {}", step.dstTeam);
      TUTTI_ASSIGN(out->destinationTeam, mappedTeam(step.dstTeam));
      out->destination.ofPeer = true;
    }
    return Status::ok();
  }

  /// A team whose ranks' memory this rank sees.
  Result<const std::vector<int32_t>*> mappedTeam(int number) const {
    TUTTI_ASSIGN(const auto* members, team(number));
    if (members->empty()) return internalError("team {} is empty", number);
    for (const int32_t rank : *members) TUTTI_TRY(checkMapped(rank));
    return members;
  }

  Status bindFlags(const Step& step, int32_t iterations, BoundStep* out) {
    usesFlags_ = true;
    if (step.flag < 0 || step.flag >= kEndpointFlags) {
      return internalError("flag {}: there are {}", step.flag, kEndpointFlags);
    }
    const bool raising = step.kind == StepKind::signal;
    const Affine& peer = raising ? step.peerTo : step.peerFrom;
    out->table = static_cast<uint32_t>(raising ? bound_->raises.size() : bound_->waits.size());
    if (step.team >= 0) {
      TUTTI_ASSIGN(const auto* members, team(step.team));
      for (const int32_t rank : *members) {
        if (rank != schedule_.rank) TUTTI_TRY(bindFlag(rank, step.flag, raising));
      }
    } else {
      out->perIteration = peer.stride != 0;
      for (int32_t i = 0; i < (out->perIteration ? iterations : 1); ++i) {
        TUTTI_TRY(bindFlag(peer.at(i), step.flag, raising));
      }
    }
    const auto end = static_cast<uint32_t>(raising ? bound_->raises.size() : bound_->waits.size());
    out->tableCount = out->perIteration ? 1 : end - out->table;
    return Status::ok();
  }

  Status bindFlag(int32_t rank, int flag, bool raising) {
    TUTTI_TRY(checkMapped(rank));
    const int self = endpoint_.rank();
    std::atomic<uint64_t>* counter = raising ? endpoint_.flag(self, rank, channel_.channel, flag)
                                             : endpoint_.flag(rank, self, channel_.channel, flag);
    if (counter == nullptr) return internalError("no flag between ranks {} and {}", self, rank);
    if (raising) {
      bound_->raises.push_back({counter, endpoint_.bell(rank)});
    } else {
      auto& expected = channel_.expectedRaises;
      if (expected.empty()) expected.resize(static_cast<size_t>(endpoint_.ranks()) * kEndpointFlags);
      bound_->waits.push_back(
          {counter, &expected[static_cast<size_t>(rank) * kEndpointFlags + static_cast<size_t>(flag)], rank});
    }
    return Status::ok();
  }

  Status bindScratch() {
    if (schedule_.scratchSegments == 0) return Status::ok();
    bound_->scratchHalfBytes = endpoint_.options().scratchBytes;
    if (!schedule_.sharedScratch) {
      if (channel_.ownScratch == nullptr) {
        // Not initialised: pages that no schedule writes cost nothing.
        channel_.ownScratch.reset(new std::byte[2 * bound_->scratchHalfBytes]);
      }
      bound_->ownScratch = channel_.ownScratch.get();
      return Status::ok();
    }
    bound_->scratch.resize(static_cast<size_t>(endpoint_.ranks()));
    for (int rank = 0; rank < endpoint_.ranks(); ++rank) {
      bound_->scratch[static_cast<size_t>(rank)] = endpoint_.scratch(rank, channel_.channel);
    }
    bound_->ownScratch = endpoint_.scratch(endpoint_.rank(), channel_.channel);
    if (bound_->ownScratch == nullptr)
      return internalError("rank {} has no shared scratch", endpoint_.rank());
    return Status::ok();
  }

  Endpoint& endpoint_;
  ChannelState& channel_;
  const Schedule& schedule_;
  std::shared_ptr<BoundSchedule> bound_;
  bool usesFlags_ = false;
};

Result<std::shared_ptr<const BoundSchedule>> BoundSchedule::make(Endpoint& endpoint, ChannelState& channel,
                                                                 std::shared_ptr<const Schedule> schedule) {
  return Binder(endpoint, channel, std::move(schedule)).bind();
}

}  // namespace tutti
