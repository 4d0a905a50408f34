#include "tutti_tune/judge.h"

#include <algorithm>
#include <cmath>

namespace tutti::tune {
namespace {

std::vector<bool> kindsOfBuffers(const Point& point, const CandidateSet& candidates) {
  const bool matters = std::ranges::any_of(point.ways, [&](const Way& way) {
    return !way.automatic && !way.seconds.empty() && needsZeroCopy(candidates, way);
  });
  return matters ? std::vector<bool>{true, false} : std::vector<bool>{point.input.zeroCopyUsable};
}

}  // namespace

Ratio ratioOf(const Median& chosen, const Median& best) {
  if (best.value <= 0) return {};
  return {chosen.value / best.value, chosen.low / best.high, chosen.high / best.low};
}

const Way* chosenWay(const Point& point, const Selector& selector, bool zeroCopy) {
  SelectorInput input = point.input;
  input.zeroCopyUsable = zeroCopy;
  const auto choice = selector.choose(input);
  return choice.isOk() ? point.find(choice->algorithm->name, choice->channels) : nullptr;
}

std::vector<Verdict> verdictsOf(const std::vector<Point>& points, const Selector& selector) {
  std::vector<Verdict> verdicts;
  for (const Point& point : points)
    for (const bool mapped : kindsOfBuffers(point, *selector.candidates())) {
      SelectorInput input = point.input;
      input.zeroCopyUsable = mapped;
      const auto choice = selector.choose(input);
      const Way* best = point.best(*selector.candidates(), mapped);
      const Way* chosen = chosenWay(point, selector, mapped);
      if (!choice.isOk() || best == nullptr || chosen == nullptr) continue;
      verdicts.push_back({.point = &point,
                          .mapped = mapped,
                          .chosen = chosen,
                          .best = best,
                          .predicted = choice->predictedSeconds,
                          .ratio = ratioOf(chosen->median(), best->median())});
    }
  return verdicts;
}

Balance balanceOf(const std::vector<Verdict>& verdicts) {
  Balance balance;
  double sum = 0;
  for (const Verdict& one : verdicts) {
    sum += std::log(one.ratio.value);
    balance.bad += one.ratio.low > kBad ? 1 : 0;
    balance.worst = std::max(balance.worst, one.ratio.value);
  }
  balance.count = verdicts.size();
  if (!verdicts.empty()) balance.mean = std::exp(sum / static_cast<double>(verdicts.size()));
  return balance;
}

double meanOf(const std::vector<Point>& points, const Selector& selector) {
  return balanceOf(verdictsOf(points, selector)).mean;
}

Halves halvesOf(const std::vector<Point>& points) {
  Halves halves{points, points};
  for (size_t i = 0; i < points.size(); ++i)
    for (size_t w = 0; w < points[i].ways.size(); ++w) {
      const std::vector<double>& all = points[i].ways[w].seconds;
      if (all.size() < 2) continue;
      std::vector<double>& learnt = halves.learnt[i].ways[w].seconds;
      std::vector<double>& judges = halves.judges[i].ways[w].seconds;
      learnt.clear();
      judges.clear();
      for (size_t s = 0; s < all.size(); ++s) (s % 2 == 0 ? learnt : judges).push_back(all[s]);
    }
  return halves;
}

}  // namespace tutti::tune
