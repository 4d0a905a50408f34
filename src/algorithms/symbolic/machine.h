// Executes the schedules of all ranks symbolically: values are sets of contributions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "algorithms/schedule.h"
#include "algorithms/symbolic/happens_before.h"
#include "algorithms/symbolic/memory.h"
#include "algorithms/symbolic/value.h"
#include "base/status.h"

namespace tutti {

/// The schedules of all ranks for one collective; element r is rank r's.
using ScheduleSet = std::vector<Schedule>;

/// Counts over the first slice of the first call, in segments.
struct MachineCounts {
  int32_t rounds = 0;                // longest chain of messages and signals
  std::vector<int64_t> sent;         // by each rank
  std::vector<int64_t> peerTraffic;  // loads from and stores to other ranks' memory, by each rank
  int64_t memoryTraffic = 0;         // all loads and stores, FIFO slots included
};

/// What infer mode found out about a step (see MachineOptions::infer).
struct InferredMarks {
  int32_t sizeAs = kNoSegment;
  bool finalize = false;
};

struct MachineOptions {
  int32_t fifoSlots = 8;
  int32_t slices = 3;
  int32_t scratchHalves = 2;
  bool inPlace = false;
  bool requireIdenticalResults = true;
  /// Do not check sizes, finalize and results, but find out which marks the steps need: for schedules that
  /// were translated from a form that has no such marks. Use with one call and one slice.
  bool infer = false;
};

/// Runs calls one after the other on every rank, each rank at its own pace, as an executor would. Schedules
/// are Kahn networks (a lane alone owns each of its message and signal streams, and waits for one thing at a
/// time), so one interleaving shows what any interleaving does: the same values move, and if this one does
/// not get stuck, none does.
class SymbolicMachine {
 public:
  /// `calls` outlive the machine; all sets have the same number of ranks, each rank at least 1.
  SymbolicMachine(std::vector<const ScheduleSet*> calls, const MachineOptions& options);

  /// Executes everything. Errors name the call, schedule, rank, lane, slice and step.
  Status run();

  const MachineCounts& counts() const { return counts_; }
  const ExpressionTable& expressions() const { return expressions_; }
  /// Expression of the result of the first reduction of call 0 (lowest output segment, lowest rank); -1:
  /// none.
  int32_t resultExpression() const { return resultExpression_; }
  /// The longest chain of additions in any result of call 0.
  int32_t resultDepth() const { return resultDepth_; }
  const std::unordered_map<const Step*, InferredMarks>& inferred() const { return inferred_; }

 private:
  struct Message {
    std::vector<Value> values;
    std::shared_ptr<const Clock> clock;
    int32_t round = 0;
    int32_t call = 0;
    int32_t slice = 0;
  };
  /// Messages from one rank to another on one port, or raises of one flag.
  struct Stream {
    std::deque<Message> queue;
    int32_t waitingReceiver = -1;  // lanes
    int32_t waitingSender = -1;
    int32_t sendOwner = -1, sendCall = -1;  // the lane that sends in call sendCall
    int32_t receiveOwner = -1, receiveCall = -1;
  };
  struct LaneState {
    int32_t rank = 0;
    int32_t number = 0;  // within the rank
    int32_t call = 0;
    int32_t slice = 0;
    size_t block = 0;
    size_t step = 0;
    int32_t iteration = 0;
    size_t teamDone = 0;  // members that the current wait has seen
    int32_t round = 0;
    bool running = false;
    bool usesScratch = false;
    std::string blockedOn;
    std::vector<uint32_t> sliceBegan;  // by call and slice: its time then; 0: not yet
  };
  enum class Outcome : uint8_t { done, blocked };

  // machine.cc: control flow
  const Schedule& schedule(const LaneState& lane) const;
  Status beginCall(int32_t rank, int32_t call);
  Status endCall(int32_t rank);
  Status advance(size_t lane);
  void beginSlice(size_t lane);
  Status endSlice(size_t lane);
  void findTurnoverLanes();
  Status checkTurnover(size_t lane, bool atCallEnd);
  Status checkResults(int32_t rank, const Schedule& schedule, int32_t call);
  Status checkResult(const Schedule& schedule, int32_t call, int32_t segment, int32_t slice);
  Status finish() const;
  Status located(const LaneState& lane, const Step& step, const Status& status) const;
  void wake(int32_t& lane);

  // machine_steps.cc: what a step does
  Status execute(size_t lane, const Step& step, Outcome* outcome);
  Status executeMessage(size_t lane, const Step& step, Outcome* outcome);
  Status executeLocal(size_t lane, const Step& step);
  Status executeSignal(size_t lane, const Step& step);
  Status executeWait(size_t lane, const Step& step, Outcome* outcome);
  Status reduceTeam(size_t lane, const Step& step);
  Status addOwn(size_t lane, const Step& step, bool reduces, std::vector<Value>* values);
  Status addTeam(size_t lane, const Step& step, std::vector<Value>* values);
  Status targetsOf(const LaneState& lane, const Step& step, int32_t* one,
                   const std::vector<int32_t>** targets) const;
  Status storeResult(size_t lane, const Step& step, const std::vector<Value>& values);
  Status load(size_t lane, const Step& step, const Location& location, int32_t owner,
              std::vector<Value>* values);
  Status store(size_t lane, const Step& step, const Location& location, int32_t owner,
               const std::vector<Value>& values);
  Status combine(std::vector<Value>& left, const std::vector<Value>& right);
  Status finalizeValues(size_t lane, const Step& step, std::vector<Value>& values);
  Status checkSizes(size_t lane, const Step& step, const std::vector<Value>& values);
  Status ownerOf(const LaneState& lane, const Location& location, int32_t* owner) const;
  Status placeOf(const LaneState& lane, const Location& location, int32_t owner, int32_t index,
                 Place* place) const;
  Status checkOverlap(const LaneState& lane, const Step& step, int32_t srcOwner, int32_t dstOwner) const;
  Status messageStream(const LaneState& lane, const Affine& peer, int32_t port, bool sending,
                       Stream** stream);
  Status flagStream(const LaneState& lane, int32_t peer, int32_t flag, bool raising, Stream** stream);
  Status team(const LaneState& lane, int32_t number, const std::vector<int32_t>** ranks) const;
  Accessor accessor(size_t lane, const Step* step) const;
  bool counting(const LaneState& lane) const { return lane.call == 0 && lane.slice == 0; }
  void receive(size_t lane, const Message& message);

  std::vector<const ScheduleSet*> calls_;
  MachineOptions options_;
  int32_t ranks_;
  int32_t lanesPerRank_;
  ExpressionTable expressions_;
  HappensBefore order_;
  SymbolicMemory memory_;
  std::unordered_map<uint64_t, Stream> messages_;
  std::unordered_map<uint64_t, Stream> flags_;
  std::vector<LaneState> lanes_;
  std::vector<std::vector<size_t>>
      turnoverLanes_;             // by call: the lanes that use shared scratch, or one for a rank
  std::vector<int32_t> running_;  // lanes of each rank still in the call
  std::vector<int32_t> callOf_;   // of each rank
  std::vector<size_t> ready_;
  std::vector<std::vector<int32_t>>
      agreed_;  // by call: expression of each (segment, slice), -1: not seen yet
  MachineCounts counts_;
  int32_t resultExpression_ = -1;
  int32_t resultDepth_ = 0;
  std::unordered_map<const Step*, InferredMarks> inferred_;
};

}  // namespace tutti
