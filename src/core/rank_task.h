// The work that one group gives one communicator: what a stream runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "core/call_check.h"
#include "core/operation.h"
#include "core/operation_run.h"
#include "executor/host/host_executor.h"

namespace tutti {

class Communicator;

/// A resumable state machine over the operations of one group on one communicator:
///
///   collectives   one after the other, in call order
///   messages      all at once; the executor keeps those to (or from) one peer in call order, so that
///   messages to
///                 different peers progress together
///
/// The two sides run concurrently. The tasks of a communicator run in the order of their tickets, whatever
/// streams they are on, since they share the communicator's connections. One thread at a time advances a
/// task. Task objects are pooled and keep their memory.
class RankTask {
 public:
  using State = HostRun::State;

  explicit RankTask(Communicator& communicator) : communicator_(communicator) {}

  /// Takes the operations; they are copied. `firstCollective` is the number of the first collective among
  /// them.
  void assign(uint64_t ticket, uint64_t firstCollective, std::span<const Operation> operations);

  Communicator& communicator() const { return communicator_; }
  uint64_t ticket() const { return ticket_; }
  cudaStream_t stream() const { return stream_; }
  /// Streams of the group on this communicator besides stream(), which must wait for the task and be waited
  /// for.
  const std::vector<cudaStream_t>& otherStreams() const { return otherStreams_; }

  /// Goes as far as possible without waiting, but stops (progressed) soon after `byteBudget` bytes. Fails at
  /// once when the communicator has failed.
  State advance(size_t byteBudget = HostRun::kNoBudget);
  /// What is waited for; for reports about stalls.
  std::string position() const;

  /// Waits for the task's turn, runs it to its end and completes it. For a stream's worker.
  void runToEnd();
  /// Ends the task: records a failure in the communicator, passes the turn on. Once, by whoever saw the end.
  void complete();

  /// Arrival of the other streams (see launchTasks).
  std::atomic<uint32_t> streamsToArrive{0};
  std::atomic<uint32_t> finished{0};  // 1 once complete() ran; waited on by the other streams
  std::atomic<uint32_t> holders{0};  // stream tasks that still refer to this object; the last one recycles it

 private:
  State advanceCollectives(size_t byteBudget);
  State advanceMessages(size_t byteBudget);
  Status startMessages();
  State fail(Status status);
  State advanceBoth(size_t byteBudget);
  State beginCollective();
  void publishWaits();

  Communicator& communicator_;
  uint64_t ticket_ = 0;
  cudaStream_t stream_ = nullptr;
  std::vector<cudaStream_t> otherStreams_;
  std::vector<Operation> collectives_;
  size_t nextCollective_ = 0;
  uint64_t firstCollective_ = 1;
  bool collectiveChecking_ = false;  // TUTTI_CHECK: ranks compare the call before it runs
  CollectiveCheck collectiveCheck_;
  bool collectiveRunning_ = false;
  OperationRun collectiveRun_;
  std::vector<Operation> messages_;
  std::vector<Launch> launches_;
  bool messagesDone_ = true;
  RunHandle messageRun_;
  bool messagesBegun_ = false;
  CheckedMessages checkedMessages_;  // in place of messageRun_ with TUTTI_CHECK
  Status status_;
};

}  // namespace tutti
