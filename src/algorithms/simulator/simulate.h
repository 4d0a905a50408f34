// What a collective takes on a cluster: generates the schedules, chooses the engine, says what limits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/simulator/cluster.h"
#include "algorithms/simulator/engines.h"
#include "base/status.h"

namespace tutti::sim {

enum class Engine : uint8_t { automatic, events, rounds, symmetric, hierarchy };
const char* name(Engine engine);

struct Job {
  std::string_view algorithm;
  Collective collective = Collective::allReduce;
  double bytes = 0;  // of the whole vector: the block where the collective has one, all blocks else
  int32_t root = 0;
  int32_t channels = 0;           // 0: as many as the cluster has rings
  int32_t blocks = 0;             // of pipelines; 0: the algorithm's own number
  double slotBytes = 128 * 1024;  // that one message carries at most
  int32_t fifoSlots = 8;
  Engine engine = Engine::automatic;
  /// Algorithms take the ranks in the order of their numbers, not host by host.
  bool inRankOrder = false;
};

struct Outcome {
  double seconds = 0;
  int32_t channels = 1;
  double slices = 1;
  Engine engine = Engine::automatic;
  bool approximate = false;
  /// What limits: the busiest link and the part of the time that its traffic would take alone; "latency"
  /// where no link is busy for half of the time.
  std::string limit;
  double limitShare = 0;
};

/// Errors (invalidUsage, invalidArgument): an algorithm that does not exist, does not implement the
/// collective on so many ranks, or works through memory that ranks of several hosts, or GPUs, do not share;
/// schedules that have more steps than kMostSteps and no symmetry.
Result<Outcome> simulate(const Cluster& cluster, const Job& job);

/// Steps of all ranks and slices up to which events are followed one by one, and that rounds are computed
/// for.
constexpr double kMostEvents = 4e5;
constexpr double kMostSteps = 3e7;
/// Beyond these, every other channel's order stands for two.
constexpr double kMostChannelSteps = 1e6;

/// Factor from bytes/s of the vector to bus bandwidth, as nccl-tests defines it.
double busFactor(Collective collective, int32_t ranks);

}  // namespace tutti::sim
