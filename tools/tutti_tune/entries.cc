#include "tutti_tune/entries.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

namespace tutti::tune {
namespace {

/// Calls that differ in their size only.
using Series = std::tuple<Collective, int32_t, int32_t>;  // collective, ranks, hosts

std::map<Series, std::vector<const Point*>> seriesOf(const std::vector<Point>& points) {
  std::map<Series, std::vector<const Point*>> all;
  for (const Point& point : points)
    if (!point.ways.empty())
      all[{point.input.collective, point.input.ranks, point.input.hosts}].push_back(&point);
  for (auto& [key, series] : all)
    std::ranges::sort(series, {}, [](const Point* one) { return one->input.bytes; });
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

std::vector<TuningEntry> entriesOf(const std::vector<const Point*>& series, const Selector& selector,
                                   bool zeroCopy, double noise) {
  std::vector<TuningEntry> entries;
  for (size_t i = 0; i < series.size(); ++i) {
    const Way* way = better(*series[i], selector, zeroCopy, noise);
    if (way == nullptr) continue;
    const SelectorInput& input = series[i]->input;
    TuningEntry entry;
    entry.collective = input.collective;
    if (i > 0) entry.minBytes = between(series[i - 1]->input.bytes, input.bytes) + 1;
    if (i + 1 < series.size()) entry.maxBytes = between(input.bytes, series[i + 1]->input.bytes);
    entry.algorithm = way->algorithm;
    entry.protocol = Protocol::simple;
    entry.channels = way->channels;
    entry.hosts = input.hosts;
    entry.ranks = input.ranks;
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

const Way* chosenWay(const Point& point, const Selector& selector, bool zeroCopy) {
  SelectorInput input = point.input;
  input.zeroCopyUsable = zeroCopy;
  const auto choice = selector.choose(input);
  return choice.isOk() ? point.find(choice->algorithm->name, choice->channels) : nullptr;
}

std::vector<TuningEntry> entriesFor(const std::vector<Point>& points, const Selector& selector,
                                    double noise) {
  std::vector<TuningEntry> all;
  for (const auto& [key, series] : seriesOf(points)) {
    std::vector<TuningEntry> mapped = entriesOf(series, selector, true, noise);
    std::vector<TuningEntry> others = entriesOf(series, selector, false, noise);
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
    all.insert(all.end(), mapped.begin(), mapped.end());
    all.insert(all.end(), others.begin(), others.end());
  }
  return all;
}

}  // namespace tutti::tune
