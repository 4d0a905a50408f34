#include "algorithms/simulator/cluster.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

namespace tutti::sim {
namespace {

// Links of a network, in pairs: of each leaf (router), towards the core (the group's other routers) and back.
// Then of a dragonfly: the links within each group as one, and those between every two groups, one a
// direction.
constexpr uint32_t kUp = 0, kDown = 1, kPerLeaf = 2;

}  // namespace

const char* name(NetworkKind kind) {
  static constexpr std::array<const char*, 4> kNames = {"host", "fat-tree", "rail", "dragonfly"};
  return kNames[static_cast<size_t>(kind)];
}

Result<Cluster> Cluster::build(HostModel host, int32_t ranks, int32_t hosts, const NetworkOptions& network,
                               const Latencies& latencies, std::vector<int32_t> placement) {
  if (ranks < 1 || hosts < 1)
    return invalidUsage("{} ranks on {} hosts: at least one of each is needed", ranks, hosts);
  const int64_t places = static_cast<int64_t>(hosts) * host.places;
  if (ranks > places)
    return invalidUsage("{} ranks do not fit on {} hosts with {} places each", ranks, hosts, host.places);
  if (hosts > 1 && (host.ports < 1 || network.kind == NetworkKind::none))
    return invalidUsage("{} hosts, and nothing connects them", hosts);
  if (!(network.oversubscription >= 1) || network.oversubscription > 1e6)
    return invalidUsage("oversubscription {} is not in 1 .. 1000000", network.oversubscription);
  if (network.switchPorts < 8 || network.switchPorts > 4096)
    return invalidUsage("switches with {} ports: 8 .. 4096 are known", network.switchPorts);
  if (!placement.empty()) {
    std::vector<bool> taken(static_cast<size_t>(places));
    if (placement.size() != static_cast<size_t>(ranks))
      return invalidUsage("a placement of {} ranks for {}", placement.size(), ranks);
    for (const int32_t place : placement) {
      if (place < 0 || place >= places) return invalidUsage("place {} is not one of {}", place, places);
      if (taken[static_cast<size_t>(place)]) return invalidUsage("two ranks on place {}", place);
      taken[static_cast<size_t>(place)] = true;
    }
  }
  Cluster cluster;
  cluster.host_ = std::move(host);
  cluster.ranks_ = ranks;
  cluster.hosts_ = hosts;
  cluster.network_ = network;
  cluster.latencies_ = latencies;
  cluster.placement_ = std::move(placement);
  for (int32_t h = 0; h < hosts; ++h)
    for (const HostLink& link : cluster.host_.links)
      cluster.capacity_.push_back(link.bytesPerSecond * latencies.efficiency);
  cluster.networkBase_ = static_cast<uint32_t>(cluster.capacity_.size());
  if (hosts > 1) cluster.sizeNetwork();
  return cluster;
}

void Cluster::sizeNetwork() {
  const double port = host_.portBytesPerSecond * latencies_.efficiency;
  const int32_t ports = std::max(1, host_.ports);
  const int32_t half = network_.switchPorts / 2;
  if (network_.kind == NetworkKind::dragonfly) {
    const int32_t quarter = network_.switchPorts / 4;
    hostsPerLeaf_ = std::max(1, quarter / ports);
    leaves_ = ceilDiv(hosts_, hostsPerLeaf_);
    routersPerGroup_ = half;
    groups_ = ceilDiv(leaves_, routersPerGroup_);
    for (int32_t r = 0; r < leaves_ * 2; ++r) capacity_.push_back(port * (routersPerGroup_ - 1));
    for (int32_t g = 0; g < groups_; ++g)
      capacity_.push_back(port * routersPerGroup_ * (routersPerGroup_ - 1));
    const double pair = groups_ > 1 ? port * routersPerGroup_ * quarter / (groups_ - 1) : 0;
    for (int32_t g = 0; g < groups_ * groups_; ++g) capacity_.push_back(pair / network_.oversubscription);
    return;
  }
  const bool rail = network_.kind == NetworkKind::rail;
  hostsPerLeaf_ = rail ? half : std::max(1, half / ports);
  leaves_ = ceilDiv(hosts_, hostsPerLeaf_);
  const int32_t portsPerLeaf = hostsPerLeaf_ * (rail ? 1 : ports);
  for (int32_t leaf = 0; leaf < leaves_ * (rail ? ports : 1) * static_cast<int32_t>(kPerLeaf); ++leaf)
    capacity_.push_back(port * portsPerLeaf / network_.oversubscription);
}

int32_t Cluster::leafOf(int32_t host, int32_t port) const {
  return host / hostsPerLeaf_ + (network_.kind == NetworkKind::rail ? port * leaves_ : 0);
}

void Cluster::addHop(int32_t host, const Hop& hop, float share, std::vector<Hop>* hops) const {
  hops->push_back({static_cast<uint32_t>(host) * static_cast<uint32_t>(host_.links.size()) + hop.link,
                   hop.weight * share});
}

/// Adds the network's links between two ports; gives the switches passed beyond the first.
int Cluster::addNetwork(int32_t fromHost, int32_t fromPort, int32_t toHost, int32_t toPort, float share,
                        std::vector<Hop>* hops) const {
  const int32_t from = leafOf(fromHost, fromPort);
  const int32_t to = leafOf(toHost, toPort);
  if (from == to) return 0;
  hops->push_back({networkBase_ + static_cast<uint32_t>(from) * kPerLeaf + kUp, share});
  hops->push_back({networkBase_ + static_cast<uint32_t>(to) * kPerLeaf + kDown, share});
  if (network_.kind != NetworkKind::dragonfly) return 2;
  const int32_t groupFrom = from / routersPerGroup_;
  const int32_t groupTo = to / routersPerGroup_;
  const uint32_t groupBase = networkBase_ + static_cast<uint32_t>(leaves_) * kPerLeaf;
  // Adaptive routing spreads what stays in a group over all of its routers: two of its links instead of one.
  if (groupFrom == groupTo) {
    hops->push_back({groupBase + static_cast<uint32_t>(groupFrom), 2 * share});
    return 2;
  }
  hops->push_back({groupBase + static_cast<uint32_t>(groupFrom), share});
  hops->push_back({groupBase + static_cast<uint32_t>(groupTo), share});
  hops->push_back({groupBase + static_cast<uint32_t>(groups_ + groupFrom * groups_ + groupTo), share});
  return 3;
}

Route Cluster::route(int32_t from, int32_t to, int32_t ring) const {
  Route route;
  if (from == to) return route;
  const int32_t a = placeOf(from);
  const int32_t b = placeOf(to);
  const int32_t fromHost = a / host_.places, fromPlace = a % host_.places;
  const int32_t toHost = b / host_.places, toPlace = b % host_.places;
  if (fromHost == toHost) {
    for (const Hop& hop : host_.between[static_cast<size_t>(fromPlace * host_.places + toPlace)])
      addHop(fromHost, hop, 1, &route.hops);
    route.latency = latencies_.inside;
    return route;
  }
  int switches = 0;
  route.leavesHost = true;
  const auto add = [&](int32_t portOut, int32_t portIn, float share) {
    for (const Hop& hop : host_.toPort[static_cast<size_t>(fromPlace * host_.ports + portOut)])
      addHop(fromHost, hop, share, &route.hops);
    switches = std::max(switches, addNetwork(fromHost, portOut, toHost, portIn, share, &route.hops));
    for (const Hop& hop : host_.fromPort[static_cast<size_t>(toPlace * host_.ports + portIn)])
      addHop(toHost, hop, share, &route.hops);
  };
  if (ring >= 0) {
    const HostRing& ports = host_.rings[static_cast<size_t>(ring) % host_.rings.size()];
    add(ports.portOut, ports.portIn, 1);
  } else {
    const std::vector<int32_t>& out = host_.near[static_cast<size_t>(fromPlace)];
    const std::vector<int32_t>& in = host_.near[static_cast<size_t>(toPlace)];
    const bool rail = network_.kind == NetworkKind::rail;
    const float share = 1 / static_cast<float>(in.size());
    for (size_t i = 0; i < in.size(); ++i) add(rail ? in[i] : out[i % out.size()], in[i], share);
  }
  route.latency = latencies_.between + switches * latencies_.perSwitch;
  return route;
}

std::vector<Hop> Cluster::memory(int32_t rank) const {
  std::vector<Hop> hops;
  const int32_t place = placeOf(rank);
  for (const Hop& hop : host_.memory[static_cast<size_t>(place % host_.places)])
    addHop(place / host_.places, hop, 1, &hops);
  return hops;
}

std::vector<std::vector<int32_t>> Cluster::ranksOfHosts() const {
  std::vector<std::vector<int32_t>> hosts(static_cast<size_t>(hosts_));
  for (int32_t rank = 0; rank < ranks_; ++rank) hosts[static_cast<size_t>(hostOf(rank))].push_back(rank);
  for (std::vector<int32_t>& ranks : hosts)
    std::ranges::sort(ranks, {}, [&](int32_t rank) { return placeOf(rank); });
  std::erase_if(hosts, [](const std::vector<int32_t>& ranks) { return ranks.empty(); });
  return hosts;
}

int32_t Cluster::rings() const { return static_cast<int32_t>(hostRings().size()); }

std::vector<int32_t> Cluster::ringOrder(int32_t ring) const {
  const HostRing& order = hostRings()[static_cast<size_t>(ring) % hostRings().size()];
  std::vector<int32_t> rankAt(static_cast<size_t>(hosts_) * static_cast<size_t>(host_.places), -1);
  for (int32_t rank = 0; rank < ranks_; ++rank) rankAt[static_cast<size_t>(placeOf(rank))] = rank;
  std::vector<int32_t> all;
  for (int32_t host = 0; host < hosts_; ++host)
    for (const int32_t place : order.order)
      if (const int32_t rank = rankAt[static_cast<size_t>(host * host_.places + place)]; rank >= 0)
        all.push_back(rank);
  return all;
}

std::string Cluster::label(uint32_t link) const {
  if (link < networkBase_) {
    const auto perHost = static_cast<uint32_t>(host_.links.size());
    const std::string& own = host_.links[link % perHost].label;
    return hosts_ > 1 ? fmt::format("host {}: {}", link / perHost, own) : own;
  }
  const uint32_t number = link - networkBase_;
  const bool dragonfly = network_.kind == NetworkKind::dragonfly;
  const bool rail = network_.kind == NetworkKind::rail;
  const auto leaves = static_cast<uint32_t>(leaves_);
  const uint32_t all = leaves * kPerLeaf * static_cast<uint32_t>(rail ? std::max(1, host_.ports) : 1);
  if (number < all) {
    const uint32_t leaf = number / kPerLeaf;
    const std::string who = rail        ? fmt::format("rail {} switch {}", leaf / leaves, leaf % leaves)
                            : dragonfly ? fmt::format("router {}", leaf)
                                        : fmt::format("leaf switch {}", leaf);
    const char* const other = dragonfly ? "its group" : "core";
    return number % kPerLeaf == kUp ? who + " to " + other : std::string(other) + " to " + who;
  }
  const uint32_t pair = number - all;
  const auto groups = static_cast<uint32_t>(groups_);
  if (pair < groups) return fmt::format("inside group {}", pair);
  return fmt::format("group {} to group {}", (pair - groups) / groups, (pair - groups) % groups);
}

}  // namespace tutti::sim
