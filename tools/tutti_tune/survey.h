// Which samples are taken, in which order, and how many.
#pragma once

#include <vector>

#include "common/outcome.h"
#include "tutti_tune/options.h"
#include "tutti_tune/samples.h"
#include "tutti_tune/team.h"

namespace tutti::tune {

struct Survey {
  std::vector<Point> points;
  int sampleCount = 0;
  double seconds = 0;
  size_t unsettled = 0;  // calls of which an interval that matters is still wide
  size_t left = 0;       // calls that were not measured because the time was over
};

/// Measures every call (small sizes first) by all ways that can run it, one sample of each after the other,
/// until its share of the time is used up; the best ways get the most samples. What is left of the time goes
/// to the calls whose intervals are wide: samples of the best ways and of what the library chooses. With
/// `compare`, the library's own choice is one of the ways. What is hopeless (many times slower than the best
/// at the size before) is left out.
perf::Outcome survey(Team& team, const Options& options, Survey* result);

}  // namespace tutti::tune
