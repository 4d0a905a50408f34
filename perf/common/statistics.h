// Summary numbers of a few measurements.
#pragma once

#include <vector>

namespace tutti::perf {

/// Of an empty list: all zero.
struct Summary {
  double mean = 0;
  double min = 0;
  double max = 0;
  double p50 = 0;  // percentiles by nearest rank
  double p95 = 0;
  double p99 = 0;
  double deviation = 0;  // standard deviation of the population
};

Summary summarize(std::vector<double> values);

}  // namespace tutti::perf
