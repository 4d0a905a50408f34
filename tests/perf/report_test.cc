#include "common/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "common/json_report.h"
#include "common/processes.h"
#include "common/split.h"

namespace tutti::perf {
namespace {

using testing::HasSubstr;

Row exampleRow() {
  Measurement fast;
  fast.seconds = 12.9e-6;
  fast.algBytes = 1.5e9;
  fast.busBytes = 2.25e9;
  fast.wrong = 0;
  Measurement slow = fast;
  slow.seconds = 10.0543e-3;
  slow.wrong = 7;
  Row row;
  row.bytes = 536870912;
  row.count = 134217728;
  row.type = "float";
  row.op = "sum";
  row.outOfPlace = fast;
  row.inPlace = slow;
  return row;
}

TEST(Report, RowsHaveNcclTestsColumns) {
  EXPECT_EQ(rowText(Options(), exampleRow(), ""),
            "   536870912     134217728     float     sum      -1    12.90    1.50    2.25       0"
            "    10054    1.50    2.25       7\n");
}

TEST(Report, RowsEndWithTheTimeWhenAsked) {
  Options options;
  options.timestamps = true;
  EXPECT_THAT(rowText(options, exampleRow(), "2026-01-02 03:04:05"),
              testing::EndsWith("  2026-01-02 03:04:05\n"));
}

TEST(Report, MissingMeasurementsAndChecksReadNotAvailable) {
  Row row = exampleRow();
  row.inPlace.reset();
  row.outOfPlace->wrong.reset();
  EXPECT_THAT(rowText(Options(), row, ""), testing::EndsWith("N/A      N/A     N/A     N/A     N/A\n"));
}

TEST(Report, ColumnTitlesLineUpWithRows) {
  for (const bool perIteration : {false, true}) {
    Options options;
    options.perIteration = perIteration;
    Row row = exampleRow();
    if (perIteration) {
      row.outOfPlace->iterationSummary = summarize({1e-6, 2e-6});
      row.inPlace->iterationSummary = row.outOfPlace->iterationSummary;
    }
    std::istringstream lines(columnsText(options));
    std::string line;
    std::string last;
    while (std::getline(lines, line)) last = line;
    EXPECT_EQ(last.size() + 1, rowText(options, row, "").size());
  }
}

TEST(Report, TimesKeepSevenCharacters) {
  EXPECT_EQ(formatMicroseconds(0.22e-6), "0.22");
  EXPECT_EQ(formatMicroseconds(999.99e-6), "999.99");
  EXPECT_EQ(formatMicroseconds(1806.7e-6), "1806.7");
  EXPECT_EQ(formatMicroseconds(10.0543e-3), "10054");
}

TEST(Report, FooterSaysWhetherResultsWereWrong) {
  Totals totals;
  totals.averageBusBytes = 95.3009e9;
  EXPECT_TRUE(totals.passed());
  EXPECT_THAT(footerText(totals, "x_perf"), HasSubstr("# Out of bounds values : 0 OK\n"));
  EXPECT_THAT(footerText(totals, "x_perf"), HasSubstr("# Avg bus bandwidth    : 95.3009 \n"));
  totals.wrong = 3;
  EXPECT_FALSE(totals.passed());
  EXPECT_THAT(footerText(totals, "x_perf"), HasSubstr("# Out of bounds values : 3 FAILED\n"));
}

TEST(Report, FooterFailsBelowTheRequiredBandwidth) {
  Totals totals;
  totals.averageBusBytes = 9.1e9;
  totals.requiredBusBytes = 10e9;
  EXPECT_TRUE(totals.passed()) << "a tenth below is accepted";
  totals.averageBusBytes = 8.9e9;
  EXPECT_FALSE(totals.passed());
  EXPECT_THAT(footerText(totals, "x_perf"), HasSubstr("FAILED"));
}

TEST(JsonReport, HoldsRowsConfigurationAndVerdict) {
  Options options;
  options.perIteration = true;
  options.commandLine = "all_reduce_perf -b \"\xff\"";  // not UTF-8
  RunRecord record;
  record.program = "all_reduce_perf";
  Row row = exampleRow();
  row.outOfPlace->iterationSeconds = {1e-6, 3e-6};
  row.outOfPlace->iterationSummary = summarize(row.outOfPlace->iterationSeconds);
  row.inPlace.reset();
  record.rows = {row};
  record.ranks.resize(2);
  record.totals.wrong = 7;
  const auto json = nlohmann::json::parse(jsonText(options, record));
  EXPECT_EQ(json["experiment_name"], "all_reduce_perf");
  EXPECT_EQ(json["config"]["iterations"], 20);
  EXPECT_EQ(json["devices"].size(), 2u);
  ASSERT_EQ(json["results"].size(), 1u);
  const auto& result = json["results"][0];
  EXPECT_EQ(result["size"], 536870912);
  EXPECT_DOUBLE_EQ(result["out_of_place"]["time"], 12.9);
  EXPECT_DOUBLE_EQ(result["out_of_place"]["bus_bw"], 2.25);
  EXPECT_EQ(result["out_of_place"]["nwrong"], 0);
  EXPECT_EQ(result["out_of_place"]["per_iter"]["times_us"].size(), 2u);
  EXPECT_TRUE(result["in_place"].is_null());
  EXPECT_EQ(json["out_of_bounds"]["count"], 7);
  EXPECT_EQ(json["out_of_bounds"]["okay"], false);
  EXPECT_EQ(json["average_bus_bandwidth"]["okay"], "unchecked");
}

TEST(JsonReport, FilesThatCannotBeWrittenAreNamedWithTheReason) {
  const Outcome outcome = prepareFile("/no/such/folder/x.json");
  EXPECT_THAT(outcome.message(), HasSubstr("/no/such/folder/x.json"));
  EXPECT_THAT(outcome.message(), HasSubstr("No such file"));
  EXPECT_THAT(writeFile("/dev/full", "text").message(), HasSubstr("No space left"));
}

TEST(Summary, PercentilesAreByNearestRank) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  const Summary summary = summarize(values);
  EXPECT_EQ(summary.p50, 50);
  EXPECT_EQ(summary.p99, 99);
  EXPECT_EQ(summary.min, 1);
  EXPECT_EQ(summary.max, 100);
  EXPECT_DOUBLE_EQ(summary.mean, 50.5);
  EXPECT_EQ(summarize({3}).p99, 3);
  EXPECT_EQ(summarize({}).mean, 0);
}

TEST(Split, RulesGiveColors) {
  Split split;
  ASSERT_TRUE(parseSplit("MOD 2", split).isOk());
  EXPECT_EQ(split.color(5), 1);
  ASSERT_TRUE(parseSplit("div 0b100", split).isOk());
  EXPECT_EQ(split.color(7), 1);
  ASSERT_TRUE(parseSplit("AND 0x6", split).isOk());
  EXPECT_EQ(split.color(7), 6);
  ASSERT_TRUE(parseSplit("|8", split).isOk());
  EXPECT_EQ(split.color(1), 9);
  ASSERT_TRUE(parseSplit("", split).isOk());
  EXPECT_EQ(split.color(123), 0);
}

TEST(Split, NonsenseIsRefused) {
  Split split;
  for (const char* text : {"MOD 0", "DIV", "XOR 3", "7", "MOD -1", "AND 0xzz", "MOD 99999999999"}) {
    const Outcome outcome = parseSplit(text, split);
    EXPECT_FALSE(outcome.isOk()) << text;
    EXPECT_THAT(outcome.message(), HasSubstr(text));
  }
}

TEST(LaunchInfo, KnowsTheLaunchersVariables) {
  const char* names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "PMI_RANK"};
  for (const char* name : names) ::unsetenv(name);
  EXPECT_FALSE(launchInfo().launched);
  ::setenv("PMIX_RANK", "0", 1);
  EXPECT_TRUE(launchInfo().launched);
  EXPECT_EQ(launchInfo().size, 0);
  ::setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  EXPECT_EQ(launchInfo().size, 4);
  EXPECT_EQ(launchInfo().by, "OMPI_COMM_WORLD_SIZE");
  for (const char* name : names) ::unsetenv(name);
}

}  // namespace
}  // namespace tutti::perf
