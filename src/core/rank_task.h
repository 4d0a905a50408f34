// The work that one group gives one communicator: what a stream runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "core/operation.h"
#include "core/operation_run.h"
#include "executor/host/launch.h"

namespace tutti {

class Communicator;

/// A resumable state machine over the operations of one group on one communicator. They form *strands*: operations of
/// a strand run one after the other, strands run concurrently:
///
///   strand 0       collectives of the group, in call order
///   strand (p, >)  messages to rank p, in call order          so messages to one peer keep their order, and messages
///   strand (p, <)  messages from rank p, in call order        to different peers progress together
///
/// The tasks of a communicator run in the order of their tickets, whatever streams they are on, since they share the
/// communicator's connections. One thread at a time advances a task. Task objects are pooled and keep their memory.
class RankTask final : public HostRun {
 public:
  explicit RankTask(Communicator& communicator) : communicator_(communicator) {}

  /// Takes the operations; they are copied.
  void assign(uint64_t ticket, std::span<const Operation> operations);

  Communicator& communicator() const { return communicator_; }
  uint64_t ticket() const { return ticket_; }
  cudaStream_t stream() const { return stream_; }
  /// Streams of the group on this communicator besides stream(), which must wait for the task and be waited for.
  const std::vector<cudaStream_t>& otherStreams() const { return otherStreams_; }

  State advance() override;
  /// Gives the task up with an error: its communicator has failed.
  State stop(const Status& error) {
    status_ = error;
    return State::failed;
  }
  Status status() const override { return status_; }
  std::string position() const override;

  /// Waits for the task's turn, runs it to its end and completes it. For a stream's worker.
  void runToEnd();
  /// Ends the task: records a failure in the communicator, passes the turn on. Once, by whoever saw the end.
  void complete();

  /// Arrival of the other streams (see Launcher).
  std::atomic<uint32_t> streamsToArrive{0};
  std::atomic<uint32_t> finished{0};  // 1 once complete() ran; waited on by the other streams
  std::atomic<uint32_t> holders{0};   // stream tasks that still refer to this object; the last one recycles it

 private:
  struct Strand {
    int peer = -1;                                     // of a message strand
    Operation::Kind kind = Operation::Kind::collective;
    std::vector<Operation> operations;
    size_t next = 0;       // operation that runs or comes next
    bool running = false;  // `run` works on operations[next]
    OperationRun run;
  };

  Strand& strandFor(const Operation& operation);
  State advanceStrand(Strand& strand);

  Communicator& communicator_;
  uint64_t ticket_ = 0;
  cudaStream_t stream_ = nullptr;
  std::vector<cudaStream_t> otherStreams_;
  std::vector<std::unique_ptr<Strand>> strands_;  // the first strandsUsed_ are in use
  size_t strandsUsed_ = 0;
  Status status_;
};

}  // namespace tutti
