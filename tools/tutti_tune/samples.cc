#include "tutti_tune/samples.h"

#include <algorithm>
#include <cmath>

namespace tutti::tune {

Median medianOf(std::vector<double> samples, double quantile) {
  if (samples.empty()) return {};
  std::ranges::sort(samples);
  const auto n = static_cast<double>(samples.size());
  const auto at = [&](double position) {  // 0 .. n - 1, also between two samples
    const double place = std::clamp(position, 0.0, n - 1);
    const auto below = static_cast<size_t>(place);
    const size_t above = std::min(below + 1, samples.size() - 1);
    return samples[below] + (place - static_cast<double>(below)) * (samples[above] - samples[below]);
  };
  // The number of samples below the quantile q is binomial (n, q): n q +- 1.96 sqrt(n q (1 - q)).
  const double spread = 1.96 * std::sqrt(n * quantile * (1 - quantile));
  return {at((n - 1) * quantile), at(std::floor(n * quantile - spread)),
          at(std::ceil(n * quantile + spread))};
}

bool needsZeroCopy(const CandidateSet& candidates, const Way& way) {
  const Candidate* candidate = candidates.find(way.algorithm);
  return candidate != nullptr && candidate->medium == Medium::userBuffers;
}

const Way* Point::best(const CandidateSet& candidates, bool zeroCopy) const {
  const Way* found = nullptr;
  for (const Way& way : ways) {
    if (way.automatic || way.seconds.empty() || (!zeroCopy && needsZeroCopy(candidates, way))) continue;
    if (found == nullptr || way.median().value < found->median().value) found = &way;
  }
  return found;
}

const Way* Point::find(std::string_view algorithm, int32_t channels) const {
  for (const Way& way : ways)
    if (!way.automatic && !way.seconds.empty() && way.algorithm == algorithm && way.channels == channels)
      return &way;
  return nullptr;
}

const Way* Point::automatic() const {
  for (const Way& way : ways)
    if (way.automatic && !way.seconds.empty()) return &way;
  return nullptr;
}

}  // namespace tutti::tune
