// Where the cost model would choose badly: entries of a tuning file that choose better.
#pragma once

#include <vector>

#include "algorithms/tuning_file.h"
#include "tutti_tune/samples.h"

namespace tutti::tune {

/// Entries for the calls of `points` where what `selector` (with the measured parameters) would choose was
/// measured to take more than 1 + `noise` times as long as the best, and the two medians' intervals do not
/// overlap. An entry reaches to the middle (geometrically) between its sizes and the next ones that were
/// measured, the smallest down to 0 and the largest without end.
std::vector<TuningEntry> entriesFor(const std::vector<Point>& points, const Selector& selector, double noise);

/// What the selector would take for a point, among the ways that were measured; null where it was not
/// measured.
const Way* chosenWay(const Point& point, const Selector& selector, bool zeroCopy);

}  // namespace tutti::tune
