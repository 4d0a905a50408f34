// One host as the simulator sees it: places for ranks, links, ports, and which links lie on which way.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "algorithms/cost_model.h"
#include "algorithms/simulator/max_min.h"
#include "base/status.h"
#include "topology/description.h"

namespace tutti::sim {

constexpr int32_t ceilDiv(int32_t a, int32_t b) { return (a + b - 1) / b; }

/// A link of a host, one direction.
struct HostLink {
  std::string label;  // "GPU0 to NVSwitch"
  double bytesPerSecond = 0;
};

/// The order in which a ring passes a host's places, and the ports by which it comes and goes.
struct HostRing {
  std::vector<int32_t> order;
  int32_t portIn = 0, portOut = 0;
};

/// Hop::link counts in `links` here. All hosts of a cluster are alike.
struct HostModel {
  int32_t places = 1;  // GPUs, or cores that ranks run on
  int32_t ports = 0;   // to the network
  std::vector<HostLink> links;
  std::vector<std::vector<Hop>> between;   // [from * places + to]
  std::vector<std::vector<Hop>> toPort;    // [place * ports + port], the port's own link included
  std::vector<std::vector<Hop>> fromPort;  // the same, inwards
  std::vector<std::vector<int32_t>> near;  // ports that a place's ordinary messages take, in equal parts
  std::vector<std::vector<Hop>> memory;    // [place]: what a byte that the place loads or stores takes
  std::vector<HostRing> rings;             // of a host among others; at least one
  std::vector<HostRing> ringsAlone;        // of a host alone
  double portBytesPerSecond = 0;           // of one port
  /// What one channel of a rank moves at most: a GPU's thread block.
  double channelBytesPerSecond = std::numeric_limits<double>::infinity();
  bool gpus = false;
};

struct PlainHostOptions {
  int32_t places = 1;
  int32_t ports = 1;
  double portBytesPerSecond = 1.25e9;
  /// beta of a connection, hostByte and coreByte of memory.
  CostParameters inside = {};
  /// Bytes that memory moves for each byte of a message: it is copied into a slot and out of it, which steps
  /// share with the loads and stores they do anyway (certificates count 3.1 for rings, up to 5).
  float memoryPerMessageByte = 3;
};
/// A host without GPUs: every rank has a link in and one out of 1 / beta, and all share the host's memory.
HostModel plainHost(const PlainHostOptions& options);

/// What replaces a topology file's network.
struct NetworkReplacement {
  int32_t ports = 0;              // 0: as the file has them
  double portBytesPerSecond = 0;  // on the wire; 0: as the file has it
  double efficiency = 1;          // of what the wire carries, payload
  int32_t maxChannels = 0;        // 0: as many as the search finds best
};
/// A host of a topology file, with the speeds, ways and rings that src/topology derives for it
/// (docs/topology.md). `places`: ranks on it, its first GPUs; 0: all. Errors: a file without GPUs, more
/// places than GPUs, more ports than it has cards for, 8 to a card.
Result<HostModel> hostOfTopology(const SystemDescription& system, int32_t places,
                                 const NetworkReplacement& network);

}  // namespace tutti::sim
