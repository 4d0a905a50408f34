#include "algorithms/symbolic/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

int32_t mostLanes(const std::vector<const ScheduleSet*>& calls) {
  size_t most = 1;
  for (const ScheduleSet* set : calls)
    for (const Schedule& schedule : *set) most = std::max(most, schedule.lanes.size());
  return static_cast<int32_t>(most);
}

/// One lane a rank and no memory of others: nothing can race.
bool canRace(const std::vector<const ScheduleSet*>& calls) {
  for (const ScheduleSet* set : calls)
    for (const Schedule& schedule : *set)
      if (schedule.lanes.size() > 1 || schedule.needsMapped()) return true;
  return false;
}

bool touchesScratch(const Lane& lane) {
  const auto touches = [](const Step& step) {
    return movedSegments(step) > 0 &&
           (step.src.buffer == Buffer::scratch || step.dst.buffer == Buffer::scratch);
  };
  return std::ranges::any_of(lane.blocks,
                             [&](const Block& block) { return std::ranges::any_of(block.steps, touches); });
}

}  // namespace

SymbolicMachine::SymbolicMachine(std::vector<const ScheduleSet*> calls, const MachineOptions& options)
    : calls_(std::move(calls)),
      options_(options),
      ranks_(static_cast<int32_t>(calls_[0]->size())),
      lanesPerRank_(mostLanes(calls_)),
      expressions_(ranks_),
      order_(static_cast<size_t>(ranks_) * static_cast<size_t>(lanesPerRank_), canRace(calls_)),
      memory_({ranks_, options.slices, options.scratchHalves, lanesPerRank_, options.inPlace}, order_),
      lanes_(static_cast<size_t>(ranks_) * static_cast<size_t>(lanesPerRank_)),
      running_(static_cast<size_t>(ranks_), 0),
      callOf_(static_cast<size_t>(ranks_), 0),
      agreed_(calls_.size()) {
  counts_.sent.assign(static_cast<size_t>(ranks_), 0);
  counts_.peerTraffic.assign(static_cast<size_t>(ranks_), 0);
  for (size_t i = 0; i < lanes_.size(); ++i) {
    lanes_[i].rank = static_cast<int32_t>(i) / lanesPerRank_;
    lanes_[i].number = static_cast<int32_t>(i) % lanesPerRank_;
    lanes_[i].sliceBegan.assign(calls_.size() * static_cast<size_t>(options_.slices), 0);
  }
}

const Schedule& SymbolicMachine::schedule(const LaneState& lane) const {
  return (*calls_[static_cast<size_t>(lane.call)])[static_cast<size_t>(lane.rank)];
}

Status SymbolicMachine::located(const LaneState& lane, const Step& step, const Status& status) const {
  const Schedule& s = schedule(lane);
  std::string where =
      fmt::format("call {}: {} {}, rank {} of {}, lane {}, slice {}, \"{}\"", lane.call, s.name,
                  name(s.collective), lane.rank, ranks_, lane.number, lane.slice, toText(step));
  if (s.lanes[static_cast<size_t>(lane.number)].blocks[lane.block].iterations > 1)
    where += fmt::format(" (i = {})", lane.iteration);
  return status.withContext("{}", where);
}

void SymbolicMachine::wake(int32_t& lane) {
  if (lane < 0) return;
  ready_.push_back(static_cast<size_t>(lane));
  lane = -1;
}

Status SymbolicMachine::run() {
  findTurnoverLanes();
  for (int32_t rank = 0; rank < ranks_; ++rank) TUTTI_TRY(beginCall(rank, 0));
  while (!ready_.empty()) {
    const size_t lane = ready_.back();
    ready_.pop_back();
    TUTTI_TRY(advance(lane));
  }
  return finish();
}

Status SymbolicMachine::beginCall(int32_t rank, int32_t call) {
  const size_t first = static_cast<size_t>(rank * lanesPerRank_);
  order_.join(first, static_cast<size_t>(lanesPerRank_));
  // A rank without a part in this call goes straight to the next.
  for (; call < static_cast<int32_t>(calls_.size()); ++call) {
    callOf_[static_cast<size_t>(rank)] = call;
    const Schedule& s = (*calls_[static_cast<size_t>(call)])[static_cast<size_t>(rank)];
    memory_.beginCall(s, call);
    running_[static_cast<size_t>(rank)] = static_cast<int32_t>(s.lanes.size());
    for (size_t l = 0; l < s.lanes.size(); ++l) {
      LaneState& lane = lanes_[first + l];
      lane.call = call;
      lane.slice = 0;
      lane.round = 0;
      lane.running = true;
      lane.usesScratch = touchesScratch(s.lanes[l]);
      beginSlice(first + l);
      ready_.push_back(first + l);
    }
    if (!s.lanes.empty()) return Status::ok();
    TUTTI_TRY(memory_.endCall(rank));
    if (!options_.infer) TUTTI_TRY(checkResults(rank, s, call));
  }
  callOf_[static_cast<size_t>(rank)] = call;
  return Status::ok();
}

Status SymbolicMachine::endCall(int32_t rank) {
  const size_t first = static_cast<size_t>(rank * lanesPerRank_);
  const int32_t call = lanes_[first].call;
  const Schedule& s = schedule(lanes_[first]);
  order_.join(first, static_cast<size_t>(lanesPerRank_));
  TUTTI_TRY(checkTurnover(first, true));
  TUTTI_TRY(memory_.endCall(rank).withContext("call {}: {} {}", call, s.name, name(s.collective)));
  if (!options_.infer) TUTTI_TRY(checkResults(rank, s, call));
  return beginCall(rank, call + 1);
}

void SymbolicMachine::beginSlice(size_t lane) {
  LaneState& state = lanes_[lane];
  state.block = state.step = 0;
  state.iteration = 0;
  state.teamDone = 0;
  order_.tick(lane);
  state.sliceBegan[static_cast<size_t>(state.call * options_.slices + state.slice)] = order_.time(lane);
}

Status SymbolicMachine::advance(size_t lane) {
  LaneState& state = lanes_[lane];
  while (state.running) {
    const Lane& program = schedule(state).lanes[static_cast<size_t>(state.number)];
    const Block& block = program.blocks[state.block];
    const Step& step = block.steps[state.step];
    Outcome outcome = Outcome::done;
    if (const Status status = execute(lane, step, &outcome); !status.isOk())
      return located(state, step, status);
    if (outcome == Outcome::blocked) return Status::ok();
    order_.tick(lane);
    state.teamDone = 0;
    if (++state.step < block.steps.size()) continue;
    state.step = 0;
    if (++state.iteration < block.iterations) continue;
    state.iteration = 0;
    if (++state.block < program.blocks.size()) continue;
    state.block = program.blocks.size() - 1;  // for error texts
    TUTTI_TRY(endSlice(lane));
  }
  return Status::ok();
}

Status SymbolicMachine::endSlice(size_t lane) {
  LaneState& state = lanes_[lane];
  if (counting(state)) counts_.rounds = std::max(counts_.rounds, state.round);
  if (state.usesScratch) TUTTI_TRY(checkTurnover(lane, false));
  if (++state.slice < options_.slices) {
    beginSlice(lane);
    return Status::ok();
  }
  state.running = false;
  --state.slice;
  if (--running_[static_cast<size_t>(state.rank)] > 0) return Status::ok();
  return endCall(state.rank);
}

// A rank that does not touch scratch in a call must still not run ahead, since the next call may make it: its
// first lane stands for it.
void SymbolicMachine::findTurnoverLanes() {
  for (const ScheduleSet* set : calls_) {
    std::vector<size_t>& found = turnoverLanes_.emplace_back();
    for (const Schedule& s : *set) {
      if (!s.sharedScratch) continue;
      const size_t first = static_cast<size_t>(s.rank * lanesPerRank_);
      const size_t before = found.size();
      for (size_t l = 0; l < s.lanes.size(); ++l)
        if (touchesScratch(s.lanes[l])) found.push_back(first + l);
      if (found.size() == before) found.push_back(first);
    }
  }
}

// The one-directional barrier that Buffer::scratch promises for schedules that share scratch.
Status SymbolicMachine::checkTurnover(size_t lane, bool atCallEnd) {
  const LaneState& state = lanes_[lane];
  const Schedule& mine = schedule(state);
  if (!mine.sharedScratch || !order_.enabled()) return Status::ok();
  const int32_t slice = atCallEnd ? options_.slices - 1 : state.slice;
  const auto run = static_cast<size_t>(state.call * options_.slices + slice);
  for (const size_t otherLane : turnoverLanes_[static_cast<size_t>(state.call)]) {
    const LaneState& other = lanes_[otherLane];
    if (other.sliceBegan[run] != 0 && order_.seen(lane, otherLane, other.sliceBegan[run])) continue;
    return internalError(
        "call {}: {} {}: rank {} lane {} ends slice {} without knowing that rank {} lane {} has begun it, so "
        "the run "
        "after the next could overwrite scratch that is still read",
        state.call, mine.name, name(mine.collective), state.rank, state.number, slice, other.rank,
        other.number);
  }
  return Status::ok();
}

Status SymbolicMachine::finish() const {
  std::string stuck;
  int32_t count = 0;
  for (const LaneState& lane : lanes_) {
    if (!lane.running) continue;
    if (++count > 4) continue;
    const Lane& program = schedule(lane).lanes[static_cast<size_t>(lane.number)];
    stuck += fmt::format("; rank {} lane {} slice {} \"{}\" {}", lane.rank, lane.number, lane.slice,
                         toText(program.blocks[lane.block].steps[lane.step]), lane.blockedOn);
  }
  if (count > 0) {
    const auto stuckLane = std::ranges::find_if(lanes_, [](const LaneState& lane) { return lane.running; });
    const Schedule& s = schedule(*stuckLane);
    return internalError(
        "call {}: {} {} on {} ranks: deadlock with {} FIFO slots, {} lanes wait for each other{}",
        stuckLane->call, s.name, name(s.collective), ranks_, options_.fifoSlots, count, stuck);
  }
  const auto describe = [&](const char* what, uint64_t key, const Stream& stream) {
    return internalError(
        "call {}: {} {} of rank {} for rank {} on number {} {} never taken", stream.queue.front().call,
        stream.queue.size(), what, key / 65536 / static_cast<uint64_t>(ranks_),
        key / 65536 % static_cast<uint64_t>(ranks_), key % 65536, stream.queue.size() == 1 ? "is" : "are");
  };
  for (const auto& [key, stream] : messages_)
    if (!stream.queue.empty()) return describe("message(s)", key, stream);
  for (const auto& [key, stream] : flags_)
    if (!stream.queue.empty()) return describe("raise(s) of a flag", key, stream);
  return Status::ok();
}

Status SymbolicMachine::checkResults(int32_t rank, const Schedule& s, int32_t call) {
  if (s.collective == Collective::sendRecv) {
    // The receiver is the rank that takes part and does not send; a message to oneself is a copy at the root.
    const ScheduleSet& set = *calls_[static_cast<size_t>(call)];
    const bool alone = std::ranges::all_of(
        set, [&](const Schedule& other) { return other.rank == s.root || other.lanes.empty(); });
    if (s.lanes.empty() || (rank == s.root && !alone)) return Status::ok();
  }
  for (int32_t segment = 0; segment < s.segments(); ++segment) {
    if (!SymbolicMemory::exists(s, {Buffer::output, rank, segment})) continue;
    for (int32_t slice = 0; slice < options_.slices; ++slice)
      TUTTI_TRY(checkResult(s, call, segment, slice)
                    .withContext("call {}: {} {}, rank {} of {}, slice {}, result output[{}]", call, s.name,
                                 name(s.collective), rank, ranks_, slice, segment));
  }
  return Status::ok();
}

Status SymbolicMachine::checkResult(const Schedule& s, int32_t call, int32_t segment, int32_t slice) {
  const Value& value = memory_.output(s.rank, segment, slice);
  if (!value.written()) return internalError("was never written");
  if (value.call != call || value.slice != slice)
    return internalError("holds data of call {} slice {}", value.call, value.slice);
  const int32_t block = segment / s.parts;
  const bool toAll = s.collective == Collective::allToAll;
  const int32_t expected = toAll ? s.rank * s.parts + segment % s.parts : segment;
  if (value.segment != expected)
    return internalError("holds input segment {} where {} belongs", value.segment, expected);
  if (!isReduction(s.collective)) {
    const bool byBlock = s.blocks() > 1 && s.collective != Collective::scatter;
    const int32_t source = byBlock ? block : s.root;
    if (value.expression != source)
      return internalError("holds data of rank {} where that of rank {} belongs", value.expression, source);
    return Status::ok();
  }
  if (value.raw) return internalError("still holds the raw input");
  if (!expressions_.containsAll(value.expression))
    return internalError("holds only the contributions {}", expressions_.toText(value.expression));
  if (!value.final) return internalError("was never finalized");
  if (call == 0) resultDepth_ = std::max(resultDepth_, expressions_.depth(value.expression));
  if (call == 0 && resultExpression_ < 0) resultExpression_ = value.expression;
  if (s.collective != Collective::allReduce || !options_.requireIdenticalResults) return Status::ok();
  std::vector<int32_t>& agreed = agreed_[static_cast<size_t>(call)];
  if (agreed.empty()) agreed.assign(static_cast<size_t>(s.segments() * options_.slices), -1);
  int32_t& first = agreed[static_cast<size_t>(slice * s.segments() + segment)];
  if (first < 0) first = value.expression;
  if (first != value.expression)
    return internalError(
        "is reduced as {}, but another rank reduces {}: results could differ in their last bits "
        "(messageFirst "
        "in one of the two ranks' steps swaps the operands)",
        expressions_.toText(value.expression), expressions_.toText(first));
  return Status::ok();
}

}  // namespace tutti
