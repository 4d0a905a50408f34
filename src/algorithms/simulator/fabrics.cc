#include "algorithms/simulator/fabrics.h"

#include <array>
#include <utility>

namespace tutti::sim {
namespace {

struct NcclTimes {
  double base, inside, between;  // us
};

}  // namespace

const char* name(Protocol protocol) {
  static constexpr std::array<const char*, 3> kNames = {"simple", "ll128", "ll"};
  return kNames[static_cast<size_t>(protocol)];
}

Latencies gpuLatencies(Protocol protocol, bool tree) {
  static constexpr std::array<NcclTimes, 3> kRing = {{{8.4, 3.4, 14}, {14, 1.9, 4}, {6.6, 0.6, 2.7}}};
  static constexpr std::array<NcclTimes, 3> kTree = {{{8.4, 4, 14}, {14, 1.25, 8.5}, {6.8, 0.6, 5}}};
  static constexpr std::array<double, 3> kPayload = {1, 0.92, 0.5};
  const auto which = static_cast<size_t>(protocol);
  const NcclTimes& times = (tree ? kTree : kRing)[which];
  Latencies latencies;
  latencies.call = times.base * 1e-6;
  latencies.inside = times.inside * 1e-6;
  latencies.between = times.between * 1e-6;
  latencies.perSwitch = 0.3e-6;
  latencies.perMessage = 0.5e-6;
  latencies.signal = latencies.inside;
  latencies.efficiency = kPayload[which];
  return latencies;
}

double gpuMessageBytes(Protocol protocol) {
  static constexpr std::array<double, 3> kBytes = {2.0 * 1024 * 1024, 4.9e6 / 2 * 120 / 128,
                                                   512.0 * 1024 / 2 / 2};
  return kBytes[static_cast<size_t>(protocol)];
}

Latencies cpuLatencies(const CostParameters& inside, const CostParameters& between) {
  Latencies latencies;
  latencies.inside = inside.alpha;
  latencies.between = between.alpha;
  latencies.perSwitch = 0.5e-6;
  latencies.perMessage = inside.perPeer;
  latencies.signal = inside.signal;
  latencies.gamma = inside.gamma;
  return latencies;
}

double wireEfficiency(Wire wire) {
  constexpr double kMtu = 4096;
  switch (wire) {
    case Wire::infiniBand:  // LRH 8, BTH 12, ICRC 4, VCRC 2
      return kMtu / (kMtu + 26);
    case Wire::roce:  // preamble and gap 20, Ethernet 14 + 4, IP 20, UDP 8, BTH 12, ICRC 4
      return kMtu / (kMtu + 82);
    case Wire::tcp:  // a packet of 1500: IP 20, TCP 20 + 12 of 1500, and preamble, gap, Ethernet 38 around it
      break;
  }
  return 1448.0 / 1538.0;
}

Result<Cluster> gpuCluster(const SystemDescription& system, const FabricOptions& options,
                           const Latencies& latencies) {
  NetworkReplacement network;
  network.ports = options.ports;
  network.portBytesPerSecond = options.portBytesPerSecond;
  network.efficiency = wireEfficiency(options.wire);
  network.maxChannels = options.channels;
  if (options.hosts < 1) return invalidUsage("{} hosts: at least 1 is needed", options.hosts);
  TUTTI_ASSIGN(HostModel host, hostOfTopology(system, ceilDiv(options.ranks, options.hosts), network));
  return Cluster::build(std::move(host), options.ranks, options.hosts, options.network, latencies,
                        options.placement);
}

Result<Cluster> cpuCluster(const FabricOptions& options) {
  if (options.hosts < 1) return invalidUsage("{} hosts: at least 1 is needed", options.hosts);
  PlainHostOptions host;
  host.places = ceilDiv(options.ranks, options.hosts);
  host.ports = options.ports > 0 ? options.ports : 1;
  host.inside = sharedMemoryCosts();
  CostParameters between = tcpCosts(options.portBytesPerSecond);
  if (options.tuning != nullptr) {
    host.inside = options.tuning->apply(host.inside, CostMedium::shared);
    between = options.tuning->apply(between, CostMedium::network);
  }
  // A measured byte has its headers already.
  const bool isMeasured =
      between.beta != tcpCosts(options.portBytesPerSecond).beta && options.portBytesPerSecond <= 0;
  host.portBytesPerSecond = options.portBytesPerSecond > 0 ? options.portBytesPerSecond : 1 / between.beta;
  if (!isMeasured) host.portBytesPerSecond *= wireEfficiency(Wire::tcp);
  return Cluster::build(plainHost(host), options.ranks, options.hosts, options.network,
                        cpuLatencies(host.inside, between), options.placement);
}

}  // namespace tutti::sim
