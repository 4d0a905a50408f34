#include "topology/connection_choice.h"

#include <algorithm>

namespace tutti {

PathType defaultP2pLevel(const Graph& graph) {
  const auto isAmd = [](const Node& node) {
    return node.type == NodeType::cpu && node.vendor == "AuthenticAMD";
  };
  const bool amd = std::ranges::any_of(graph.nodes(), isAmd);
  return amd && graph.all(NodeType::gpu).size() <= 2 ? PathType::sys : PathType::pxb;
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
