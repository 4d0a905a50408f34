// Clusters by name: what tutti-sim's options say, with the constants that come from somewhere.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "algorithms/cost_model.h"
#include "algorithms/simulator/cluster.h"
#include "algorithms/tuning_file.h"
#include "base/status.h"
#include "topology/description.h"

namespace tutti::sim {

/// NCCL's protocols, which trade bandwidth for latency.
enum class Protocol : uint8_t { simple, ll128, ll };
const char* name(Protocol protocol);

/// NCCL's published times of a protocol (tuning model of NCCL: base and per hop; rings and trees differ), and
/// the part of what links carry that is payload: LL sends a 4-byte flag beside 4 bytes of data, LL128 8
/// beside 120.
Latencies gpuLatencies(Protocol protocol, bool tree);
/// Bytes that a message carries at most: Simple half of the 4 MiB FIFO (as NCCL's chunks of four steps),
/// LL128 the same part of 4.9 MB x 120/128, LL of 512 KiB x 1/2.
double gpuMessageBytes(Protocol protocol);
/// Ranks on cores: the closed forms' parameters as latencies.
Latencies cpuLatencies(const CostParameters& inside, const CostParameters& between);

/// Payload of what a link between hosts carries, with 4096 bytes in a packet.
enum class Wire : uint8_t { infiniBand, roce, tcp };
double wireEfficiency(Wire wire);

struct FabricOptions {
  int32_t ranks = 1;
  int32_t hosts = 1;
  NetworkOptions network;
  int32_t ports = 0;              // a host's; 0: the topology file's, or 1
  double portBytesPerSecond = 0;  // on the wire; 0: the topology file's, or 10 Gbit/s
  Wire wire = Wire::infiniBand;   // hosts without GPUs: TCP
  int32_t channels = 0;           // rings; 0: what the topology's search finds
  std::vector<int32_t> placement;
  /// Hosts without GPUs: what was measured there, in the place of the shipped parameters. May be null.
  const TuningFile* tuning = nullptr;
};

/// A cluster of GPU hosts of a topology file.
Result<Cluster> gpuCluster(const SystemDescription& system, const FabricOptions& options,
                           const Latencies& latencies);
/// A cluster of hosts without GPUs: shared memory inside, TCP between.
Result<Cluster> cpuCluster(const FabricOptions& options);

}  // namespace tutti::sim
