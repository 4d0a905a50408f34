#include "algorithms/proof_size.h"

#include <algorithm>

namespace tutti {
namespace {

constexpr int64_t kMostCells = 1 << 18;
constexpr int64_t kMostMoves = 1 << 19;
constexpr int64_t kMostLanes = 2048;                  // their clocks have as many entries each
constexpr int64_t kMostLaneMoves = int64_t{1} << 27;  // lanes x moves

}  // namespace

void ProofSize::add(const Step& step, int64_t times, const std::vector<std::vector<int32_t>>& teams) {
  const auto members = [&](int16_t team) {
    const auto index = static_cast<size_t>(team);
    return team < 0 || index >= teams.size() ? int64_t{1} : static_cast<int64_t>(teams[index].size());
  };
  moves += times * std::max(1, movedSegments(step)) *
           std::max({int64_t{1}, members(step.team), members(step.dstTeam)});
}

ProofSize proofSize(const ScheduleSet& schedules) {
  ProofSize size;
  for (const Schedule& schedule : schedules) {
    size.cells += schedule.segments() + schedule.scratchSegments;
    size.lanes = std::max(size.lanes, static_cast<int64_t>(schedule.lanes.size() * schedules.size()));
    for (const Lane& lane : schedule.lanes)
      for (const Block& block : lane.blocks)
        for (const Step& step : block.steps) size.add(step, block.iterations, schedule.teams);
  }
  return size;
}

Status checkProofSize(const ProofSize& size) {
  if (size.cells > kMostCells)
    return invalidUsage("{} segments in the buffers of all ranks; at most {} can be proved", size.cells,
                        kMostCells);
  if (size.moves > kMostMoves)
    return invalidUsage("{} moves of segments or more; at most {} can be proved", size.moves, kMostMoves);
  if (size.lanes > kMostLanes)
    return invalidUsage("{} lanes of all ranks; at most {} can be proved", size.lanes, kMostLanes);
  if (size.lanes * size.moves > kMostLaneMoves)
    return invalidUsage("{} lanes of all ranks and {} moves of segments: a proof would take too long",
                        size.lanes, size.moves);
  return Status::ok();
}

}  // namespace tutti
