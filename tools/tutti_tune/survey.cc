#include "tutti_tune/survey.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/params.h"
#include "tutti_tune/judge.h"
#include "tutti_tune/proposal.h"

namespace tutti::tune {
namespace {

using perf::Outcome;
using Clock = std::chrono::steady_clock;

constexpr size_t kMostRounds = 25;  // before all calls have had theirs
constexpr size_t kLeastRounds = 9;  // fewer make a lucky way look best
constexpr size_t kRoundsAgain = 4;  // for a call that is not settled, before the next one's turn
constexpr size_t kMostSamples = 2000;
constexpr double kSettled = 0.1;  // width of an interval, relative to the median
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

bool isSameCall(const SelectorInput& one, const SelectorInput& other) {
  return one.collective == other.collective && one.ranks == other.ranks && one.bytes == other.bytes;
}

class Surveyor {
 public:
  Surveyor(Team& team, const Options& options, Survey& survey)
      : team_(team), options_(options), survey_(survey), start_(Clock::now()) {}

  Outcome run() {
    auto shipped = selectorWith({});
    if (!shipped.isOk()) return Outcome::failure(shipped.status().message());
    shipped_.emplace(std::move(shipped).value());
    const std::vector<size_t> sizes = options_.sizes();
    size_t open = sizes.size() * options_.ranks.size() * options_.collectives.size();
    for (const size_t bytes : sizes) {
      for (size_t i = 0; i < options_.ranks.size(); ++i) {
        for (const Collective collective : options_.collectives) {
          const double time = timeLeft();
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
    if (const Outcome outcome = settle(); !outcome.isOk()) return outcome;
    if (showsProgress()) std::fprintf(stderr, "\r%60s\r", "");
    survey_.seconds = secondsSince(start_);
    return Outcome::ok();
  }

 private:
  using Known = std::tuple<int, Collective, std::string, int32_t>;
  /// How a point is sampled.
  struct Run {
    Trial trial;
    int calls;
  };

  bool showsProgress() const { return !options_.quiet && ::isatty(STDERR_FILENO) != 0; }

  void progress(const Trial& trial, int ranks, size_t bytes) const {
    if (!showsProgress()) return;
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
    input.crowded = plan.crowded != 0;
    input.linkBandwidth = plan.linkBandwidth;
    input.sliceBytes = plan.sliceBytes;
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
    // Where blocks are the same as at a smaller size, so is the call.
    if (std::ranges::any_of(survey_.points,
                            [&](const Point& one) { return isSameCall(one.input, point.input); }))
      return Outcome::ok();
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
    for (size_t round = 0; round < kMostRounds; ++round) {
      if (round >= kLeastRounds && secondsSince(start) > share) break;
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
    runs_.push_back({trial, calls});
    return Outcome::ok();
  }

  /// The ways of a call that decide what is made of it: the best, and what the library chooses, for buffers
  /// of both kinds.
  std::vector<Way*> deciding(Point& point) const {
    std::set<const Way*> found = {point.automatic()};
    for (const bool mapped : {true, false}) {
      found.insert(point.best(candidates_, mapped));
      if (!options_.compare) found.insert(chosenWay(point, *shipped_, mapped));
    }
    std::vector<Way*> ways;
    for (Way& way : point.ways)
      if (found.contains(&way)) ways.push_back(&way);
    return ways;
  }

  /// The widest interval of these ways, relative to the median.
  static double widthOf(const std::vector<Way*>& ways) {
    double widest = 0;
    for (const Way* way : ways) {
      const Median time = way->median();
      const bool few = way->seconds.size() < kLeastRounds;
      widest = std::max(widest, few ? std::numeric_limits<double>::infinity()
                                    : (time.high - time.low) / std::max(time.value, 1e-12));
    }
    return widest;
  }

  double timeLeft() const { return options_.budgetSeconds - secondsSince(start_); }

  /// What is left of the time, for calls whose deciding ways have wide intervals, the widest first.
  Outcome settle() {
    const auto isFull = [](const Way* way) { return way->seconds.size() >= kMostSamples; };
    while (true) {
      std::vector<std::pair<double, size_t>> open;
      survey_.unsettled = 0;
      for (size_t i = 0; i < survey_.points.size(); ++i) {
        const std::vector<Way*> ways = deciding(survey_.points[i]);
        const double width = widthOf(ways);
        if (width <= kSettled) continue;
        ++survey_.unsettled;
        if (!std::ranges::all_of(ways, isFull)) open.emplace_back(width, i);
      }
      if (open.empty() || timeLeft() <= 0) return Outcome::ok();
      std::ranges::sort(open, std::greater<>());
      for (const auto& [width, index] : open)
        if (const Outcome outcome = sampleAgain(index); !outcome.isOk()) return outcome;
    }
  }

  Outcome sampleAgain(size_t index) {
    Point& point = survey_.points[index];
    const Run& run = runs_[index];
    progress(run.trial, point.input.ranks, point.input.bytes);
    for (size_t round = 0; round < kRoundsAgain; ++round)
      for (Way* way : deciding(point)) {
        if (timeLeft() <= 0) return Outcome::ok();
        // Its one sample was the first call of all.
        if (std::exchange(way->hopeless, false) && run.calls > 1) way->seconds.clear();
        if (const Outcome outcome = sample(run.trial, *way, run.calls); !outcome.isOk()) return outcome;
      }
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
  std::optional<Selector> shipped_;
  std::set<Known> hopeless_;
  std::vector<Run> runs_;  // by point
};

}  // namespace

Outcome survey(Team& team, const Options& options, Survey* result) {
  return Surveyor(team, options, *result).run();
}

}  // namespace tutti::tune
