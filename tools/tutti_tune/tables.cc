#include "tutti_tune/tables.h"

#include <algorithm>
#include <cmath>

#include "tutti_tune/entries.h"

namespace tutti::tune {
namespace {

constexpr double kBad = 1.5;

std::string sizeText(size_t bytes) {
  if (bytes >= (size_t{1} << 20) && bytes % (size_t{1} << 20) == 0) return fmt::format("{}M", bytes >> 20);
  if (bytes >= 1024 && bytes % 1024 == 0) return fmt::format("{}K", bytes >> 10);
  return std::to_string(bytes);
}

std::string wayText(const Way& way) {
  return way.channels > 1 ? fmt::format("{} x{}", way.algorithm, way.channels) : way.algorithm;
}

std::string timeText(const Median& time) {
  return fmt::format("{:.1f} ({:.1f}-{:.1f})", time.value * 1e6, time.low * 1e6, time.high * 1e6);
}

std::string rowText(const Point& point, const std::string& chosen, const std::string& time, const Way& best,
                    const Ratio& ratio) {
  const std::string mark = ratio.low > kBad ? " !" : "";
  return fmt::format("{:13} {:5} {:5} {:>8}  {:22} {:>28}  {:22} {:>28}  {:5.2f} ({:.2f}-{:.2f}){}\n",
                     name(point.input.collective), point.input.ranks, point.input.hosts,
                     sizeText(point.input.bytes), chosen, time, wayText(best), timeText(best.median()),
                     ratio.value, ratio.low, ratio.high, mark);
}

std::string headText(const char* time) {
  return fmt::format("{:13} {:5} {:5} {:>8}  {:22} {:>28}  {:22} {:>28}  {}\n", "collective", "ranks",
                     "hosts", "bytes", "chosen", time, "best", "us (95 %)", "chosen/best");
}

}  // namespace

Ratio ratioOf(const Median& chosen, const Median& best) {
  if (best.value <= 0) return {};
  return {chosen.value / best.value, chosen.low / best.high, chosen.high / best.low};
}

Balance balanceOf(const std::vector<Ratio>& ratios) {
  Balance balance;
  double sum = 0;
  for (const Ratio& ratio : ratios) {
    sum += std::log(ratio.value);
    balance.worst = std::max(balance.worst, ratio.value);
    balance.bad += ratio.low > kBad ? 1 : 0;
  }
  balance.count = ratios.size();
  if (!ratios.empty()) balance.mean = std::exp(sum / static_cast<double>(ratios.size()));
  return balance;
}

std::string fitText(const Fit& fit, CostMedium medium, const MachineCosts& before) {
  if (fit.used == 0) return {};
  std::string text = fmt::format(
      "# {}: {} measured times; predictions were off by a factor of {:.2f} (typically), now by {:.2f}\n",
      name(medium), fit.used, fit.before, fit.error);
  const auto& [oldShared, oldNetwork] = before;
  for (const CostParameterName& one : costParameterNames()) {
    const double was = (medium == CostMedium::shared ? oldShared : oldNetwork).*one.value;
    const double is = (medium == CostMedium::shared ? fit.costs.shared : fit.costs.network).*one.value;
    if (was > 0) text += fmt::format("#   {:10} {:.3g} -> {:.3g}\n", one.name, was, is);
  }
  return text;
}

std::string choicesText(const std::vector<Point>& points, const Selector& selector, Balance* balance) {
  std::string text = headText("us, predicted");
  std::vector<Ratio> ratios;
  for (const Point& point : points) {
    const Way* best = point.best(*selector.candidates(), true);
    const Way* chosen = chosenWay(point, selector, true);
    if (best == nullptr || chosen == nullptr) continue;
    ratios.push_back(ratioOf(chosen->median(), best->median()));
    const auto choice = selector.choose(point.input);
    const std::string time =
        fmt::format("{:.1f}, {:.1f}", chosen->median().value * 1e6, choice->predictedSeconds * 1e6);
    text += rowText(point, wayText(*chosen), time, *best, ratios.back());
  }
  *balance = balanceOf(ratios);
  return text;
}

std::string comparisonText(const std::vector<Point>& points, Balance* balance) {
  const CandidateSet candidates = CandidateSet::shipped();
  std::string text = headText("us (95 %)");
  std::vector<Ratio> ratios;
  for (const Point& point : points) {
    const Way* best = point.best(candidates, true);
    const Way* chosen = point.automatic();
    if (best == nullptr || chosen == nullptr) continue;
    // The same way by both names: what they differ by is noise.
    ratios.push_back(ratioOf(chosen->median(), best->median()));
    text += rowText(point, wayText(*chosen), timeText(chosen->median()), *best, ratios.back());
  }
  *balance = balanceOf(ratios);
  return text;
}

std::string balanceText(const Balance& balance) {
  return fmt::format(
      "# chosen/best of {} calls: geometric mean {:.3f}, largest {:.2f}, above {} with certainty: {}\n",
      balance.count, balance.mean, balance.worst, kBad, balance.bad);
}

std::string csvText(const std::vector<Point>& points) {
  std::string text =
      "function,ranks,hosts,bytes,algorithm,channels,automatic,samples,median_us,low_us,high_us\n";
  for (const Point& point : points)
    for (const Way& way : point.ways) {
      const Median time = way.median();
      text += fmt::format("{},{},{},{},{},{},{:d},{},{:.3f},{:.3f},{:.3f}\n",
                          functionName(point.input.collective), point.input.ranks, point.input.hosts,
                          point.input.bytes, way.algorithm, way.channels, way.automatic, way.seconds.size(),
                          time.value * 1e6, time.low * 1e6, time.high * 1e6);
    }
  return text;
}

}  // namespace tutti::tune
