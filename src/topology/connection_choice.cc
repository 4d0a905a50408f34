#include "topology/connection_choice.h"

#include <fmt/format.h>

#include <algorithm>

namespace tutti {

PathType defaultP2pLevel(const Graph& graph) {
  const auto isAmd = [](const Node& node) {
    return node.type == NodeType::cpu && node.vendor == "AuthenticAMD";
  };
  const bool amd = std::ranges::any_of(graph.nodes(), isAmd);
  return amd && graph.all(NodeType::gpu).size() <= 2 ? PathType::sys : PathType::pxb;
}

bool mayReach(PathType between, PathType level) { return level != PathType::loc && between <= level; }

std::string levelText(PathType level, bool isSet, const char* variable) {
  return isSet ? fmt::format("{}={}", variable, pathTypeName(level))
               : fmt::format("the default of {} here, {}", variable, pathTypeName(level));
}

bool mayReach(const Graph& graph, const Paths& paths, NodeId gpu, NodeId peer, std::optional<PathType> level,
              std::string* why) {
  const PathType most = level.value_or(defaultP2pLevel(graph));
  const PathType between = paths.between(gpu, peer).type;
  if (mayReach(between, most)) return true;
  if (most == PathType::loc)
    *why = "NCCL_P2P_LEVEL=LOC";
  else
    *why = fmt::format("they are {} apart, farther than {}", pathTypeName(between),
                       levelText(most, level.has_value(), "NCCL_P2P_LEVEL"));
  return false;
}

NodeId proxyOf(const Graph& graph, const Paths& paths, NodeId gpu, NodeId net) {
  if (paths.between(gpu, net).type != PathType::pxn) return gpu;
  for (const NodeId node : paths.route(gpu, net))
    if (node != gpu && graph.node(node).type == NodeType::gpu) return node;
  return gpu;
}

bool usesGdr(const Graph& graph, const Paths& paths, NodeId gpu, NodeId net, PathType level) {
  if (!graph.node(gpu).gdr || !graph.node(net).gdr) return false;
  const NodeId proxy = proxyOf(graph, paths, gpu, net);
  return graph.node(proxy).gdr && paths.between(proxy, net).type <= level;
}

}  // namespace tutti
