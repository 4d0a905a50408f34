#include "algorithms/simulator/program.h"

#include <algorithm>
#include <cmath>

namespace tutti::sim {
namespace {

size_t teamSize(const Schedule& schedule, int team) {
  return team < 0 ? 1 : schedule.teams[static_cast<size_t>(team)].size();
}

}  // namespace

double movedShare(const Schedule& schedule, const Step& step) {
  return static_cast<double>(movedSegments(step)) / schedule.segments();
}

double localTraffic(const Schedule& schedule, const Step& step) {
  const double share = movedShare(schedule, step);
  const auto sources = static_cast<double>(teamSize(schedule, step.team));
  const auto results = static_cast<double>(teamSize(schedule, step.dstTeam));
  switch (step.kind) {
    case StepKind::copy:
      return 2 * share;
    case StepKind::reduceLocal:
      return 3 * share;
    case StepKind::reduceTeam:
      return (sources + results) * share;
    case StepKind::signal:
    case StepKind::wait:
      return 0;
    default:
      return (sources - 1 + results - 1) * share;
  }
}

double sliceCount(const Schedule& schedule, double bytes, double slotBytes) {
  const double largest = bytes / schedule.segments() * std::max(1, schedule.maxCount);
  return std::max(1.0, std::ceil(largest / slotBytes * (1 - 1e-12)));
}

double stepCount(const Schedule& schedule) {
  double steps = 0;
  for (const Lane& lane : schedule.lanes)
    for (const Block& block : lane.blocks)
      steps += static_cast<double>(block.iterations) * static_cast<double>(block.steps.size());
  return steps;
}

void ProgramBuilder::add(const std::vector<Schedule>& schedules, const ChannelShare& channel) {
  channel_ = static_cast<int32_t>(program_.channels.size());
  program_.channels.push_back(channel);
  for (const Schedule& schedule : schedules)
    for (const Lane& lane : schedule.lanes) {
      LaneOps& ops = program_.lanes.emplace_back();
      ops.rank = schedule.rank;
      ops.channel = channel_;
      ops.first = static_cast<uint32_t>(program_.ops.size());
      for (const Block& block : lane.blocks)
        for (int32_t i = 0; i < block.iterations; ++i)
          for (const Step& step : block.steps) addStep(schedule, step, i);
      ops.count = static_cast<uint32_t>(program_.ops.size()) - ops.first;
    }
}

uint32_t ProgramBuilder::streamOf(int32_t from, int32_t to, int32_t number, bool isFlag) {
  const uint64_t key = static_cast<uint64_t>(from) << 42 | static_cast<uint64_t>(to) << 20 |
                       static_cast<uint64_t>(channel_) << 8 | static_cast<uint64_t>(number) << 1 |
                       static_cast<uint64_t>(isFlag);
  const auto [found, isNew] = numbers_.try_emplace(key, static_cast<uint32_t>(program_.streams.size()));
  if (isNew) program_.streams.push_back({from, to, channel_});
  return found->second;
}

void ProgramBuilder::addPeers(const Schedule& schedule, const Step& step, int32_t i, bool raising, Op* op) {
  op->firstPeer = static_cast<uint32_t>(program_.peers.size());
  const auto add = [&](int32_t peer) {
    if (peer == kSelf) peer = schedule.rank;
    program_.peers.push_back(raising ? streamOf(schedule.rank, peer, step.flag, true)
                                     : streamOf(peer, schedule.rank, step.flag, true));
  };
  if (step.team < 0) {
    add((raising ? step.peerTo : step.peerFrom).at(i));
  } else {
    for (const int32_t peer : schedule.teams[static_cast<size_t>(step.team)])
      if (peer != schedule.rank) add(peer);
  }
  (raising ? op->raises : op->waits) = static_cast<uint32_t>(program_.peers.size()) - op->firstPeer;
}

void ProgramBuilder::addStep(const Schedule& schedule, const Step& step, int32_t i) {
  Op op;
  op.traffic = localTraffic(schedule, step);
  if (step.kind == StepKind::signal || step.kind == StepKind::wait) {
    addPeers(schedule, step, i, step.kind == StepKind::signal, &op);
  } else if (receives(step.kind) || sends(step.kind)) {
    op.share = movedShare(schedule, step);
    if (receives(step.kind))
      op.receives = static_cast<int32_t>(streamOf(step.peerFrom.at(i), schedule.rank, step.portFrom, false));
    if (sends(step.kind))
      op.sends = static_cast<int32_t>(streamOf(schedule.rank, step.peerTo.at(i), step.portTo, false));
    if (reducesMessage(step.kind)) op.reduced = op.share;
  }
  program_.ops.push_back(op);
}

}  // namespace tutti::sim
