// tutti-sim as its users call it.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "support/command.h"
#include "support/files.h"

namespace tutti {
namespace {

using test::runCommand;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string kSim = TUTTI_BINARY_DIR "/bin/tutti-sim ";
const std::string kH100 = " --topo " TUTTI_SOURCE_DIR "/tests/topology/data/oci-h100-full.xml ";

std::string simOutput(const std::string& arguments, int status = 0) {
  const auto outcome = runCommand(kSim + arguments);
  EXPECT_EQ(outcome.status, status) << arguments << "\n" << outcome.output;
  return outcome.output;
}

TEST(TuttiSim, PricesACollectiveOnACluster) {
  const std::string text =
      simOutput("--coll allreduce --ranks 64 --hosts 8 --bytes 1K:1M:32 --algo ring,tree");
  EXPECT_THAT(text, StartsWith("AllReduce, 64 ranks on 8 hosts, no GPUs, 1 port of 10 Gbit/s, fat-tree\n"));
  EXPECT_THAT(text, AllOf(HasSubstr("busbw GB/s"), HasSubstr("   1K  ring"), HasSubstr("  32K  tree"),
                          HasSubstr("   1M  ring"), HasSubstr("latency")));
}

TEST(TuttiSim, WritesJson) {
  const std::string text =
      simOutput("--ranks 64 --bytes 1G --algo ring --cluster rail --nic 400G --nics 8 --json" + kH100);
  const auto rows = nlohmann::json::parse(text, nullptr, false);
  ASSERT_EQ(rows.size(), 1u) << text;
  EXPECT_EQ(rows[0]["algorithm"], "ring");
  EXPECT_EQ(rows[0]["hosts"], 8);
  EXPECT_EQ(rows[0]["channels"], 16);
  EXPECT_GT(rows[0]["busbw"].get<double>(), 330e9);
  EXPECT_LT(rows[0]["busbw"].get<double>(), 370e9);
  EXPECT_NEAR(rows[0]["busbw"].get<double>(), rows[0]["algbw"].get<double>() * 2 * 63 / 64, 1);
}

TEST(TuttiSim, NamesTheBestOfEachSize) {
  const auto rows =
      nlohmann::json::parse(simOutput("--ranks 8 --hosts 8 --bytes 8,64M --best --json"), nullptr, false);
  ASSERT_EQ(rows.size(), 2u);
  const auto all =
      nlohmann::json::parse(simOutput("--ranks 8 --hosts 8 --bytes 8,64M --json"), nullptr, false);
  for (const auto& best : rows)
    for (const auto& one : all) {
      if (one["bytes"] != best["bytes"]) continue;
      EXPECT_LE(best["seconds"], one["seconds"]) << one;
    }
}

TEST(TuttiSim, ShowsTheScheduleOfARank) {
  const std::string text = simOutput("--ranks 4 --algo ring --show 1");
  EXPECT_THAT(text, AllOf(StartsWith("ring AllReduce, rank 1 of 4: 4 segments\n"),
                          HasSubstr("send               input[0] -> rank 2")));
}

TEST(TuttiSim, DrawsCurves) {
  const std::string path = testing::TempDir() + "tutti_sim_" + std::to_string(::getpid()) + ".svg";
  simOutput("--ranks 8:64:2 --bytes 1K:1M:32 --algo ring,tree --plot " + path);
  std::ifstream file(path);
  std::ostringstream svg;
  svg << file.rdbuf();
  ::unlink(path.c_str());
  EXPECT_THAT(svg.str(),
              AllOf(StartsWith("<svg"), HasSubstr(">Time, 64 ranks<"), HasSubstr(">Bus bandwidth, 1MB<"),
                    HasSubstr(">tree<"), HasSubstr("<polyline"), HasSubstr("</svg>")));
  EXPECT_THAT(simOutput("--plot /no/such/folder/x.svg", 1),
              HasSubstr("open /no/such/folder/x.svg: No such file"));
}

TEST(TuttiSim, AdvisesOnPlacement) {
  const std::string text = simOutput("--ranks 16 --hosts 4 --bytes 1M --algo ring --place");
  EXPECT_THAT(text, AllOf(HasSubstr("\nby host"), HasSubstr("\nround robin"), HasSubstr("visited by host"),
                          HasSubstr("ring 0 of 1, ranks by host: 0 1 2 3 4")));
  EXPECT_THAT(simOutput("--ranks 4 --hosts 1 --place", 1), HasSubstr("there is one"));
}

TEST(TuttiSim, ProvesAlgorithms) {
  const std::string text = simOutput("--verify-all --max-ranks 5");
  EXPECT_THAT(
      text, AllOf(HasSubstr("ring AllReduce on 5 ranks: 8 rounds"),
                  HasSubstr("proofs, 1 .. 5 ranks, all roots"), HasSubstr("doubling AllGather on 4 ranks")));
  EXPECT_THAT(simOutput("--verify tree --max-ranks 3"),
              AllOf(HasSubstr("tree AllReduce"), Not(HasSubstr("ring"))));
  EXPECT_THAT(simOutput("--verify nothing", 1), HasSubstr("\"nothing\" is no algorithm"));
}

TEST(TuttiSim, AnswersForThousandsOfRanks) {
  const std::string text = simOutput("--coll allreduce --ranks 4096 --bytes 1G --algo ring,doubling");
  EXPECT_THAT(text, AllOf(HasSubstr("4096 ranks on 512 hosts"), HasSubstr("port 0 out (100 %)")));
}

TEST(TuttiSim, RefusesWrongValuesWithStatus2) {
  const std::pair<const char*, const char*> cases[] = {
      {"--coll sum", "--coll: \"sum\" is none of allreduce"},
      {"--ranks 0", "--ranks 0: 0 is not a whole number"},
      {"--ranks x", "--ranks: \"x\" is no number"},
      {"--ranks 2.5", "2.5 is not a whole number"},
      {"--bytes 1X", "a number is followed by K, M, G or T"},
      {"--bytes 8:1", "must go from a positive number to a larger one"},
      {"--bytes 8:16:1", "the factor must be above 1"},
      {"--bytes 1:2:3:4", "is no range"},
      {"--bytes -5", "--bytes"},
      {"--algo ring,,tree", "an algorithm's name is missing"},
      {"--cluster cloud", "--cluster: \"cloud\" is none of host, fat-tree, rail, dragonfly"},
      {"--nic 1", "bits a second are not in 1M"},
      {"--nics 0", "--nics"},
      {"--wire string", "--wire"},
      {"--oversubscription 0.5", "--oversubscription 0.5 is not in"},
      {"--proto fast", "--proto"},
      {"--engine v8", "--engine"},
      {"--slot 1", "--slot 1: at least 64"},
      {"--ranks 4 --hosts 5", "--hosts 5: there are only 4 ranks"},
      {"--ranks 4 --root 4", "--root 4: the ranks are 0 .. 3"},
      {"--hosts 2 --per-host 2", "give one"},
      {"--hosts 2 --cluster host", "--cluster host is one host"},
      {"--show 1", "--show needs --algo with one name"},
      {"--ranks 4 --algo ring --show 9", "--show 9: the ranks are 0 .. 3"},
      {"--plot curves.gif", "must end with .svg or .png"},
      {"--place --verify-all", "only one of"},
      {"--max-ranks many", "--max-ranks"},
      {"--frobnicate", "--frobnicate"},
  };
  for (const auto& [arguments, message] : cases)
    EXPECT_THAT(simOutput(arguments, 2), AllOf(StartsWith("tutti-sim: "), HasSubstr(message))) << arguments;
}

TEST(TuttiSim, SaysWhatCannotBeDoneWithStatus1) {
  EXPECT_THAT(simOutput("--algo magic", 1), HasSubstr("\"magic\" is no algorithm; known are ring"));
  EXPECT_THAT(simOutput("--ranks 16 --hosts 4 --algo oneshot", 1), HasSubstr("one host without GPUs"));
  EXPECT_THAT(simOutput("--topo /no/such/file.xml", 1), HasSubstr("/no/such/file.xml"));
  EXPECT_THAT(simOutput("--ranks 9 --hosts 1" + kH100, 1), HasSubstr("9 ranks a host, and it has 8 GPUs"));
  EXPECT_THAT(simOutput("--ranks 6 --coll allgather --algo doubling", 1),
              HasSubstr("doubling does not implement"));
}

TEST(TuttiSim, ChecksAlgorithmFilesAndWritesThem) {
  const std::string examples = TUTTI_SOURCE_DIR "/examples/algorithms/";
  for (const auto& file : std::filesystem::directory_iterator(examples)) {
    if (file.path().extension() != ".json" && file.path().extension() != ".xml") continue;
    EXPECT_THAT(simOutput("--check " + file.path().string()),
                AllOf(HasSubstr("rounds"), HasSubstr("proved for calls")))
        << file.path();
  }
  const test::TemporaryFile written(simOutput("--algo circulant --ranks 5 --show 0 --json"));
  EXPECT_THAT(simOutput("--check " + written.path()), HasSubstr("circulant AllReduce on 5 ranks: 6 rounds"));
  const test::TemporaryFile broken("{\"name\": 1}");
  EXPECT_THAT(simOutput("--check " + broken.path(), 1), HasSubstr(broken.path()));
  EXPECT_THAT(simOutput("--check a --place", 2), HasSubstr("only one of"));
}

TEST(TuttiSim, HelpsAndTellsItsVersion) {
  EXPECT_THAT(simOutput("--help"), AllOf(HasSubstr("--oversubscription"), HasSubstr("docs/simulation.md")));
  EXPECT_THAT(simOutput("--version"), StartsWith("tutti-sim "));
}

}  // namespace
}  // namespace tutti
