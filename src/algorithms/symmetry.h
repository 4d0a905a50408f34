// Proofs for thousands of ranks from the schedule of one.
#pragma once

#include <cstdint>

#include "algorithms/checker.h"
#include "algorithms/registry.h"
#include "algorithms/schedule.h"
#include "base/status.h"

namespace tutti {

/// What a declaration of symmetry claims: rank r's schedule is rank 0's with every rank x replaced by x + r
/// mod p (shift) or x xor r (exclusiveOr). Data segments are replaced alike where there are as many as ranks,
/// and stay where there is one. Private scratch stays (shift), or is replaced by its own numbers xor r
/// (exclusiveOr). Under shift the segments of a location keep their order; under exclusiveOr they are the
/// same set, in ascending order at both ends of a message. Which operand of a reduction comes first is left
/// open.
///
/// Compares the schedules of all ranks (of one lane, without flags and teams) with that, step by step, loops
/// unrolled. An error names the rank and step that differ. For numbers of ranks where that is affordable;
/// what is declared is an arithmetic property of the generator, so that holding for all of 1..64 ranks is
/// evidence for more, not proof.
Status checkSymmetry(const ScheduleSet& schedules, Symmetry symmetry);

/// Proves what prove() does from the schedule of rank 0 alone, given the symmetry: results (exact sets of
/// contributions), matching of messages, progress with that many slots, in place and out of place. What is
/// sent by others is what rank 0 sends, with numbers replaced. Bitwise equality of results is not part of it
/// (see above), races cannot be (one lane, no shared memory). O(steps * ranks) time; 4,096 ranks take well
/// under a second.
Result<Certificate> proveSymmetric(const Schedule& rankZero, Symmetry symmetry,
                                   const CheckOptions& options = {});

}  // namespace tutti
