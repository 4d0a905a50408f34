// How good choices are, by what was measured.
#pragma once

#include <string>
#include <vector>

#include "tutti_tune/samples.h"

namespace tutti::tune {

/// The ratio of two times, and the range that their medians' intervals allow.
struct Ratio {
  double value = 1, low = 1, high = 1;
};
Ratio ratioOf(const Median& chosen, const Median& best);

/// A call with buffers of one kind: what is taken for it, and the best that was measured.
struct Verdict {
  const Point* point = nullptr;
  bool mapped = true;  // peers can use the buffers in place
  const Way* chosen = nullptr;
  const Way* best = nullptr;
  double predicted = 0;
  Ratio ratio;
};

/// For each point and kind of buffers for which it matters (one kind, where no way needs mapped buffers),
/// what the selector would take. Points where that was not measured are left out.
std::vector<Verdict> verdictsOf(const std::vector<Point>& points, const Selector& selector);

/// The geometric mean and the largest of some ratios.
struct Balance {
  double mean = 1;
  double worst = 1;
  size_t count = 0;
  size_t bad = 0;  // above kBad, the whole range of it
};
inline constexpr double kBad = 1.5;
Balance balanceOf(const std::vector<Verdict>& verdicts);
/// The geometric mean of what the selector chooses, relative to the best.
double meanOf(const std::vector<Point>& points, const Selector& selector);

/// What the selector would take for a point, among the ways that were measured; null where it was not
/// measured.
const Way* chosenWay(const Point& point, const Selector& selector, bool zeroCopy);

/// The same calls twice, each with every other sample of each way: one to learn from, and one to judge by
/// what was learnt. What has one sample only is in both.
struct Halves {
  std::vector<Point> learnt;
  std::vector<Point> judges;  // in the same order
};
Halves halvesOf(const std::vector<Point>& points);

}  // namespace tutti::tune
