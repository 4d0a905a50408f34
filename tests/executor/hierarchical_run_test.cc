// Algorithms over several hosts, run between hosts that sockets connect.
#include <gtest/gtest.h>

#include "team.h"

namespace tutti {
namespace {

using test::Call;
using test::Team;

/// The schedules of all ranks; bit h of `mapped`: host h works in its users' buffers.
std::vector<Schedule> hierarchicalOf(Team& team, unsigned mapped, std::string_view name = "hierarchical",
                                     Collective collective = Collective::allReduce, int root = 0) {
  std::vector<Schedule> all;
  for (int rank = 0; rank < team.ranks(); ++rank) {
    ScheduleRequest request;
    request.collective = collective;
    request.root = root;
    request.ranks = team.ranks();
    request.rank = rank;
    request.hosts = team.endpoint(rank).hosts();
    for (size_t h = 0; h < request.hosts.size(); ++h)
      if (request.hosts[h] == team.endpoint(rank).localRanks()) request.mapped = (mapped >> h & 1) != 0;
    auto made = generate(name, request);
    EXPECT_TRUE(made.isOk()) << made.status().message();
    all.push_back(std::move(made).value());
  }
  return all;
}

/// Small slots, so that calls have many slices.
Team smallTeam(const std::vector<int>& hostOf) {
  EndpointOptions options;
  options.channels = 2;
  options.slotBytes = 1024;
  options.scratchBytes = 9 * 1024;
  ExecutorOptions executorOptions;
  executorOptions.wait.spin = std::chrono::microseconds(1);
  executorOptions.streamBytes = 20000;
  return Team(hostOf, options, executorOptions);
}

class HostsOf : public testing::TestWithParam<std::vector<int>> {};
INSTANTIATE_TEST_SUITE_P(Shapes, HostsOf,
                         testing::Values(std::vector<int>{0, 0, 1, 1}, std::vector<int>{0, 1, 0, 1, 2, 2},
                                         std::vector<int>{0, 0, 0, 1}, std::vector<int>{0, 1, 1, 2, 2, 2}));

TEST_P(HostsOf, GiveExactResultsInEachWayForAllTypesAndOperators) {
  Team team = smallTeam(GetParam());
  const auto hosts = team.endpoint(0).hosts().size();
  std::vector<std::string> ways;
  for (unsigned mapped = 0; mapped < (1u << hosts); ++mapped) {
    ways.push_back("mapped " + std::to_string(mapped));
    team.use(ways.back(), hierarchicalOf(team, mapped));
  }
  std::mt19937_64 random(hosts);
  std::vector<Call> calls;
  for (int type = 0; type < ncclNumTypes; ++type)
    for (int op = 0; op < 4; ++op)
      for (const std::string& way : ways) {
        Call call;
        call.algorithm = way;
        call.reduction.type = static_cast<ncclDataType_t>(type);
        call.reduction.op = static_cast<Reduction>(op);
        if (random() % 4 == 0) {
          call.reduction.hasScale = true;
          call.reduction.scale = call.reduction.op == Reduction::prod ? 1.0 : 0.5;
          call.reduction.integerScale = 3;
        }
        if (call.reduction.type < ncclFloat16 && op == 0 && random() % 2 == 0) call.reduction.divisor = 5;
        call.count = random() % 5 == 0 ? random() % 8 : random() % 6000;
        call.inPlace = random() % 2 == 0;
        call.channels = 1 + static_cast<int>(random() % 2);
        call.salt = calls.size();
        calls.push_back(call);
      }
  test::expectRightInThreads(team, calls);
}

// 1+2, 3+5 and 7+1 ranks.
class UnevenHosts : public testing::TestWithParam<std::vector<int>> {};
INSTANTIATE_TEST_SUITE_P(Shapes, UnevenHosts,
                         testing::Values(std::vector<int>{0, 1, 1}, std::vector<int>{0, 0, 0, 1, 1, 1, 1, 1},
                                         std::vector<int>{0, 0, 0, 0, 0, 0, 0, 1}));

TEST_P(UnevenHosts, RunEveryAlgorithmThatUsesMessagesAndGetExactResults) {
  Team team = smallTeam(GetParam());
  const int ranks = team.ranks();
  std::mt19937_64 random(static_cast<uint64_t>(ranks));
  std::vector<Call> calls;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.medium != Medium::messages && algorithm.medium != Medium::hosts) continue;
    for (const Collective collective : algorithm.collectives) {
      if (!algorithm.implements(collective, ranks)) continue;
      Call call;
      call.algorithm = algorithm.name;
      call.collective = collective;
      call.root = hasRoot(collective) ? static_cast<int>(random() % static_cast<uint64_t>(ranks)) : 0;
      if (algorithm.medium == Medium::hosts)
        team.use(call.algorithm, hierarchicalOf(team, static_cast<unsigned>(random() % 4), algorithm.name,
                                                collective, call.root));
      const std::vector<size_t> counts =
          algorithm.inter.empty() ? std::vector<size_t>{1, 63, 1025, 2500} : std::vector<size_t>{7, 2500};
      for (const size_t count : counts) {
        call.count = count;
        call.reduction.type = static_cast<ncclDataType_t>(random() % ncclNumTypes);
        call.reduction.op = static_cast<Reduction>(random() % 4);
        call.inPlace = random() % 2 == 0;
        call.salt = calls.size();
        calls.push_back(call);
      }
    }
  }
  EXPECT_GT(calls.size(), 200u);
  test::expectRightInThreads(team, calls);
}

}  // namespace
}  // namespace tutti
