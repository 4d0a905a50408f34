// Schedules of all ranks as the simulator runs them: flat lists of what takes time.
#pragma once

#include <cstdint>
#include <limits>
#include <unordered_map>
#include <vector>

#include "algorithms/schedule.h"
#include "base/status.h"

namespace tutti::sim {

/// Messages from a rank to another on one port of a channel, or raises of a flag: first in, first out.
struct Stream {
  int32_t from = 0, to = 0;
  int32_t channel = 0;
};

/// One step of one rank, loops unrolled. Shares are parts of the channel's vector; a slice moves 1/slices of
/// them.
struct Op {
  int32_t receives = -1;   // stream that the step takes a message from
  int32_t sends = -1;      // stream that it sends to
  double share = 0;        // of a message
  double reduced = 0;      // of what arrives, to be reduced
  double traffic = 0;      // loaded and stored besides what a message costs anyway
  uint32_t firstPeer = 0;  // signal, wait: streams in Program::peers
  uint32_t raises = 0;     // so many of them to raise
  uint32_t waits = 0;      // or to wait for
};

struct LaneOps {
  int32_t rank = 0;
  int32_t channel = 0;
  uint32_t first = 0, count = 0;  // in Program::ops
};

/// One channel: its share of the vector, and the ring that its messages follow (-1: none).
struct ChannelShare {
  double bytes = 0;
  int32_t ring = -1;
  double limit = std::numeric_limits<double>::infinity();  // bytes/s of one message
};

struct Program {
  std::vector<Op> ops;
  std::vector<LaneOps> lanes;
  std::vector<Stream> streams;
  std::vector<uint32_t> peers;
  std::vector<ChannelShare> channels;
  double slices = 1;
};

/// Adds a channel's schedules to a program.
class ProgramBuilder {
 public:
  explicit ProgramBuilder(Program* program) : program_(*program) {}
  void add(const std::vector<Schedule>& schedules, const ChannelShare& channel);

 private:
  uint32_t streamOf(int32_t from, int32_t to, int32_t number, bool isFlag);
  void addStep(const Schedule& schedule, const Step& step, int32_t i);
  void addPeers(const Schedule& schedule, const Step& step, int32_t i, bool raising, Op* op);

  Program& program_;
  int32_t channel_ = 0;
  std::unordered_map<uint64_t, uint32_t> numbers_;
};

/// Loads and stores of a step without messages, or those that a team adds to one with messages, as a share of
/// the vector.
double localTraffic(const Schedule& schedule, const Step& step);
/// Part of the vector that the step moves.
double movedShare(const Schedule& schedule, const Step& step);

/// Runs of the program for `bytes` on a channel when a message carries `slotBytes` at most.
double sliceCount(const Schedule& schedule, double bytes, double slotBytes);
/// Steps of a schedule, loops unrolled.
double stepCount(const Schedule& schedule);

}  // namespace tutti::sim
