// TUTTI_CHECK=1: ranks compare their calls before anything moves.
//
// Collectives: what is known spreads by dissemination, in ceil(log2 n) rounds of one small message each. A
// rank keeps the smallest and the largest call that it has heard of (in an arbitrary, fixed order), each with
// its rank; in the end all ranks know the smallest and the largest of all. They are equal when all calls are.
//
//   round 0          round 1          round 2        n = 5: distance 2^round, wrapping around
//   r -> r + 1       r -> r + 2       r -> r + 4
//
// So all ranks find the same difference, none learns of it earlier than its neighbours can, and a rank that
// fails has passed on everything that the others need. The messages travel in the streams that the collective
// itself uses (channel 0, port 0), ahead of its data.
//
// Messages: the sender puts a header before each message, in the message's own stream; the receiver compares
// it with what it expects before it takes any data.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/status.h"
#include "core/operation.h"
#include "core/position.h"
#include "executor/host/host_executor.h"

namespace tutti {

class Communicator;

/// TUTTI_CHECK, or NCCL_CHECK_MODE=DEBUG_GLOBAL. The same on all ranks of a communicator.
bool callsAreChecked();

/// The exchange ahead of one collective. Resumable; keeps its memory.
class CollectiveCheck {
 public:
  void begin(Communicator& communicator, const Operation& operation, uint64_t number);
  HostRun::State advance();
  const Status& status() const { return status_; }
  void waits(std::vector<WaitFor>* found) const;

 private:
  /// A rank's call; ordered by all fields.
  struct Claim {
    std::string bytes;  // number, CallName, Planner::pinned()
    int32_t rank = 0;
  };
  Result<bool> round();
  Status merge(std::string_view message, int from);
  Status verdict() const;

  Communicator* communicator_ = nullptr;
  uint64_t number_ = 0;
  Claim least_;
  Claim greatest_;
  int distance_ = 1;
  bool sent_ = false;
  Status status_;
};

/// Runs the messages of a group with a header ahead of each: those of one stream one after the other, streams
/// side by side.
class CheckedMessages {
 public:
  void begin(Communicator& communicator, const std::vector<Operation>& messages);
  HostRun::State advance(size_t byteBudget);
  const Status& status() const { return status_; }
  void waits(std::vector<WaitFor>* found) const;
  /// Gives runs back; for an operation that ends early.
  void end();

 private:
  struct Stream {
    int peer = 0;
    int port = 0;
    bool sends = false;
    std::deque<const Operation*> messages;  // the first is at work
    Launch launch;                          // of the first
    RunHandle run;                          // null: its header has not passed yet
  };
  Result<bool> passHeader(Stream& stream);
  Result<HostRun::State> advanceStream(Stream& stream, size_t byteBudget);
  Status plan(const Operation& message, Launch* launch, int* port) const;

  Communicator* communicator_ = nullptr;
  std::deque<Stream> streams_;
  Status status_;
};

}  // namespace tutti
