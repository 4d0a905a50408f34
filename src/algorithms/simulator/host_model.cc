#include "algorithms/simulator/host_model.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "topology/graph.h"
#include "topology/paths.h"
#include "topology/search.h"

namespace tutti::sim {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();
constexpr int32_t kMostPortsPerCard = 8;

double perSecond(double secondsPerByte) { return secondsPerByte > 0 ? 1 / secondsPerByte : kUnlimited; }

}  // namespace

HostModel plainHost(const PlainHostOptions& options) {
  HostModel host;
  host.places = options.places;
  host.ports = options.ports;
  host.portBytesPerSecond = options.portBytesPerSecond;
  const auto add = [&](std::string label, double bytesPerSecond) {
    host.links.push_back({std::move(label), bytesPerSecond});
    return static_cast<uint32_t>(host.links.size() - 1);
  };
  const uint32_t memory = add("memory", perSecond(options.inside.hostByte));
  std::vector<uint32_t> out, in, core, portOut, portIn;
  for (int32_t i = 0; i < options.places; ++i) {
    out.push_back(add(fmt::format("core {} out", i), perSecond(options.inside.beta)));
    in.push_back(add(fmt::format("core {} in", i), perSecond(options.inside.beta)));
    core.push_back(add(fmt::format("core {} memory", i), perSecond(options.inside.coreByte)));
  }
  for (int32_t k = 0; k < options.ports; ++k) {
    portOut.push_back(add(fmt::format("port {} out", k), options.portBytesPerSecond));
    portIn.push_back(add(fmt::format("port {} in", k), options.portBytesPerSecond));
  }
  for (const uint32_t from : out)
    for (const uint32_t to : in)
      host.between.push_back(std::vector<Hop>{Hop{from}, Hop{to}, Hop{memory, options.memoryPerMessageByte}});
  for (int32_t i = 0; i < options.places; ++i) {
    for (int32_t k = 0; k < options.ports; ++k) {
      host.toPort.push_back(std::vector<Hop>{Hop{portOut[static_cast<size_t>(k)]}});
      host.fromPort.push_back(std::vector<Hop>{Hop{portIn[static_cast<size_t>(k)]}});
    }
    std::vector<int32_t>& near = host.near.emplace_back(static_cast<size_t>(options.ports));
    std::iota(near.begin(), near.end(), 0);
    host.memory.push_back(std::vector<Hop>{Hop{core[static_cast<size_t>(i)]}, Hop{memory}});
  }
  HostRing ring;
  ring.order.resize(static_cast<size_t>(options.places));
  std::iota(ring.order.begin(), ring.order.end(), 0);
  host.ringsAlone.push_back(ring);
  for (int32_t k = 0; k < std::max(1, options.ports); ++k) {
    ring.portIn = ring.portOut = k;
    host.rings.push_back(ring);
  }
  return host;
}

namespace {

/// Cards of a description, with or without a PCI device.
void collectCards(std::vector<PciDescription>& devices, std::vector<NicDescription*>* cards) {
  for (PciDescription& device : devices) {
    for (NicDescription& nic : device.nics) cards->push_back(&nic);
    collectCards(device.children, cards);
  }
}

Status replaceNetwork(SystemDescription* system, const NetworkReplacement& network) {
  std::vector<NicDescription*> cards;
  for (CpuDescription& cpu : system->cpus) {
    for (NicDescription& nic : cpu.nics) cards.push_back(&nic);
    collectCards(cpu.pci, &cards);
  }
  std::erase_if(cards, [](const NicDescription* nic) { return nic->nets.empty(); });
  if (network.ports > 0) {
    if (cards.empty())
      return invalidUsage("the topology file has no network card to put {} ports on", network.ports);
    const auto most = cards.size() * kMostPortsPerCard;
    if (static_cast<size_t>(network.ports) > most)
      return invalidUsage("{} ports: the file's {} cards take {} at most", network.ports, cards.size(), most);
    int32_t number = 0;
    for (size_t c = 0; c < cards.size(); ++c) {
      std::vector<NetDescription>& nets = cards[c]->nets;
      const auto ports = static_cast<size_t>(network.ports);
      const size_t wanted = ports / cards.size() + (c < ports % cards.size() ? 1 : 0);
      const NetDescription first = nets.front();
      nets.resize(std::min(nets.size(), wanted));
      while (nets.size() < wanted) {
        nets.push_back(first);
        nets.back().name += fmt::format("_{}", nets.size());
        nets.back().port = static_cast<int32_t>(nets.size());
      }
      for (NetDescription& net : nets) net.dev = number++;
    }
  }
  for (NicDescription* nic : cards)
    for (NetDescription& net : nic->nets) {
      const double wire = network.portBytesPerSecond > 0 ? network.portBytesPerSecond * 8 / 1e6
                                                         : static_cast<double>(net.speed.value_or(10000));
      net.speed = static_cast<int32_t>(std::min(wire * network.efficiency, 2e9));
    }
  return Status::ok();
}

/// Turns ways through the graph into hops over links, which get numbers as they occur.
class Ways {
 public:
  Ways(const Graph& graph, const Paths& paths, HostModel* host)
      : graph_(graph), paths_(paths), host_(*host) {}

  std::vector<Hop> between(NodeId from, NodeId to) {
    std::vector<Hop> hops;
    const std::vector<NodeId> route = paths_.route(from, to);
    for (size_t i = 1; i < route.size(); ++i) hops.push_back({linkOf(route[i - 1], route[i])});
    return hops;
  }

 private:
  uint32_t linkOf(NodeId from, NodeId to) {
    const auto [found, isNew] = numbers_.try_emplace({from, to}, static_cast<uint32_t>(host_.links.size()));
    if (isNew) {
      double bytesPerSecond = 0;
      for (const HardwareLink& link : graph_.node(from).links)
        if (link.to == to)
          bytesPerSecond = std::max(bytesPerSecond, 1e9 * static_cast<double>(link.bandwidth));
      host_.links.push_back({graph_.label(from) + " to " + graph_.label(to), bytesPerSecond});
    }
    return found->second;
  }

  const Graph& graph_;
  const Paths& paths_;
  HostModel& host_;
  std::map<std::pair<NodeId, NodeId>, uint32_t> numbers_;
};

Result<std::vector<HostRing>> ringsOf(const Graph& graph, const Paths& paths, SearchRequest request,
                                      const std::vector<NodeId>& ports) {
  TUTTI_ASSIGN(const ChannelPlan plan, searchChannels(graph, paths, request));
  std::vector<HostRing> rings;
  const auto portOf = [&](NodeId net) {
    return static_cast<int32_t>(std::max<ptrdiff_t>(0, std::ranges::find(ports, net) - ports.begin())) %
           std::max(1, static_cast<int32_t>(ports.size()));
  };
  for (const Channel& channel : plan.rings.channels)
    rings.push_back({channel.order, portOf(channel.netIn), portOf(channel.netOut)});
  return rings;
}

}  // namespace

Result<HostModel> hostOfTopology(const SystemDescription& original, int32_t places,
                                 const NetworkReplacement& network) {
  SystemDescription system = original;
  TUTTI_TRY(replaceNetwork(&system, network));
  TUTTI_ASSIGN(const Graph graph, Graph::build(system));
  std::vector<NodeId> members = graph.all(NodeType::gpu);
  std::erase_if(members, [&](NodeId id) { return graph.node(id).host != 0; });
  if (members.empty()) return invalidUsage("no GPU in it: hosts without GPUs need no topology file");
  if (static_cast<size_t>(places) > members.size())
    return invalidUsage("{} ranks a host, and it has {} GPUs", places, members.size());
  if (places > 0) members.resize(static_cast<size_t>(places));
  std::vector<NodeId> ports = graph.all(NodeType::net);
  std::erase_if(ports, [&](NodeId id) { return graph.node(id).host != 0; });

  const Paths paths(graph);
  HostModel host;
  host.gpus = true;
  host.places = static_cast<int32_t>(members.size());
  host.ports = static_cast<int32_t>(ports.size());
  Ways ways(graph, paths, &host);
  for (const NodeId from : members)
    for (const NodeId to : members) host.between.push_back(ways.between(from, to));
  for (const NodeId member : members) {
    Path best;
    for (const NodeId port : ports) {
      host.toPort.push_back(ways.between(member, port));
      host.fromPort.push_back(ways.between(port, member));
      const Path path = paths.between(member, port);
      if (isBetter(path, best)) best = path;
    }
    std::vector<int32_t>& near = host.near.emplace_back();
    for (size_t k = 0; k < ports.size(); ++k)
      if (!isBetter(best, paths.between(member, ports[k]))) near.push_back(static_cast<int32_t>(k));
  }
  host.memory.resize(members.size());
  for (const NodeId port : ports) {
    const Path way = paths.between(graph.node(port).parent, port);
    host.portBytesPerSecond = std::max(host.portBytesPerSecond, 1e9 * static_cast<double>(way.bandwidth));
  }
  SearchRequest request;
  request.members = members;
  host.channelBytesPerSecond = 1e9 * static_cast<double>(request.channelBandwidth);
  if (network.maxChannels > 0) request.minChannels = request.maxChannels = network.maxChannels;
  TUTTI_ASSIGN(host.ringsAlone, ringsOf(graph, paths, request, ports));
  request.acrossHosts = !ports.empty();
  TUTTI_ASSIGN(host.rings, ringsOf(graph, paths, request, ports));
  return host;
}

}  // namespace tutti::sim
