#include "topology/graph.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace tutti {

/// Fills a Graph from a description.
class GraphBuilder {
 public:
  Result<Graph> build(const SystemDescription& system) {
    for (const CpuDescription& cpu : system.cpus) TUTTI_TRY(addCpu(cpu));
    numberGpus();
    for (const auto& [gpu, id] : gpus_) TUTTI_TRY(addNvlinks(*gpu, id));
    connectCpus(system);
    for (const auto& [text, count] : assumed_)
      graph_.assumptions_.push_back(count == 1 ? text : fmt::format("{} ({} times)", text, count));
    return std::move(graph_);
  }

 private:
  static constexpr int32_t kAssumedNetSpeed = 10000;  // Mb/s

  Result<NodeId> add(NodeType type, NodeId parent) {
    if (graph_.nodes_.size() == kMaxGraphNodes)
      return invalidUsage("the topology has more than {} nodes", kMaxGraphNodes);
    Node& node = graph_.nodes_.emplace_back();
    node.type = type;
    node.parent = parent;
    if (parent != kNoNode) node.host = graph_.nodes_[parent].host;
    return static_cast<NodeId>(graph_.nodes_.size() - 1);
  }
  Node& node(NodeId id) { return graph_.nodes_[id]; }
  void assume(const std::string& text) { ++assumed_[text]; }

  /// Links of a type between the same nodes add up.
  void connectOneWay(NodeId from, NodeId to, LinkType type, float bandwidth, int32_t count) {
    for (HardwareLink& link : node(from).links)
      if (link.to == to && link.type == type) {
        link.bandwidth += bandwidth;
        link.count += count;
        return;
      }
    node(from).links.push_back({to, type, bandwidth, count});
  }
  void connect(NodeId a, NodeId b, LinkType type, float bandwidth, int32_t count = 1) {
    connectOneWay(a, b, type, bandwidth, count);
    connectOneWay(b, a, type, bandwidth, count);
  }

  Status addCpu(const CpuDescription& cpu) {
    TUTTI_ASSIGN(const NodeId id, add(NodeType::cpu, kNoNode));
    cpus_.push_back(id);
    node(id).host =
        hosts_.emplace(cpu.hostHash.value_or(0), static_cast<int32_t>(hosts_.size())).first->second;
    node(id).number = cpu.numaId.value_or(static_cast<int32_t>(cpus_.size()) - 1);
    node(id).cpuMask = cpu.affinity;
    node(id).vendor = cpu.vendor;
    for (const PciDescription& pci : cpu.pci) TUTTI_TRY(addPci(pci, id));
    for (const NicDescription& nic : cpu.nics) {
      TUTTI_ASSIGN(const NodeId card, add(NodeType::nic, id));
      connect(card, id, LinkType::pci, kLocalBandwidth);
      TUTTI_TRY(addNets(nic, card));
    }
    return Status::ok();
  }

  static PciKind kindOf(const PciDescription& pci) {
    if (pci.gpu) return PciKind::gpu;
    if (!pci.nics.empty()) return PciKind::nic;
    return pci.children.empty() ? pci.kind() : PciKind::bridge;
  }
  /// Whether it, or something below it, belongs into the graph.
  static bool matters(const PciDescription& pci) {
    const PciKind kind = kindOf(pci);
    if (kind != PciKind::bridge)
      return kind == PciKind::gpu || kind == PciKind::nic || kind == PciKind::unknown;
    return std::ranges::any_of(pci.children, matters);
  }
  /// Broadcom's switches (PEX88000: Gen4, PEX89000: Gen5) show one chip as two levels of switches, with a
  /// link between them that does not exist. The subsystem id's upper digit is the level.
  static bool isSameChip(const PciDescription& outer, const PciDescription& inner) {
    const auto level = [](const PciDescription& pci) {
      return pci.subsystemDevice ? *pci.subsystemDevice >> 12 : -1;
    };
    const bool broadcom = outer.vendor == 0x1000 && (outer.device == 0xc010 || outer.device == 0xc030);
    return broadcom && inner.vendor == outer.vendor && inner.device == outer.device && level(outer) == 0 &&
           level(inner) == 1 && !inner.children.empty();
  }

  Status addPci(const PciDescription& pci, NodeId parent) {
    if (!matters(pci)) return Status::ok();
    const PciKind kind = kindOf(pci);
    const NodeType type = kind == PciKind::gpu   ? NodeType::gpu
                          : kind == PciKind::nic ? NodeType::nic
                                                 : NodeType::pci;
    TUTTI_ASSIGN(const NodeId id, add(type, parent));
    node(id).busId = pci.busId;
    const PciBandwidth link = pciBandwidth(pci.linkSpeed, pci.linkWidth.value_or(0));
    if (link.speedAssumed) assume("PCI link speed not known: taken as 8 GT/s");
    if (link.widthAssumed) assume("PCI link width not known: taken as 16 lanes");
    connect(id, parent, LinkType::pci, link.gigabytes);
    if (kind == PciKind::unknown) assume("PCI device of unknown class: shown, but used for nothing");
    if (kind == PciKind::gpu) {
      static const GpuDescription kNothingKnown;
      const GpuDescription& gpu = pci.gpu ? *pci.gpu : kNothingKnown;
      node(id).number = gpu.dev.value_or(-1);
      node(id).rank = gpu.rank.value_or(-1);
      node(id).sm = gpu.sm.value_or(0);
      node(id).gdr = gpu.gdr == 1;
      gpus_.emplace_back(&gpu, id);
      gpuOf_[{node(id).host, pci.busId}] = id;
    }
    for (const NicDescription& nic : pci.nics) TUTTI_TRY(addNets(nic, id));
    return addChildren(pci, id);
  }

  Status addChildren(const PciDescription& pci, NodeId id) {
    for (const PciDescription& child : pci.children) {
      if (!isSameChip(pci, child)) {
        TUTTI_TRY(addPci(child, id));
        continue;
      }
      for (const PciDescription& below : child.children) TUTTI_TRY(addPci(below, id));
    }
    return Status::ok();
  }

  Status addNets(const NicDescription& nic, NodeId card) {
    for (const NetDescription& net : nic.nets) {
      TUTTI_ASSIGN(const NodeId id, add(NodeType::net, card));
      node(id).number = net.dev.value_or(-1);
      node(id).name = net.name;
      node(id).gdr = net.gdr == 1;
      int32_t speed = net.speed.value_or(0);
      if (speed <= 0) {
        speed = kAssumedNetSpeed;
        assume("network speed not known: taken as 10 Gb/s");
      }
      connect(id, card, LinkType::net, static_cast<float>(speed) / 8000.f);
    }
    return Status::ok();
  }

  /// GPUs without a number (skeletons: nobody asked the driver) get the free ones, in order.
  void numberGpus() {
    std::set<std::pair<int32_t, int32_t>> taken;
    for (const auto& [gpu, id] : gpus_) taken.emplace(node(id).host, node(id).number);
    for (const auto& [gpu, id] : gpus_) {
      if (node(id).number >= 0) continue;
      int32_t number = 0;
      while (!taken.emplace(node(id).host, number).second) ++number;
      node(id).number = number;
      assume("GPU without a number: numbered in order");
    }
  }

  Result<NodeId> nvswitchOf(int32_t host) {
    const auto found = nvswitches_.find(host);
    if (found != nvswitches_.end()) return found->second;
    TUTTI_ASSIGN(const NodeId id, add(NodeType::nvswitch, kNoNode));
    node(id).host = host;
    nvswitches_[host] = id;
    return id;
  }

  Status addNvlinks(const GpuDescription& gpu, NodeId id) {
    const int32_t host = node(id).host;
    for (const NvlinkDescription& link : gpu.nvlinks) {
      const int32_t count = link.count.value_or(1);
      if (count == 0) continue;  // dead
      const float bandwidth = static_cast<float>(count) * nvlinkBandwidth(node(id).sm);
      if (const auto peer = gpuOf_.find({host, link.target}); peer != gpuOf_.end()) {
        connectOneWay(id, peer->second, LinkType::nvlink, bandwidth, count);  // the peer tells of its own
      } else if (link.targetClass == kPciClassNvlinkToCpu) {
        connect(id, graph_.cpuOf(id), LinkType::nvlink, bandwidth, count);
      } else if (link.targetClass == kPciClassNvswitch ||
                 (link.target == kHiddenBusId && !link.targetClass)) {
        // The switches of a host count as one: traffic is spread over all of them.
        TUTTI_ASSIGN(const NodeId nvswitch, nvswitchOf(host));
        connect(id, nvswitch, LinkType::nvlink, bandwidth, count);
      } else {
        assume(fmt::format("NVLink to {}, which the topology does not have: left out", link.target.text()));
      }
    }
    for (const C2cDescription& link : gpu.c2c) {
      const int32_t count = link.count.value_or(1);
      const auto bandwidth =
          static_cast<float>(count) * static_cast<float>(link.bandwidth.value_or(0)) / 1000.f;
      if (bandwidth > 0) connect(id, graph_.cpuOf(id), LinkType::c2c, bandwidth, count);
    }
    return Status::ok();
  }

  void connectCpus(const SystemDescription& system) {
    for (size_t a = 0; a < cpus_.size(); ++a)
      for (size_t b = 0; b < cpus_.size(); ++b) {
        if (a == b || node(cpus_[a]).host != node(cpus_[b]).host) continue;
        bool known = false;
        const float bandwidth = socketBandwidth(system.cpus[a], &known);
        if (!known)
          assume(fmt::format("bandwidth between NUMA nodes not known: taken as {} GB/s", bandwidth));
        connectOneWay(cpus_[a], cpus_[b], LinkType::sys, bandwidth, 1);
      }
  }

  Graph graph_;
  std::map<std::string, int> assumed_;
  std::map<uint64_t, int32_t> hosts_;
  std::vector<NodeId> cpus_;
  std::vector<std::pair<const GpuDescription*, NodeId>> gpus_;
  std::map<std::pair<int32_t, BusId>, NodeId> gpuOf_;
  std::map<int32_t, NodeId> nvswitches_;
};

Result<Graph> Graph::build(const SystemDescription& system) { return GraphBuilder().build(system); }

std::vector<NodeId> Graph::all(NodeType type) const {
  std::vector<NodeId> ids;
  for (NodeId id = 0; id < nodes_.size(); ++id)
    if (nodes_[id].type == type) ids.push_back(id);
  std::ranges::sort(ids, {}, [this](NodeId id) {
    const Node& one = nodes_[id];
    return std::tuple(one.host, one.number < 0, one.number, id);
  });
  return ids;
}

std::string Graph::label(NodeId id) const {
  const Node& one = nodes_[id];
  switch (one.type) {
    case NodeType::cpu:
      return fmt::format("CPU{}", one.number);
    case NodeType::gpu:
      return fmt::format("GPU{}", one.number);
    case NodeType::nvswitch:
      return "NVSwitch";
    case NodeType::net:
      return one.name.empty() ? fmt::format("NET{}", one.number) : one.name;
    case NodeType::pci:
    case NodeType::nic:
      break;
  }
  if (one.busId == BusId{}) return nodeTypeName(one.type);  // a card that is not on PCI
  const bool isDevice = one.type == NodeType::pci &&
                        std::ranges::none_of(nodes_, [id](const Node& other) { return other.parent == id; });
  return fmt::format("{} {}", isDevice ? "device" : nodeTypeName(one.type), one.busId.text());
}

Graph Graph::without(NodeId a, NodeId b) const {
  Graph copy = *this;
  std::erase_if(copy.nodes_[a].links, [b](const HardwareLink& link) { return link.to == b; });
  std::erase_if(copy.nodes_[b].links, [a](const HardwareLink& link) { return link.to == a; });
  return copy;
}

NodeId Graph::gpuAt(const BusId& busId) const {
  const auto isIt = [&](const Node& node) {
    return node.type == NodeType::gpu && node.host == 0 && node.busId == busId;
  };
  const auto found = std::ranges::find_if(nodes_, isIt);
  return found == nodes_.end() ? kNoNode : static_cast<NodeId>(found - nodes_.begin());
}

NodeId Graph::cpuOf(NodeId id) const {
  while (id != kNoNode && nodes_[id].type != NodeType::cpu) id = nodes_[id].parent;
  return id;
}

const char* nodeTypeName(NodeType type) {
  switch (type) {
    case NodeType::cpu:
      return "CPU";
    case NodeType::pci:
      return "PCI switch";
    case NodeType::gpu:
      return "GPU";
    case NodeType::nvswitch:
      return "NVSwitch";
    case NodeType::nic:
      return "NIC";
    case NodeType::net:
      return "net";
  }
  return "?";
}

const char* linkTypeName(LinkType type) {
  switch (type) {
    case LinkType::nvlink:
      return "NVLink";
    case LinkType::c2c:
      return "C2C";
    case LinkType::pci:
      return "PCI";
    case LinkType::sys:
      return "SYS";
    case LinkType::net:
      return "net";
  }
  return "?";
}

float nvlinkBandwidth(int32_t sm) {
  if (sm >= 100) return 40.1f;
  if (sm >= 90) return 20.6f;
  if (sm == 86) return 12.f;
  if (sm >= 60 && sm < 70) return 18.f;
  return 20.f;
}

float socketBandwidth(const CpuDescription& cpu, bool* known) {
  *known = true;
  const int32_t model = cpu.model.value_or(-1);
  if (cpu.arch == "arm64") return 6.f;
  if (cpu.arch == "ppc64") return 32.f;
  if (cpu.vendor == "AuthenticAMD") return 16.f;
  if (cpu.vendor == "GenuineIntel" && model >= 0) {
    if (model >= 0xcf) return 40.f;  // Emerald Rapids
    if (model >= 0x8f) return 22.f;  // Sapphire Rapids
    if (model >= 0x55) return 10.f;  // Skylake
    return 6.f;                      // Broadwell and before
  }
  *known = false;
  return 6.f;
}

}  // namespace tutti
