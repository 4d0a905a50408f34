#include "tutti_tune/tables.h"

#include <algorithm>
#include <cmath>

#include "tutti_tune/judge.h"

namespace tutti::tune {
namespace {

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

enum class Buffers { all, mapped, other };

const char* name(Buffers buffers) {
  return buffers == Buffers::all ? "all" : buffers == Buffers::mapped ? "mapped" : "other";
}

std::string rowText(const Verdict& verdict, Buffers buffers, const std::string& time) {
  const SelectorInput& input = verdict.point->input;
  const Ratio& ratio = verdict.ratio;
  return fmt::format("{:13} {:5} {:5} {:>8} {:7}  {:22} {:>28}  {:22} {:>28}  {:5.2f} ({:.2f}-{:.2f}){}\n",
                     tutti::name(input.collective), input.ranks, input.hosts, sizeText(input.bytes),
                     name(buffers), wayText(*verdict.chosen), time, wayText(*verdict.best),
                     timeText(verdict.best->median()), ratio.value, ratio.low, ratio.high,
                     ratio.low > kBad ? " !" : "");
}

std::string headText(const char* time) {
  return fmt::format("{:13} {:5} {:5} {:>8} {:7}  {:22} {:>28}  {:22} {:>28}  {}\n", "collective", "ranks",
                     "hosts", "bytes", "buffers", "chosen", time, "best", "us (95 %)", "chosen/best (95 %)");
}

std::string legendText() {
  return fmt::format(
      "# best: of all ways that were measured. !: chosen takes more than {} times as long, with certainty "
      "(the "
      "whole interval)\n",
      kBad);
}

std::string balanceText(const std::vector<Verdict>& verdicts) {
  const Balance balance = balanceOf(verdicts);
  const auto worst =
      std::ranges::max_element(verdicts, {}, [](const Verdict& one) { return one.ratio.value; });
  std::string where;
  if (worst != verdicts.end())
    where = fmt::format(" ({}, {} ranks, {} bytes)", tutti::name(worst->point->input.collective),
                        worst->point->input.ranks, sizeText(worst->point->input.bytes));
  return fmt::format(
      "# chosen/best of {} calls: geometric mean {:.3f}, largest {:.2f}{}, above {} with certainty: {}\n",
      balance.count, balance.mean, balance.worst, where, kBad, balance.bad);
}

}  // namespace

std::string fitText(const Fit& fit, CostMedium medium, const MachineCosts& before) {
  if (fit.used == 0) return {};
  std::string text = fmt::format(
      "# {}: {} measured times; predictions were off by a factor of {:.2f} (typically), now by {:.2f}\n",
      tutti::name(medium), fit.used, fit.before, fit.error);
  const auto& [oldShared, oldNetwork] = before;
  for (const CostParameterName& one : costParameterNames()) {
    const std::string was =
        fmt::format("{:.3g}", (medium == CostMedium::shared ? oldShared : oldNetwork).*one.value);
    const std::string is = fmt::format(
        "{:.3g}", (medium == CostMedium::shared ? fit.costs.shared : fit.costs.network).*one.value);
    if (was != is) text += fmt::format("#   {:10} {} -> {}\n", one.name, was, is);
  }
  return text;
}

std::string choicesText(const std::vector<Point>& points, const Selector& selector) {
  const std::vector<Verdict> verdicts = verdictsOf(points, selector);
  std::string text =
      "# chosen and predicted: with the tuning file (its parameters and entries), by all samples. buffers: "
      "mapped are those that peers\n# can use in place (ncclMemAlloc, ncclCommRegister); a row for all "
      "counts "
      "as two calls where the kinds differ in what can be used\n";
  text += legendText() + headText("us, predicted");
  for (size_t i = 0; i < verdicts.size(); ++i) {
    const Verdict& one = verdicts[i];
    const auto kin = [&](size_t other) {
      return other < verdicts.size() && verdicts[other].point == one.point;
    };
    const bool hasNext = kin(i + 1);
    const bool same = hasNext && verdicts[i + 1].chosen == one.chosen && verdicts[i + 1].best == one.best;
    const bool alone = !hasNext && (i == 0 || !kin(i - 1));
    text += rowText(one,
                    same || alone ? Buffers::all
                    : one.mapped  ? Buffers::mapped
                                  : Buffers::other,
                    fmt::format("{:.1f}, {:.1f}", one.chosen->median().value * 1e6, one.predicted * 1e6));
    if (same) ++i;
  }
  return text + balanceText(verdicts);
}

std::string comparisonText(const std::vector<Point>& points, Balance* balance) {
  const CandidateSet candidates = CandidateSet::shipped();
  std::vector<Verdict> verdicts;
  for (const Point& point : points) {
    const bool mapped = point.input.zeroCopyUsable;
    const Way* best = point.best(candidates, mapped);
    const Way* chosen = point.automatic();
    if (best == nullptr || chosen == nullptr) continue;
    verdicts.push_back({.point = &point,
                        .mapped = mapped,
                        .chosen = chosen,
                        .best = best,
                        .ratio = ratioOf(chosen->median(), best->median())});
  }
  std::string text =
      "# chosen: by the library, with the settings of the environment, and measured as a way of its own. "
      "Where "
      "it is the best, too, the\n# two times differ by what sampling differs: a ratio, or a mean, below 1 "
      "says "
      "no more than that\n";
  text += legendText() + headText("us (95 %)");
  for (const Verdict& one : verdicts)
    text += rowText(one, one.mapped ? Buffers::mapped : Buffers::other, timeText(one.chosen->median()));
  *balance = balanceOf(verdicts);
  return text + balanceText(verdicts);
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
