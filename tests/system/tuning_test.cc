// TUTTI_TUNING_FILE, seen from programs.
#include <gmock/gmock.h>

#include <string>

#include "support/files.h"
#include "system/log.h"
#include "system/ranks.h"
#include "tutti/tutti.h"

namespace tutti::system_test {
namespace {

using namespace std::chrono_literals;
using test::TemporaryFile;
using testing::AllOf;
using testing::HasSubstr;

/// What each rank says of an AllReduce of 8 bytes, and of the simulation of one of 128 bytes and of a
/// message.
int askAndSimulate(Rank& self, const ChildSide& parent) {
  float value[32] = {};
  must(ncclAllReduce(value, value, 2, ncclFloat32, ncclSum, self.comm, nullptr), "ncclAllReduce", parent);
  must(tuttiStreamSynchronize(nullptr), "tuttiStreamSynchronize", parent);
  tuttiPlan_t plan = TUTTI_PLAN_INITIALIZER;
  must(tuttiCommLastPlan(self.comm, &plan), "tuttiCommLastPlan", parent);
  parent.say("algorithm " + std::string(plan.algorithm));
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  must(ncclGroupStart(), "ncclGroupStart", parent);
  must(ncclAllReduce(value, value, 32, ncclFloat32, ncclSum, self.comm, nullptr), "ncclAllReduce", parent);
  must(ncclGroupSimulateEnd(&info), "ncclGroupSimulateEnd", parent);
  parent.say("call " + std::to_string(info.estimatedTime));
  must(ncclGroupStart(), "ncclGroupStart", parent);
  must(ncclSend(value, 1, ncclFloat32, (self.rank + 1) % self.ranks, self.comm, nullptr), "ncclSend", parent);
  must(ncclGroupSimulateEnd(&info), "ncclGroupSimulateEnd", parent);
  parent.say("message " + std::to_string(info.estimatedTime));
  must(ncclCommDestroy(self.comm), "ncclCommDestroy", parent);
  return 0;
}

TEST(TuningFile, DecidesAndIsTheModelOfSimulations) {
  const TemporaryFile file("@shared.signal = 0.25\n@shared.alpha = 0.5\nallreduce,0,64,tree,simple,1,1,3\n");
  const Log log;
  const Settings settings{{"TUTTI_TUNING_FILE", file.path()}};
  RankProcesses ranks(3, Path::sharedMemory, askAndSimulate);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ranks[rank].expectLine("algorithm ", in(20s)), "tree");
    // By oneshot, whose time is that of a signal; and of a message.
    EXPECT_NEAR(std::stod(ranks[rank].expectLine("call ", in(20s))), 0.25e6, 1e3);
    EXPECT_NEAR(std::stod(ranks[rank].expectLine("message ", in(20s))), 0.5e6, 1e3);
  }
  ranks.expectSuccess(20s);
  EXPECT_THAT(log.text(),
              HasSubstr("AllReduce: 8 bytes: algorithm tree, protocol simple, 1 channel(s), predicted"));
  EXPECT_THAT(log.text(), HasSubstr(" us (" + file.path() + ":3; next oneshot, "));
}

TEST(TuningFile, ThatCannotBeFollowedIsSaidOnceForACall) {
  const TemporaryFile file("allreduce,0,64,hierarchical,simple,1,-1,-1\n");
  const Log log;
  const Settings settings{{"TUTTI_TUNING_FILE", file.path()}};
  RankProcesses ranks(2, Path::sharedMemory, askAndSimulate);
  ranks.expectSuccess(20s);
  const std::string text = log.text();
  const std::string line =
      "AllReduce: 8 bytes: " + file.path() + ":1 is not followed: hierarchical needs several hosts";
  int lines = 0;
  for (size_t at = text.find(line); at != std::string::npos; at = text.find(line, at + 1)) ++lines;
  EXPECT_EQ(lines, 2) << text;  // one on each rank
  int choices = 0;
  const std::string chosen = "AllReduce: 8 bytes: algorithm oneshot";
  for (size_t at = text.find(chosen); at != std::string::npos; at = text.find(chosen, at + 1)) ++choices;
  EXPECT_EQ(choices, 2) << text;  // although it is planned for buffers of both kinds
}

std::string whyInitFails(const std::function<void(int rank)>& prepare) {
  RankProcesses ranks(2, Path::sharedMemory, askAndSimulate, prepare);
  std::string said;
  for (int rank = 0; rank < 2; ++rank) {
    std::string line;
    EXPECT_TRUE(ranks[rank].readLine(line, in(20s)));
    said += line + "\n";
    EXPECT_NE(ranks[rank].wait(in(20s)), 0);
  }
  return said;
}

TEST(TuningFile, MustBeTheSameForAllRanks) {
  const TemporaryFile one("allreduce,0,64,tree,simple,1,1,2\n");
  const TemporaryFile other("allreduce,0,64,ring,simple,1,1,2\n");
  const std::string said = whyInitFails(
      [&](int rank) { ::setenv("TUTTI_TUNING_FILE", (rank == 0 ? one : other).path().c_str(), 1); });
  EXPECT_THAT(said, AllOf(HasSubstr("TUTTI_TUNING_FILE"), HasSubstr("rank 0"), HasSubstr("rank 1"),
                          HasSubstr("sha256")));
}

TEST(TuningFile, ThatIsMalformedFailsInitWithTheLine) {
  const TemporaryFile file("\nallreduce,0,8,ring");
  const Settings settings{{"TUTTI_TUNING_FILE", file.path()}};
  EXPECT_THAT(whyInitFails({}), HasSubstr(file.path() + ":2: 4 fields"));
  const Settings missing{{"TUTTI_TUNING_FILE", "/nowhere/t.csv"}};
  EXPECT_THAT(whyInitFails({}), HasSubstr("open tuning file /nowhere/t.csv"));
}

}  // namespace
}  // namespace tutti::system_test
