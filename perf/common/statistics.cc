#include "common/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tutti::perf {
namespace {

double nearestRank(const std::vector<double>& sorted, double percent) {
  const auto rank = static_cast<size_t>(std::ceil(percent / 100 * static_cast<double>(sorted.size())));
  return sorted[std::clamp<size_t>(rank, 1, sorted.size()) - 1];
}

}  // namespace

Summary summarize(std::vector<double> values) {
  Summary summary;
  if (values.empty()) return summary;
  std::sort(values.begin(), values.end());
  const auto count = static_cast<double>(values.size());
  summary.mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  summary.min = values.front();
  summary.max = values.back();
  summary.p50 = nearestRank(values, 50);
  summary.p95 = nearestRank(values, 95);
  summary.p99 = nearestRank(values, 99);
  double squares = 0;
  for (const double value : values) squares += (value - summary.mean) * (value - summary.mean);
  summary.deviation = std::sqrt(squares / count);
  return summary;
}

}  // namespace tutti::perf
