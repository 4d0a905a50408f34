// tutti-tune: what it makes of measurements, and how it is used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "support/command.h"
#include "support/files.h"
#include "tutti_tune/entries.h"
#include "tutti_tune/fit.h"

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

Result<Selector> selectorWith(const TuningFile& file) {
  SelectorSettings settings;
  settings.tuning = std::make_shared<const TuningFile>(file);
  return Selector::create(CandidateSet::sharedShipped(), settings);
}

/// All calls of AllReduce with all ways that can run them, as they take on a machine of these costs.
std::vector<Point> pointsOf(const MachineCosts& costs, int32_t hosts) {
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
                     .maxChannels = hosts == 1 ? 1 : 4};
      for (const Candidate& candidate : candidates) {
        if (obstacleOf(candidate, point.input) != Obstacle::none) continue;
        for (const int32_t channels : channelCounts(candidate, point.input)) {
          const double seconds = predictedSeconds(candidate, point.input, costs, channels);
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
  EXPECT_TRUE(entriesFor(points, *model, 0.05).empty());
  // On four ranks tree is twice as fast as anything at two neighbouring sizes.
  for (Point& point : points)
    if (point.input.ranks == 4 && (point.input.bytes == 64 || point.input.bytes == 512))
      take(wayOf(point, "tree"), point.best(*model->candidates(), true)->median().value / 2);
  std::vector<TuningEntry> entries = entriesFor(points, *model, 0.05);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].algorithm, "tree");
  EXPECT_EQ(entries[0].minBytes, 23u);    // sqrt(8 x 64) is 22.6
  EXPECT_EQ(entries[0].maxBytes, 1448u);  // sqrt(512 x 4096)
  EXPECT_EQ(entries[0].ranks, 4);
  EXPECT_EQ(entries[0].hosts, 1);
  EXPECT_FALSE(entries[0].mapped.has_value());
  // By less than the noise: none.
  EXPECT_TRUE(entriesFor(points, *model, 1.5).empty());
  // With them the choice is the best.
  TuningFile file;
  for (const TuningEntry& entry : entries) file.add(entry);
  EXPECT_TRUE(entriesFor(points, *selectorWith(file), 0.05).empty());
}

TEST(TuneEntries, SayForWhichBuffersTheyAre) {
  const MachineCosts costs{sharedMemoryCosts(), tcpCosts()};
  std::vector<Point> points = pointsOf(costs, 1);
  const auto model = selectorWith({});
  Point& last = points.back();  // 8 ranks, 16 MiB: direct where buffers allow it
  take(wayOf(last, "direct"), last.best(*model->candidates(), true)->median().value * 0.1);
  const std::string usual = chosenWay(last, *model, false)->algorithm;
  take(wayOf(last, "tree"), chosenWay(last, *model, false)->median().value * 0.5);
  const std::vector<TuningEntry> entries = entriesFor(points, *model, 0.05);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].algorithm, "tree") << usual;
  EXPECT_EQ(entries[0].mapped, false);
  EXPECT_EQ(entries[0].maxBytes, SIZE_MAX);
}

TEST(TuneEntries, WaitForIntervalsThatDoNotOverlap) {
  const MachineCosts costs{sharedMemoryCosts(), tcpCosts()};
  std::vector<Point> points = pointsOf(costs, 1);
  const auto model = selectorWith({});
  Way* tree = wayOf(points.back(), "tree");
  take(tree, points.back().best(*model->candidates(), true)->median().value / 2);
  tree->seconds.front() = tree->seconds.back() = 1;  // one slow sample among seven, in the interval
  EXPECT_TRUE(entriesFor(points, *model, 0.05).empty());
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
      tune("-n 2 -c allreduce,gather -b 64 -e 4K --budget 0.3s -q -o " + file.path(), &status);
  EXPECT_EQ(status, 0) << said;
  EXPECT_THAT(said, AllOf(HasSubstr("# With "), HasSubstr("written: TUTTI_TUNING_FILE=")));
  const auto written = TuningFile::parse(contentOf(file.path()), "t.csv");
  ASSERT_TRUE(written.isOk()) << written.status().message();
  EXPECT_NE(written->apply(sharedMemoryCosts(), CostMedium::shared).alpha, sharedMemoryCosts().alpha);
  EXPECT_EQ(written->apply(tcpCosts(), CostMedium::network).alpha, tcpCosts().alpha);  // nothing was measured
  const auto compared = runCommand(
      "TUTTI_TUNING_FILE=" + file.path() +
      " " TUTTI_BINARY_DIR "/bin/tutti-tune --compare -n 2 -c allreduce -b 64 -e 64 --budget 0.3s -q 2>&1");
  EXPECT_EQ(compared.status, 0) << compared.output;
  EXPECT_THAT(compared.output, HasSubstr("# chosen/best of 1 calls: geometric mean"));
}

}  // namespace
}  // namespace tutti::tune
