// One operation of one rank, from choosing its schedule to its end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/operation.h"
#include "core/planner.h"
#include "executor/host/launch.h"
#include "transport/endpoint.h"

namespace tutti {

class Communicator;

/// Phases: where the planner would like to work on users' buffers in place, the host's ranks first *negotiate* (each
/// posts where its buffers are and whether peers can map them; all read the same answers, so all choose the same
/// schedule), then the schedule runs. Reused for one operation after the other; keeps its memory.
class OperationRun {
 public:
  Status begin(Communicator& communicator, const Operation& operation);
  HostRun::State advance();
  Status status() const { return status_; }
  std::string position() const;

 private:
  enum class Phase : uint8_t { negotiating, running };

  void postBoard();
  HostRun::State advanceNegotiation();
  Status mapPeers();
  Status launch(bool zeroCopy);
  Status checkFingerprint(int rank, uint64_t theirs) const;

  Communicator* communicator_ = nullptr;
  Operation operation_;
  Phase phase_ = Phase::running;
  uint64_t negotiation_ = 0;
  BoardEntry mine_;
  std::vector<BoardEntry> entries_;
  std::vector<std::byte*> peerInput_;
  std::vector<std::byte*> peerOutput_;
  std::vector<Launch> launches_;
  std::unique_ptr<HostRun> run_;
  Status status_;
};

/// What a call is, packed into 64 bits, so that ranks can compare: collective, type, operator, root and count.
uint64_t fingerprint(const Operation& operation);
std::string describeFingerprint(uint64_t value);

}  // namespace tutti
