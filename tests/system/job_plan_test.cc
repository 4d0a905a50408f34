// What ranks make of their hosts' topologies together: rings, trees, graph files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "support/files.h"
#include "system/log.h"
#include "system/surroundings.h"

namespace tutti::system_test {
namespace {

using namespace std::chrono_literals;
using test::TemporaryFile;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kTwoNodes =
    R"(<system version="1"><cpu numaid="0" affinity="1"/><cpu numaid="1" affinity="2"/></system>)";

/// One NUMA node, a card with a port of this speed.
std::string hostWithPort(int megabits) {
  return R"(<system version="1"><cpu numaid="0" affinity="3">
    <pci busid="0000:41:00.0" class="0x020000" link_speed="32.0 GT/s PCIe" link_width="16"><nic>
    <net name="eth9" dev="0" speed=")" +
         std::to_string(megabits) +
         R"(" port="0" guid="0x1" maxconn="64" gdr="0"/></nic></pci></cpu></system>)";
}

/// Four ranks reduce; the log of all.
std::string logOf(Path path, const std::vector<int>& deviceOf, const std::function<void(int)>& prepare = {},
                  size_t count = 1000) {
  const Log log;
  RankProcesses ranks(
      static_cast<int>(deviceOf.size()), path,
      [count](Rank& self, const ChildSide& parent) { return checkAndDestroy(self, parent, count); },
      [&](int rank) {
        if (prepare) prepare(rank);
        (void)cudaSetDevice(deviceOf[static_cast<size_t>(rank)]);
      });
  ranks.expectSuccess(kRankLimit);
  return log.text();
}

TEST(JobPlan, RingsPassTheRanksOfANumaNodeBeforeThoseOfTheNext) {
  const TemporaryFile topology(kTwoNodes);
  const Settings settings{{"NCCL_TOPO_FILE", topology.path()}, {"TUTTI_HOST_DEVICES", "4"}};
  // Devices 0 and 1 are at node 0.
  EXPECT_THAT(logOf(Path::sharedMemory, {0, 2, 1, 3}),
              AnyOf(HasSubstr("rings pass ranks 0 2 1 3"), HasSubstr("rings pass ranks 0 2 3 1")));
  EXPECT_THAT(logOf(Path::sharedMemory, {0, 1, 2, 3}),
              AnyOf(HasSubstr("rings pass ranks 0 1 2 3"), HasSubstr("rings pass ranks 0 1 3 2")));
}

TEST(JobPlan, RingsPassTheRanksOfAHostBeforeThoseOfTheNext) {
  const std::string log = logOf(Path::sharedMemory, {0, 1, 2, 3},
                                [](int rank) { ::setenv("NCCL_HOSTID", rank % 2 == 0 ? "even" : "odd", 1); });
  EXPECT_THAT(log, HasSubstr("2 host(s), "));
  EXPECT_THAT(log, AnyOf(HasSubstr("rings pass ranks 0 2 1 3"), HasSubstr("rings pass ranks 0 2 3 1")));
}

TEST(JobPlan, RanksThatSeeDifferentThingsMergeThem) {
  const TemporaryFile one(R"(<system version="1"><cpu numaid="0" affinity="1"/></system>)");
  const TemporaryFile other(R"(<system version="1"><cpu numaid="1" affinity="2"/></system>)");
  const std::string log = logOf(Path::sharedMemory, {0, 0, 0}, [&](int rank) {
    ::setenv("NCCL_TOPO_FILE", (rank == 1 ? other : one).path().c_str(), 1);
    ::setenv("TUTTI_HOST_DEVICES", "1", 1);
  });
  EXPECT_THAT(log, HasSubstr("the ranks of this host see 2 different topologies; together: 2 NUMA node(s)"));
  EXPECT_THAT(log, AnyOf(HasSubstr("rings pass ranks 0 2 1"), HasSubstr("rings pass ranks 0 1 2")));
}

TEST(JobPlan, AFasterPortMakesCallsBetweenHostsCheaper) {
  const auto predicted = [](int megabits) {
    const TemporaryFile topology(hostWithPort(megabits));
    const Settings settings{{"NCCL_TOPO_FILE", topology.path()}, {"NCCL_ALGO", "ring"}};
    const std::string log = logOf(Path::sockets, {0, 0}, {}, 1 << 20);
    EXPECT_THAT(log, HasSubstr("eth9"));
    double most = 0;  // of several calls, some of which are small
    for (size_t at = log.find("predicted "); at != std::string::npos; at = log.find("predicted ", at + 1))
      most = std::max(most, std::stod(log.substr(at + 10)));
    return most;
  };
  // (This machine's own ports count, too.)
  EXPECT_GT(predicted(1000), 1.5 * predicted(400000));
}

TEST(JobPlan, IsWrittenToTheDumpFileByItsRankAndReadFromAGraphFile) {
  const TemporaryFile topology(kTwoNodes);
  const TemporaryFile graph;
  const Settings settings{{"NCCL_TOPO_FILE", topology.path()}, {"TUTTI_HOST_DEVICES", "2"}};
  {
    const Settings dump{{"NCCL_GRAPH_DUMP_FILE", graph.path()}, {"NCCL_GRAPH_DUMP_FILE_RANK", "1"}};
    EXPECT_THAT(logOf(Path::sharedMemory, {0, 1}),
                HasSubstr("rank 1: rings and trees written to " + graph.path()));
  }
  EXPECT_THAT(test::contentOf(graph.path()), AnyOf(HasSubstr("<gpu dev=\"0\"/>\n      <gpu dev=\"1\"/>"),
                                                   HasSubstr("<gpu dev=\"1\"/>\n      <gpu dev=\"0\"/>")));
  const TemporaryFile reversed(
      R"(<graphs version="1"><graph id="0" pattern="4" crossnic="0" nchannels="1" speedintra="7" speedinter="7"
      typeintra="SYS" typeinter="LOC" samechannels="1"><channel><gpu dev="1"/><gpu dev="0"/></channel></graph></graphs>)");
  for (const auto* file : {&graph, &reversed}) {
    const Settings read{{"NCCL_GRAPH_FILE", file->path()}};
    const std::string log = logOf(Path::sharedMemory, {0, 1});
    EXPECT_THAT(log, HasSubstr(file == &reversed ? "1 channel(s) of 7.0 GB/s" : "1 host(s), "));
    if (file == &reversed) {
      EXPECT_THAT(log, HasSubstr("rings pass ranks 1 0"));
    }
  }
}

TEST(JobPlan, AGraphFileThatIsWrongFailsAllRanksWithFileLineAndReason) {
  const TemporaryFile wrong(
      "<graphs version=\"1\">\n<graph id=\"0\" pattern=\"4\" crossnic=\"0\" nchannels=\"1\" "
      "speedintra=\"7\" "
      "speedinter=\"7\" typeintra=\"SYS\" typeinter=\"LOC\" samechannels=\"1\">\n<channel><gpu "
      "dev=\"5\"/></channel></graph></graphs>");
  for (const std::string& path : {wrong.path(), std::string("/nonexistent/graph.xml")}) {
    Child child([&](const ChildSide& parent) {
      ::setenv("NCCL_GRAPH_FILE", path.c_str(), 1);
      ncclComm_t comms[2];
      if (ncclCommInitAll(comms, 2, nullptr) != ncclInvalidUsage) return 2;
      parent.say(std::string("error ") + ncclGetLastError(nullptr));
      return 0;
    });
    const std::string error = child.expectLine("error ", in(10s));
    EXPECT_THAT(error, HasSubstr("NCCL_GRAPH_FILE"));
    EXPECT_THAT(error, HasSubstr(path == wrong.path()
                                     ? path + ":3: <channel>: <gpu dev=\"5\"> is no rank of this host"
                                     : path));
    EXPECT_EQ(child.wait(in(kRankLimit)), 0);
  }
}

}  // namespace
}  // namespace tutti::system_test
