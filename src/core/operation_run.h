// One operation of one rank, from choosing its schedule to its end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/operation.h"
#include "core/planner.h"
#include "core/position.h"
#include "executor/host/host_executor.h"
#include "transport/endpoint.h"

namespace tutti {

class Communicator;

/// Phases: where the planner would like to work on users' buffers in place, the host's ranks first
/// *negotiate* (each posts where its buffers are and whether peers can map them; all read the same answers,
/// so all choose the same schedule), then the schedule runs. Reused for one operation after the other; keeps
/// its memory.
class OperationRun {
 public:
  Status begin(Communicator& communicator, const Operation& operation);
  HostRun::State advance(size_t byteBudget);
  /// Gives the executor's run back; for an operation that ends early.
  void end() { run_.reset(); }
  Status status() const { return status_; }
  std::string position() const;
  /// Whom the operation waits for now.
  void waits(std::vector<WaitFor>* found) const;

 private:
  enum class Phase : uint8_t { negotiating, running };

  void postBoard(bool fromFile);
  HostRun::State advanceNegotiation();
  Status mapPeers();
  Status launch(bool zeroCopy);
  Status checkFingerprint(int rank, uint64_t theirs) const;

  Communicator* communicator_ = nullptr;
  Operation operation_;
  Phase phase_ = Phase::running;
  uint64_t negotiation_ = 0;
  BoardEntry mine_;
  std::vector<std::byte*> peerInput_;
  std::vector<std::byte*> peerOutput_;
  std::vector<Launch> launches_;
  RunHandle run_;
  Status status_;
};

/// What the executor is asked to do for one channel of a planned operation.
Launch makeLaunch(const Communicator& communicator, const Operation& operation, const Plan& plan,
                  int channel);

/// What a run waits for, in the words of positions.
void appendWaits(const HostRun& run, std::vector<WaitFor>* found);

/// What a call is, packed into 64 bits, so that ranks can compare: collective, type, operator, root (or a
/// digest of the counts of all ranks) and count.
uint64_t fingerprint(const Operation& operation);
std::string describeFingerprint(uint64_t value);

}  // namespace tutti
