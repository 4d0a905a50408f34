// What tutti-tune prints.
#pragma once

#include <string>
#include <vector>

#include "tutti_tune/fit.h"
#include "tutti_tune/judge.h"
#include "tutti_tune/samples.h"

namespace tutti::tune {

/// Predicted against measured, and the parameters that changed.
std::string fitText(const Fit& fit, CostMedium medium, const MachineCosts& before);
/// What the columns and marks mean, a row for every call: what the selector takes, its predicted and measured
/// time, and the best measured, and the balance.
std::string choicesText(const std::vector<Point>& points, const Selector& selector);
/// The same for the library's own choices, which were measured beside the others.
std::string comparisonText(const std::vector<Point>& points, Balance* balance);
/// All medians, comma-separated.
std::string csvText(const std::vector<Point>& points);

}  // namespace tutti::tune
