#include "algorithms/checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace tutti {
namespace {

Status checkTeams(const Schedule& s) {
  for (size_t t = 0; t < s.teams.size(); ++t) {
    std::set<int32_t> seen;
    for (const int32_t rank : s.teams[t]) {
      if (rank < 0 || rank >= s.ranks) return internalError("team {} names rank {}", t, rank);
      if (!seen.insert(rank).second) return internalError("team {} names rank {} twice", t, rank);
    }
  }
  return Status::ok();
}

/// No segment comes twice among `count` of `total` that follow a pattern.
Status checkPattern(const Pattern& pattern, int32_t count, int32_t total) {
  if (pattern.consecutive() || count < 1 || count > total) return Status::ok();  // counts: when they are used
  if (pattern.run < 1 || pattern.stride < -total || pattern.stride > total)
    return internalError("runs of {} with a stride of {}, of {} segments", pattern.run, pattern.stride,
                         total);
  std::vector<bool> seen(static_cast<size_t>(total));
  for (int32_t k = 0; k < count; ++k) {
    const auto segment = static_cast<size_t>(wrappedSegment(0, pattern, k, total));
    if (seen[segment])
      return internalError("{} segments in runs of {} with a stride of {}, of {}: one comes twice", count,
                           pattern.run, pattern.stride, total);
    seen[segment] = true;
  }
  return Status::ok();
}

Status checkPatterns(const Schedule& s, const Step& step) {
  const auto total = [&](Buffer buffer) {
    return buffer == Buffer::scratch ? s.scratchSegments : s.segments();
  };
  TUTTI_TRY(checkPattern(step.src.pattern, step.src.count, total(step.src.buffer)));
  TUTTI_TRY(checkPattern(step.dst.pattern, step.dst.count, total(step.dst.buffer)));
  return checkPattern(step.sizePattern, movedSegments(step), s.segments());
}

Status checkForm(const Schedule& s) {
  if (s.parts < 1) return internalError("{} parts", s.parts);
  if (s.flags < 0 || s.flags > kMaxFlags) return internalError("{} flags; {} exist", s.flags, kMaxFlags);
  if (s.scratchSegments < 0 || s.maxCount < 0) return internalError("negative scratchSegments or maxCount");
  if (s.root < 0 || s.root >= s.ranks) return internalError("root {} of {} ranks", s.root, s.ranks);
  for (size_t l = 0; l < s.lanes.size(); ++l) {
    if (s.lanes[l].blocks.empty()) return internalError("lane {} is empty", l);
    for (const Block& block : s.lanes[l].blocks) {
      if (block.iterations < 1 || block.steps.empty())
        return internalError("lane {} has a block that runs no step (see tidy())", l);
      for (const Step& step : block.steps)
        TUTTI_TRY(checkPatterns(s, step).withContext("lane {}, \"{}\"", l, toText(step)));
    }
  }
  return checkTeams(s);
}

bool agree(const Schedule& a, const Schedule& b) {
  return a.name == b.name && a.collective == b.collective && a.ranks == b.ranks && a.root == b.root &&
         a.parts == b.parts && a.maxCount == b.maxCount && a.scratchSegments == b.scratchSegments &&
         a.sharedScratch == b.sharedScratch;
}

Status checkSet(const ScheduleSet& set) {
  if (set.empty()) return internalError("no schedules");
  for (size_t r = 0; r < set.size(); ++r) {
    const Schedule& s = set[r];
    if (s.ranks != static_cast<int32_t>(set.size()) || s.rank != static_cast<int32_t>(r))
      return internalError("{} {}: schedule number {} of {} is for rank {} of {}", s.name, name(s.collective),
                           r, set.size(), s.rank, s.ranks);
    if (!agree(s, set[0]))
      return internalError("{} {}: ranks 0 and {} differ in a number that must be the same on all ranks",
                           s.name, name(s.collective), r);
    TUTTI_TRY(checkForm(s).withContext("{} {}, rank {} of {}", s.name, name(s.collective), r, s.ranks));
  }
  return Status::ok();
}

Certificate certify(const ScheduleSet& set, const SymbolicMachine& machine) {
  const Schedule& s = set[0];
  const double whole = s.segments();
  const MachineCounts& counts = machine.counts();
  Certificate certificate;
  certificate.algorithm = s.name;
  certificate.collective = s.collective;
  certificate.ranks = s.ranks;
  certificate.rounds = counts.rounds;
  certificate.sent = static_cast<double>(std::ranges::max(counts.sent)) / whole;
  certificate.sentBound = sentBound(s.collective, s.ranks);
  certificate.peerTraffic = static_cast<double>(std::ranges::max(counts.peerTraffic)) / whole;
  certificate.memoryTraffic = static_cast<double>(counts.memoryTraffic) / whole;
  certificate.reductionDepth = machine.resultDepth();
  if (machine.resultExpression() >= 0)
    certificate.reductionOrder = machine.expressions().toText(machine.resultExpression());
  return certificate;
}

/// An AllToAll that lets peers read the users' inputs cannot keep them while outputs come in; whoever plans
/// calls in place must not choose it.
bool canBeInPlace(const Schedule& schedule) {
  if (schedule.collective == Collective::allToAll) return !schedule.sharedUserBuffers;
  return schedule.collective != Collective::sendRecv;
}

}  // namespace

double sentBound(Collective collective, int32_t ranks) {
  if (ranks == 1) return 0;
  const double share = static_cast<double>(ranks - 1) / ranks;
  switch (collective) {
    case Collective::allReduce:
      return 2 * share;
    case Collective::broadcast:
    case Collective::reduce:
    case Collective::sendRecv:
      return 1;
    case Collective::gather:
      return 1.0 / ranks;
    case Collective::allToAll:  // n: all blocks of one rank
    case Collective::allGather:
    case Collective::reduceScatter:
    case Collective::scatter:
      return share;
  }
  return 0;
}

Result<Certificate> check(std::span<const ScheduleSet* const> calls, const CheckOptions& options) {
  if (calls.empty()) return internalError("no calls to check");
  if (options.fifoSlots < 1 || options.slices < 1 || options.scratchHalves < 1 || options.scratchHalves > 2)
    return invalidArgument("check with {} FIFO slots, {} slices, {} scratch halves", options.fifoSlots,
                           options.slices, options.scratchHalves);
  for (const ScheduleSet* set : calls) {
    TUTTI_TRY(checkSet(*set));
    if (set->size() != calls[0]->size())
      return internalError("calls of {} and {} ranks", calls[0]->size(), set->size());
  }
  MachineOptions machineOptions;
  machineOptions.fifoSlots = options.fifoSlots;
  machineOptions.slices = options.slices;
  machineOptions.scratchHalves = options.scratchHalves;
  machineOptions.inPlace = options.inPlace;
  machineOptions.requireIdenticalResults = options.requireIdenticalResults;
  SymbolicMachine machine({calls.begin(), calls.end()}, machineOptions);
  TUTTI_TRY(machine.run());
  return certify(*calls[0], machine);
}

Result<Certificate> prove(const ScheduleSet& schedules, CheckOptions options) {
  const ScheduleSet* twice[] = {&schedules, &schedules};
  options.inPlace = false;
  TUTTI_ASSIGN(Certificate certificate, check(twice, options).withContext("out of place"));
  if (!canBeInPlace(schedules[0])) return certificate;
  options.inPlace = true;
  return check(twice, options).withContext("in place");
}

std::string Certificate::toText() const {
  std::string text = fmt::format("{} {} on {} ranks: {} rounds", algorithm, name(collective), ranks, rounds);
  if (sent > 0) text += fmt::format(", sends {:.3f} n (bound {:.3f} n)", sent, sentBound);
  if (peerTraffic > 0) text += fmt::format(", uses {:.3f} n of peers' memory", peerTraffic);
  text += fmt::format(", memory traffic {:.2f} n", memoryTraffic);
  if (reductionDepth > 0) text += fmt::format(", reduction depth {}: {}", reductionDepth, reductionOrder);
  return text;
}

}  // namespace tutti
