// What each kind of step does in SymbolicMachine.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "algorithms/symbolic/machine.h"

namespace tutti {
namespace {

uint64_t streamKey(int32_t from, int32_t to, int32_t ranks, int32_t number) {
  return (static_cast<uint64_t>(from) * static_cast<uint64_t>(ranks) + static_cast<uint64_t>(to)) * 65536 +
         static_cast<uint64_t>(number);
}

}  // namespace

Accessor SymbolicMachine::accessor(size_t lane, const Step* step) const {
  const LaneState& state = lanes_[lane];
  return {state.rank, lane, state.call, state.slice, step};
}

void SymbolicMachine::receive(size_t lane, const Message& message) {
  order_.acquire(lane, message.clock);
  lanes_[lane].round = std::max(lanes_[lane].round, message.round + 1);
}

Status SymbolicMachine::messageStream(const LaneState& lane, const Affine& peer, int32_t port, bool sending,
                                      Stream** stream) {
  const Schedule& s = schedule(lane);
  const int32_t other = peer.at(lane.iteration);
  if (other < 0 || other >= ranks_) return internalError("there is no rank {}", other);
  if (other == lane.rank) return internalError("a rank has no connection to itself");
  if (port < 0 || port >= kMaxPorts) return internalError("port {} is not in 0 .. {}", port, kMaxPorts - 1);
  const bool ofMessages = port == kPointToPointPort || port == kVariableCountPort;
  if (ofMessages != (s.collective == Collective::sendRecv))
    return internalError("port {} is kept for {}", port,
                         ofMessages ? "point-to-point messages" : "collectives");
  const int32_t from = sending ? lane.rank : other;
  const int32_t to = sending ? other : lane.rank;
  *stream = &messages_[streamKey(from, to, ranks_, port)];
  int32_t& owner = sending ? (*stream)->sendOwner : (*stream)->receiveOwner;
  int32_t& call = sending ? (*stream)->sendCall : (*stream)->receiveCall;
  if (call == lane.call && owner != lane.number)
    return internalError("messages from rank {} to rank {} on port {} belong to lane {} already", from, to,
                         port, owner);
  call = lane.call;
  owner = lane.number;
  return Status::ok();
}

Status SymbolicMachine::flagStream(const LaneState& lane, int32_t peer, int32_t flag, bool raising,
                                   Stream** stream) {
  const Schedule& s = schedule(lane);
  if (peer < 0 || peer >= ranks_) return internalError("there is no rank {}", peer);
  if (flag < 0 || flag >= s.flags)
    return internalError("flag {} is not one of the {} declared", flag, s.flags);
  const int32_t from = raising ? lane.rank : peer;
  const int32_t to = raising ? peer : lane.rank;
  *stream = &flags_[streamKey(from, to, ranks_, flag)];
  int32_t& owner = raising ? (*stream)->sendOwner : (*stream)->receiveOwner;
  int32_t& call = raising ? (*stream)->sendCall : (*stream)->receiveCall;
  if (call == lane.call && owner != lane.number)
    return internalError("flag {} from rank {} to rank {} belongs to lane {} already", flag, from, to, owner);
  call = lane.call;
  owner = lane.number;
  return Status::ok();
}

Status SymbolicMachine::team(const LaneState& lane, int32_t number,
                             const std::vector<int32_t>** ranks) const {
  const Schedule& s = schedule(lane);
  if (number < 0 || static_cast<size_t>(number) >= s.teams.size())
    return internalError("there is no team {}", number);
  *ranks = &s.teams[static_cast<size_t>(number)];
  return Status::ok();
}

Status SymbolicMachine::execute(size_t lane, const Step& step, Outcome* outcome) {
  switch (step.kind) {
    case StepKind::copy:
    case StepKind::reduceLocal:
      return executeLocal(lane, step);
    case StepKind::reduceTeam:
      return reduceTeam(lane, step);
    case StepKind::signal:
      return executeSignal(lane, step);
    case StepKind::wait:
      return executeWait(lane, step, outcome);
    default:
      return executeMessage(lane, step, outcome);
  }
}

Status SymbolicMachine::executeMessage(size_t lane, const Step& step, Outcome* outcome) {
  LaneState& state = lanes_[lane];
  Stream* in = nullptr;
  Stream* out = nullptr;
  if (receives(step.kind)) TUTTI_TRY(messageStream(state, step.peerFrom, step.portFrom, false, &in));
  if (sends(step.kind)) TUTTI_TRY(messageStream(state, step.peerTo, step.portTo, true, &out));
  if (in != nullptr && in->queue.empty()) {
    in->waitingReceiver = static_cast<int32_t>(lane);
    state.blockedOn = fmt::format("waits for a message of rank {}", step.peerFrom.at(state.iteration));
    *outcome = Outcome::blocked;
    return Status::ok();
  }
  if (out != nullptr && out->queue.size() >= static_cast<size_t>(options_.fifoSlots)) {
    out->waitingSender = static_cast<int32_t>(lane);
    state.blockedOn = fmt::format("waits for a free slot to rank {}", step.peerTo.at(state.iteration));
    *outcome = Outcome::blocked;
    return Status::ok();
  }

  const auto count = static_cast<size_t>(movedSegments(step));
  if (count < 1 || movedSegments(step) > schedule(state).maxCount)
    return internalError("moves {} segments; maxCount is {}", movedSegments(step), schedule(state).maxCount);
  std::vector<Value> values;
  if (in != nullptr) {
    const Message message = std::move(in->queue.front());
    in->queue.pop_front();
    wake(in->waitingSender);
    if (message.call != state.call || message.slice != state.slice)
      return internalError("takes a message that was sent in call {} slice {}", message.call, message.slice);
    if (message.values.size() != count)
      return internalError("takes {} segments from a message of {}", count, message.values.size());
    receive(lane, message);
    if (counting(state)) counts_.memoryTraffic += static_cast<int64_t>(count);
    values = message.values;
  }
  const bool reduces = reducesMessage(step.kind);
  if (reduces || in == nullptr) {
    TUTTI_TRY(step.team >= 0 ? addTeam(lane, step, &values) : addOwn(lane, step, reduces, &values));
  }
  TUTTI_TRY(finalizeValues(lane, step, values));
  TUTTI_TRY(checkSizes(lane, step, values));
  if (writesDestination(step.kind)) {
    if (step.dst.rank != Affine(kSelf)) return internalError("message steps work on the own memory");
    TUTTI_TRY(storeResult(lane, step, values));
  }
  if (out == nullptr) return Status::ok();
  if (counting(state)) {
    counts_.sent[static_cast<size_t>(state.rank)] += static_cast<int64_t>(count);
    counts_.memoryTraffic += static_cast<int64_t>(count);
  }
  out->queue.push_back({std::move(values), order_.release(lane), state.round, state.call, state.slice});
  wake(out->waitingReceiver);
  return Status::ok();
}

/// Adds a step's own local operand to the values of its message, or takes it where there is none.
Status SymbolicMachine::addOwn(size_t lane, const Step& step, bool reduces, std::vector<Value>* values) {
  std::vector<Value> local;
  if (step.src.rank != Affine(kSelf)) return internalError("message steps work on the own memory");
  TUTTI_TRY(load(lane, step, step.src, lanes_[lane].rank, &local));
  if (!reduces) {
    *values = std::move(local);
    return Status::ok();
  }
  if (local.size() != values->size())
    return internalError("reduces {} segments with {}", local.size(), values->size());
  if (step.messageFirst) return combine(*values, local);
  TUTTI_TRY(combine(local, *values));
  *values = std::move(local);
  return Status::ok();
}

/// Adds what the ranks of the step's team hold to `values`, one after the other; empty values: their sum.
Status SymbolicMachine::addTeam(size_t lane, const Step& step, std::vector<Value>* values) {
  const std::vector<int32_t>* sources = nullptr;
  TUTTI_TRY(team(lanes_[lane], step.team, &sources));
  if (sources->empty()) return internalError("team {} is empty", step.team);
  if (!values->empty() && !step.messageFirst)
    return internalError("a message comes before the members of a team: set messageFirst");
  for (const int32_t source : *sources) {
    std::vector<Value> held;
    TUTTI_TRY(load(lane, step, step.src, source, &held));
    if (values->empty()) {
      *values = std::move(held);
    } else if (held.size() != values->size()) {
      return internalError("reduces {} segments with {}", held.size(), values->size());
    } else {
      TUTTI_TRY(combine(*values, held));
    }
  }
  return Status::ok();
}

/// Stores to the step's destination, at every rank of dstTeam where there is one.
Status SymbolicMachine::storeResult(size_t lane, const Step& step, const std::vector<Value>& values) {
  std::vector<int32_t> one(1);
  const std::vector<int32_t>* targets = &one;
  TUTTI_TRY(targetsOf(lanes_[lane], step, &one[0], &targets));
  for (const int32_t target : *targets) TUTTI_TRY(store(lane, step, step.dst, target, values));
  return Status::ok();
}

Status SymbolicMachine::executeSignal(size_t lane, const Step& step) {
  LaneState& state = lanes_[lane];
  const std::shared_ptr<const Clock> clock = order_.release(lane);
  const std::vector<int32_t> one = {step.peerTo.at(state.iteration)};
  const std::vector<int32_t>* targets = &one;
  if (step.team >= 0) TUTTI_TRY(team(state, step.team, &targets));
  for (const int32_t target : *targets) {
    if (step.team >= 0 && target == state.rank) continue;
    Stream* stream = nullptr;
    TUTTI_TRY(flagStream(state, target, step.flag, true, &stream));
    stream->queue.push_back({{}, clock, state.round, state.call, state.slice});
    wake(stream->waitingReceiver);
  }
  return Status::ok();
}

Status SymbolicMachine::executeWait(size_t lane, const Step& step, Outcome* outcome) {
  LaneState& state = lanes_[lane];
  const std::vector<int32_t> one = {step.peerFrom.at(state.iteration)};
  const std::vector<int32_t>* sources = &one;
  if (step.team >= 0) TUTTI_TRY(team(state, step.team, &sources));
  for (; state.teamDone < sources->size(); ++state.teamDone) {
    const int32_t source = (*sources)[state.teamDone];
    if (step.team >= 0 && source == state.rank) continue;
    Stream* stream = nullptr;
    TUTTI_TRY(flagStream(state, source, step.flag, false, &stream));
    if (stream->queue.empty()) {
      stream->waitingReceiver = static_cast<int32_t>(lane);
      state.blockedOn = fmt::format("waits for flag {} of rank {}", step.flag, source);
      *outcome = Outcome::blocked;
      return Status::ok();
    }
    const Message raise = std::move(stream->queue.front());
    stream->queue.pop_front();
    if (raise.call != state.call || raise.slice != state.slice)
      return internalError("takes a raise of flag {} by rank {} in call {} slice {}", step.flag, source,
                           raise.call, raise.slice);
    receive(lane, raise);
  }
  return Status::ok();
}

Status SymbolicMachine::executeLocal(size_t lane, const Step& step) {
  LaneState& state = lanes_[lane];
  int32_t srcOwner = 0;
  TUTTI_TRY(ownerOf(state, step.src, &srcOwner));
  if (step.src.count != step.dst.count)
    return internalError("moves {} segments to {}", step.src.count, step.dst.count);
  std::vector<int32_t> one(1);
  const std::vector<int32_t>* targets = &one;
  TUTTI_TRY(targetsOf(state, step, &one[0], &targets));
  for (const int32_t target : *targets) TUTTI_TRY(checkOverlap(state, step, srcOwner, target));
  if (step.kind == StepKind::copy && step.dstTeam < 0) {
    Place src;
    Place dst;
    TUTTI_TRY(placeOf(state, step.src, srcOwner, 0, &src));
    TUTTI_TRY(placeOf(state, step.dst, one[0], 0, &dst));
    const bool ontoItself = memory_.same(src, dst) && step.src.pattern == step.dst.pattern;
    if (ontoItself && !isReduction(schedule(state).collective) && !step.finalize) return Status::ok();
  }
  std::vector<Value> values;
  TUTTI_TRY(load(lane, step, step.src, srcOwner, &values));
  if (step.kind == StepKind::reduceLocal) {
    if (step.dstTeam >= 0 || one[0] != state.rank)
      return internalError("reduces into the memory of {}",
                           step.dstTeam >= 0 ? "a team" : "rank " + std::to_string(one[0]));
    std::vector<Value> left;
    TUTTI_TRY(load(lane, step, step.dst, state.rank, &left));
    TUTTI_TRY(combine(left, values));
    values = std::move(left);
  }
  TUTTI_TRY(finalizeValues(lane, step, values));
  TUTTI_TRY(checkSizes(lane, step, values));
  return storeResult(lane, step, values);
}

/// The ranks to whose memory the step stores: dstTeam, or `*one`.
Status SymbolicMachine::targetsOf(const LaneState& lane, const Step& step, int32_t* one,
                                  const std::vector<int32_t>** targets) const {
  if (step.dstTeam < 0) return ownerOf(lane, step.dst, one);
  TUTTI_TRY(team(lane, step.dstTeam, targets));
  if ((*targets)->empty()) return internalError("team {} is empty", step.dstTeam);
  return Status::ok();
}

Status SymbolicMachine::reduceTeam(size_t lane, const Step& step) {
  LaneState& state = lanes_[lane];
  const std::vector<int32_t>* sources = nullptr;
  TUTTI_TRY(team(state, step.team, &sources));
  if (step.src.count != step.dst.count)
    return internalError("moves {} segments to {}", step.src.count, step.dst.count);
  std::vector<Value> sum;
  TUTTI_TRY(addTeam(lane, step, &sum));
  TUTTI_TRY(finalizeValues(lane, step, sum));
  TUTTI_TRY(checkSizes(lane, step, sum));
  std::vector<int32_t> one(1);
  const std::vector<int32_t>* targets = &one;
  TUTTI_TRY(targetsOf(state, step, &one[0], &targets));
  for (const int32_t target : *targets)
    for (const int32_t source : *sources) TUTTI_TRY(checkOverlap(state, step, source, target));
  return storeResult(lane, step, sum);
}

Status SymbolicMachine::ownerOf(const LaneState& lane, const Location& location, int32_t* owner) const {
  *owner = location.rank == Affine(kSelf) ? lane.rank : location.rank.at(lane.iteration);
  if (*owner < 0 || *owner >= ranks_) return internalError("there is no rank {}", *owner);
  return Status::ok();
}

Status SymbolicMachine::placeOf(const LaneState& lane, const Location& location, int32_t owner, int32_t index,
                                Place* place) const {
  const Schedule& s = schedule(lane);
  const int32_t total = location.buffer == Buffer::scratch ? s.scratchSegments : s.segments();
  const int32_t first = location.segment.at(lane.iteration);
  *place = {location.buffer, owner, first};
  if (first < 0 || first >= total || location.count < 1 || location.count > total)
    return internalError("there is no {} (x {}): {} segments", toText(*place), location.count, total);
  place->segment = wrappedSegment(first, location.pattern, index, total);
  return Status::ok();
}

// A step reads and writes piece by piece, so its source and destination must be the same memory or disjoint.
Status SymbolicMachine::checkOverlap(const LaneState& lane, const Step& step, int32_t srcOwner,
                                     int32_t dstOwner) const {
  Place src;
  Place dst;
  TUTTI_TRY(placeOf(lane, step.src, srcOwner, 0, &src));
  TUTTI_TRY(placeOf(lane, step.dst, dstOwner, 0, &dst));
  const bool alike = step.src.pattern == step.dst.pattern;
  if (memory_.same(src, dst) && alike) return Status::ok();
  // Ranges of neighbours overlap where one begins within the other.
  const bool ranges = step.src.pattern.consecutive() && alike;
  for (int32_t i = 0; i < step.src.count; ++i) {
    TUTTI_TRY(placeOf(lane, step.src, srcOwner, i, &src));
    const bool first = i == 0;
    for (int32_t k = 0; k < (ranges && !first ? 1 : step.dst.count); ++k) {
      TUTTI_TRY(placeOf(lane, step.dst, dstOwner, k, &dst));
      if (memory_.same(src, dst)) return internalError("source and destination overlap at {}", toText(src));
    }
  }
  return Status::ok();
}

Status SymbolicMachine::load(size_t lane, const Step& step, const Location& location, int32_t owner,
                             std::vector<Value>* values) {
  const LaneState& state = lanes_[lane];
  values->resize(static_cast<size_t>(std::max(0, location.count)));
  for (int32_t i = 0; i < location.count; ++i) {
    Place place;
    TUTTI_TRY(placeOf(state, location, owner, i, &place));
    TUTTI_TRY(memory_.load(accessor(lane, &step), place, &(*values)[static_cast<size_t>(i)]));
  }
  if (counting(state)) {
    counts_.memoryTraffic += location.count;
    if (owner != state.rank) counts_.peerTraffic[static_cast<size_t>(state.rank)] += location.count;
  }
  return Status::ok();
}

Status SymbolicMachine::store(size_t lane, const Step& step, const Location& location, int32_t owner,
                              const std::vector<Value>& values) {
  const LaneState& state = lanes_[lane];
  if (values.size() != static_cast<size_t>(std::max(0, location.count)))
    return internalError("stores {} segments to {}", values.size(), location.count);
  for (int32_t i = 0; i < location.count; ++i) {
    Place place;
    TUTTI_TRY(placeOf(state, location, owner, i, &place));
    TUTTI_TRY(memory_.store(accessor(lane, &step), place, values[static_cast<size_t>(i)]));
  }
  if (counting(state)) {
    counts_.memoryTraffic += location.count;
    if (owner != state.rank) counts_.peerTraffic[static_cast<size_t>(state.rank)] += location.count;
  }
  return Status::ok();
}

Status SymbolicMachine::combine(std::vector<Value>& left, const std::vector<Value>& right) {
  for (size_t i = 0; i < left.size(); ++i) {
    Value& a = left[i];
    const Value& b = right[i];
    if (a.segment != b.segment || a.slice != b.slice || a.call != b.call)
      return internalError("reduces segment {} with segment {}", a.segment, b.segment);
    // A finalized operand holds every contribution, so that combine() finds one twice.
    TUTTI_ASSIGN(a.expression,
                 expressions_.combine(a.expression, b.expression).withContext("segment {}", a.segment));
  }
  return Status::ok();
}

Status SymbolicMachine::finalizeValues(size_t lane, const Step& step, std::vector<Value>& values) {
  const LaneState& state = lanes_[lane];
  const bool reduction = isReduction(schedule(state).collective);
  if (options_.infer) {
    const bool reduces = reducesMessage(step.kind) || step.kind == StepKind::reduceLocal;
    if (!reduction || !reduces) return Status::ok();
    const auto complete = [&](const Value& v) { return expressions_.containsAll(v.expression); };
    const bool all = std::ranges::all_of(values, complete);
    if (!all && std::ranges::any_of(values, complete))
      return internalError("completes some of its {} chunks and others not: split the step", values.size());
    inferred_[&step].finalize = all;
    return Status::ok();
  }
  if (!step.finalize) return Status::ok();
  if (!reduction) return internalError("finalize is for reductions");
  for (Value& value : values) {
    if (value.final) return internalError("finalizes segment {} twice", value.segment);
    if (!expressions_.containsAll(value.expression))
      return internalError("finalizes segment {} with only the contributions {}", value.segment,
                           expressions_.toText(value.expression));
    value.final = true;
  }
  return Status::ok();
}

// The executor moves as many bytes as the segment table gives for the step's data segment; they must be the
// bytes of what is really moved, since the segments of a buffer differ in size.
Status SymbolicMachine::checkSizes(size_t lane, const Step& step, const std::vector<Value>& values) {
  const LaneState& state = lanes_[lane];
  const Schedule& s = schedule(state);
  const SizeSegments sizes = sizeSegments(step);
  if (step.kind == StepKind::recvSend && sizes.first == Affine(kNoSegment)) return Status::ok();
  if (sizes.first == Affine(kNoSegment)) {
    if (!options_.infer) return internalError("nothing tells the size: set sizeAs");
    for (size_t i = 0; i < values.size(); ++i)
      if (values[i].segment != (values[0].segment + static_cast<int32_t>(i)) % s.segments())
        return internalError("moves chunks that are not consecutive: split the step");
    inferred_[&step].sizeAs = values[0].segment;
    return Status::ok();
  }
  const auto sizeClass = [&](int32_t segment) {
    return s.collective == Collective::allToAll ? segment % s.parts : segment;
  };
  for (size_t i = 0; i < values.size(); ++i) {
    const int32_t stated =
        wrappedSegment(sizes.first.at(state.iteration), sizes.pattern, static_cast<int32_t>(i), s.segments());
    if (sizeClass(stated) != sizeClass(values[i].segment))
      return internalError("moves segment {} with the size of segment {}", values[i].segment, stated);
  }
  return Status::ok();
}

}  // namespace tutti
