// From an operation to the schedule that runs it: selection, generation, caching.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "algorithms/schedule.h"
#include "algorithms/selector.h"
#include "base/status.h"
#include "core/job_plan.h"
#include "core/operation.h"
#include "transport/endpoint.h"

namespace tutti {

/// A user's buffer on another rank.
struct PeerBuffer {
  int rank = 0;
  Buffer buffer = Buffer::input;
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes its 0
  friend auto operator<=>(const PeerBuffer&, const PeerBuffer&) = default;
};

/// The users' buffers of other ranks that the schedule's rank touches. Only these may be mapped: the proof of
/// the schedule keeps a rank in its call, and so its buffers alive, until everyone who touches them is done,
/// and nobody else.
std::vector<PeerBuffer> peerBuffersOf(const Schedule& schedule);

/// What to run for one operation. The same on all ranks, but for the schedule's own rank.
struct Plan {
  std::shared_ptr<const Schedule> schedule;
  Choice choice;  // of a message: empty
  int channels = 1;
  size_t sliceBytes = 0;
  std::vector<PeerBuffer> peerBuffers;  // what this rank reads or writes of its peers' buffers
};

/// Where calls are run by kernels: what they cost, and how many thread blocks a call may have on any rank.
struct KernelPlanning {
  KernelMachine machine;
  uint32_t mostBlocks = 1;
};

/// One communicator's planner. Used by one thread at a time (the one that runs the task). Plans are kept: a
/// call like one before costs a look-up and allocates nothing.
class Planner {
 public:
  /// Ranks are visited in the job's order. An error when NCCL_ALGO or NCCL_PROTO cannot be understood, or the
  /// tuning file cannot be used. `candidates`: what may run calls. It and the tuning file are the same on all
  /// ranks.
  static Result<std::unique_ptr<Planner>> create(
      const Endpoint& endpoint, const JobPlan& job, const TuningSource& tuning = {},
      std::shared_ptr<const CandidateSet> candidates = CandidateSet::sharedShipped(),
      const KernelPlanning* kernels = nullptr);

  /// Replaces what NCCL_ALGO, NCCL_PROTO (an empty text: what they say counts again) and the cost model (0:
  /// again) say about the choice. Nothing may be running or be enqueued meanwhile.
  Status pin(const std::string& algo, const std::string& proto, int channels);

  /// True when the operation should run in place on the users' buffers, provided that the buffers of all
  /// ranks of this host can be mapped: worth a negotiation among them. The same on all of them.
  Result<bool> wantsZeroCopy(const Operation& operation);
  Result<Plan> plan(const Operation& operation, bool zeroCopy);
  /// An error when NCCL_ALGO or NCCL_PROTO leaves nothing that could run the operation. Thread-safe; for the
  /// call that enqueues it.
  Status check(const Operation& operation) const;
  /// What the selector's cost model expects of the operation. Thread-safe.
  Result<double> predictSeconds(const Operation& operation) const;
  /// What would run the operation, where `zeroCopy` says whether all users' buffers can be used in place.
  /// Thread-safe.
  Result<Choice> choiceFor(const Operation& operation, bool zeroCopy) const;
  /// What the choice depends on. Thread-safe.
  SelectorInput inputFor(const Operation& operation, bool zeroCopy) const;
  /// Why: "prediction", "NCCL_ALGO=ring", "tuning.csv:12". Thread-safe.
  std::string reasonText(const Choice& choice) const { return selector_.reasonText(choice); }
  /// To be called with the plan that a collective runs by.
  void noteUsed(const Plan& plan);
  /// What the last collective ran by; its algorithm is null when there was none. When no collective is
  /// running.
  const Choice& lastUsed() const { return lastUsed_; }
  /// Why, by the settings of that time.
  std::string lastReason() const { return lastReason_ ? *lastReason_ : reasonText(lastUsed_); }
  /// What pin() says, as a number that differs where ranks were told differently.
  uint64_t pinned() const { return pinned_; }
  /// The plan of a send, a receive or a copy.
  Result<Plan> planMessage(const Operation& message);

 private:
  Planner(const Endpoint& endpoint, const JobPlan& job, Selector selector, uint32_t mostBlocks);

  /// An error where the algorithm is not proved for this rank's kind of call, in place or not.
  Status checkKind(const Operation& operation, const Candidate& algorithm) const;
  uint64_t checkKey(const Operation& operation) const;
  void logChoice(const Operation& operation, bool zeroCopy, const Plan& plan) const;
  Result<Plan> makePlan(const Operation& operation, bool zeroCopy);
  Result<std::shared_ptr<const Schedule>> schedule(const Choice& choice, Collective collective, int root,
                                                   bool zeroCopy);
  ScheduleRequest requestFor(const Choice& choice, Collective collective, int root, bool zeroCopy) const;
  Result<int> channelsThatFit(const Choice& choice, const Operation& operation, bool zeroCopy) const;
  size_t sliceBytesFor(const Schedule& schedule) const;
  bool allMapped() const { return endpoint_.localRanks().size() == static_cast<size_t>(endpoint_.ranks()); }

  using ScheduleKey = std::tuple<std::string_view, Collective, int, bool,
                                 int>;                        // algorithm (a candidate's name or a literal),
                                                              // collective, root or peer, whether peers' user
                                                              // buffers can be used, blocks
  using PlanKey = std::tuple<Collective, int, size_t, bool>;  // collective, root, bytes of all, zero copy
  static constexpr size_t kMostPlans = 4096;

  const Endpoint& endpoint_;
  const Layout layout_;                            // host by host: a ring enters and leaves each host once
  const std::vector<std::vector<int32_t>> hosts_;  // groups that share memory, in that order
  const double linkBandwidth_;
  const bool crowded_;
  Selector selector_;
  const uint32_t mostBlocks_;  // of a kernel; 0: CPU threads run calls
  Choice lastUsed_;
  std::optional<std::string> lastReason_;                   // kept where pin() came after the last call
  uint64_t pinned_ = 0;                                     // 0: nothing was pinned
  mutable std::array<std::atomic<uint64_t>, 16> passed_{};  // keys of calls that check() has let pass
  std::map<ScheduleKey, std::shared_ptr<const Schedule>> schedules_;
  std::map<PlanKey, Plan> plans_;
  std::map<Collective, std::vector<const Candidate*>> tooLarge_;  // for this communicator's buffers
};

}  // namespace tutti
