#include "topology/explain.h"

#include <strings.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "topology/connection_choice.h"
#include "topology/report.h"

namespace tutti {
namespace {

using Route = std::vector<NodeId>;

class Explanation {
 public:
  Explanation(const Graph& graph, NodeId from, NodeId to, PathOptions options, const ConnectionLevels& levels)
      : graph_(graph),
        from_(from),
        to_(to),
        options_(options),
        levels_(levels),
        paths_(graph, options),
        path_(paths_.between(from, to)),
        route_(paths_.route(from, to)) {}

  std::string text() {
    text_ = fmt::format("{} to {}: ", label(from_), label(to_));
    if (from_ == to_) return text_ + "the same device\n";
    if (path_.type == PathType::dis) {
      text_ += "no path\n";
      noPath();
    } else {
      text_ += fmt::format("{}, {:g} GB/s, {} link{}\n\nRoute\n", pathTypeName(path_.type), path_.bandwidth,
                           path_.hops, path_.hops == 1 ? "" : "s");
      writeRoute();
      writeOthers();
    }
    writeTransport();
    return std::move(text_);
  }

 private:
  std::string label(NodeId id) const { return printableText(graph_.label(id)); }
  bool is(NodeId id, NodeType type) const { return graph_.node(id).type == type; }
  std::string routeText(const Route& route) const {
    std::string text;
    for (const NodeId id : route) text += (text.empty() ? "" : " > ") + label(id);
    return text;
  }

  void noPath() {
    text_ += graph_.node(from_).host != graph_.node(to_).host
                 ? "  They are on different hosts: what connects those is not part of a topology file.\n"
                 : "  No chain of links connects them.\n";
  }

  const HardwareLink& linkOf(NodeId from, NodeId to) const {
    const HardwareLink* best = nullptr;
    for (const HardwareLink& link : graph_.node(from).links)
      if (link.to == to && (best == nullptr || link.bandwidth > best->bandwidth)) best = &link;
    return *best;
  }

  void writeRoute() {
    size_t width = 0;
    std::vector<std::string> steps;
    for (size_t i = 0; i + 1 < route_.size(); ++i) {
      steps.push_back(label(route_[i]) + " > " + label(route_[i + 1]));
      width = std::max(width, steps.back().size());
    }
    for (size_t i = 0; i + 1 < route_.size(); ++i) {
      const HardwareLink& link = linkOf(route_[i], route_[i + 1]);
      text_ += fmt::format("  {:<{}}  {:<6} ", steps[i], width, linkTypeName(link.type));
      text_ +=
          link.bandwidth >= kLocalBandwidth ? "   no limit" : fmt::format("{:>6.4g} GB/s", link.bandwidth);
      if (link.count > 1) text_ += fmt::format("  {} links", link.count);
      if (link.bandwidth <= path_.bandwidth) text_ += "  < the narrowest";
      text_ += '\n';
    }
  }

  /// What would be taken if a link of the route, or a kind of joint, did not exist.
  void writeOthers() {
    std::set<Route> seen = {route_};
    std::vector<std::pair<Path, Route>> others;
    const auto offer = [&](const Graph& graph, PathOptions options) {
      const Paths paths(graph, options);
      Route route = paths.route(from_, to_);
      if (!route.empty() && seen.insert(route).second)
        others.emplace_back(paths.between(from_, to_), std::move(route));
    };
    offer(graph_, {.throughGpu = false, .pxn = false});
    for (size_t i = 0; i + 1 < route_.size(); ++i) {
      const Graph less = graph_.without(route_[i], route_[i + 1]);
      offer(less, options_);
      offer(less, {.throughGpu = false, .pxn = false});
    }
    if (others.empty()) {
      text_ += "\nOther ways: none\n";
      return;
    }
    std::ranges::stable_sort(others, [](const auto& a, const auto& b) { return isBetter(a.first, b.first); });
    constexpr size_t kShown = 5;
    text_ += "\nOther ways\n";
    for (size_t i = 0; i < others.size() && i < kShown; ++i)
      text_ += fmt::format("  {}, {:g} GB/s: {}\n    {}\n", pathTypeName(others[i].first.type),
                           others[i].first.bandwidth, routeText(others[i].second), reason(others[i].first));
    if (others.size() > kShown) text_ += fmt::format("  and {} more\n", others.size() - kShown);
  }

  std::string reason(const Path& other) const {
    if (other.type > path_.type)
      return fmt::format("farther: {} comes after {}{}", pathTypeName(other.type), pathTypeName(path_.type),
                         other.bandwidth > path_.bandwidth ? ", wide as it is" : "");
    if (other.bandwidth < path_.bandwidth)
      return fmt::format("narrower: {:g} instead of {:g} GB/s", other.bandwidth, path_.bandwidth);
    if (other.hops > path_.hops) return fmt::format("longer: {} links instead of {}", other.hops, path_.hops);
    return "just as good: the first one found is taken";
  }

  void writeTransport() {
    text_ += "\nTransport\n";
    const NodeType a = graph_.node(from_).type, b = graph_.node(to_).type;
    if (a == NodeType::gpu && b == NodeType::gpu) return writeP2p();
    if (a == NodeType::gpu && b == NodeType::net) return writeGdr(from_, to_);
    if (a == NodeType::net && b == NodeType::gpu) return writeGdr(to_, from_);
    if (a == NodeType::cpu && b == NodeType::cpu && graph_.node(from_).host == graph_.node(to_).host) {
      text_ += "  Ranks on host devices: SHM, shared memory of the host.\n";
    } else if ((a == NodeType::cpu && b == NodeType::net) || (a == NodeType::net && b == NodeType::cpu)) {
      text_ += "  Ranks on host devices: NET, from and to host memory.\n";
    } else {
      text_ += "  None: ranks are on GPUs or CPUs, and leave the host by ports.\n";
    }
  }

  void writeP2p() {
    if (graph_.node(from_).host != graph_.node(to_).host) {
      text_ += "  NET: they are on different hosts. Try --explain GPU PORT for each end.\n";
      return;
    }
    const PathType level = levels_.p2p.value_or(defaultP2pLevel(graph_));
    const std::string levelSays = levelText(level, levels_.p2p.has_value(), "NCCL_P2P_LEVEL");
    const char* type = pathTypeName(path_.type);
    if (mayReach(path_.type, level)) {
      text_ += fmt::format("  P2P, one GPU reads and writes the other's memory: {} is within {}.\n", type,
                           levelSays);
      text_ += "  NCCL_P2P_DISABLE=1, or NCCL_P2P_LEVEL below that: SHM instead, through host memory.\n";
      text_ +=
          "  The driver has the last word: where it forbids P2P (a VM, an IOMMU), SHM is taken as well.\n";
    } else {
      text_ += fmt::format("  SHM, through host memory: {} is farther than {}.\n", type, levelSays);
      if (path_.type <= PathType::sys)
        text_ += fmt::format("  NCCL_P2P_LEVEL={} or farther: P2P instead.\n", type);
      text_ += "  NCCL_SHM_DISABLE=1: NET instead, through the network card.\n";
    }
  }

  void writeGdr(NodeId gpu, NodeId net) {
    const PathType level = levels_.gdr.value_or(kDefaultGdrLevel);
    const std::string levelSays = levelText(level, levels_.gdr.has_value(), "NCCL_NET_GDR_LEVEL");
    const NodeId proxy = proxyOf(graph_, paths_, gpu, net);
    const PathType distance = paths_.between(proxy, net).type;
    if (proxy != gpu)
      text_ += fmt::format("  NET through {} (PXN): its rank sends and receives for {}.\n", label(proxy),
                           label(gpu));
    else
      text_ += "  NET.\n";
    const std::string pair = fmt::format("{} and {}", label(proxy), label(net));
    const char* isNot = !graph_.node(gpu).gdr || !graph_.node(proxy).gdr ? "the GPU" : "the port";
    if (usesGdr(graph_, paths_, gpu, net, level)) {
      text_ +=
          fmt::format("  GPUDirect RDMA, the card reads and writes GPU memory: {} are {} apart, within {}.\n",
                      pair, pathTypeName(distance), levelSays);
      text_ += fmt::format("  NCCL_NET_GDR_LEVEL={}: through host memory instead.\n",
                           distance == PathType::pix ? "LOC" : "PIX");
    } else if (graph_.node(gpu).gdr && graph_.node(net).gdr && graph_.node(proxy).gdr) {
      text_ += fmt::format("  Through host memory: {} are {} apart, farther than {}.\n", pair,
                           pathTypeName(distance), levelSays);
      if (distance <= PathType::sys)
        text_ += fmt::format("  NCCL_NET_GDR_LEVEL={} or farther: GPUDirect RDMA instead.\n",
                             pathTypeName(distance));
    } else {
      text_ += fmt::format(
          "  Through host memory: {} is not known to support GPUDirect RDMA (gdr=\"1\"). No "
          "variable changes that.\n",
          isNot);
    }
    if (proxy != gpu) {
      const Path direct = Paths(graph_, {.pxn = false}).between(gpu, net);
      text_ += fmt::format("  NCCL_PXN_DISABLE=1: {} at {:g} GB/s instead of PXN.\n",
                           pathTypeName(direct.type), direct.bandwidth);
    }
  }

  const Graph& graph_;
  NodeId from_, to_;
  PathOptions options_;
  const ConnectionLevels& levels_;
  Paths paths_;
  Path path_;
  Route route_;
  std::string text_;
};

bool sameName(std::string_view a, std::string_view b) {
  return a.size() == b.size() && ::strncasecmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

std::string explainText(const Graph& graph, NodeId from, NodeId to, PathOptions options,
                        const ConnectionLevels& levels) {
  return Explanation(graph, from, to, options, levels).text();
}

Result<NodeId> findNode(const Graph& graph, std::string_view name) {
  std::vector<NodeId> found;
  const auto busId = parseBusId(name);
  for (NodeId id = 0; id < graph.nodes().size(); ++id) {
    const Node& node = graph.node(id);
    const bool onPci = node.type == NodeType::pci || node.type == NodeType::gpu || node.type == NodeType::nic;
    const bool byNumber =
        node.type == NodeType::net && node.number >= 0 && sameName(name, fmt::format("NET{}", node.number));
    if (sameName(name, graph.label(id)) || byNumber || (busId && onPci && node.busId == *busId))
      found.push_back(id);
  }
  if (found.size() == 1) return found[0];
  std::string known;
  for (const NodeType type : {NodeType::gpu, NodeType::net, NodeType::cpu, NodeType::nic})
    for (const NodeId id : graph.all(type))
      if (known.size() < 300) known += (known.empty() ? "" : ", ") + printableText(graph.label(id));
  return invalidArgument("{} \"{}\"; there are {}",
                         found.empty() ? "no device" : "several devices are called",
                         printableText(std::string(name.substr(0, 60))), known);
}

}  // namespace tutti
