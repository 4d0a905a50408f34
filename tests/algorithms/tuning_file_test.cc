#include "algorithms/tuning_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "algorithms/selector.h"

namespace tutti {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string problem(std::string_view text) {
  const auto file = TuningFile::parse(text, "t.csv");
  return file.isOk() ? "fine" : file.status().message();
}

TEST(TuningFile, HasParametersEntriesAndComments) {
  const auto file = TuningFile::parse(
      "# measured\n"
      "\n"
      "@shared.alpha = 1e-6   # of a message\r\n"
      "  @Network.BETA=8.0e-10\n"
      "AllReduce, 0, 4096, OneShot, Simple, 1, 1, 4\n"
      "broadcast,4097,-1,tree,-1,-1,-1,-1,-1,1",
      "t.csv");
  ASSERT_TRUE(file.isOk()) << file.status().message();
  ASSERT_EQ(file->entries().size(), 2u);
  const TuningEntry& first = file->entries()[0];
  EXPECT_EQ(first.line, 5);
  EXPECT_EQ(first.collective, Collective::allReduce);
  EXPECT_EQ(first.minBytes, 0u);
  EXPECT_EQ(first.maxBytes, 4096u);
  EXPECT_EQ(first.algorithm, "oneshot");
  EXPECT_EQ(first.protocol, Protocol::simple);
  EXPECT_EQ(first.channels, 1);
  EXPECT_EQ(first.hosts, 1);
  EXPECT_EQ(first.ranks, 4);
  EXPECT_FALSE(first.mapped.has_value());
  const TuningEntry& second = file->entries()[1];
  EXPECT_EQ(second.maxBytes, SIZE_MAX);
  EXPECT_FALSE(second.protocol || second.channels || second.hosts || second.ranks || second.operations);
  EXPECT_EQ(second.mapped, true);
  EXPECT_DOUBLE_EQ(file->apply(sharedMemoryCosts(), CostMedium::shared).alpha, 1e-6);
  EXPECT_DOUBLE_EQ(file->apply(sharedMemoryCosts(), CostMedium::shared).beta, sharedMemoryCosts().beta);
  EXPECT_DOUBLE_EQ(file->apply(tcpCosts(), CostMedium::network).beta, 8e-10);
  EXPECT_DOUBLE_EQ(file->apply(tcpCosts(), CostMedium::network).alpha, tcpCosts().alpha);
}

TEST(TuningFile, IsWrittenAsItIsRead) {
  TuningFile file;
  for (const CostMedium medium : kCostMedia)
    for (const CostParameterName& one : costParameterNames()) file.set(medium, one, 1.0 / 3e7);
  file.set(CostMedium::shared, costParameterNames()[0], 0.1e-6);  // again: replaces
  TuningEntry entry{
      .collective = Collective::reduceScatter, .minBytes = 7, .maxBytes = 9, .algorithm = "a/b"};
  file.add(entry);
  entry.mapped = false;
  entry.protocol = Protocol::ll128;
  entry.ranks = 3;
  file.add(entry);
  entry.operations = 2;
  entry.mapped.reset();
  entry.maxBytes = SIZE_MAX;
  file.add(entry);
  const auto again = TuningFile::parse(file.text(), "again");
  ASSERT_TRUE(again.isOk()) << again.status().message() << "\n" << file.text();
  EXPECT_EQ(*again, file) << file.text();
  EXPECT_EQ(again->text(), file.text());
}

TEST(TuningFile, ErrorsNameFileLineWhatAndWhy) {
  EXPECT_EQ(problem("\nallreduce,0,8,ring,simple,1,1"),
            "t.csv:2: 7 fields, but an entry has 8 to 10: "
            "function,minbytes,maxbytes,algorithm,protocol,channels,hosts,ranks[,operations[,mapped]]");
  EXPECT_THAT(problem("allreduce,0,8,ring,simple,1,1,2,1,1,1"), HasSubstr("11 fields"));
  EXPECT_THAT(problem("allsum,0,8,ring,simple,1,1,2"),
              HasSubstr("function \"allsum\" is not known; known are"));
  EXPECT_THAT(problem("allreduce,-2,8,ring,simple,1,1,2"),
              HasSubstr("minbytes \"-2\": expected a whole number"));
  EXPECT_THAT(problem("allreduce,0,8K,ring,simple,1,1,2"), HasSubstr("maxbytes \"8k\""));
  EXPECT_THAT(problem("allreduce,,8,ring,simple,1,1,2"), HasSubstr("minbytes \"\""));
  EXPECT_THAT(problem("allreduce,0,99999999999999999999,ring,simple,1,1,2"), HasSubstr("maxbytes"));
  EXPECT_THAT(problem("allreduce,9,8,ring,simple,1,1,2"), HasSubstr("maxbytes 8 is less than minbytes 9"));
  EXPECT_THAT(problem("allreduce,0,8,,simple,1,1,2"), HasSubstr("algorithm \"\": expected a name"));
  EXPECT_THAT(problem("allreduce,0,8,ri ng,simple,1,1,2"), HasSubstr("algorithm \"ri ng\""));
  EXPECT_THAT(problem("allreduce,0,8," + std::string(200, 'x') + ",simple,1,1,2"), HasSubstr("xxx...\""));
  EXPECT_THAT(problem("allreduce,0,8,ring,fast,1,1,2"), HasSubstr("protocol \"fast\" is not known"));
  EXPECT_THAT(problem("allreduce,0,8,ring,simple,0,1,2"),
              HasSubstr("channels \"0\": expected a whole number from 1"));
  EXPECT_THAT(problem("allreduce,0,8,ring,simple,65,1,2"), HasSubstr("channels \"65\""));
  EXPECT_THAT(problem("allreduce,0,8,ring,simple,1,0,2"), HasSubstr("hosts \"0\""));
  EXPECT_THAT(problem("allreduce,0,8,ring,simple,1,1,two"), HasSubstr("ranks \"two\""));
  EXPECT_THAT(problem("allreduce,0,8,ring,simple,1,1,2,-1,2"), HasSubstr("mapped \"2\""));
  EXPECT_THAT(problem("@shared.alpha"), HasSubstr("expected @medium.parameter = value"));
  EXPECT_THAT(problem("@shared.speed = 1"),
              HasSubstr("\"@shared.speed\" is no parameter; known are shared. and"));
  EXPECT_THAT(problem("@disk.alpha = 1"), StartsWith("t.csv:1: \"@disk.alpha\""));
  EXPECT_THAT(problem("@shared.alpha = "), HasSubstr("expected seconds"));
  for (const char* value : {"0", "-1e-6", "2", "nan", "inf", "1e-6s", "1e-400", "0x1p-20"})
    EXPECT_THAT(problem(std::string("@shared.alpha = ") + value),
                HasSubstr("expected seconds, more than 0 and at most 1"))
        << value;
  EXPECT_THAT(problem("@network.beta = 0.1"), HasSubstr("seconds for each byte"));
  EXPECT_EQ(problem("@shared.hostByte = 0"), "fine");  // not limited
  EXPECT_THAT(problem("@shared.alpha = 1e-6\n@shared.alpha = 1e-6"),
              HasSubstr("t.csv:2: @shared.alpha is set twice"));
  EXPECT_THAT(problem(std::string_view("allreduce\0,0", 12)), HasSubstr("fields"));
}

TEST(TuningFile, HasLimits) {
  EXPECT_THAT(problem(std::string(kTuningFileMaxBytes + 1, ' ')), HasSubstr("a tuning file has at most"));
  std::string text;
  for (size_t i = 0; i < kTuningFileMaxEntries; ++i) text += "reduce,0,8,ring,-1,1,1,2\n";
  EXPECT_EQ(problem(text), "fine");
  EXPECT_THAT(problem(text + "reduce,0,8,ring,-1,1,1,2\n"),
              HasSubstr("t.csv:16385: more than 16384 entries"));
}

TEST(TuningSource, ComparesContentsNotPlaces) {
  const auto file = [](const char* name, const char* text) {
    const std::string path = testing::TempDir() + "tuning_" + std::to_string(::getpid()) + name;
    std::ofstream(path) << text;
    const TuningSource source = TuningSource::read(path);
    std::remove(path.c_str());
    return source;
  };
  EXPECT_EQ(file("a", "# x\n").digest(), file("b", "# x\n").digest());
  EXPECT_NE(file("a", "# x\n").digest(), file("a", "# y\n").digest());
  EXPECT_EQ(TuningSource::read("").digest(), "(none)");
  EXPECT_EQ(*TuningSource::read("").load(), nullptr);
  EXPECT_EQ(file("a", "# x\n").load().status().message(), "");
  const TuningSource missing = TuningSource::read("/nowhere/t.csv");
  EXPECT_THAT(missing.digest(), HasSubstr("open tuning file /nowhere/t.csv"));
  EXPECT_THAT(missing.load().status().message(), HasSubstr("No such file"));
}

}  // namespace
}  // namespace tutti
