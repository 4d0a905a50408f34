#include "tutti_tune/entries.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "tutti_tune/judge.h"

namespace tutti::tune {
namespace {

/// Calls that differ in their size only.
using Series = std::tuple<Collective, int32_t, int32_t>;  // collective, ranks, hosts

/// A call as it was measured twice.
struct Pair {
  const Point* learnt;
  const Point* judge;
  size_t bytes() const { return learnt->input.bytes; }
};

std::map<Series, std::vector<Pair>> seriesOf(const std::vector<Point>& learnt,
                                             const std::vector<Point>& judges) {
  std::map<Series, std::vector<Pair>> all;
  for (size_t i = 0; i < learnt.size(); ++i)
    if (const SelectorInput& input = learnt[i].input; !learnt[i].ways.empty())
      all[{input.collective, input.ranks, input.hosts}].push_back({&learnt[i], &judges[i]});
  for (auto& [key, series] : all) {
    std::ranges::stable_sort(series, {}, &Pair::bytes);
    const auto twins = std::ranges::unique(series, {}, &Pair::bytes);
    series.erase(twins.begin(), twins.end());
  }
  return all;
}

size_t between(size_t low, size_t high) {
  return static_cast<size_t>(
      std::sqrt(static_cast<double>(std::max<size_t>(1, low)) * static_cast<double>(high)));
}

/// The way that should be taken instead of the selector's; null where that one is good enough.
const Way* better(const Point& point, const Selector& selector, bool zeroCopy, double noise) {
  const Way* best = point.best(*selector.candidates(), zeroCopy);
  const Way* chosen = chosenWay(point, selector, zeroCopy);
  if (best == nullptr || best == chosen) return nullptr;
  if (chosen == nullptr) return best;  // not measured, since it was hopeless from the start
  const Median one = best->median();
  const Median other = chosen->median();
  return other.value > one.value * (1 + noise) && other.low > one.high ? best : nullptr;
}

/// Whether samples that did not lead to `way` say, too, that it is better than the selector's.
bool holds(const Way& way, const Point& judge, const Selector& selector, bool zeroCopy, double noise) {
  const Way* same = judge.find(way.algorithm, way.channels);
  const Way* chosen = chosenWay(judge, selector, zeroCopy);
  if (same == nullptr) return false;
  return chosen == nullptr || chosen->median().value > same->median().value * (1 + noise);
}

TuningEntry entryOf(const std::vector<Pair>& series, size_t index, const Way& way) {
  const SelectorInput& input = series[index].learnt->input;
  TuningEntry entry;
  entry.collective = input.collective;
  // Nothing is said of sizes that lie outside of what was measured.
  entry.minBytes = index > 0 ? between(series[index - 1].bytes(), input.bytes) + 1 : input.bytes;
  entry.maxBytes = index + 1 < series.size() ? between(input.bytes, series[index + 1].bytes()) : input.bytes;
  entry.algorithm = way.algorithm;
  entry.protocol = Protocol::simple;
  entry.channels = way.channels;
  entry.hosts = input.hosts;
  entry.ranks = input.ranks;
  return entry;
}

std::vector<TuningEntry> entriesOf(const std::vector<Pair>& series, const Selector& selector, bool zeroCopy,
                                   double noise, size_t* dropped) {
  std::vector<TuningEntry> entries;
  for (size_t i = 0; i < series.size(); ++i) {
    const Way* way = better(*series[i].learnt, selector, zeroCopy, noise);
    if (way == nullptr) continue;
    if (!holds(*way, *series[i].judge, selector, zeroCopy, noise)) {
      ++*dropped;
      continue;
    }
    const TuningEntry entry = entryOf(series, i, *way);
    const bool goesOn = !entries.empty() && entries.back().maxBytes + 1 == entry.minBytes &&
                        entries.back().algorithm == entry.algorithm &&
                        entries.back().channels == entry.channels;
    if (goesOn) {
      entries.back().maxBytes = entry.maxBytes;
    } else {
      entries.push_back(entry);
    }
  }
  return entries;
}

}  // namespace

Entries entriesFor(const std::vector<Point>& learnt, const std::vector<Point>& judges,
                   const Selector& selector, double noise) {
  Entries result;
  for (const auto& [key, series] : seriesOf(learnt, judges)) {
    std::vector<TuningEntry> mapped = entriesOf(series, selector, true, noise, &result.dropped);
    std::vector<TuningEntry> others = entriesOf(series, selector, false, noise, &result.dropped);
    // What holds for both needs no word about buffers.
    for (TuningEntry& entry : mapped) {
      const auto twin = std::ranges::find(others, entry);
      if (twin == others.end()) {
        entry.mapped = true;
      } else {
        others.erase(twin);
      }
    }
    for (TuningEntry& entry : others) entry.mapped = false;
    result.all.insert(result.all.end(), mapped.begin(), mapped.end());
    result.all.insert(result.all.end(), others.begin(), others.end());
  }
  return result;
}

}  // namespace tutti::tune
