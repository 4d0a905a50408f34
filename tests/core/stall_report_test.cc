#include "core/stall_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/ras_report.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using State = RankPosition::State;
using ::testing::HasSubstr;
using ::testing::Not;

CallName allReduce(uint64_t count) {
  return {
      .kind = CallName::Kind::collective, .type = ncclFloat32, .op = CallName::Operator::sum, .count = count};
}

RankPosition at(int rank, State state, CallName call, uint64_t collective, std::vector<int> waitsFor = {}) {
  RankPosition one;
  one.session = 7;
  one.communicator = "world";
  one.ranks = 4;
  one.rank = rank;
  one.host = "node" + std::to_string(rank);
  one.pid = 100 + rank;
  one.state = state;
  one.call = call;
  one.collective = collective;
  one.collectivesCalled = collective;
  one.quietMs = 40000;
  for (const int peer : waitsFor)
    one.waits.push_back({.peer = peer, .step = 3, .steps = 14, .slice = 2, .slices = 5});
  return one;
}

TEST(StallReport, FollowsTheRanksThatWaitForEachOtherToTheOneThatIsLate) {
  const std::vector<RankPosition> positions = {
      at(0, State::running, allReduce(400000), 17, {3}), at(1, State::running, allReduce(400000), 17, {0}),
      at(2, State::idle, {}, 16), at(3, State::running, allReduce(400000), 17, {2})};
  const std::string text = stallReport(positions, 0);
  EXPECT_THAT(
      text, HasSubstr("rank 0: AllReduce of 400000 x float (sum), collective 17 on communicator 'world' (4 "
                      "ranks), has not moved for 40 s: waits for data from rank 3, step 3 of 14, slice 2 of "
                      "5; rank 3 (host node3, pid 103) is in AllReduce"));
  EXPECT_THAT(text,
              HasSubstr("rank 2 (host node2, pid 102) has called 16 collectives and is idle since 40 s"));
  EXPECT_THAT(text, HasSubstr("rank 2 has not called collective 17"));
  EXPECT_FALSE(contradiction(positions, 0, 5s)) << "rank 2 may yet call";
}

TEST(StallReport, ReadsWithAnyPositionsMissing) {
  EXPECT_THAT(stallReport({}, 3), HasSubstr("rank 3"));
  EXPECT_THAT(stallReport({at(0, State::running, allReduce(1), 1, {3, -1})}, 0),
              HasSubstr("an earlier step"));
}

TEST(Contradiction, IsFoundWhenOneCollectiveHasTwoForms) {
  const std::vector<RankPosition> positions = {at(0, State::running, allReduce(5), 2, {1}),
                                               at(1, State::running, allReduce(6), 2, {0})};
  const auto never = contradiction(positions, 1, 5s);
  ASSERT_TRUE(never);
  EXPECT_FALSE(never->left);
  EXPECT_THAT(never->text,
              HasSubstr("rank 1 (host node1, pid 101) called AllReduce of 6 x float (sum), but rank 0"));
}

TEST(Contradiction, IsFoundWhenARankThatIsWaitedForHasLeft) {
  const std::vector<RankPosition> positions = {at(0, State::running, allReduce(5), 2, {1}),
                                               at(1, State::running, allReduce(5), 2, {2}),
                                               at(2, State::left, {}, 1)};
  const auto never = contradiction(positions, 0, 5s);
  ASSERT_TRUE(never);
  EXPECT_TRUE(never->left);
}

TEST(Contradiction, OfAMessageAndACollectiveNeedsACircleInWhichNothingMoves) {
  const CallName send{.kind = CallName::Kind::send, .root = 1, .count = 100};
  std::vector<RankPosition> positions = {at(0, State::running, send, 1, {1}),
                                         at(1, State::running, allReduce(5), 2, {0})};
  EXPECT_TRUE(contradiction(positions, 0, 5s));
  EXPECT_TRUE(contradiction(positions, 1, 5s));
  auto moving = positions;
  moving[0].quietMs = 10;
  EXPECT_FALSE(contradiction(moving, 1, 5s));
  auto called = positions;
  called[0].collectivesCalled = 2;  // its AllReduce is enqueued behind the message, which may arrive yet
  EXPECT_FALSE(contradiction(called, 1, 5s));
  auto open = positions;
  open[0].waits.clear();
  EXPECT_FALSE(contradiction(open, 1, 5s));
}

TEST(Contradiction, IsNotSeenInAStalledNetwork) {
  const std::vector<RankPosition> positions = {at(0, State::running, allReduce(5), 3, {1}),
                                               at(1, State::running, allReduce(5), 2, {0})};
  EXPECT_FALSE(contradiction(positions, 0, 5s)) << "rank 0 may have sent what rank 1 waits for";
}

TEST(Positions, SurviveTheWire) {
  RankPosition one = at(2, State::running, allReduce(1ull << 40), 9, {0, 1, 3});
  one.note = "x";
  one.messages = 4;
  WireWriter out;
  one.encode(out);
  const std::string bytes = out.bytes();
  WireReader in(bytes);
  RankPosition read;
  ASSERT_TRUE(RankPosition::decode(in, read));
  EXPECT_TRUE(in.finished());
  EXPECT_EQ(read.standing(), one.standing());
  EXPECT_EQ(read.waits, one.waits);
  EXPECT_EQ(read.who(), "rank 2 (host node2, pid 102)");
  // Cut and damaged bytes are refused or read as something printable, never more.
  for (size_t size = 0; size < bytes.size(); ++size) {
    WireReader cut(std::string_view(bytes).substr(0, size));
    RankPosition unused;
    EXPECT_FALSE(RankPosition::decode(cut, unused)) << size;
    for (const int change : {1, 0x80, 0xff}) {
      std::string damaged = bytes;
      damaged[size] = static_cast<char>(damaged[size] ^ change);
      WireReader wrong(damaged);
      RankPosition other;
      if (RankPosition::decode(wrong, other)) {
        EXPECT_FALSE(other.standing().empty());
      }
    }
  }
}

TEST(Condense, KeepsThoseThatMatterOfALargeCommunicator) {
  std::vector<RankPosition> positions;
  for (int rank = 0; rank < 200; ++rank) {
    positions.push_back(at(rank, State::running, allReduce(5), 7, {(rank + 1) % 200}));
    positions.back().ranks = 200;
  }
  positions[150].state = State::idle;
  positions[150].collective = 6;
  const auto some = condense(positions, 100);
  EXPECT_LT(some.size(), 100u);
  for (const int rank : {100, 101, 150})
    EXPECT_TRUE(std::any_of(some.begin(), some.end(), [rank](const auto& one) { return one.rank == rank; }))
        << rank;
  EXPECT_EQ(condense({positions[0], positions[1]}, 0).size(), 2u);
}

TEST(RasReport, CountsProblemsAndQuotesWhatItIsGiven) {
  std::vector<RankPosition> positions = {at(0, State::idle, {}, 3), at(1, State::idle, {}, 3)};
  for (auto& one : positions) one.ranks = 2;
  EXPECT_THAT(rasText(positions, false), HasSubstr("2 ranks: IDLE"));
  EXPECT_THAT(rasText(positions, false), HasSubstr("\nState: ok\n"));
  positions[1].state = State::dead;
  positions[1].note = "died: \"connection\\closed\"\n";
  EXPECT_THAT(rasText(positions, false), HasSubstr("\nState: 1 problem(s)\n"));
  const std::string json = rasJson(positions);
  EXPECT_THAT(json, HasSubstr("\"note\": \"died: \\\"connection\\\\closed\\\"\\u000a\""));
  EXPECT_THAT(json, HasSubstr("\"problems\": 1, "));
  EXPECT_THAT(rasText({}, true), HasSubstr("0 communicator(s)"));
}

TEST(RasReport, CountsContainersOfOneNameAsDifferentHosts) {
  std::vector<RankPosition> positions = {at(0, State::idle, {}, 1), at(1, State::idle, {}, 1)};
  for (RankPosition& one : positions) {
    one.host = "box";
    one.pid = 1;
    one.hostKey = static_cast<uint64_t>(one.rank) + 5;
  }
  EXPECT_THAT(rasText(positions, false), HasSubstr("2 process(es) on 2 host(s)"));
  positions[1].hostKey = positions[0].hostKey;
  EXPECT_THAT(rasText(positions, false), HasSubstr("1 process(es) on 1 host(s)"));
}

}  // namespace
}  // namespace tutti
