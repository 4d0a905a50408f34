// tutti-tune: what it makes of measurements, and how it is used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <sstream>
#include <string>

#include "base/text.h"
#include "support/command.h"
#include "support/files.h"
#include "tutti_tune/entries.h"
#include "tutti_tune/fit.h"
#include "tutti_tune/judge.h"
#include "tutti_tune/proposal.h"
#include "tutti_tune/tables.h"

namespace tutti::tune {
namespace {

using test::contentOf;
using test::runCommand;
using test::TemporaryFile;
using testing::AllOf;
using testing::HasSubstr;

TEST(TuneMedian, IsTheMiddleWithAnIntervalOfOrderStatistics) {
  EXPECT_EQ(medianOf({}).value, 0);
  EXPECT_EQ(medianOf({3, 1, 2}).value, 2);
  EXPECT_EQ(medianOf({4, 1, 2, 3}).value, 2.5);
  std::vector<double> samples;
  for (int i = 100; i >= 1; --i) samples.push_back(i);
  const Median median = medianOf(samples);
  EXPECT_EQ(median.value, 50.5);
  EXPECT_NEAR(median.low, 41, 1);
  EXPECT_NEAR(median.high, 61, 1);
  EXPECT_NEAR(medianOf(samples, 0.1).value, 10.9, 0.01);
  EXPECT_LT(medianOf(samples, 0.1).low, 8);
  EXPECT_LT(medianOf({1, 2}).low, medianOf({1, 2}).high);
}

/// All calls of AllReduce with all ways that can run them, as they take on a machine of these costs.
std::vector<Point> pointsOf(const MachineCosts& costs, int32_t hosts, bool crowded = false) {
  static const CandidateSet& candidates = *new CandidateSet(CandidateSet::shipped());
  std::vector<Point> points;
  for (const int32_t ranks : {2, 3, 4, 8})
    for (size_t bytes = 8; bytes <= (size_t{16} << 20); bytes *= 8) {
      Point point;
      point.input = {.collective = Collective::allReduce,
                     .ranks = ranks,
                     .bytes = bytes,
                     .allMapped = hosts == 1,
                     .hosts = hosts == 1 ? 1 : ranks,
                     .zeroCopyUsable = true,
                     .maxChannels = hosts == 1 ? 1 : 4,
                     .crowded = crowded && ranks > 3};
      for (const Candidate& candidate : candidates) {
        if (obstacleOf(candidate, point.input) != Obstacle::none) continue;
        for (const int32_t channels : channelCounts(candidate, point.input)) {
          const double seconds =
              predictedSeconds(candidate, point.input, costsFor(costs, point.input), channels);
          if (!std::isfinite(seconds)) continue;
          Way way{.algorithm = candidate.name, .channels = channels, .seconds = {}};
          for (int i = -3; i <= 3; ++i) way.seconds.push_back(seconds * (1 + 0.002 * i));
          point.ways.push_back(way);
        }
      }
      points.push_back(point);
    }
  return points;
}

TEST(TuneFit, FindsTheParametersOfASyntheticMachine) {
  const MachineCosts start{sharedMemoryCosts(), tcpCosts()};
  MachineCosts machine = start;
  machine.shared.alpha *= 7;
  machine.shared.beta *= 3;
  machine.shared.signal *= 10;
  machine.shared.coreByte *= 2;
  const CandidateSet candidates = CandidateSet::shipped();
  const std::vector<Point> points = pointsOf(machine, 1);
  const Fit found = fit(points, candidates, start, CostMedium::shared);
  EXPECT_GT(found.used, 100u);
  EXPECT_GT(found.before, 1.5);
  EXPECT_LT(found.error, 1.1);
  EXPECT_NEAR(found.costs.shared.alpha / machine.shared.alpha, 1, 0.25);
  EXPECT_NEAR(found.costs.shared.signal / machine.shared.signal, 1, 0.25);
  EXPECT_EQ(found.costs.network.alpha, start.network.alpha);
  // What ran elsewhere tells nothing.
  EXPECT_EQ(fit(points, candidates, start, CostMedium::network).used, 0u);
}

TEST(TuneFit, FindsWhatChannelsCost) {
  const MachineCosts start{sharedMemoryCosts(), tcpCosts()};
  MachineCosts machine = start;
  machine.network.alpha *= 3;
  machine.network.perChannel /= 4;
  machine.network.streamByte *= 2;
  const Fit found = fit(pointsOf(machine, 2), CandidateSet::shipped(), start, CostMedium::network);
  EXPECT_LT(found.error, 1.05);
  EXPECT_NEAR(found.costs.network.alpha / machine.network.alpha, 1, 0.1);
  EXPECT_NEAR(found.costs.network.perChannel / machine.network.perChannel, 1, 0.3);
  EXPECT_NEAR(found.costs.network.streamByte / machine.network.streamByte, 1, 0.1);
}

TEST(TuneFit, LeavesWhatHardlyMattersAlone) {
  const MachineCosts start{sharedMemoryCosts(), tcpCosts()};
  MachineCosts machine = start;
  machine.shared.signal *= 10;
  std::vector<Point> points = pointsOf(machine, 1);
  std::erase_if(points, [](const Point& point) { return point.input.bytes > 512; });
  unsigned state = 1;
  for (Point& point : points)
    for (Way& way : point.ways) {
      state = state * 1664525U + 1013904223U;
      for (double& one : way.seconds) one *= std::exp((state >> 16) / 65536.0 - 0.5);
    }
  const Fit found = fit(points, CandidateSet::shipped(), start, CostMedium::shared);
  EXPECT_NEAR(std::log(found.costs.shared.signal / machine.shared.signal), 0, 0.3);
  EXPECT_EQ(found.costs.shared.gamma, start.shared.gamma);
  EXPECT_LT(std::abs(std::log(found.costs.shared.beta / start.shared.beta)), std::log(3));
}

TEST(TuneFit, TellsWaitsFromSwitchingBetweenRanks) {
  const MachineCosts start{sharedMemoryCosts(), tcpCosts()};
  MachineCosts machine = start;
  machine.shared.switching *= 4;
  const Fit found = fit(pointsOf(machine, 1, true), CandidateSet::shipped(), start, CostMedium::shared);
  EXPECT_NEAR(found.costs.shared.switching / machine.shared.switching, 1, 0.1);
  EXPECT_NEAR(found.costs.shared.signal / machine.shared.signal, 1, 0.1);
  // Only what changed is printed.
  const std::string said = fitText(found, CostMedium::shared, start);
  EXPECT_THAT(said, HasSubstr("switching  5.5e-06 -> 2."));
  EXPECT_THAT(fitText({.costs = start, .used = 1}, CostMedium::shared, start), testing::Not(HasSubstr("->")));
}

Way* wayOf(Point& point, const std::string& algorithm) {
  for (Way& way : point.ways)
    if (way.algorithm == algorithm) return &way;
  return nullptr;
}

void take(Way* way, double seconds) {
  const double factor = seconds / way->median().value;
  for (double& one : way->seconds) one *= factor;
}

TEST(TuneEntries, AreMadeOnlyWhereMeasurementsContradictTheModel) {
  const MachineCosts costs{sharedMemoryCosts(), tcpCosts()};
  std::vector<Point> points = pointsOf(costs, 1);
  const auto model = selectorWith({});
  ASSERT_TRUE(model.isOk());
  EXPECT_TRUE(entriesFor(points, points, *model, 0.05).all.empty());
  // On four ranks tree is twice as fast as anything at two neighbouring sizes.
  for (Point& point : points)
    if (point.input.ranks == 4 && (point.input.bytes == 64 || point.input.bytes == 512))
      take(wayOf(point, "tree"), point.best(*model->candidates(), true)->median().value / 2);
  std::vector<TuningEntry> entries = entriesFor(points, points, *model, 0.05).all;
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].algorithm, "tree");
  EXPECT_EQ(entries[0].minBytes, 23u);    // sqrt(8 x 64) is 22.6
  EXPECT_EQ(entries[0].maxBytes, 1448u);  // sqrt(512 x 4096)
  EXPECT_EQ(entries[0].ranks, 4);
  EXPECT_EQ(entries[0].hosts, 1);
  EXPECT_FALSE(entries[0].mapped.has_value());
  // By less than the noise: none.
  EXPECT_TRUE(entriesFor(points, points, *model, 1.5).all.empty());
  // With them the choice is the best.
  TuningFile file;
  for (const TuningEntry& entry : entries) file.add(entry);
  EXPECT_TRUE(entriesFor(points, points, *selectorWith(file), 0.05).all.empty());
}

TEST(TuneEntries, SayForWhichBuffersTheyAre) {
  const MachineCosts costs{sharedMemoryCosts(), tcpCosts()};
  std::vector<Point> points = pointsOf(costs, 1);
  const auto model = selectorWith({});
  Point& last = points.back();  // 8 ranks, 16 MiB: direct where buffers allow it
  take(wayOf(last, "direct"), last.best(*model->candidates(), true)->median().value * 0.1);
  const std::string usual = chosenWay(last, *model, false)->algorithm;
  take(wayOf(last, "tree"), chosenWay(last, *model, false)->median().value * 0.5);
  const std::vector<TuningEntry> entries = entriesFor(points, points, *model, 0.05).all;
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].algorithm, "tree") << usual;
  EXPECT_EQ(entries[0].mapped, false);
  EXPECT_EQ(entries[0].minBytes, 5931642u);          // sqrt(2 MiB x 16 MiB) is 5931641.6
  EXPECT_EQ(entries[0].maxBytes, size_t{16} << 20);  // what was measured
}

TEST(TuneEntries, WaitForIntervalsThatDoNotOverlap) {
  const MachineCosts costs{sharedMemoryCosts(), tcpCosts()};
  std::vector<Point> points = pointsOf(costs, 1);
  const auto model = selectorWith({});
  Way* tree = wayOf(points.back(), "tree");
  take(tree, points.back().best(*model->candidates(), true)->median().value / 2);
  tree->seconds.front() = tree->seconds.back() = 1;  // one slow sample among seven, in the interval
  EXPECT_TRUE(entriesFor(points, points, *model, 0.05).all.empty());
}

TEST(TuneEntries, SayNothingOfSizesThatWereNotMeasured) {
  std::vector<Point> points = pointsOf({sharedMemoryCosts(), tcpCosts()}, 1);
  const auto model = selectorWith({});
  Point& first = points.front();
  take(wayOf(first, "tree"), first.best(*model->candidates(), true)->median().value / 2);
  const std::vector<TuningEntry> entries = entriesFor(points, points, *model, 0.05).all;
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].minBytes, 8u);
  EXPECT_EQ(entries[0].maxBytes, 22u);
}

TEST(TuneEntries, TakeTheFirstOfSeveralPointsOfTheSameBytes) {
  std::vector<Point> points = pointsOf({sharedMemoryCosts(), tcpCosts()}, 1);
  const auto model = selectorWith({});
  const Point usual = points[1];
  Point other = usual;
  take(wayOf(other, "tree"), other.best(*model->candidates(), true)->median().value / 2);
  points.push_back(other);  // between two others, where there is no size for it
  points.push_back(usual);
  EXPECT_TRUE(entriesFor(points, points, *model, 0.05).all.empty());
}

TEST(TuneEntries, MustHoldOnSamplesThatTheyAreNotMadeFrom) {
  const std::vector<Point> judges = pointsOf({sharedMemoryCosts(), tcpCosts()}, 1);
  std::vector<Point> learnt = judges;
  const auto model = selectorWith({});
  take(wayOf(learnt[2], "tree"), learnt[2].best(*model->candidates(), true)->median().value / 2);
  const Entries entries = entriesFor(learnt, judges, *model, 0.05);
  EXPECT_TRUE(entries.all.empty());
  EXPECT_EQ(entries.dropped, 2u);  // for buffers of both kinds
}

TEST(TuneHalves, HaveEveryOtherSample) {
  Point point;
  point.ways = {{.algorithm = "ring", .seconds = {1, 2, 3, 4, 5}}, {.algorithm = "tree", .seconds = {6}}};
  const Halves halves = halvesOf({point});
  EXPECT_EQ(halves.learnt[0].ways[0].seconds, (std::vector<double>{1, 3, 5}));
  EXPECT_EQ(halves.judges[0].ways[0].seconds, (std::vector<double>{2, 4}));
  EXPECT_EQ(halves.learnt[0].ways[1].seconds, std::vector<double>{6});
  EXPECT_EQ(halves.judges[0].ways[1].seconds, std::vector<double>{6});
}

TEST(TuneProposal, HasNothingWhereTheShippedChoicesAreTheBest) {
  const auto proposal = propose(pointsOf({sharedMemoryCosts(), tcpCosts()}, 1), 0.05);
  ASSERT_TRUE(proposal.isOk());
  EXPECT_FALSE(proposal->helps);
  EXPECT_EQ(proposal->file.text(), "");
  EXPECT_EQ(proposal->proposed, proposal->shipped);
  EXPECT_THAT(proposal->findings, AllOf(HasSubstr("# shared: no parameters are written"),
                                        HasSubstr("# 0 entries"), HasSubstr("# The file does not help")));
}

/// Where waits take 40 times as long.
std::vector<Point> pointsOfSlowSignals() {
  MachineCosts machine{sharedMemoryCosts(), tcpCosts()};
  machine.shared.signal *= 40;
  machine.shared.perPeer *= 40;
  return pointsOf(machine, 1);
}

TEST(TuneProposal, HasParametersThatChooseBetter) {
  const auto proposal = propose(pointsOfSlowSignals(), 0.05);
  ASSERT_TRUE(proposal.isOk());
  EXPECT_TRUE(proposal->helps) << proposal->findings;
  EXPECT_GT(proposal->shipped, 1.1);
  EXPECT_LT(proposal->proposed, 1.05);
  EXPECT_THAT(proposal->file.text(), AllOf(HasSubstr("@shared.signal = "), testing::Not(HasSubstr("network")),
                                           testing::Not(HasSubstr("switching"))));  // as shipped
  EXPECT_THAT(proposal->findings, HasSubstr("# Judged by the half of the samples"));
}

TEST(TuneProposal, HasNothingThatTheOtherHalfContradicts) {
  // One half is of a machine where waits are slow, the other of one where messages are: neither chooses as
  // shipped, but what is right for the first is wrong for the second.
  MachineCosts machine{sharedMemoryCosts(), tcpCosts()};
  machine.shared.alpha *= 40;
  machine.shared.beta *= 40;
  std::vector<Point> points = pointsOf(machine, 1);
  const std::vector<Point> slowSignals = pointsOfSlowSignals();
  for (size_t i = 0; i < points.size(); ++i)
    for (size_t w = 0; w < points[i].ways.size(); ++w)
      for (size_t s = 0; s < 7; s += 2) points[i].ways[w].seconds[s] = slowSignals[i].ways[w].seconds[s];
  const auto proposal = propose(points, 0.05);
  ASSERT_TRUE(proposal.isOk());
  EXPECT_GT(proposal->shipped, 1.01);
  EXPECT_EQ(proposal->file.text(), "") << proposal->findings;
  EXPECT_FALSE(proposal->helps);
}

TEST(TuneTables, SayWhatTheirColumnsAreAndHaveARowForEachKindOfBuffers) {
  std::vector<Point> points = pointsOf({sharedMemoryCosts(), tcpCosts()}, 1);
  const auto model = selectorWith({});
  take(wayOf(points.back(), "direct"), 1e-3);
  take(wayOf(points.back(), chosenWay(points.back(), *model, false)->algorithm), 0.5);
  const std::string said = choicesText(points, *model);
  EXPECT_THAT(said, AllOf(HasSubstr("# chosen and predicted: with the tuning file"),
                          HasSubstr(" !: chosen takes"), HasSubstr("8     1      16M mapped   direct"),
                          HasSubstr("8     1      16M other"), HasSubstr("8     1        8 all ")));
  EXPECT_THAT(said,
              testing::ContainsRegex(
                  "largest [0-9.]+ \\(AllReduce, 8 ranks, 16M bytes\\), above 1.5 with certainty: 1\n"));
}

TEST(TuneTables, ExplainRatiosBelowOne) {
  std::vector<Point> points = pointsOf({sharedMemoryCosts(), tcpCosts()}, 1);
  points.resize(1);
  Way library = *points[0].best(CandidateSet::shipped(), true);
  library.automatic = true;
  for (double& one : library.seconds) one *= 0.9;
  points[0].ways.push_back(library);
  Balance balance;
  EXPECT_THAT(comparisonText(points, &balance),
              HasSubstr("a ratio, or a mean, below 1 says no more than that"));
  EXPECT_NEAR(balance.mean, 0.9, 1e-9);
}

std::string tune(const std::string& arguments, int* status) {
  const auto outcome = runCommand(TUTTI_BINARY_DIR "/bin/tutti-tune " + arguments + " 2>&1");
  *status = outcome.status;
  return outcome.output;
}

TEST(TuttiTune, RefusesWrongUse) {
  int status = 0;
  EXPECT_THAT(tune("-n 1", &status), HasSubstr("--ranks 1: expected numbers of ranks from 2"));
  EXPECT_EQ(status, 2);
  EXPECT_THAT(tune("-c allsum", &status), HasSubstr("\"allsum\" is not known"));
  EXPECT_THAT(tune("-b 8 -e 4", &status), HasSubstr("less than --min-bytes"));
  EXPECT_THAT(tune("--budget soon", &status), HasSubstr("expected a time such as 60s"));
  EXPECT_THAT(tune("--limit 1.1", &status), HasSubstr("needs --compare"));
  EXPECT_THAT(tune("-n 4 -t 2", &status), HasSubstr("1 process(es) of 2 thread(s) are 2 ranks"));
  EXPECT_EQ(status, 2);
  EXPECT_THAT(tune("--wrong", &status), HasSubstr("--wrong"));
  EXPECT_EQ(status, 2);
  EXPECT_THAT(tune("--help", &status), HasSubstr("--budget"));
  EXPECT_EQ(status, 0);
}

TEST(TuttiTune, WritesAFileThatTheLibraryTakes) {
  const TemporaryFile file("old");
  int status = 1;
  const std::string said =
      tune("-n 2 -c allreduce,gather -b 64 -e 4K --budget 0.3s -o " + file.path(), &status);
  EXPECT_EQ(status, 0) << said;
  EXPECT_THAT(said, AllOf(HasSubstr("# Judged by"), HasSubstr("written: TUTTI_TUNING_FILE="),
                          testing::Not(HasSubstr("\r"))));  // progress is for terminals
  EXPECT_THAT(contentOf(file.path()), HasSubstr("# chosen/best, geometric mean: "));
  const auto written = TuningFile::parse(contentOf(file.path()), "t.csv");
  ASSERT_TRUE(written.isOk()) << written.status().message();
  EXPECT_EQ(written->apply(tcpCosts(), CostMedium::network).alpha, tcpCosts().alpha);  // nothing was measured
  for (const TuningEntry& entry : written->entries()) {
    EXPECT_GE(entry.minBytes, 64u);
    EXPECT_LE(entry.maxBytes, 4096u);
    EXPECT_EQ(entry.ranks, 2);
  }
  const auto compared = runCommand(
      "TUTTI_TUNING_FILE=" + file.path() +
      " " TUTTI_BINARY_DIR "/bin/tutti-tune --compare -n 2 -c allreduce -b 64 -e 64 --budget 0.3s -q 2>&1");
  EXPECT_EQ(compared.status, 0) << compared.output;
  EXPECT_THAT(compared.output, HasSubstr("# chosen/best of 1 calls: geometric mean"));
}

/// The widest interval of a call's best way, relative to its median, by what --csv wrote.
double widestOfBest(const std::string& csv) {
  std::map<std::string, std::pair<double, double>> calls;  // ranks and bytes: median of the best, its width
  std::istringstream lines(csv);
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    const std::vector<std::string_view> fields = splitAt(line, ',');
    const auto number = [&](size_t index) { return std::stod(std::string(fields[index])); };
    auto& [best, width] = calls[fmt::format("{} {}", fields[1], fields[3])];
    if (best > 0 && number(8) >= best) continue;
    best = number(8);
    width = (number(10) - number(9)) / best;
  }
  double widest = 0;
  for (const auto& [call, one] : calls) widest = std::max(widest, one.second);
  return widest;
}

TEST(TuttiTune, UsesItsTimeUnlessAllIsSettled) {
  const TemporaryFile file("");
  const TemporaryFile csv("");
  int status = 1;
  const std::string said =
      tune("-n 2,4 -c allreduce -b 64 -e 4K --budget 1s -o " + file.path() + " --csv " + csv.path(), &status);
  EXPECT_EQ(status, 0) << said;
  if (said.find("# All is settled") != std::string::npos) {
    EXPECT_LE(widestOfBest(contentOf(csv.path())), 0.11);  // it is written rounded
    EXPECT_THAT(said, HasSubstr(" s are left"));
  } else {
    EXPECT_THAT(said, testing::ContainsRegex(
                          " of [1-6] calls the best or the chosen way is known to no better than 10 %"));
    EXPECT_THAT(contentOf(file.path()), testing::ContainsRegex(" samples in [1-9]"));
  }
}

TEST(TuttiTune, RefusesTargetsThatCannotBeWrittenBeforeItMeasures) {
  const std::pair<const char*, const char*> cases[] = {
      {"-o /no/such/folder/x.csv", "--output /no/such/folder/x.csv: no file can be made there: No such file"},
      {"-o /tmp", "--output /tmp: is a folder"},
      {"--csv /no/such/folder/x.csv", "--csv /no/such/folder/x.csv: no file can be made there"},
  };
  for (const auto& [target, message] : cases) {
    const auto outcome =
        runCommand(std::string(TUTTI_BINARY_DIR "/bin/tutti-tune -n 2 -q --budget 60s ") + target + " 2>&1");
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.output, HasSubstr(message));
  }
}

}  // namespace
}  // namespace tutti::tune
