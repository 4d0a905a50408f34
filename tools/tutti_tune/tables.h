// What tutti-tune prints.
#pragma once

#include <string>
#include <vector>

#include "tutti_tune/fit.h"
#include "tutti_tune/samples.h"

namespace tutti::tune {

/// The ratio of two times, and the range that their medians' intervals allow.
struct Ratio {
  double value = 1, low = 1, high = 1;
};
Ratio ratioOf(const Median& chosen, const Median& best);

/// The geometric mean and the largest of some ratios.
struct Balance {
  double mean = 1;
  double worst = 1;
  size_t count = 0;
  size_t bad = 0;  // above 1.5, the whole range of it
};
Balance balanceOf(const std::vector<Ratio>& ratios);

/// Predicted against measured: the parameters, and how the chosen ways compare with the best ones.
std::string fitText(const Fit& fit, CostMedium medium, const MachineCosts& before);
/// For every call: what the selector takes, its predicted and measured time, and the best measured.
std::string choicesText(const std::vector<Point>& points, const Selector& selector, Balance* balance);
/// The same for the library's own choices, which were measured beside the others.
std::string comparisonText(const std::vector<Point>& points, Balance* balance);
std::string balanceText(const Balance& balance);
/// All medians, comma-separated.
std::string csvText(const std::vector<Point>& points);

}  // namespace tutti::tune
