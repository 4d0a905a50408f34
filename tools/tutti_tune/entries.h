// Where the cost model would choose badly: entries of a tuning file that choose better.
#pragma once

#include <vector>

#include "algorithms/tuning_file.h"
#include "tutti_tune/samples.h"

namespace tutti::tune {

struct Entries {
  std::vector<TuningEntry> all;
  size_t dropped = 0;  // calls (for each kind of buffers) for which an entry did not hold
};

/// Entries for the calls of `learnt` where what `selector` (with the measured parameters) would choose was
/// measured to take more than 1 + `noise` times as long as the best, and the two medians' intervals do not
/// overlap; of these, those for which the medians of `judges` (the same calls in the same order, other
/// samples) are as far apart. An entry reaches to the middle (geometrically) between its sizes and the next
/// ones that were measured; the smallest and the largest of these bound it. It names the numbers of ranks and
/// hosts.
Entries entriesFor(const std::vector<Point>& learnt, const std::vector<Point>& judges,
                   const Selector& selector, double noise);

}  // namespace tutti::tune
