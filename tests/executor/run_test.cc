// How runs behave: waiting, faults, mismatches, order, reuse.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "algorithms/send_recv.h"
#include "count_allocations.h"
#include "team.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::Call;
using test::CallData;
using test::Team;

EndpointOptions tinyOptions() {
  EndpointOptions options;
  options.channels = 2;
  options.slotBytes = 1024;
  options.scratchBytes = 8192;
  return options;
}

/// A message between two ranks of a team, as one launch.
Launch message(Team& team, int rank, int from, int to, const void* input, void* output, size_t bytes) {
  Launch launch;
  launch.schedule = std::make_shared<const Schedule>(sendRecv(team.ranks(), rank, from, to));
  launch.shape = {
      Collective::sendRecv, team.ranks(), launch.schedule->root, launch.schedule->parts, bytes, 1, 0, 1};
  launch.shape.sliceBytes = team.endpoint(rank).options().slotBytes;
  launch.input = input;
  launch.output = output;
  return launch;
}

double cpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TEST(Run, EndsSoonAfterAnAbortWhileItWaits) {
  Team team(2, tinyOptions(), ExecutorOptions());
  CallData data(team, Call{});
  const auto launches = data.launches(0);
  auto run = team.executor(0).start(launches);
  ASSERT_TRUE(run.isOk());
  std::thread aborter([&] {
    std::this_thread::sleep_for(100ms);  // by then the waiter sleeps
    team.faults(0).raise(remoteError("rank 1 is dead"));
  });
  const auto start = std::chrono::steady_clock::now();
  const Status status = team.executor(0).finish(**run);
  aborter.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 1s);
  EXPECT_EQ(status.code(), ncclRemoteError);
  EXPECT_EQ(status.message(), "rank 1 is dead");
}

TEST(Run, SleepsWhileAPeerIsAwayAndWakesUpWhenItComes) {
  Team team(2, tinyOptions(), ExecutorOptions());
  std::vector<CallData> data;
  data.emplace_back(team, Call{});
  double cpu = 0;
  test::runInThreads(team, data, [&](int rank, size_t) {
    if (rank == 1) std::this_thread::sleep_for(400ms);
    if (rank == 0) cpu = -cpuSeconds();
  });
  data[0].expectRight();
  // Again, measuring the waiter's processor time.
  std::thread late([&] {
    std::this_thread::sleep_for(400ms);
    const auto launches = data[0].launches(1);
    auto run = team.executor(1).start(launches);
    ASSERT_TRUE(run.isOk());
    EXPECT_TRUE(team.executor(1).finish(**run).isOk());
  });
  const auto launches = data[0].launches(0);
  auto run = team.executor(0).start(launches);
  ASSERT_TRUE(run.isOk());
  const double before = cpuSeconds();
  EXPECT_TRUE(team.executor(0).finish(**run).isOk());
  EXPECT_LT(cpuSeconds() - before, 0.1);
  late.join();
}

TEST(Run, ReportsRanksWhoseCallsDoNotMatch) {
  Team team(2, tinyOptions(), ExecutorOptions());
  std::vector<std::byte> memory(4096);
  std::vector<Launch> sending = {message(team, 0, 0, 1, memory.data(), nullptr, 100)};
  std::vector<Launch> receiving = {message(team, 1, 0, 1, nullptr, memory.data(), 300)};
  auto sender = team.executor(0).start(sending);
  ASSERT_TRUE(sender.isOk() && team.executor(0).finish(**sender).isOk());
  auto receiver = team.executor(1).start(receiving);
  ASSERT_TRUE(receiver.isOk());
  const Status status = team.executor(1).finish(**receiver);
  EXPECT_EQ(status.code(), ncclInvalidUsage);
  EXPECT_NE(status.message().find(
                "rank 1: rank 0 sent 100 bytes where 300 were expected: the ranks' calls do not match"),
            std::string::npos)
      << status.message();
  EXPECT_TRUE(team.faults(1).stopped());
  EXPECT_EQ((*receiver)->status().message(), status.message());
}

TEST(Run, SaysWhereItWaits) {
  Team team(3, tinyOptions(), ExecutorOptions());
  CallData ringData(team, Call{});
  const auto ring = ringData.launches(0);
  auto run = team.executor(0).start(ring);
  ASSERT_TRUE(run.isOk());
  while ((*run)->advance() == HostRun::State::progressed) {
  }
  EXPECT_EQ((*run)->state(), HostRun::State::waiting);
  const std::string position = (*run)->position();
  EXPECT_NE(position.find("ring channel 0 lane 0 slice 0 step"), std::string::npos) << position;
  EXPECT_NE(position.find("from rank 2"), std::string::npos) << position;

  Call oneShot;
  oneShot.algorithm = "oneshot";
  CallData oneShotData(team, oneShot);
  auto launches = oneShotData.launches(1);
  auto direct = team.executor(1).start(launches);
  ASSERT_TRUE(direct.isOk());
  while ((*direct)->advance() == HostRun::State::progressed) {
  }
  EXPECT_NE((*direct)->position().find("wait for rank 0"), std::string::npos) << (*direct)->position();
}

TEST(Run, DroppedBeforeItsEndStopsTheCommunicator) {
  Team team(2, tinyOptions(), ExecutorOptions());
  CallData data(team, Call{});
  const auto launches = data.launches(0);
  {
    auto run = team.executor(0).start(launches);
    ASSERT_TRUE(run.isOk());
  }
  EXPECT_TRUE(team.faults(0).stopped());
}

TEST(PointToPoint, GroupsOfMessagesRunSideBySideWhateverTheirOrder) {
  constexpr int kRanks = 4;
  constexpr size_t kBytes = 20000;  // more than all slots of a stream hold
  Team team(kRanks, tinyOptions(), ExecutorOptions());
  // Every rank sends two messages to every rank (itself too), and lists them in its own order.
  std::vector<std::vector<std::byte>> out(kRanks), in(kRanks);
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r) {
    auto& mine = out[static_cast<size_t>(r)];
    mine.resize(kBytes * kRanks * 2);
    in[static_cast<size_t>(r)].resize(mine.size());
    for (size_t i = 0; i < mine.size(); ++i)
      mine[i] = static_cast<std::byte>(i * 31 + static_cast<size_t>(r) * 7 + i / 251);
  }
  for (int r = 0; r < kRanks; ++r) {
    threads.emplace_back([&, r] {
      std::vector<Launch> launches;
      for (size_t turn = 0; turn < 2; ++turn) {
        for (int i = 0; i < kRanks; ++i) {
          const int peer = (i * (r % 2 == 0 ? 1 : 3) + r) % kRanks;
          const size_t at = (static_cast<size_t>(peer) * 2 + turn) * kBytes;
          const auto rank = static_cast<size_t>(r);
          if (peer == r) {
            launches.push_back(message(team, r, r, r, out[rank].data() + at, in[rank].data() + at, kBytes));
            continue;
          }
          launches.push_back(message(team, r, r, peer, out[rank].data() + at, nullptr, kBytes));
          launches.push_back(message(team, r, peer, r, nullptr, in[rank].data() + at, kBytes));
        }
      }
      auto run = team.executor(r).start(launches);
      ASSERT_TRUE(run.isOk()) << run.status().message();
      const Status status = team.executor(r).finish(**run);
      ASSERT_TRUE(status.isOk()) << status.message();
    });
  }
  for (auto& thread : threads) thread.join();
  for (size_t r = 0; r < kRanks; ++r) {
    for (size_t peer = 0; peer < kRanks; ++peer) {
      for (size_t turn = 0; turn < 2; ++turn) {
        EXPECT_TRUE(std::equal(in[r].begin() + static_cast<long>((peer * 2 + turn) * kBytes),
                               in[r].begin() + static_cast<long>((peer * 2 + turn + 1) * kBytes),
                               out[peer].begin() + static_cast<long>((r * 2 + turn) * kBytes)))
            << "message " << turn << " from " << peer << " to " << r;
      }
    }
  }
}

TEST(Runs, OnOneExecutorKeepTheOrderOfTheirStart) {
  Team team(2, tinyOptions(), ExecutorOptions());
  std::vector<int> sent = {1, 2};
  std::vector<int> received = {0, 0};
  std::vector<Launch> out[2], in[2];
  for (size_t i = 0; i < 2; ++i) {
    out[i] = {message(team, 0, 0, 1, &sent[i], nullptr, sizeof(int))};
    in[i] = {message(team, 1, 0, 1, nullptr, &received[i], sizeof(int))};
  }
  auto firstIn = team.executor(1).start(in[0]);
  auto secondIn = team.executor(1).start(in[1]);
  ASSERT_TRUE(firstIn.isOk() && secondIn.isOk());
  for (auto& launches : out) {
    auto run = team.executor(0).start(launches);
    ASSERT_TRUE(run.isOk() && team.executor(0).finish(**run).isOk());
  }
  EXPECT_EQ((*secondIn)->advance(), HostRun::State::waiting);  // not its turn, though a message is there
  EXPECT_NE((*secondIn)->position().find("waits for an earlier call"), std::string::npos);
  EXPECT_EQ((*firstIn)->advance(), HostRun::State::done);
  EXPECT_EQ((*secondIn)->advance(), HostRun::State::done);
  EXPECT_EQ(received, sent);
}

TEST(AdvanceAll, FinishesSmallCallsOfAllRanksOnTheCallingThread) {
  Team team(5, tinyOptions(), ExecutorOptions());
  for (const char* algorithm : {"ring", "tree", "doubling", "oneshot", "twoshot", "direct"}) {
    Call call;
    call.algorithm = algorithm;
    call.count = 10000;
    CallData data(team, call);
    std::vector<std::vector<Launch>> launches;
    std::vector<RunHandle> handles;
    std::vector<HostRun*> runs;
    for (int r = 0; r < team.ranks(); ++r) {
      launches.push_back(data.launches(r));
      auto run = team.executor(r).start(launches.back());
      ASSERT_TRUE(run.isOk());
      runs.push_back(run->get());
      handles.push_back(std::move(run).value());
    }
    EXPECT_EQ(advanceAll(runs, 10s), 0u);
    data.expectRight();
  }
}

TEST(AdvanceAll, GivesUpAfterItsBudget) {
  Team team(2, tinyOptions(), ExecutorOptions());
  std::vector<CallData> data;
  data.emplace_back(team, Call{});
  auto launches = data[0].launches(0);
  auto run = team.executor(0).start(launches);
  ASSERT_TRUE(run.isOk());
  HostRun* runs[] = {run->get()};
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(advanceAll(runs, 2ms), 1u);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 500ms);
  // Another thread takes over.
  std::thread other([&] { EXPECT_TRUE(team.executor(0).finish(**run).isOk()); });
  auto theirs = data[0].launches(1);
  auto peer = team.executor(1).start(theirs);
  ASSERT_TRUE(peer.isOk() && team.executor(1).finish(**peer).isOk());
  other.join();
  data[0].expectRight();
}

TEST(Start, RefusesLaunchesThatDoNotFitAndStaysUsable) {
  Team team(2, tinyOptions(), ExecutorOptions());
  CallData data(team, Call{});
  auto launches = data.launches(0);
  auto wrongChannel = launches;
  wrongChannel[0].channel = 9;
  EXPECT_FALSE(team.executor(0).start(wrongChannel).isOk());
  auto wrongSlice = launches;
  wrongSlice[0].shape.sliceBytes = 1 << 20;
  EXPECT_FALSE(team.executor(0).start(wrongSlice).isOk());
  auto wrongRank = launches;
  wrongRank[0].schedule = team.schedule("ring", Collective::allReduce, 0, 1);
  EXPECT_FALSE(team.executor(0).start(wrongRank).isOk());
  auto wrongShape = launches;
  wrongShape[0].shape.parts = 7;
  EXPECT_FALSE(team.executor(0).start(wrongShape).isOk());
  auto wrongType = launches;
  wrongType[0].reduction.type = ncclFloat64;
  EXPECT_FALSE(team.executor(0).start(wrongType).isOk());
  Call direct;
  direct.algorithm = "direct";
  CallData directData(team, direct);
  auto withoutPeers = directData.launches(0);
  withoutPeers[0].peerInput = {};
  EXPECT_FALSE(team.executor(0).start(withoutPeers).isOk());
  EXPECT_FALSE(team.faults(0).stopped());

  std::vector<CallData> good;
  good.emplace_back(team, Call{});
  test::runInThreads(team, good);
  good[0].expectRight();
}

TEST(Start, RunsNothingForNoLaunches) {
  Team team(1, tinyOptions(), ExecutorOptions());
  auto run = team.executor(0).start({});
  ASSERT_TRUE(run.isOk());
  EXPECT_EQ((*run)->state(), HostRun::State::done);
  EXPECT_TRUE(team.executor(0).finish(**run).isOk());
}

TEST(HotPath, AllocatesNothingOnceAScheduleIsKnown) {
  if (!test::countsAllocations()) GTEST_SKIP() << "not in sanitizer builds";
  Team team(3, tinyOptions(), ExecutorOptions());
  for (const char* algorithm : {"ring", "tree", "doubling", "oneshot", "twoshot", "direct"}) {
    Call call;
    call.algorithm = algorithm;
    call.count = 1000;
    call.channels = 2;
    CallData data(team, call);
    std::vector<std::thread> threads;
    for (int r = 0; r < team.ranks(); ++r) {
      threads.emplace_back([&, r] {
        const auto launches = data.launches(r);
        size_t before = 0;
        for (int i = 0; i < 20; ++i) {
          if (i == 2) before = test::allocationsOfThread();
          auto run = team.executor(r).start(launches);
          ASSERT_TRUE(run.isOk());
          ASSERT_TRUE(team.executor(r).finish(**run).isOk());
        }
        EXPECT_EQ(test::allocationsOfThread(), before) << algorithm;
      });
    }
    for (auto& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace tutti
