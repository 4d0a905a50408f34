#include "tutti_tune/fit.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace tutti::tune {
namespace {

// A parameter may become this many times larger or smaller than it is to begin with.
constexpr double kFarthest = 300;
// What it must bring (of the distance) to change a parameter by a factor of e: without it, noise would move
// those that hardly matter for what was measured, and they would mislead for other sizes.
constexpr double kReluctance = 0.002;
constexpr int kMostSweeps = 60;
constexpr std::array kSteps = {4.0, 2.0, 1.4, 1.15, 1.05, 1.02};

template <typename Costs>
auto& part(Costs& costs, CostMedium medium) {
  return medium == CostMedium::shared ? costs.shared : costs.network;
}

struct Sample {
  const Candidate* candidate;
  SelectorInput input;
  int32_t channels;
  double seconds;
  double weight;
};

std::vector<Sample> samplesOf(const std::vector<Point>& points, const CandidateSet& candidates,
                              const MachineCosts& start, CostMedium medium) {
  std::vector<Sample> samples;
  for (const Point& point : points) {
    const Way* best = point.best(candidates, true);
    if (best == nullptr || point.input.allMapped != (medium == CostMedium::shared)) continue;
    for (const Way& way : point.ways) {
      const Candidate* candidate = candidates.find(way.algorithm);
      if (way.automatic || way.seconds.empty() || candidate == nullptr) continue;
      const double seconds = way.median().value;
      // Algorithms without a closed form tell nothing about the parameters.
      if (!std::isfinite(
              predictedSeconds(*candidate, point.input, costsFor(start, point.input), way.channels)))
        continue;
      samples.push_back({candidate, point.input, way.channels, seconds, best->median().value / seconds});
    }
  }
  return samples;
}

double predicted(const Sample& one, const MachineCosts& costs) {
  return predictedSeconds(*one.candidate, one.input, costsFor(costs, one.input), one.channels);
}

/// Mean distance of the logarithms; far ones count by their distance, not its square, so that a few outliers
/// do not lead.
double distance(const std::vector<Sample>& samples, const MachineCosts& costs) {
  constexpr double kFar = 0.3;
  double sum = 0;
  double weights = 0;
  for (const Sample& one : samples) {
    const double seconds = predicted(one, costs);
    const double off = std::abs(std::log(std::max(seconds, 1e-12) / one.seconds));
    sum += one.weight * (off < kFar ? off * off / (2 * kFar) : off - kFar / 2);
    weights += one.weight;
  }
  return weights > 0 ? sum / weights : 0;
}

/// How far the parameters of a medium are from what they were.
double reluctance(const MachineCosts& costs, const MachineCosts& start, CostMedium medium) {
  double sum = 0;
  for (const CostParameterName& parameter : costParameterNames()) {
    const double origin = part(start, medium).*parameter.value;
    if (origin > 0) sum += std::abs(std::log(part(costs, medium).*parameter.value / origin));
  }
  return kReluctance * sum;
}

double typicalError(const std::vector<Sample>& samples, const MachineCosts& costs) {
  double sum = 0;
  double weights = 0;
  for (const Sample& one : samples) {
    const double seconds = predicted(one, costs);
    sum += one.weight * std::abs(std::log(std::max(seconds, 1e-12) / one.seconds));
    weights += one.weight;
  }
  return weights > 0 ? std::exp(sum / weights) : 1;
}

}  // namespace

Fit fit(const std::vector<Point>& points, const CandidateSet& candidates, const MachineCosts& start,
        CostMedium medium) {
  const std::vector<Sample> samples = samplesOf(points, candidates, start, medium);
  Fit result{.costs = start, .error = 1, .before = typicalError(samples, start), .used = samples.size()};
  double best = distance(samples, result.costs);
  // Coordinate descent by factors: the forms have maxima and roundings in them, but few parameters.
  for (const double step : kSteps) {
    for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
      const double before = best;
      for (const CostParameterName& parameter : costParameterNames()) {
        for (const double factor : {step, 1 / step}) {
          MachineCosts trial = result.costs;
          double& value = part(trial, medium).*parameter.value;
          const double origin = part(start, medium).*parameter.value;
          value *= factor;
          if (origin <= 0 || value > origin * kFarthest || value < origin / kFarthest) continue;
          const double now = distance(samples, trial) + reluctance(trial, start, medium);
          if (now >= best * (1 - 1e-9)) continue;
          best = now;
          result.costs = trial;
        }
      }
      if (best > before * (1 - 1e-4)) break;
    }
  }
  result.error = typicalError(samples, result.costs);
  return result;
}

}  // namespace tutti::tune
