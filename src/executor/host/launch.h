// Running schedules on CPU threads: the interface of the host executor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "algorithms/schedule.h"
#include "algorithms/segment_table.h"
#include "base/fault_state.h"
#include "base/status.h"
#include "transport/endpoint.h"

namespace tutti {

/// A reduction as the executor applies it. `scale` multiplies the own contribution when it is read from the
/// input (PreMulSum; average of floats: 1/n); `divisor` divides the final value (average of integers: n).
enum class Reduction : uint8_t { sum, prod, max, min };
struct ReductionSpec {
  Reduction op = Reduction::sum;
  ncclDataType_t type = ncclFloat32;
  bool hasScale = false;
  double scale = 1.0;         // floating types
  uint64_t integerScale = 1;  // integer types: the scalar's bits, multiplied modulo 2^n
  uint64_t divisor = 1;
};

/// One schedule over one call's buffers on one channel. Pointers are owned by the caller and live until the
/// task is done. peerInput / peerOutput: per rank, the address of the peer's user buffer as mapped here;
/// empty unless the schedule uses them (Schedule::needsMappedUserBuffers).
struct Launch {
  std::shared_ptr<const Schedule> schedule;
  CallShape shape;
  ReductionSpec reduction;
  const void* input = nullptr;
  void* output = nullptr;
  std::vector<std::byte*> peerInput;
  std::vector<std::byte*> peerOutput;
  int channel = 0;
  uint64_t firstSlice = 0;  // the channel's running slice number (scratch parity)
};

/// Runs launches concurrently as resumable state machines. The same object can be advanced by one thread and
/// finished by another, never by two at once.
class HostRun {
 public:
  virtual ~HostRun() = default;
  enum class State : uint8_t { progressed, waiting, done, failed };
  /// Advances every lane as far as it goes without waiting.
  virtual State advance() = 0;
  /// After failed: why. Names rank, peer, step.
  virtual Status status() const = 0;
  /// What the run waits for right now: "lane 0 slice 3 step 2 recvReduce from rank 5". For stall reports.
  virtual std::string position() const = 0;
};

/// Binds the launches to the endpoint's FIFOs and flags (starting connections where needed).
Result<std::unique_ptr<HostRun>> startRun(Endpoint& endpoint, std::vector<Launch> launches,
                                          std::shared_ptr<FaultState> faults);

/// Advances `run` to its end from the current thread: spins, then yields, then sleeps on the rank's doorbell.
/// Returns early when the communicator's faults say stop.
Status finishRun(Endpoint& endpoint, HostRun& run, const FaultState& faults);

}  // namespace tutti
