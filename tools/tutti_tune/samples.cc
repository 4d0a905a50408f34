#include "tutti_tune/samples.h"

#include <algorithm>
#include <cmath>

namespace tutti::tune {

Median medianOf(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::ranges::sort(samples);
  const size_t n = samples.size();
  const double middle = n % 2 == 1 ? samples[n / 2] : (samples[n / 2 - 1] + samples[n / 2]) / 2;
  // The number of samples below the median is binomial (n, 1/2): n/2 +- 1.96 sqrt(n)/2.
  const double spread = 0.98 * std::sqrt(static_cast<double>(n));
  const double half = static_cast<double>(n) / 2;
  const auto low = static_cast<size_t>(std::max(0.0, std::floor(half - spread)));
  const auto high = static_cast<size_t>(std::min(static_cast<double>(n - 1), std::ceil(half + spread)));
  return {middle, samples[low], samples[high]};
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
