// The control channel among ranks that behave.
#include "bootstrap/control.h"

#include <gmock/gmock.h>

#include <algorithm>

#include <mutex>

#include "bootstrap/ranks.h"

namespace tutti::testing {
namespace {

using ::testing::HasSubstr;

class ControlOfSize : public ::testing::TestWithParam<int> {};

TEST_P(ControlOfSize, GathersEveryRanksBytesInRankOrder) {
  auto ranks = joinedRanks(GetParam());
  onThreads(ranks, [&](Rank& rank) {
    ASSERT_TRUE(rank.control);
    for (int round = 0; round < 5; ++round) {
      // Sizes differ, and one rank has nothing to say.
      const int me = rank.control->rank();
      auto all = rank.control->allGather(
          std::string(static_cast<size_t>(me * 7 + round * (me > 0)), 'a' + me % 26), within(10s));
      ASSERT_TRUE(all.isOk()) << all.status().message();
      ASSERT_EQ(all->size(), static_cast<size_t>(GetParam()));
      for (int i = 0; i < GetParam(); ++i)
        EXPECT_EQ((*all)[i], std::string(static_cast<size_t>(i * 7 + round * (i > 0)), 'a' + i % 26));
    }
    EXPECT_TRUE(rank.control->barrier(within(10s)).isOk());
  });
}

TEST_P(ControlOfSize, CarriesMessagesBetweenAllPairsInOrder) {
  const int n = GetParam();
  auto ranks = joinedRanks(n);
  onThreads(ranks, [&](Rank& rank) {
    ASSERT_TRUE(rank.control);
    const int me = rank.control->rank();
    for (int peer = 0; peer < n; ++peer)
      for (int i = 0; i < 3; ++i)
        for (const uint64_t tag : {7u, 8u})
          ASSERT_TRUE(rank.control->send(peer, tag, fmt::format("{}>{} {}.{}", me, peer, tag, i), within(10s))
                          .isOk());
    // Tags in the other order than they were sent.
    for (int peer = 0; peer < n; ++peer)
      for (const uint64_t tag : {8u, 7u})
        for (int i = 0; i < 3; ++i) {
          auto message = rank.control->receive(peer, tag, within(10s));
          ASSERT_TRUE(message.isOk()) << message.status().message();
          EXPECT_EQ(*message, fmt::format("{}>{} {}.{}", peer, me, tag, i));
        }
    EXPECT_TRUE(rank.control->barrier(within(10s)).isOk());
  });
}

TEST_P(ControlOfSize, EndsInAnyOrderWithoutAFault) {
  auto ranks = joinedRanks(GetParam());
  for (size_t i = 0; i < ranks.size(); ++i) {
    // From the middle outwards: rank 0 neither first nor last.
    Rank& rank = *ranks[(ranks.size() / 2 + i) % ranks.size()];
    rank.control.reset();
    std::this_thread::sleep_for(3ms);
  }
  for (const auto& rank : ranks) {
    EXPECT_FALSE(rank->faults().stopped()) << rank->faults().error().message();
    EXPECT_EQ(rank->faultCalls, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ControlOfSize, ::testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9, 32));

TEST(Control, NotesTravelBetweenRankZeroAndTheOthersAndToNobodyElse) {
  const ncclUniqueId id = newId();
  std::vector<std::unique_ptr<Rank>> ranks;
  std::mutex mutex;
  std::vector<std::string> came;
  for (int i = 0; i < 3; ++i) {
    ranks.push_back(makeRank(id, i, 3));
    ranks.back()->request.onNote = [&, i](int from, std::string_view bytes) {
      const std::lock_guard lock(mutex);
      came.push_back(std::to_string(from) + ">" + std::to_string(i) + " " + std::string(bytes));
    };
  }
  onThreads(ranks, [](Rank& rank) { join(rank); });
  EXPECT_TRUE(ranks[2]->control->note(0, "hello").isOk());
  EXPECT_TRUE(ranks[0]->control->note(1, "you").isOk());
  EXPECT_FALSE(ranks[1]->control->note(2, "no").isOk());
  EXPECT_FALSE(ranks[1]->control->note(7, "no").isOk());
  EXPECT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    return came.size() == 2;
  }));
  {
    const std::lock_guard lock(mutex);
    std::sort(came.begin(), came.end());
    EXPECT_EQ(came, (std::vector<std::string>{"0>1 you", "2>0 hello"}));
  }
  EXPECT_EQ(ranks[0]->control->gone(2), "");
  ranks[2]->control->leave(within(1000ms));
  EXPECT_TRUE(eventually([&] { return ranks[0]->control->gone(2) == "has left the communicator"; }));
  EXPECT_FALSE(ranks[2]->control->note(0, "late").isOk());
}

TEST(Control, GivesAllRanksOneSecretAndEachCommunicatorAnother) {
  auto first = joinedRanks(3);
  auto second = joinedRanks(3);
  EXPECT_EQ(first[0]->control->secret(), first[2]->control->secret());
  EXPECT_EQ(first[0]->control->session(), first[1]->control->session());
  EXPECT_NE(first[0]->control->secret(), second[0]->control->secret());
  EXPECT_NE(first[0]->control->secret(), Secret{});
}

TEST(Control, CarriesLargeMessagesWhilePeersAreBusy) {
  auto ranks = joinedRanks(3);
  const std::string big(20 << 20, 'x');
  onThreads(ranks, [&](Rank& rank) {
    const int me = rank.control->rank();
    ASSERT_TRUE(rank.control->send((me + 1) % 3, 1, big, within(20s)).isOk());
    auto got = rank.control->receive((me + 2) % 3, 1, within(20s));
    ASSERT_TRUE(got.isOk()) << got.status().message();
    EXPECT_EQ(*got, big);
    auto all = rank.control->allGather(std::string(1 << 20, 'a' + me), within(20s));
    ASSERT_TRUE(all.isOk());
    EXPECT_EQ((*all)[1], std::string(1 << 20, 'b'));
  });
}

TEST(Control, NamesASettingThatDiffersWithBothRanksAndValues) {
  const ncclUniqueId id = newId();
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int i = 0; i < 4; ++i) {
    ranks.push_back(makeRank(id, i, 4));
    ranks.back()->request.settings = {{"NCCL_BUFFSIZE", i == 2 ? "8192" : "4194304"}, {"NCCL_ALGO", ""}};
  }
  onThreads(ranks, [](Rank& rank) { join(rank); });
  for (const auto& rank : ranks) {
    EXPECT_FALSE(rank->control);
    EXPECT_EQ(rank->status.code(), ncclInvalidUsage);
    EXPECT_THAT(rank->status.message(), HasSubstr("NCCL_BUFFSIZE differs"));
    EXPECT_THAT(rank->status.message(), HasSubstr("rank 0"));
    EXPECT_THAT(rank->status.message(), HasSubstr("\"4194304\""));
    EXPECT_THAT(rank->status.message(), HasSubstr("rank 2"));
    EXPECT_THAT(rank->status.message(), HasSubstr("\"8192\""));
  }
}

TEST(Control, NamesASettingThatOneRankLacks) {
  auto ranks = joinedRanks(2);
  onThreads(ranks, [](Rank& rank) {
    std::map<std::string, std::string> settings;
    if (rank.control->rank() == 1) settings["NCCL_PROTO"] = "Simple";
    const Status status = rank.control->agree(settings, within(5s));
    EXPECT_THAT(status.message(), HasSubstr("NCCL_PROTO differs"));
    EXPECT_THAT(status.message(), HasSubstr("not set"));
  });
}

TEST(Control, NamesTheRanksThatAGatherWaitsFor) {
  auto ranks = joinedRanks(5);
  onThreads(ranks, [](Rank& rank) {
    const int me = rank.control->rank();
    if (me == 1 || me == 3) {
      std::this_thread::sleep_for(800ms);
      return;
    }
    auto all = rank.control->allGather("x", within(200ms));
    EXPECT_THAT(all.status().message(), HasSubstr("ranks 1 and 3"));
    EXPECT_THAT(all.status().message(), HasSubstr("timed out"));
  });
}

TEST(Control, ReceiveNamesThePeerThatSendsNothing) {
  auto ranks = joinedRanks(2);
  auto got = ranks[0]->control->receive(1, 5, within(50ms));
  EXPECT_THAT(got.status().message(), HasSubstr("rank 1 (host "));
  EXPECT_THAT(got.status().message(), HasSubstr("timed out"));
  EXPECT_EQ(ranks[0]->control->receive(2, 5, within(50ms)).status().code(), ncclInvalidArgument);
  EXPECT_EQ(ranks[0]->control->send(-1, 5, "", within(50ms)).code(), ncclInvalidArgument);
}

TEST(Control, CallsReturnWhenThePeerHasLeft) {
  auto ranks = joinedRanks(3);
  ASSERT_TRUE(ranks[2]->control->send(1, 1, "last words", within(5s)).isOk());
  ranks[2]->control->leave(within(2s));
  EXPECT_EQ(*ranks[1]->control->receive(2, 1, within(5s)), "last words");
  EXPECT_THAT(ranks[1]->control->receive(2, 1, within(5s)).status().message(), HasSubstr("has left"));
  EXPECT_THAT(ranks[0]->control->allGather("", within(5s)).status().message(), HasSubstr("rank 2"));
  EXPECT_THAT(ranks[2]->control->allGather("", within(5s)).status().message(), HasSubstr("has left"));
  ranks[2]->control->leave(within(2s));  // again: nothing happens
}

TEST(Control, AnAbortReachesThePeersAndWakesThem) {
  auto ranks = joinedRanks(4);
  onThreads(ranks, [](Rank& rank) {
    if (rank.control->rank() == 2) {
      std::this_thread::sleep_for(50ms);
      rank.request.faults->raise(Status(ncclInternalError, "aborted by the user"));
      rank.control->announceFault(rank.faults().error());
      return;
    }
    const auto start = std::chrono::steady_clock::now();
    auto got = rank.control->receive(2, 9, within(20s));
    EXPECT_EQ(got.status().code(), ncclRemoteError);
    EXPECT_THAT(got.status().message(), HasSubstr("rank 2 (host "));
    EXPECT_THAT(got.status().message(), HasSubstr("stopped: aborted by the user"));
    EXPECT_LT(std::chrono::steady_clock::now() - start, 2s);
  });
  for (int i : {0, 1, 3}) {
    EXPECT_TRUE(eventually([&] { return ranks[static_cast<size_t>(i)]->faultCalls == 1; })) << i;
  }
  EXPECT_EQ(ranks[2]->faultCalls, 0);
}

TEST(Control, AFaultRaisedByAnyoneEndsEveryWait) {
  auto ranks = joinedRanks(2);
  std::thread raiser([&] {
    std::this_thread::sleep_for(50ms);
    ranks[0]->request.faults->raise(Status(ncclInternalError, "stop now"));
  });
  EXPECT_EQ(ranks[0]->control->allGather("", Deadline::never()).status().message(), "stop now");
  EXPECT_EQ(ranks[0]->control->receive(1, 1, Deadline::never()).status().message(), "stop now");
  raiser.join();
}

TEST(Control, AFaultEndsJoiningToo) {
  auto rank = makeRank(newId(), 0, 2);
  std::thread raiser([&] {
    std::this_thread::sleep_for(100ms);
    rank->request.faults->raise(Status(ncclInternalError, "stop now"));
  });
  join(*rank, 2s);
  raiser.join();
  EXPECT_THAT(rank->status.message(), HasSubstr("stop now"));
}

TEST(Control, AHundredCyclesLeaveNothingBehind) {
  // The root of a failed rendezvous of an earlier test may still wait for latecomers.
  joinedRanks(3);
  std::this_thread::sleep_for(20ms);
  const size_t handlers = ioService().registered();
  const size_t threads = runningThreads();
  const size_t descriptors = openDescriptors();
  for (int i = 0; i < 100; ++i) {
    auto ranks = joinedRanks(3);
    ASSERT_TRUE(ranks[1]->control->send(2, 1, "x", within(5s)).isOk());
    onThreads(ranks, [](Rank& rank) { rank.control.reset(); });
  }
  EXPECT_TRUE(eventually([&] { return ioService().registered() <= handlers; })) << ioService().registered();
  EXPECT_TRUE(eventually([&] { return runningThreads() <= threads; })) << runningThreads() << " " << threads;
  EXPECT_TRUE(eventually([&] { return openDescriptors() <= descriptors; }))
      << openDescriptors() << " " << descriptors;
}

TEST(Control, ManyCommunicatorsCoexist) {
  std::vector<std::vector<std::unique_ptr<Rank>>> communicators;
  for (int i = 0; i < 64; ++i) communicators.push_back(joinedRanks(4));
  for (auto& ranks : communicators)
    onThreads(ranks, [](Rank& rank) { EXPECT_TRUE(rank.control->barrier(within(5s)).isOk()); });
}

}  // namespace
}  // namespace tutti::testing
