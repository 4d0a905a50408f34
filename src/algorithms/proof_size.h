// How large a proof is. What comes from files must stay below limits, whatever numbers a file holds.
#pragma once

#include <cstdint>

#include "algorithms/checker.h"
#include "base/status.h"

namespace tutti {

/// The sizes that make a proof long, or large.
struct ProofSize {
  int64_t cells = 0;  // segments of the buffers of all ranks
  int64_t moves =
      0;  // of segments, and raises of flags, by all ranks, in one slice; those of a team one by one
  int64_t lanes = 0;  // the most of any rank, times ranks

  /// Counts `times` times the step of a schedule with these teams.
  void add(const Step& step, int64_t times, const std::vector<std::vector<int32_t>>& teams);
};

/// The size of the proof of these schedules.
ProofSize proofSize(const ScheduleSet& schedules);

/// Ok where a proof takes seconds at most. Errors (invalidUsage) say what is too large.
Status checkProofSize(const ProofSize& size);

}  // namespace tutti
