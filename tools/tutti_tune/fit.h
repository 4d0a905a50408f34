// Cost parameters that explain measurements.
#pragma once

#include <vector>

#include "algorithms/tuning_file.h"
#include "tutti_tune/samples.h"

namespace tutti::tune {

struct Fit {
  MachineCosts costs;
  double error = 0;   // typical predicted / measured, or its inverse: 1.3 is 30 % off
  double before = 0;  // the same with the parameters to begin with
  size_t used = 0;    // measurements
};

/// Finds the parameters of `medium` by which predictions come nearest to the medians of all ways of `points`
/// (which are all of one medium), from `start` on: by the sum of the logarithms' distances, in which ways
/// near the best of their call count most, since between those the choice is made. Parameters without effect
/// stay as they are, and those with little effect near that. Deterministic.
Fit fit(const std::vector<Point>& points, const CandidateSet& candidates, const MachineCosts& start,
        CostMedium medium);

}  // namespace tutti::tune
