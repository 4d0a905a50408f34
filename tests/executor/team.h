// Ranks of one process with an executor each, and calls on them whose results are known.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "algorithms/registry.h"
#include "executor/call_data.h"
#include "executor/host/host_executor.h"
#include "support/local_oob.h"

namespace tutti::test {

/// Endpoints and executors of `ranks` ranks of this process.
class Team {
 public:
  Team(int ranks, const EndpointOptions& options, const ExecutorOptions& executorOptions)
      : Team(std::vector<int>(static_cast<size_t>(ranks), 0), options, executorOptions) {}

  /// hostOf[r]: number of the host that rank r believes to be on. Between hosts are sockets.
  Team(const std::vector<int>& hostOf, const EndpointOptions& options,
       const ExecutorOptions& executorOptions) {
    const int ranks = static_cast<int>(hostOf.size());
    endpoints_.resize(static_cast<size_t>(ranks));
    schedules_.resize(static_cast<size_t>(ranks));
    std::vector<PeerInfo> peers;
    for (int r = 0; r < ranks; ++r) {
      const std::string host = "testhost" + std::to_string(hostOf[static_cast<size_t>(r)]);
      peers.push_back({r, host, host + "-id", 4711, 4711, r});
      faults_.push_back(std::make_shared<FaultState>());
    }
    auto hub = std::make_shared<LocalOobHub>(ranks);
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] {
        LocalOob oob(hub, r);
        auto endpoint = Endpoint::create(peers, r, options, oob, faults_[static_cast<size_t>(r)],
                                         Deadline::after(std::chrono::seconds(20)));
        ASSERT_TRUE(endpoint.isOk()) << endpoint.status().message();
        endpoints_[static_cast<size_t>(r)] = std::move(endpoint).value();
      });
    }
    for (auto& thread : threads) thread.join();
    for (int r = 0; r < ranks; ++r) {
      executors_.push_back(std::make_unique<HostExecutor>(*endpoints_[static_cast<size_t>(r)],
                                                          faults_[static_cast<size_t>(r)], executorOptions));
    }
  }

  int ranks() const { return static_cast<int>(endpoints_.size()); }
  Endpoint& endpoint(int rank) { return *endpoints_[static_cast<size_t>(rank)]; }
  HostExecutor& executor(int rank) { return *executors_[static_cast<size_t>(rank)]; }
  FaultState& faults(int rank) { return *faults_[static_cast<size_t>(rank)]; }

  /// Makes `schedules` (of all ranks) known under a name that calls can use: an algorithm from a file.
  void use(const std::string& name, const std::vector<Schedule>& schedules) {
    ASSERT_EQ(schedules.size(), schedules_.size());
    for (size_t r = 0; r < schedules.size(); ++r) {
      schedules_[r][{name, schedules[r].collective, schedules[r].root}] =
          std::make_shared<const Schedule>(schedules[r]);
    }
  }

  /// Generated once for each algorithm, collective and root, as core does.
  std::shared_ptr<const Schedule> schedule(const std::string& algorithm, Collective collective, int root,
                                           int rank) {
    auto& known = schedules_[static_cast<size_t>(rank)][{algorithm, collective, root}];
    if (known == nullptr) {
      ScheduleRequest request;
      request.collective = collective;
      request.ranks = ranks();
      request.rank = rank;
      request.root = root;
      auto made = generate(algorithm, request);
      EXPECT_TRUE(made.isOk()) << made.status().message();
      known = std::make_shared<const Schedule>(std::move(made).value());
    }
    return known;
  }

 private:
  std::vector<std::shared_ptr<FaultState>> faults_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::vector<std::unique_ptr<HostExecutor>> executors_;
  using Key = std::tuple<std::string, Collective, int>;
  std::vector<std::map<Key, std::shared_ptr<const Schedule>>> schedules_;  // by rank, each used by its thread
};

/// A call's buffers with the launches of a team's executors.
class CallData : public CallBuffers {
 public:
  CallData(Team& team, const Call& call) : CallBuffers(team.ranks(), call), team_(team) {
    for (int r = 0; r < ranks(); ++r) {
      peerInput_.push_back(input(r));
      peerOutput_.push_back(output(r));
    }
  }

  std::vector<Launch> launches(int rank) {
    std::vector<Launch> all;
    for (int channel = 0; channel < call().channels; ++channel) {
      Launch launch;
      launch.schedule = team_.schedule(call().algorithm, call().collective, call().root, rank);
      const Schedule& schedule = *launch.schedule;
      launch.shape = {call().collective, team_.ranks(),  schedule.root, schedule.parts,
                      call().count,      elementBytes(), channel,       call().channels};
      const EndpointOptions& options = team_.endpoint(rank).options();
      launch.shape.sliceBytes =
          std::min({call().maxSliceBytes, schedule.maxSliceBytes(options.slotBytes, options.scratchBytes),
                    size_t{1} << 20});
      launch.reduction = call().reduction;
      launch.input = input(rank);
      launch.output = output(rank);
      launch.peerInput = peerInput_;
      launch.peerOutput = peerOutput_;
      launch.channel = channel;
      all.push_back(launch);
    }
    return all;
  }

 private:
  Team& team_;
  std::vector<std::byte*> peerInput_;
  std::vector<std::byte*> peerOutput_;
};

/// Runs the calls one after the other on every rank, each on its own thread, without barriers between them.
/// `between(rank, call)` may delay.
inline void runInThreads(Team& team, std::vector<CallData>& calls,
                         const std::function<void(int, size_t)>& between = {}) {
  std::vector<std::thread> threads;
  for (int r = 0; r < team.ranks(); ++r) {
    threads.emplace_back([&, r] {
      for (size_t c = 0; c < calls.size(); ++c) {
        if (between) between(r, c);
        const auto launches = calls[c].launches(r);
        auto run = team.executor(r).start(launches);
        ASSERT_TRUE(run.isOk()) << run.status().message();
        const Status status = team.executor(r).finish(**run);
        ASSERT_TRUE(status.isOk()) << status.message();
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

/// The same on this thread alone: again and again picks a rank at random and advances it a little. Every pick
/// is one step of an interleaving that threads could have had.
inline void runInterleaved(Team& team, std::vector<CallData>& calls, uint64_t seed) {
  std::mt19937_64 random(seed);
  struct Place {
    size_t call = 0;
    RunHandle run;
    std::vector<Launch> launches;
  };
  std::vector<Place> places(static_cast<size_t>(team.ranks()));
  size_t idle = 0;
  for (size_t left = places.size(); left > 0;) {
    const auto r = random() % places.size();
    Place& place = places[r];
    if (place.call == calls.size()) continue;
    if (place.run == nullptr) {
      place.launches = calls[place.call].launches(static_cast<int>(r));
      auto run = team.executor(static_cast<int>(r)).start(place.launches);
      ASSERT_TRUE(run.isOk()) << run.status().message();
      place.run = std::move(run).value();
    }
    const auto state = place.run->advance(random() % 4 == 0 ? HostRun::kNoBudget : 1);
    ASSERT_NE(state, HostRun::State::failed) << place.run->status().message();
    idle = state == HostRun::State::waiting ? idle + 1 : 0;
    ASSERT_LT(idle, 10000u) << "stuck; rank " << r << " at " << place.run->position();
    if (state != HostRun::State::done) continue;
    place.run.reset();
    if (++place.call == calls.size()) --left;
  }
}

/// Prepares the calls' data, runs them in threads, expects right results.
inline void expectRightInThreads(Team& team, const std::vector<Call>& calls) {
  std::vector<CallData> data;
  data.reserve(calls.size());
  for (const Call& call : calls) data.emplace_back(team, call);
  runInThreads(team, data);
  for (const CallData& one : data) {
    one.expectRight();
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace tutti::test
