// A schedule made ready to run on one endpoint and channel: the steps in flat arrays, with every rank, port
// and flag number replaced by the FIFO end, counter or doorbell that it means. Built once, used by every
// call.
//
//   Schedule                                BoundSchedule
//   lane 0                                  lanes   [0..4) [4..9)            steps of each lane
//     loop 7: recvReduceSend 3 -> 1    ==>  steps   s0 s1 s2 | s3 ...        blocks: first, count, iterations
//     once:   wait team 0                   senders |F|F|F|F|  receivers |F|F|      one entry, or one for
//     each
//   ...                                     raises  |c,bell|c,bell|  waits |c,n|    iteration if the peer
//   varies
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "algorithms/schedule.h"
#include "algorithms/segment_table.h"
#include "base/status.h"
#include "executor/host/simd/reduce.h"
#include "transport/endpoint.h"

namespace tutti {

/// Something that launches must use one after the other, in the order in which they were started: a message
/// stream, or a channel's flags and scratch. A launch draws a ticket of each at its start and runs when all
/// of them have come up; launches that share nothing run side by side.
struct OrderedResource {
  uint64_t issued = 0;
  uint64_t completed = 0;
};

/// What one channel of an endpoint remembers between calls.
struct ChannelState {
  int channel = 0;
  uint64_t sharedSlices = 0;                // slice runs so far of schedules with shared scratch: its parity
  std::unique_ptr<std::byte[]> ownScratch;  // two halves, for schedules with private scratch
  std::vector<uint64_t> expectedRaises;     // [rank][flag]: raises consumed so far by waits
  OrderedResource flagsAndScratch;
  std::deque<OrderedResource> streams;                              // stable addresses
  std::map<std::tuple<int, int, bool>, OrderedResource*> streamOf;  // by (peer, port, sending)
};

/// Place of a location in terms of the segment table. With a constant segment, block and part are known at
/// binding, which saves the divisions.
struct BoundLocation {
  Buffer buffer = Buffer::input;
  bool ofPeer = false;
  bool fixed = false;  // count is 1 and segment constant
  int32_t block = 0;
  int32_t part = 0;
  int32_t count = 1;
  int32_t segments = 1;  // of the buffer: where numbers wrap
  Affine segment;
  Affine rank;
  Pattern pattern = {};
};

/// The counter that a signal raises, and the bell of the rank that waits for it.
struct FlagRaise {
  std::atomic<uint64_t>* counter;
  Doorbell* bell;
};
/// The counter that a wait looks at, and how many raises of it were consumed before.
struct FlagWait {
  const std::atomic<uint64_t>* counter;
  uint64_t* consumed;
  int32_t rank;
};

struct BoundStep {
  StepKind kind = StepKind::copy;
  bool hasSource = false;
  bool hasDestination = false;
  bool receives = false;
  bool sends = false;
  bool messageFirst = false;
  bool finalize = false;
  bool perIteration = false;  // tables hold `tableCount` entries for every iteration, not for the step
  Scaled scaled = Scaled::none;
  BoundLocation source;
  BoundLocation destination;
  BoundLocation size;
  int32_t pieces = 0;   // segments moved
  uint32_t sender = 0;  // index into senders; + iteration when senderVaries
  uint32_t receiver = 0;
  bool senderVaries = false;
  bool receiverVaries = false;
  uint32_t table = 0;                                     // signal, wait: first entry in raises / waits
  uint32_t tableCount = 0;                                // and how many
  const std::vector<int32_t>* sourceTeam = nullptr;       // whose memory the source is summed over; else null
  const std::vector<int32_t>* destinationTeam = nullptr;  // in whose memory the result is stored; else null
  const Step* text = nullptr;                             // for messages
};

struct BoundBlock {
  uint32_t firstStep = 0;
  uint32_t stepCount = 0;
  int32_t iterations = 1;
};

struct BoundLane {
  uint32_t firstBlock = 0;
  uint32_t blockCount = 0;
};

class BoundSchedule {
 public:
  /// Starts the connections that the schedule needs. Fails when it does not fit this endpoint: foreign rank
  /// number, ports or flags out of range, memory of a rank that is not mapped.
  static Result<std::shared_ptr<const BoundSchedule>> make(Endpoint& endpoint, ChannelState& channel,
                                                           std::shared_ptr<const Schedule> schedule);

  const Schedule& schedule() const { return *schedule_; }
  size_t maxSliceBytes() const { return maxSliceBytes_; }
  bool reduces() const { return reduces_; }
  int32_t widestTeam() const { return widestTeam_; }
  /// Whether peers' user buffers are used: launches must bring their addresses.
  bool needsPeerInput() const { return needsPeerInput_; }
  bool needsPeerOutput() const { return needsPeerOutput_; }

  // Read by the lane machine at every step.
  std::vector<BoundLane> lanes;
  std::vector<BoundBlock> blocks;
  std::vector<BoundStep> steps;
  std::vector<FifoSender*> senders;
  std::vector<FifoReceiver*> receivers;
  std::vector<FlagRaise> raises;
  std::vector<FlagWait> waits;
  std::vector<OrderedResource*> resources;  // that a launch of this schedule must have for itself
  std::vector<std::byte*> scratch;          // by rank: base of its two halves; only with shared scratch
  size_t scratchHalfBytes = 0;
  std::byte* ownScratch = nullptr;

 private:
  friend class Binder;
  std::shared_ptr<const Schedule> schedule_;
  size_t maxSliceBytes_ = 0;
  bool reduces_ = false;
  bool needsPeerInput_ = false;
  bool needsPeerOutput_ = false;
  int32_t widestTeam_ = 1;
};

}  // namespace tutti
