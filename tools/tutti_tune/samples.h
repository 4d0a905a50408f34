// What was measured: how long each way to run each call took.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/selector.h"

namespace tutti::tune {

/// The median of some times (or another quantile), and an interval that holds the true one.
struct Median {
  double value = 0;
  double low = 0;  // of about 95 % confidence, by order statistics; of a few samples all of them
  double high = 0;
};
Median medianOf(std::vector<double> samples, double quantile = 0.5);

/// One way to run a call, and its times. The library's own choice is one too.
struct Way {
  std::string algorithm;
  int32_t channels = 1;
  bool automatic = false;
  bool hopeless = false;        // many times slower than others at a smaller size: one sample is enough
  std::vector<double> seconds;  // of one call, the slowest rank's
  double quantile = 0.5;        // that counts
  Median median() const { return medianOf(seconds, quantile); }
};

/// One call, by all ways that can run it. Buffers can be used in place by all ranks of a host.
struct Point {
  SelectorInput input;
  std::vector<Way> ways;
  /// Null when nothing was measured. `zeroCopy`: with those that need the users' buffers. Not the automatic
  /// one.
  const Way* best(const CandidateSet& candidates, bool zeroCopy) const;
  const Way* find(std::string_view algorithm, int32_t channels) const;
  const Way* automatic() const;
};

/// Whether a way can also run calls whose buffers peers cannot map.
bool needsZeroCopy(const CandidateSet& candidates, const Way& way);

}  // namespace tutti::tune
