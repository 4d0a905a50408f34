#include "tutti_tune/survey.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <tuple>

#include "base/params.h"

namespace tutti::tune {
namespace {

using perf::Outcome;
using Clock = std::chrono::steady_clock;

constexpr size_t kMostSamples = 25;
constexpr size_t kLeastSamples = 9;  // fewer make a lucky way look best
// Ways so many times slower than the best: no more samples, and not tried at the next size.
constexpr double kSlow = 1.7;
constexpr double kHopeless = 6;
// Small calls are timed several in a row.
constexpr double kBatchSeconds = 300e-6;
constexpr int kMostCalls = 64;
constexpr size_t kLargestBatched = 32 * 1024;
constexpr size_t kLargestWarmed = 256 * 1024;

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool hasManyBlocks(Collective collective) {
  return collective != Collective::allReduce && collective != Collective::broadcast &&
         collective != Collective::reduce;
}

class Surveyor {
 public:
  Surveyor(Team& team, const Options& options, Survey& survey)
      : team_(team), options_(options), survey_(survey), start_(Clock::now()) {}

  Outcome run() {
    const std::vector<size_t> sizes = options_.sizes();
    size_t open = sizes.size() * options_.ranks.size() * options_.collectives.size();
    for (const size_t bytes : sizes) {
      for (size_t i = 0; i < options_.ranks.size(); ++i) {
        for (const Collective collective : options_.collectives) {
          const double time = options_.budgetSeconds - secondsSince(start_);
          if (time <= 0) {
            ++survey_.left;
          } else if (const Outcome outcome =
                         measure(static_cast<int>(i), collective, bytes, time / static_cast<double>(open));
                     !outcome.isOk()) {
            return outcome;
          }
          --open;
        }
      }
    }
    if (!options_.quiet) std::fprintf(stderr, "\r%60s\r", "");
    survey_.seconds = secondsSince(start_);
    return Outcome::ok();
  }

 private:
  using Known = std::tuple<int, Collective, std::string, int32_t>;

  void progress(const Trial& trial, int ranks, size_t bytes) const {
    if (options_.quiet || ::isatty(STDERR_FILENO) == 0) return;
    std::fprintf(stderr, "\r%5.0f of %.0f s: %-13s %3d ranks, %zu bytes      ", secondsSince(start_),
                 options_.budgetSeconds, name(trial.collective), ranks, bytes);
  }

  /// What the library would see of the call, and the ways that can run it.
  Point pointOf(const Trial& trial, int ranks) {
    Point point;
    tuttiPlan_t plan;
    if (!team_.plan(trial.size, trial.collective, trial.count, true, &plan) &&
        !team_.plan(trial.size, trial.collective, trial.count, false, &plan))
      return point;
    SelectorInput& input = point.input;
    input.collective = trial.collective;
    input.ranks = ranks;
    input.bytes =
        trial.count * sizeof(float) * static_cast<size_t>(hasManyBlocks(trial.collective) ? ranks : 1);
    input.hosts = plan.hosts;
    input.allMapped = plan.hosts == 1;
    input.rails = plan.rails;
    input.maxChannels = plan.maxChannels;
    // Buffers are of ncclMemAlloc; only this keeps peers from using them.
    input.zeroCopyUsable =
        !params().p2pDisable() && (params().p2pLevel.isAuto() || params().p2pLevel.level() > 0);
    for (const Candidate& candidate : candidates_) {
      if (obstacleOf(candidate, input) != Obstacle::none) continue;
      for (const int32_t channels :
           input.allMapped ? std::vector<int32_t>{1} : channelCounts(candidate, input))
        point.ways.push_back(
            {.algorithm = candidate.name,
             .channels = channels,
             .hopeless = hopeless_.contains({trial.size, trial.collective, candidate.name, channels}),
             .seconds = {}});
    }
    if (options_.compare)
      point.ways.push_back({.algorithm = "", .channels = 0, .automatic = true, .seconds = {}});
    for (Way& way : point.ways) way.quantile = options_.quantile;
    return point;
  }

  Outcome sample(Trial trial, Way& way, int calls) {
    std::snprintf(trial.algorithm, sizeof trial.algorithm, "%s", way.automatic ? "" : way.algorithm.c_str());
    trial.channels = way.automatic ? 0 : way.channels;
    trial.calls = calls;
    double seconds = 0;
    if (const Outcome outcome = team_.measure(trial, &seconds); !outcome.isOk())
      return outcome.within(way.automatic ? "the library's choice" : way.algorithm);
    way.seconds.push_back(seconds);
    ++survey_.sampleCount;
    if (!way.automatic || !way.algorithm.empty()) return Outcome::ok();
    tuttiPlan_t plan;
    if (const Outcome outcome = team_.lastPlan(trial.size, &plan); !outcome.isOk()) return outcome;
    way.algorithm = plan.algorithm;
    way.channels = plan.channels;
    return Outcome::ok();
  }

  Outcome measure(int size, Collective collective, size_t bytes, double share) {
    const int ranks = options_.ranks[static_cast<size_t>(size)];
    Trial trial{.size = size, .collective = collective};
    trial.count = std::max<size_t>(
        1, bytes / sizeof(float) / (hasManyBlocks(collective) ? static_cast<size_t>(ranks) : 1));
    Point point = pointOf(trial, ranks);
    progress(trial, ranks, point.input.bytes);
    const Clock::time_point start = Clock::now();
    // A first sample is about connections and plans; it tells how many calls fit into the next.
    double fastest = 1e9;
    for (Way& way : point.ways) {
      if (const Outcome outcome = sample(trial, way, 1); !outcome.isOk()) return outcome;
      fastest = std::min(fastest, way.seconds[0]);
    }
    const bool batched = point.input.bytes <= kLargestBatched;
    const int calls = batched ? std::clamp(static_cast<int>(kBatchSeconds / fastest), 1, kMostCalls) : 1;
    if (point.input.bytes > kLargestWarmed) trial.warmups = 0;
    if (calls > 1)
      for (Way& way : point.ways)
        if (!way.hopeless) way.seconds.clear();
    for (size_t round = 0; round < kMostSamples; ++round) {
      if (round >= kLeastSamples && secondsSince(start) > share) break;
      double best = 1e9;
      for (const Way& way : point.ways)
        if (!way.seconds.empty()) best = std::min(best, way.median().value);
      for (Way& way : point.ways) {
        const bool slow = !way.seconds.empty() && !way.automatic && way.median().value > kSlow * best;
        if (way.hopeless || (slow && round > 1)) continue;
        if (const Outcome outcome = sample(trial, way, calls); !outcome.isOk()) return outcome;
      }
    }
    forget(size, point);
    survey_.points.push_back(std::move(point));
    return Outcome::ok();
  }

  void forget(int size, const Point& point) {
    const Way* best = point.best(candidates_, true);
    if (best == nullptr || point.input.bytes < 4096) return;
    for (const Way& way : point.ways)
      if (!way.automatic && way.median().value > kHopeless * best->median().value)
        hopeless_.insert({size, point.input.collective, way.algorithm, way.channels});
  }

  Team& team_;
  const Options& options_;
  Survey& survey_;
  const Clock::time_point start_;
  const CandidateSet candidates_ = CandidateSet::shipped();
  std::set<Known> hopeless_;
};

}  // namespace

Outcome survey(Team& team, const Options& options, Survey* result) {
  return Surveyor(team, options, *result).run();
}

}  // namespace tutti::tune
