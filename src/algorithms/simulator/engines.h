// Three ways to find out how long a program takes. They share one model of a rank (docs/simulation.md, "A
// rank"):
//
//   lane    waits for a message; reduces it (gamma a byte); hands its own message to a sender; goes on
//   sender  a lane has two, for messages inside its host and for others. One message at a time, first in,
//   first
//           out; it moves at the rate that links give it, and arrives `latency` after its last byte has left
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/registry.h"
#include "algorithms/simulator/cluster.h"
#include "algorithms/simulator/program.h"
#include "base/status.h"

namespace tutti::sim {

/// What a call takes, and which link is busiest.
struct Timing {
  double seconds = 0;
  int32_t rounds = 0;            // messages in a row, of a slice; 0: not counted
  std::vector<double> linkBusy;  // of each link: seconds that its traffic takes at full speed
  bool approximate = false;      // repetitions that were not exactly periodic were taken for that
};

/// A: event by event. All flows that are under way share their links max-min fairly at every moment; a stream
/// holds `fifoSlots` messages that its receiver has not taken. For some hundreds of ranks. Error: ranks wait
/// for each other for ever.
Result<Timing> runEvents(const Cluster& cluster, const Program& program, int32_t fifoSlots);

/// B: messages that are equally deep in the chains of messages share links as if they began at once; then all
/// ranks' clocks are advanced through the schedule. Three slices are run, the others take as long as the
/// third did, but no less than the busiest link needs. O(steps) time. Error as above.
Result<Timing> runRounds(const Cluster& cluster, const Program& program);

/// One rank's schedule that stands for all: the rank at each position does the same with peers at the same
/// distance.
struct SymmetricJob {
  Schedule schedule;                         // of position 0
  Symmetry symmetry = Symmetry::shift;       // how the other positions' are like it
  std::vector<std::vector<int32_t>> orders;  // of each channel: the rank at each position
  std::vector<ChannelShare> channels;
  double slices = 1;
};
/// B for those: as runRounds, in time and memory of one schedule x ranks; long loops are run until they
/// repeat themselves.
Timing runSymmetric(const Cluster& cluster, const SymmetricJob& job);

}  // namespace tutti::sim
