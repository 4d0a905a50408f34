// A started set of launches: resumable state machines, one for each lane.
//
//   launch 0   lane 0  [slice 2 | block 1 | iteration 4 | step 0]  --> runs on until a step must wait:
//              lane 1  [slice 1 | block 0 | iteration 0 | step 3]        slot not free, message not there,
//   launch 1   lane 0  not begun: waits for its turn on the streams      flag not raised
//
// advance() lets each lane run as far as it can and returns. A lane's position is all the state it has, so a
// run may be advanced by one thread now and by another later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/fault_state.h"
#include "base/status.h"
#include "executor/host/bound_schedule.h"
#include "executor/host/launch.h"
#include "executor/host/simd/reduce.h"

namespace tutti {

class HostExecutor;

class HostRun {
 public:
  enum class State : uint8_t { progressed, waiting, done, failed };
  static constexpr size_t kNoBudget = std::numeric_limits<size_t>::max();
  /// No call of advance() moves much more than this (about a millisecond of work), so that faults are seen
  /// and the network is served in time.
  static constexpr size_t kMostBytes = size_t{4} << 20;

  /// Advances every lane as far as it goes without waiting, but stops (progressed) soon after `byteBudget`
  /// bytes were moved. One thread at a time for all runs of an executor.
  State advance(size_t byteBudget = kNoBudget);

  State state() const { return state_; }
  /// After failed: why. Names rank, peer and step; the communicator's first fault where that came first.
  const Status& status() const { return status_; }
  /// What the run waits for right now: "ring channel 0 lane 0 slice 3 step 2 recvReduce from rank 5". For
  /// reports about stalls.
  std::string position() const;

  /// A lane that cannot go on: which rank it waits for, and how far it has come.
  struct Wait {
    enum class For : uint8_t { data, room, signal };  // a message, a free slot, a flag
    int peer = -1;
    For what = For::data;
    uint64_t step = 0;   // of its program, from 1: loops are counted out
    uint64_t steps = 0;  // of the program
    uint64_t slice = 0;  // from 1
    uint64_t slices = 0;
  };
  /// One entry for each lane that waits, `most` at most. By the thread that advances.
  void waits(std::vector<Wait>* found, size_t most) const;

  HostExecutor& executor() const { return *executor_; }

 private:
  friend class HostExecutor;

  /// Where a lane stands.
  struct LaneState {
    size_t slice = 0;
    uint32_t block = 0;  // in BoundSchedule::blocks
    uint32_t step = 0;   // in BoundSchedule::steps
    int32_t iteration = 0;
    uint32_t raised = 0;  // flags of the current wait that were seen already
    bool done = false;
  };
  struct LaunchState {
    std::shared_ptr<const BoundSchedule> bound;
    SegmentTable table{CallShape{}};
    Reducer reducer;
    ReductionSpec reduction;
    std::byte* input = nullptr;
    std::byte* output = nullptr;
    std::span<std::byte* const> peerInput;
    std::span<std::byte* const> peerOutput;
    uint64_t firstParity = 0;
    bool stream = false;  // outputs are too large to stay in a cache
    bool started = false;
    int channel = 0;
    uint32_t firstLane = 0;
    uint32_t lanesLeft = 0;
    uint32_t firstTicket = 0;
  };
  enum class StepResult : uint8_t { ran, blocked, failed };

  explicit HostRun(HostExecutor* executor) : executor_(executor) {}
  Status reset(std::span<const Launch> launches);
  Status resetLaunch(const Launch& launch, LaunchState* state);
  void beginLanes(LaunchState* launch);
  bool isTurnOf(const LaunchState& launch) const;
  void finishLaunch(const LaunchState& launch);
  State fail(Status status);

  StepResult advanceLane(const LaunchState& launch, LaneState* lane, bool* moved);
  void nextStep(const LaunchState& launch, LaneState* lane);
  StepResult runStep(const LaunchState& launch, const BoundStep& step, LaneState* lane);
  StepResult raiseFlags(const LaunchState& launch, const BoundStep& step, const LaneState& lane);
  StepResult waitFlags(const LaunchState& launch, const BoundStep& step, LaneState* lane);
  StepResult moveData(const LaunchState& launch, const BoundStep& step, const LaneState& lane);
  std::byte* address(const LaunchState& launch, const BoundLocation& location, const LaneState& lane,
                     int32_t piece, int32_t rank) const;
  void movePiece(const LaunchState& launch, const BoundStep& step, const LaneState& lane, int32_t piece,
                 size_t bytes, const std::byte* message, std::byte* slot);
  StepResult failSize(const LaunchState& launch, const BoundStep& step, const LaneState& lane, size_t got,
                      size_t expected);
  std::string describe(const LaunchState& launch, const LaneState& lane) const;
  Wait waitOf(const LaunchState& launch, size_t laneNumber) const;

  HostExecutor* executor_;
  State state_ = State::done;
  Status status_;
  size_t budgetLeft_ = 0;
  std::vector<LaunchState> launches_;  // the first launchCount_ are in use; the rest wait for reuse
  size_t launchCount_ = 0;
  std::vector<uint32_t> active_;  // launches not done
  std::vector<LaneState> lanes_;
  std::vector<uint64_t> tickets_;
  std::vector<const std::byte*> sources_;  // of the step at work; as many as the widest step has
  std::vector<std::byte*> destinations_;
};

}  // namespace tutti
