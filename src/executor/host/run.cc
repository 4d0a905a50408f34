#include "executor/host/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "executor/host/host_executor.h"

namespace tutti {

Status HostRun::reset(std::span<const Launch> launches) {
  state_ = State::progressed;
  status_ = Status::ok();
  launchCount_ = launches.size();
  if (launches_.size() < launchCount_) launches_.resize(launchCount_);
  lanes_.clear();
  tickets_.clear();
  active_.clear();
  for (size_t i = 0; i < launchCount_; ++i) {
    TUTTI_TRY(resetLaunch(launches[i], &launches_[i]));
    active_.push_back(static_cast<uint32_t>(i));
  }
  // Nothing can fail any more: draw the tickets, which bind the launches into the order of the channels.
  for (size_t i = 0; i < launchCount_; ++i) beginLanes(&launches_[i]);
  if (launchCount_ == 0) state_ = State::done;
  return Status::ok();
}

Status HostRun::resetLaunch(const Launch& launch, LaunchState* state) {
  TUTTI_ASSIGN(const auto* bound, executor_->bind(launch));
  if (state->bound != *bound) state->bound = *bound;
  const Schedule& schedule = state->bound->schedule();
  const CallShape& shape = launch.shape;
  if (shape.collective != schedule.collective || shape.ranks != schedule.ranks ||
      shape.parts != schedule.parts || shape.root != schedule.root) {
    return internalError("rank {}: schedule {} is not made for this call's shape", schedule.rank,
                         schedule.name);
  }
  if (shape.sliceBytes > state->bound->maxSliceBytes() || shape.sliceBytes < shape.elementBytes) {
    return internalError("rank {}: slices of {} bytes with schedule {}, which allows {}", schedule.rank,
                         shape.sliceBytes, schedule.name, state->bound->maxSliceBytes());
  }
  const auto ranks = static_cast<size_t>(schedule.ranks);
  if ((!launch.peerInput.empty() && launch.peerInput.size() != ranks) ||
      (!launch.peerOutput.empty() && launch.peerOutput.size() != ranks) ||
      (state->bound->needsPeerInput() && launch.peerInput.empty()) ||
      (state->bound->needsPeerOutput() && launch.peerOutput.empty())) {
    return internalError("rank {}: schedule {} needs the addresses of {} ranks' buffers", schedule.rank,
                         schedule.name, ranks);
  }
  if (!(state->table.shape() == shape)) state->table = SegmentTable(shape);
  if (state->bound->reduces()) {
    if (elementBytes(launch.reduction.type) != shape.elementBytes) {
      return internalError("rank {}: elements of {} bytes where the type has {}", schedule.rank,
                           shape.elementBytes, elementBytes(launch.reduction.type));
    }
    state->reducer = Reducer(launch.reduction, executor_->options().target);
  } else {
    state->reducer = Reducer({Reduction::max, ncclUint8}, executor_->options().target);
  }
  state->input = static_cast<std::byte*>(const_cast<void*>(launch.input));  // only read
  state->output = static_cast<std::byte*>(launch.output);
  state->peerInput = launch.peerInput;
  state->peerOutput = launch.peerOutput;
  state->channel = launch.channel;
  state->stream = state->table.bufferBytes(Buffer::output, schedule.rank) >= executor_->options().streamBytes;
  const auto team = static_cast<size_t>(state->bound->widestTeam()) + 1;  // and a message, or a slot
  if (sources_.size() < team) {
    sources_.resize(team);
    destinations_.resize(team);
  }
  return Status::ok();
}

void HostRun::beginLanes(LaunchState* launch) {
  const BoundSchedule& bound = *launch->bound;
  launch->firstTicket = static_cast<uint32_t>(tickets_.size());
  for (OrderedResource* resource : bound.resources) tickets_.push_back(resource->issued++);
  ChannelState& channel = *executor_->channels_[static_cast<size_t>(launch->channel)];
  launch->firstParity = 0;
  if (bound.schedule().sharedScratch) {
    launch->firstParity = channel.sharedSlices;
    channel.sharedSlices += launch->table.slices();
  }
  launch->started = false;
  launch->firstLane = static_cast<uint32_t>(lanes_.size());
  launch->lanesLeft = static_cast<uint32_t>(bound.lanes.size());
  for (const BoundLane& lane : bound.lanes) {
    LaneState& state = lanes_.emplace_back();
    state.block = lane.firstBlock;
    state.step = bound.blocks[lane.firstBlock].firstStep;
  }
}

bool HostRun::isTurnOf(const LaunchState& launch) const {
  const uint64_t* ticket = tickets_.data() + launch.firstTicket;
  for (const OrderedResource* resource : launch.bound->resources) {
    if (resource->completed != *ticket++) return false;
  }
  return true;
}

void HostRun::finishLaunch(const LaunchState& launch) {
  for (OrderedResource* resource : launch.bound->resources) ++resource->completed;
}

HostRun::State HostRun::fail(Status status) {
  status_ = std::move(status);
  // Peers wait for what this rank will not send any more.
  executor_->faults().raise(status_);
  return state_ = State::failed;
}

HostRun::State HostRun::advance(size_t byteBudget) {
  if (state_ == State::done || state_ == State::failed) return state_;
  if (executor_->faults().stopped()) {
    status_ = executor_->faults().error();
    return state_ = State::failed;
  }
  executor_->takeConnections();
  bool moved = executor_->endpoint().progress();
  budgetLeft_ = std::min(byteBudget, kMostBytes);
  size_t kept = 0;
  for (size_t a = 0; a < active_.size(); ++a) {
    LaunchState& launch = launches_[active_[a]];
    if (launch.started || isTurnOf(launch)) {
      launch.started = true;
      const auto lanes = static_cast<uint32_t>(launch.bound->lanes.size());
      for (uint32_t l = 0; l < lanes; ++l) {
        LaneState& lane = lanes_[launch.firstLane + l];
        if (lane.done) continue;
        if (advanceLane(launch, &lane, &moved) == StepResult::failed) return state_;
        if (lane.done) --launch.lanesLeft;
      }
      if (launch.lanesLeft == 0) {
        finishLaunch(launch);
        moved = true;
        continue;
      }
    }
    active_[kept++] = active_[a];
  }
  active_.resize(kept);
  if (active_.empty()) return state_ = State::done;
  return state_ = moved ? State::progressed : State::waiting;
}

std::string HostRun::position() const {
  std::string text;
  for (const uint32_t number : active_) {
    const LaunchState& launch = launches_[number];
    if (!text.empty()) text += "; ";
    if (!launch.started) {
      text += fmt::format("{} channel {} waits for an earlier call", launch.bound->schedule().name,
                          launch.channel);
      continue;
    }
    bool first = true;
    for (size_t l = 0; l < launch.bound->lanes.size(); ++l) {
      const LaneState& lane = lanes_[launch.firstLane + l];
      if (lane.done) continue;
      if (!first) text += ", ";
      text += first ? fmt::format("{} channel {} lane {} ", launch.bound->schedule().name, launch.channel, l)
                    : fmt::format("lane {} ", l);
      text += describe(launch, lane);
      first = false;
    }
  }
  return text;
}

std::string HostRun::describe(const LaunchState& launch, const LaneState& lane) const {
  const BoundSchedule& bound = *launch.bound;
  const BoundStep& step = bound.steps[lane.step];
  const BoundBlock& block = bound.blocks[lane.block];
  std::string text = fmt::format("slice {} step {}", lane.slice, lane.step - block.firstStep);
  if (block.iterations > 1) text += fmt::format(" iteration {}", lane.iteration);
  text += fmt::format(" {}", name(step.kind));
  if (step.kind == StepKind::wait) {
    const uint32_t first = step.table + (step.perIteration ? static_cast<uint32_t>(lane.iteration) : 0);
    const uint32_t at = std::min(lane.raised, step.tableCount == 0 ? 0 : step.tableCount - 1);
    if (step.tableCount > 0) text += fmt::format(" for rank {}", bound.waits[first + at].rank);
  }
  if (step.receives) text += fmt::format(" from rank {}", step.text->peerFrom.at(lane.iteration));
  if (step.sends) text += fmt::format(" to rank {}", step.text->peerTo.at(lane.iteration));
  return text;
}

void HostRun::waits(std::vector<Wait>* found, size_t most) const {
  for (const uint32_t number : active_) {
    const LaunchState& launch = launches_[number];
    if (!launch.started) continue;  // waits for another launch, which has its own entry
    for (size_t l = 0; l < launch.bound->lanes.size() && found->size() < most; ++l)
      if (!lanes_[launch.firstLane + l].done) found->push_back(waitOf(launch, l));
  }
}

HostRun::Wait HostRun::waitOf(const LaunchState& launch, size_t laneNumber) const {
  const BoundSchedule& bound = *launch.bound;
  const LaneState& lane = lanes_[launch.firstLane + laneNumber];
  const BoundStep& step = bound.steps[lane.step];
  Wait wait;
  wait.slice = lane.slice + 1;
  wait.slices = launch.table.slices();
  const BoundLane& program = bound.lanes[laneNumber];
  for (uint32_t b = program.firstBlock; b < program.firstBlock + program.blockCount; ++b) {
    const BoundBlock& block = bound.blocks[b];
    if (b == lane.block)
      wait.step = wait.steps + static_cast<uint64_t>(lane.iteration) * block.stepCount +
                  (lane.step - block.firstStep) + 1;
    wait.steps += static_cast<uint64_t>(block.iterations) * block.stepCount;
  }
  if (step.kind == StepKind::wait) {
    const uint32_t first = step.table + (step.perIteration ? static_cast<uint32_t>(lane.iteration) : 0);
    wait.what = Wait::For::signal;
    if (lane.raised < step.tableCount) wait.peer = bound.waits[first + lane.raised].rank;
    return wait;
  }
  uint32_t bytes = 0;
  const auto iteration = static_cast<uint32_t>(lane.iteration);
  if (step.receives &&
      bound.receivers[step.receiver + (step.receiverVaries ? iteration : 0)]->tryPeek(&bytes) == nullptr) {
    wait.peer = step.text->peerFrom.at(lane.iteration);
    return wait;
  }
  if (step.sends) {
    wait.what = Wait::For::room;
    wait.peer = step.text->peerTo.at(lane.iteration);
  }
  return wait;
}

}  // namespace tutti
