#include "algorithms/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

namespace tutti {
namespace {

constexpr size_t kSliceGranularity = 64;

Step& add(Lane& lane, StepKind kind) {
  if (lane.blocks.empty()) lane.loop(1);
  Step& step = lane.blocks.back().steps.emplace_back();
  step.kind = kind;
  return step;
}

bool isOther(const Affine& peer, int32_t rank) { return peer != Affine(kSelf) && peer != Affine(rank); }

bool teamHasOther(const Schedule& schedule, int team) {
  if (team < 0 || static_cast<size_t>(team) >= schedule.teams.size()) return false;
  return std::ranges::any_of(schedule.teams[static_cast<size_t>(team)],
                             [&](int32_t rank) { return rank != schedule.rank; });
}

bool touchesOthers(const Schedule& schedule, const Step& step) {
  switch (step.kind) {
    case StepKind::copy:
    case StepKind::reduceLocal:
      return isOther(step.src.rank, schedule.rank) || isOther(step.dst.rank, schedule.rank) ||
             teamHasOther(schedule, step.dstTeam);
    case StepKind::reduceTeam:
      return teamHasOther(schedule, step.team) || teamHasOther(schedule, step.dstTeam) ||
             isOther(step.dst.rank, schedule.rank);
    case StepKind::signal:
      return step.team >= 0 ? teamHasOther(schedule, step.team) : isOther(step.peerTo, schedule.rank);
    case StepKind::wait:
      return step.team >= 0 ? teamHasOther(schedule, step.team) : isOther(step.peerFrom, schedule.rank);
    default:
      return teamHasOther(schedule, step.team) || teamHasOther(schedule, step.dstTeam);
  }
}

std::string text(const Affine& affine) {
  std::string result = fmt::format("{}", affine.base);
  if (affine.stride == 1 || affine.stride == -1) {
    result += affine.stride > 0 ? "+i" : "-i";
  } else if (affine.stride != 0) {
    result += fmt::format("{:+}i", affine.stride);
  }
  if (affine.modulus > 0) result += fmt::format(" mod {}", affine.modulus);
  return result;
}

/// " by 4" or " in runs of 2 by 4"; nothing for consecutive segments.
std::string text(const Pattern& pattern) {
  if (pattern.consecutive()) return {};
  if (pattern.run == 1) return fmt::format(" by {}", pattern.stride);
  return fmt::format(" in runs of {} by {}", pattern.run, pattern.stride);
}

std::string text(const Location& location) {
  static constexpr std::array<const char*, 3> kNames = {"input", "output", "scratch"};
  std::string result =
      fmt::format("{}[{}]", kNames[static_cast<size_t>(location.buffer)], text(location.segment));
  if (location.count != 1) result += fmt::format(" x{}{}", location.count, text(location.pattern));
  if (location.rank != Affine(kSelf)) result += fmt::format(" @ rank {}", text(location.rank));
  return result;
}

std::string peer(const Affine& rank, int port) {
  return port == 0 ? fmt::format("rank {}", text(rank)) : fmt::format("rank {}:{}", text(rank), port);
}

/// What the step reads; of a team: "sum of input[2] @ team 0".
std::string source(const Step& step) {
  return step.team >= 0 ? fmt::format("sum of {} @ team {}", text(step.src), step.team) : text(step.src);
}

std::string destination(const Step& step) {
  return text(step.dst) + (step.dstTeam >= 0 ? fmt::format(" @ team {}", step.dstTeam) : "");
}

std::string operands(const Step& step) {
  const std::string message = peer(step.peerFrom, step.portFrom);
  const std::string local = source(step);
  return step.messageFirst ? message + " (+) " + local : local + " (+) " + message;
}

std::string body(const Step& step) {
  const std::string from = peer(step.peerFrom, step.portFrom);
  const std::string to = peer(step.peerTo, step.portTo);
  const std::string whom = step.team >= 0 ? fmt::format("team {}", step.team) : std::string();
  switch (step.kind) {
    case StepKind::send:
      return source(step) + " -> " + to;
    case StepKind::recv:
      return destination(step) + " <- " + from;
    case StepKind::recvReduce:
      return destination(step) + " = " + operands(step);
    case StepKind::recvReduceSend:
      return operands(step) + " -> " + to;
    case StepKind::recvCopySend:
      return destination(step) + " <- " + from + " -> " + to;
    case StepKind::recvReduceCopySend:
      return destination(step) + " = " + operands(step) + " -> " + to;
    case StepKind::recvSend:
      return from + " -> " + to;
    case StepKind::copy:
      return destination(step) + " = " + text(step.src);
    case StepKind::reduceLocal:
      return text(step.dst) + " (+)= " + text(step.src);
    case StepKind::reduceTeam:
      return destination(step) + " = " + source(step);
    case StepKind::signal:
      return fmt::format("flag {} -> {}", step.flag, step.team >= 0 ? whom : peer(step.peerTo, 0));
    case StepKind::wait:
      return fmt::format("flag {} <- {}", step.flag, step.team >= 0 ? whom : peer(step.peerFrom, 0));
  }
  return "?";
}

}  // namespace

Lane& Lane::loop(int32_t iterations) {
  blocks.push_back({std::max(0, iterations), {}});
  return *this;
}

Step& Lane::send(Affine peer, Location src, int port) {
  Step& step = add(*this, StepKind::send);
  step.src = src;
  step.peerTo = peer;
  step.portTo = static_cast<int16_t>(port);
  return step;
}

Step& Lane::recv(Affine peer, Location dst, int port) {
  Step& step = add(*this, StepKind::recv);
  step.dst = dst;
  step.peerFrom = peer;
  step.portFrom = static_cast<int16_t>(port);
  return step;
}

Step& Lane::recvReduce(Affine peer, Location src, Location dst, int port) {
  Step& step = recv(peer, dst, port);
  step.kind = StepKind::recvReduce;
  step.src = src;
  return step;
}

Step& Lane::recvReduceSend(Affine from, Location src, Affine to, int portFrom, int portTo) {
  Step& step = send(to, src, portTo);
  step.kind = StepKind::recvReduceSend;
  step.peerFrom = from;
  step.portFrom = static_cast<int16_t>(portFrom);
  return step;
}

Step& Lane::recvCopySend(Affine from, Location dst, Affine to, int portFrom, int portTo) {
  Step& step = recv(from, dst, portFrom);
  step.kind = StepKind::recvCopySend;
  step.peerTo = to;
  step.portTo = static_cast<int16_t>(portTo);
  return step;
}

Step& Lane::recvReduceCopySend(Affine from, Location src, Location dst, Affine to, int portFrom, int portTo) {
  Step& step = recvCopySend(from, dst, to, portFrom, portTo);
  step.kind = StepKind::recvReduceCopySend;
  step.src = src;
  return step;
}

Step& Lane::recvSend(Affine from, Affine to, int count, int portFrom, int portTo) {
  Location moved;
  moved.count = count;
  Step& step = recvCopySend(from, moved, to, portFrom, portTo);
  step.kind = StepKind::recvSend;
  return step;
}

Step& Lane::copy(Location src, Location dst) {
  Step& step = add(*this, StepKind::copy);
  step.src = src;
  step.dst = dst;
  return step;
}

Step& Lane::reduceLocal(Location src, Location dst) {
  Step& step = copy(src, dst);
  step.kind = StepKind::reduceLocal;
  return step;
}

Step& Lane::reduceTeam(int team, Location src, Location dst, int dstTeam) {
  Step& step = copy(src, dst);
  step.kind = StepKind::reduceTeam;
  step.team = static_cast<int16_t>(team);
  step.dstTeam = static_cast<int16_t>(dstTeam);
  return step;
}

Step& Lane::signal(Affine peer, int flag) {
  Step& step = add(*this, StepKind::signal);
  step.peerTo = peer;
  step.flag = static_cast<int16_t>(flag);
  return step;
}

Step& Lane::wait(Affine peer, int flag) {
  Step& step = add(*this, StepKind::wait);
  step.peerFrom = peer;
  step.flag = static_cast<int16_t>(flag);
  return step;
}

Step& Lane::signalTeam(int team, int flag) {
  Step& step = signal(0, flag);
  step.team = static_cast<int16_t>(team);
  return step;
}

Step& Lane::waitTeam(int team, int flag) {
  Step& step = wait(0, flag);
  step.team = static_cast<int16_t>(team);
  return step;
}

SizeSegments sizeSegments(const Step& step) {
  if (onlyOrders(step.kind)) return {};
  if (step.sizeAs != Affine(kNoSegment)) return {step.sizeAs, step.sizePattern};
  if (step.kind == StepKind::recvSend) return {};
  if (writesDestination(step.kind) && step.dst.buffer != Buffer::scratch)
    return {step.dst.segment, step.dst.pattern};
  if (readsSource(step.kind) && step.src.buffer != Buffer::scratch)
    return {step.src.segment, step.src.pattern};
  return {};
}

int32_t movedSegments(const Step& step) {
  switch (step.kind) {
    case StepKind::signal:
    case StepKind::wait:
      return 0;
    case StepKind::send:
    case StepKind::recvReduceSend:
      return step.src.count;
    default:
      return step.dst.count;
  }
}

int32_t Schedule::blocks() const {
  switch (collective) {
    case Collective::allReduce:
    case Collective::broadcast:
    case Collective::reduce:
    case Collective::sendRecv:
      return 1;
    default:
      return ranks;
  }
}

bool Schedule::needsMapped() const {
  if (ranks > 1 && (sharedScratch || sharedUserBuffers)) return true;
  for (const Lane& lane : lanes)
    for (const Block& block : lane.blocks)
      if (std::ranges::any_of(block.steps, [&](const Step& step) { return touchesOthers(*this, step); }))
        return true;
  return false;
}

size_t Schedule::maxSliceBytes(size_t slotBytes, size_t scratchBytes) const {
  size_t limit = std::numeric_limits<size_t>::max();
  if (maxCount > 0) limit = std::min(limit, slotBytes / static_cast<size_t>(maxCount));
  if (scratchSegments > 0) limit = std::min(limit, scratchBytes / static_cast<size_t>(scratchSegments));
  return limit == std::numeric_limits<size_t>::max() ? limit : limit / kSliceGranularity * kSliceGranularity;
}

Schedule tidy(Schedule schedule) {
  for (Lane& lane : schedule.lanes)
    std::erase_if(lane.blocks,
                  [](const Block& block) { return block.iterations <= 0 || block.steps.empty(); });
  std::erase_if(schedule.lanes, [](const Lane& lane) { return lane.blocks.empty(); });
  return schedule;
}

std::string toText(const Step& step) {
  std::string result = fmt::format("{:<18} {}", name(step.kind), body(step));
  if (step.sizeAs != Affine(kNoSegment))
    result += fmt::format("  sized as [{}]{}", text(step.sizeAs), text(step.sizePattern));
  if (step.finalize) result += "  final";
  return result;
}

std::string toText(const Schedule& schedule) {
  std::string result = fmt::format("{} {}, rank {} of {}", schedule.name, name(schedule.collective),
                                   schedule.rank, schedule.ranks);
  if (schedule.collective == Collective::broadcast || schedule.collective == Collective::reduce ||
      schedule.collective == Collective::gather || schedule.collective == Collective::scatter ||
      schedule.collective == Collective::sendRecv)
    result += fmt::format(", root {}", schedule.root);
  result += fmt::format(": {} segments", schedule.segments());
  if (schedule.scratchSegments > 0)
    result += fmt::format(", {} of {} scratch", schedule.scratchSegments,
                          schedule.sharedScratch ? "shared" : "private");
  result += "\n";
  for (size_t t = 0; t < schedule.teams.size(); ++t)
    result += fmt::format("team {}: ranks {}\n", t, fmt::join(schedule.teams[t], " "));
  for (size_t l = 0; l < schedule.lanes.size(); ++l) {
    result += fmt::format("lane {}\n", l);
    for (const Block& block : schedule.lanes[l].blocks) {
      const bool loops = block.iterations != 1;
      if (loops) result += fmt::format("  for i = 0 .. {}\n", block.iterations - 1);
      for (const Step& step : block.steps) result += (loops ? "    " : "  ") + toText(step) + "\n";
    }
  }
  return result;
}

bool isReduction(Collective collective) {
  return collective == Collective::allReduce || collective == Collective::reduceScatter ||
         collective == Collective::reduce;
}

bool hasRoot(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce ||
         collective == Collective::gather || collective == Collective::scatter;
}

const char* name(Collective collective) {
  switch (collective) {
    case Collective::allReduce:
      return "AllReduce";
    case Collective::allGather:
      return "AllGather";
    case Collective::reduceScatter:
      return "ReduceScatter";
    case Collective::broadcast:
      return "Broadcast";
    case Collective::reduce:
      return "Reduce";
    case Collective::allToAll:
      return "AlltoAll";
    case Collective::gather:
      return "Gather";
    case Collective::scatter:
      return "Scatter";
    case Collective::sendRecv:
      return "SendRecv";
  }
  return "?";
}

const char* name(StepKind kind) {
  switch (kind) {
    case StepKind::send:
      return "send";
    case StepKind::recv:
      return "recv";
    case StepKind::recvReduce:
      return "recvReduce";
    case StepKind::recvReduceSend:
      return "recvReduceSend";
    case StepKind::recvCopySend:
      return "recvCopySend";
    case StepKind::recvReduceCopySend:
      return "recvReduceCopySend";
    case StepKind::recvSend:
      return "recvSend";
    case StepKind::copy:
      return "copy";
    case StepKind::reduceLocal:
      return "reduceLocal";
    case StepKind::reduceTeam:
      return "reduceTeam";
    case StepKind::signal:
      return "signal";
    case StepKind::wait:
      return "wait";
  }
  return "?";
}

}  // namespace tutti
