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
#include "executor/host/host_executor.h"
#include "reduce_oracle.h"
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

struct Call {
  std::string algorithm = "ring";
  Collective collective = Collective::allReduce;
  int root = 0;
  size_t count = 1;  // elements per block
  ReductionSpec reduction;
  bool inPlace = false;
  int channels = 1;
  size_t maxSliceBytes = SIZE_MAX;
  size_t salt = 0;  // varies the inputs, so that one call's data are wrong for another

  std::string text() const {
    return algorithm + " " + name(collective) + " count " + std::to_string(count) + " type " +
           std::to_string(reduction.type) + " op " + std::to_string(static_cast<int>(reduction.op)) +
           " root " + std::to_string(root) + (inPlace ? " in place" : "") + " channels " +
           std::to_string(channels) + " slice " + std::to_string(maxSliceBytes) +
           (reduction.hasScale ? " scaled" : "") + (reduction.divisor != 1 ? " divided" : "");
  }
};

/// Buffers of one call on all ranks. Inputs are such that every order of reduction is exact.
class CallData {
 public:
  CallData(Team& team, const Call& call)
      : team_(team), call_(call), width_(elementBytes(call.reduction.type)) {
    const auto ranks = static_cast<size_t>(team.ranks());
    block_ = call.count * width_;
    ranks_.resize(ranks);
    for (size_t r = 0; r < ranks; ++r) allocate(static_cast<int>(r));
    for (const PerRank& rank : ranks_) {
      peerInput_.push_back(rank.input);
      peerOutput_.push_back(rank.output);
    }
  }

  std::vector<Launch> launches(int rank) {
    std::vector<Launch> all;
    for (int channel = 0; channel < call_.channels; ++channel) {
      Launch launch;
      launch.schedule = team_.schedule(call_.algorithm, call_.collective, call_.root, rank);
      const Schedule& schedule = *launch.schedule;
      launch.shape = {call_.collective, team_.ranks(), schedule.root, schedule.parts,
                      call_.count,      width_,        channel,       call_.channels};
      const EndpointOptions& options = team_.endpoint(rank).options();
      launch.shape.sliceBytes =
          std::min({call_.maxSliceBytes, schedule.maxSliceBytes(options.slotBytes, options.scratchBytes),
                    size_t{1} << 20});
      launch.reduction = call_.reduction;
      launch.input = ranks_[static_cast<size_t>(rank)].input;
      launch.output = ranks_[static_cast<size_t>(rank)].output;
      launch.peerInput = peerInput_;
      launch.peerOutput = peerOutput_;
      launch.channel = channel;
      all.push_back(launch);
    }
    return all;
  }

  void expectRight() const {
    for (int r = 0; r < team_.ranks(); ++r) {
      const PerRank& rank = ranks_[static_cast<size_t>(r)];
      const std::vector<std::byte> wanted = expectedMemory(r);
      ASSERT_EQ(rank.memory.size(), wanted.size());
      if (rank.memory == wanted) continue;
      for (size_t i = 0; i < wanted.size(); ++i) {
        ASSERT_EQ(rank.memory[i], wanted[i])
            << call_.text() << ": rank " << r << " of " << team_.ranks() << ", byte "
            << static_cast<long>(i) - static_cast<long>(rank.output - rank.memory.data()) << " of the output";
      }
    }
  }

 private:
  struct PerRank {
    std::vector<std::byte> memory;  // guard | input | guard | output | guard, or one region in place
    std::byte* input = nullptr;
    std::byte* output = nullptr;
  };
  static constexpr size_t kGuard = 128;

  size_t blocksOf(Buffer buffer, int rank) const {
    const bool isRoot = rank == call_.root;
    if (call_.collective == Collective::broadcast && buffer == Buffer::input) return isRoot ? 1 : 0;
    if (call_.collective == Collective::reduce && buffer == Buffer::output) return isRoot ? 1 : 0;
    if (call_.collective == Collective::gather && buffer == Buffer::output && !isRoot) return 0;
    if (call_.collective == Collective::scatter && buffer == Buffer::input && !isRoot) return 0;
    return holdsAllBlocks(call_.collective, buffer) ? static_cast<size_t>(team_.ranks()) : 1;
  }
  void allocate(int r) {
    PerRank& rank = ranks_[static_cast<size_t>(r)];
    const size_t in = blocksOf(Buffer::input, r) * block_;
    const size_t out = blocksOf(Buffer::output, r) * block_;
    rank.memory.assign(in + out + 3 * kGuard, std::byte{0xa5});
    rank.input = rank.memory.data() + kGuard;
    rank.output = rank.input + in + kGuard;
    if (call_.inPlace) {
      const size_t shift = static_cast<size_t>(r) * block_;
      const bool zeroCopyAllToAll = call_.collective == Collective::allToAll && call_.algorithm == "direct";
      if (in == 0 || out == 0 || zeroCopyAllToAll) {
        // nothing to share, or not possible in place
      } else if (holdsAllBlocks(call_.collective, Buffer::input) &&
                 !holdsAllBlocks(call_.collective, Buffer::output)) {
        rank.output = rank.input + shift;
      } else if (holdsAllBlocks(call_.collective, Buffer::output) &&
                 !holdsAllBlocks(call_.collective, Buffer::input)) {
        rank.input = rank.output + shift;
      } else {
        rank.output = rank.input;
      }
    }
    fillInput(r, rank.input);
  }
  void fillInput(int rank, std::byte* to) const {
    const size_t elements = blocksOf(Buffer::input, rank) * call_.count;
    for (size_t i = 0; i < elements; ++i) writeValue(rank, i, to + i * width_);
  }
  /// Small whole numbers: sums of 9 of them, twice, are exact even in 8-bit floats.
  void writeValue(int rank, size_t index, std::byte* to) const {
    const size_t mixed = index * 7 + static_cast<size_t>(rank) * 3 + index / 61 + call_.salt * 13;
    double value = static_cast<double>(mixed % 2);
    if (call_.reduction.op == Reduction::prod)
      value = (index + static_cast<size_t>(rank) + call_.salt) % 4 == 0 ? 2 : 1;
    if (call_.reduction.type == ncclFloat32 || call_.reduction.type == ncclFloat64) {
      if (call_.reduction.op != Reduction::prod) value = static_cast<double>(mixed % 1024) - 300;
    }
    switch (call_.reduction.type) {
      case ncclFloat32: {
        const auto v = static_cast<float>(value);
        std::memcpy(to, &v, sizeof(v));
        break;
      }
      case ncclFloat64:
        std::memcpy(to, &value, sizeof(value));
        break;
      case ncclFloat16:
      case ncclBfloat16:
      case ncclFloat8e4m3:
      case ncclFloat8e5m2: {
        const uint32_t code = oracle::format(call_.reduction.type).encode(value);
        std::memcpy(to, &code, width_);
        break;
      }
      default: {
        const uint64_t bits = mixed * 0x9e3779b97f4a7c15u;  // integers wrap: any values
        std::memcpy(to, &bits, width_);
      }
    }
  }

  std::vector<std::byte> inputOf(int rank) const {
    std::vector<std::byte> bytes(blocksOf(Buffer::input, rank) * block_);
    fillInput(rank, bytes.data());
    return bytes;
  }
  std::vector<std::byte> reduced() const {
    const auto ranks = static_cast<size_t>(team_.ranks());
    std::vector<std::vector<std::byte>> inputs;
    std::vector<const std::byte*> pointers;
    for (size_t r = 0; r < ranks; ++r) inputs.push_back(inputOf(static_cast<int>(r)));
    for (const auto& input : inputs) pointers.push_back(input.data());
    return oracle::reduce(call_.reduction, pointers, inputs[0].size() / width_,
                          std::vector<bool>(ranks, true), true);
  }
  std::vector<std::byte> blockOf(const std::vector<std::byte>& all, int block) const {
    const auto first = all.begin() + static_cast<long>(static_cast<size_t>(block) * block_);
    return {first, first + static_cast<long>(block_)};
  }
  std::vector<std::byte> expectedOutput(int rank) const {
    switch (call_.collective) {
      case Collective::allReduce:
        return reduced();
      case Collective::reduce:
        return rank == call_.root ? reduced() : std::vector<std::byte>();
      case Collective::reduceScatter:
        return blockOf(reduced(), rank);
      case Collective::broadcast:
        return inputOf(call_.root);
      case Collective::scatter:
        return blockOf(inputOf(call_.root), rank);
      case Collective::allToAll: {
        std::vector<std::byte> all;
        for (int r = 0; r < team_.ranks(); ++r) {
          const auto one = blockOf(inputOf(r), rank);
          all.insert(all.end(), one.begin(), one.end());
        }
        return all;
      }
      default: {
        std::vector<std::byte> all;
        for (int r = 0; r < team_.ranks(); ++r) {
          const auto one = inputOf(r);
          all.insert(all.end(), one.begin(), one.end());
        }
        return all;
      }
    }
  }
  /// The rank's whole memory as it should be: guards and inputs untouched, unless the output lies over them.
  /// What a ReduceScatter in place leaves in the other blocks of its input is nobody's business.
  std::vector<std::byte> expectedMemory(int r) const {
    const PerRank& rank = ranks_[static_cast<size_t>(r)];
    std::vector<std::byte> memory(rank.memory.size(), std::byte{0xa5});
    const auto put = [&](const std::byte* at, const std::vector<std::byte>& bytes) {
      if (!bytes.empty()) std::memcpy(memory.data() + (at - rank.memory.data()), bytes.data(), bytes.size());
    };
    put(rank.input, inputOf(r));
    const bool differs = call_.collective == Collective::reduceScatter ||
                         call_.collective == Collective::scatter || call_.collective == Collective::allToAll;
    if (cachedOutput_.empty() || differs) cachedOutput_ = expectedOutput(r);
    if (blocksOf(Buffer::output, r) != 0) {
      if (cachedOutput_.size() != blocksOf(Buffer::output, r) * block_) cachedOutput_ = expectedOutput(r);
      put(rank.output, cachedOutput_);
    }
    return memory;
  }

  Team& team_;
  Call call_;
  size_t width_;
  size_t block_ = 0;
  std::vector<PerRank> ranks_;
  std::vector<std::byte*> peerInput_;
  std::vector<std::byte*> peerOutput_;
  mutable std::vector<std::byte> cachedOutput_;  // the same for all ranks, but for some collectives
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
