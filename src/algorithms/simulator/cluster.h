// Hosts and the network between them, as links with speeds.
//
//   fat-tree                       rail                             dragonfly
//      [ core ]                       [ core ]                        group 0 ====== group 1
//     //      \\                     //      \\                       r - r          r - r
//   [leaf]   [leaf]               [rail 0] [rail 1]                   | X |          | X |
//   h0  h1   h2  h3               port 0   port 1  of every host      r - r          r - r
//                                                                     hosts          hosts
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/simulator/host_model.h"
#include "algorithms/simulator/max_min.h"
#include "base/status.h"

namespace tutti::sim {

enum class NetworkKind : uint8_t { none, fatTree, rail, dragonfly };
const char* name(NetworkKind kind);

struct NetworkOptions {
  NetworkKind kind = NetworkKind::fatTree;
  /// Of a leaf switch: speed towards hosts over speed towards the core. Of a dragonfly: by so much are the
  /// links between groups fewer than a balanced one has.
  double oversubscription = 1;
  /// Ports of a switch, all of a host's port speed. A leaf has half of them towards hosts; a dragonfly's
  /// router a quarter towards hosts, half within the group (of as many routers), a quarter to other groups.
  int32_t switchPorts = 64;
};

/// Fixed times. What each is and where it is from: docs/simulation.md.
struct Latencies {
  double call = 0;        // once a call
  double inside = 0;      // a message between ranks of a host
  double between = 0;     // a message between hosts below one switch
  double perSwitch = 0;   // every further switch on the way
  double perMessage = 0;  // every further message that a rank starts at once, or flag that it waits for
  double signal = 0;      // a flag between ranks of a host
  double gamma = 0;       // a byte reduced, after it has arrived
  double efficiency = 1;  // payload of what connections carry (LL: 1/2)
};

struct Route {
  std::vector<Hop> hops;
  double latency = 0;
  bool leavesHost = false;
};

/// Immutable. Holds the links of all hosts and of the network, and finds ways by arithmetic: nothing grows
/// with the square of ranks.
class Cluster {
 public:
  /// Ranks are put on `hosts` hosts in blocks of host.places (the last host may have fewer), or as
  /// `placement` says: element r is rank r's place, host * host.places + place. Errors (invalidUsage): too
  /// many ranks for the hosts, places that do not exist or are taken twice, several hosts without a port.
  static Result<Cluster> build(HostModel host, int32_t ranks, int32_t hosts, const NetworkOptions& network,
                               const Latencies& latencies, std::vector<int32_t> placement = {});

  int32_t ranks() const { return ranks_; }
  int32_t hosts() const { return hosts_; }
  const HostModel& host() const { return host_; }
  const Latencies& latencies() const { return latencies_; }
  const NetworkOptions& network() const { return network_; }
  int32_t hostOf(int32_t rank) const { return placeOf(rank) / host_.places; }
  int32_t placeOf(int32_t rank) const {
    return placement_.empty() ? rank : placement_[static_cast<size_t>(rank)];
  }
  /// Hosts below one switch of the network: ways repeat themselves after so many.
  int32_t hostsPerSwitch() const { return hostsPerLeaf_; }
  bool inOrder() const { return placement_.empty(); }
  /// Ranks host by host, in the order of their places.
  std::vector<std::vector<int32_t>> ranksOfHosts() const;

  /// The way of a message. `ring` >= 0: a step of that ring, which leaves and enters hosts by its own ports;
  /// else in equal parts over the ports near the ranks. In a rail network a message leaves by the receiver's
  /// rail, when the sender's host can reach that port over NVLink (PXN).
  Route route(int32_t from, int32_t to, int32_t ring = -1) const;
  /// What a byte of memory traffic of the rank takes; empty: nothing that is modelled.
  std::vector<Hop> memory(int32_t rank) const;

  /// Rings that cross hosts (or of the one host), and the ranks in their order.
  int32_t rings() const;
  std::vector<int32_t> ringOrder(int32_t ring) const;

  /// Bytes/s of each link.
  const std::vector<double>& capacity() const { return capacity_; }
  /// "host 3: GPU0 to NVSwitch", "leaf switch 2 to core".
  std::string label(uint32_t link) const;

 private:
  Cluster() = default;
  void addHop(int32_t host, const Hop& hop, float share, std::vector<Hop>* hops) const;
  int addNetwork(int32_t fromHost, int32_t fromPort, int32_t toHost, int32_t toPort, float share,
                 std::vector<Hop>* hops) const;
  int32_t leafOf(int32_t host, int32_t port) const;
  void sizeNetwork();
  const std::vector<HostRing>& hostRings() const { return hosts_ > 1 ? host_.rings : host_.ringsAlone; }

  HostModel host_;
  int32_t ranks_ = 1;
  int32_t hosts_ = 1;
  NetworkOptions network_;
  Latencies latencies_;
  std::vector<int32_t> placement_;
  std::vector<double> capacity_;
  uint32_t networkBase_ = 0;  // first link that belongs to no host
  int32_t hostsPerLeaf_ = 1;  // or router
  int32_t leaves_ = 1;        // leaf switches (of one rail), routers
  int32_t routersPerGroup_ = 1;
  int32_t groups_ = 1;
};

}  // namespace tutti::sim
