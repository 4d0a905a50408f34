// Runs schedules on CPU threads, for one rank of one communicator.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/fault_state.h"
#include "base/status.h"
#include "executor/host/bound_schedule.h"
#include "executor/host/launch.h"
#include "executor/host/run.h"
#include "executor/host/simd/target.h"
#include "transport/endpoint.h"

namespace tutti {

/// How a thread waits for a peer: it polls for `spin`, then polls and yields the core between for `yield`,
/// then sleeps on the rank's doorbell, at most `sleep` at a time so that faults are seen.
struct WaitPolicy {
  std::chrono::microseconds spin{100};
  std::chrono::microseconds yield{500};
  std::chrono::microseconds sleep{50'000};

  /// Fits the number of ranks that share this machine's (or this process's) cores: when they outnumber the
  /// cores, whoever spins keeps the core from the rank that it waits for.
  static WaitPolicy forRanks(const Endpoint& endpoint);
};

struct ExecutorOptions {
  SimdTarget target = bestTarget();
  WaitPolicy wait;
  /// Outputs of at least this many bytes are stored around the caches. 0: the size of the last-level cache,
  /// divided by the ranks of this host, whose outputs share it.
  size_t streamBytes = 0;
};

/// Gives a run back to its executor's pool.
struct RunRecycler {
  void operator()(HostRun* run) const;
};
using RunHandle = std::unique_ptr<HostRun, RunRecycler>;

/// One thread at a time may work with an executor and its runs (start, advance, finish, recycle); which
/// thread may change between calls. Runs on one executor are ordered: where two use the same message streams
/// or flags, the one started first comes first. Allocates when it meets a new schedule or a larger number of
/// launches than before, and not otherwise.
class HostExecutor {
 public:
  /// `endpoint` must outlive the executor.
  HostExecutor(Endpoint& endpoint, std::shared_ptr<FaultState> faults, const ExecutorOptions& options);
  ~HostExecutor();
  HostExecutor(const HostExecutor&) = delete;
  HostExecutor& operator=(const HostExecutor&) = delete;

  /// Starts launches that run concurrently (those that share a stream or a channel's flags: in their order).
  /// All ranks must start runs that meet each other in the same order. Moves no data yet.
  Result<RunHandle> start(std::span<const Launch> launches);

  /// Advances the run to its end from the current thread, waiting as the policy says. Returns early, with the
  /// communicator's fault, once there is one.
  Status finish(HostRun& run);
  /// The same for a state machine of the caller's that is made of runs: calls `advance` until it says done or
  /// failed, and gives that.
  HostRun::State drive(const std::function<HostRun::State()>& advance);

  /// Lets another thread have this core, unless that cost a whole time slice lately. False when it did
  /// nothing.
  bool yieldCore();

  Endpoint& endpoint() const { return endpoint_; }
  FaultState& faults() const { return *faults_; }
  const ExecutorOptions& options() const { return options_; }

  /// Takes message connections for this thread, or gives them back to the service thread. advance() takes
  /// them; finish(), advanceAll() and the end of the last run give them back.
  void takeConnections();
  void returnConnections();

 private:
  friend class HostRun;
  friend struct RunRecycler;

  Result<ChannelState*> channel(int number);
  /// The schedule bound to a channel. Cached, so that a call with a known schedule costs a comparison.
  Result<const std::shared_ptr<const BoundSchedule>*> bind(const Launch& launch);
  void evictUnused();
  void recycle(HostRun* run);

  struct Key {
    const Schedule* schedule;
    int channel;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const {
      return std::hash<const void*>()(key.schedule) * 31 + static_cast<size_t>(key.channel);
    }
  };

  Endpoint& endpoint_;
  std::shared_ptr<FaultState> faults_;
  ExecutorOptions options_;
  std::vector<std::unique_ptr<ChannelState>> channels_;
  std::unordered_map<Key, std::shared_ptr<const BoundSchedule>, KeyHash> bound_;
  std::vector<const std::shared_ptr<const BoundSchedule>*> recent_;  // by channel: the last one used
  std::vector<std::unique_ptr<HostRun>> runs_;
  std::vector<HostRun*> freeRuns_;
  bool haveConnections_ = false;
  std::chrono::steady_clock::time_point noYieldBefore_;  // see yieldCore()
  /// Somebody else has used this core lately, and spinning would keep it from him. Ranks of other hosts'
  /// namespaces, or of other jobs, are seen in this way only.
  std::chrono::steady_clock::time_point sharedUntil_;
  static constexpr std::chrono::milliseconds kFirstYieldPause{10};
  std::chrono::milliseconds yieldPause_ = kFirstYieldPause;  // the next one
};

/// Advances runs of several ranks in turn (of one process: a group's ranks) until all have ended or `budget`
/// is over, so that small collectives finish inside the call that enqueues them. Gives connections back.
/// Returns how many runs have not ended.
size_t advanceAll(std::span<HostRun* const> runs, std::chrono::microseconds budget);

}  // namespace tutti
