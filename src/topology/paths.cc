#include "topology/paths.h"

#include <strings.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "base/params.h"

namespace tutti {
namespace {

constexpr std::array<const char*, 12> kPathNames = {"LOC", "NVL", "NVB", "C2C", "PIX", "PXB",
                                                    "P2C", "PXN", "PHB", "SYS", "NET", "DIS"};

/// What a link makes of a path that takes it.
PathType typeOf(const Graph& graph, NodeId from, const HardwareLink& link) {
  const NodeType a = graph.node(from).type, b = graph.node(link.to).type;
  switch (link.type) {
    case LinkType::nvlink:
      return PathType::nvl;
    case LinkType::c2c:
      return PathType::c2c;
    case LinkType::sys:
      return PathType::sys;
    case LinkType::net:
      return PathType::loc;  // a port is part of its card
    case LinkType::pci:
      break;
  }
  if (a == NodeType::cpu || b == NodeType::cpu) return PathType::phb;
  return a == NodeType::pci && b == NodeType::pci ? PathType::pxb : PathType::pix;
}

/// A breadth-first search over links of at most that type and at least that width. Nothing passes through a
/// GPU. `visit(node, previous, hops)` is called once for each node reached.
template <typename Visit>
void search(const Graph& graph, NodeId from, PathType type, float width, const Visit& visit) {
  std::vector<bool> seen(graph.nodes().size());
  std::vector<std::pair<NodeId, uint16_t>> queue = {{from, 0}};
  seen[from] = true;
  for (size_t next = 0; next < queue.size(); ++next) {
    const auto [at, hops] = queue[next];
    if (at != from && graph.node(at).type == NodeType::gpu) continue;
    for (const HardwareLink& link : graph.node(at).links) {
      if (seen[link.to] || link.bandwidth < width || typeOf(graph, at, link) > type) continue;
      seen[link.to] = true;
      queue.emplace_back(link.to, static_cast<uint16_t>(hops + 1));
      visit(link.to, at, static_cast<uint16_t>(hops + 1));
    }
  }
}

}  // namespace

const char* pathTypeName(PathType type) { return kPathNames.at(static_cast<size_t>(type)); }

Result<PathType> parsePathLevel(std::string_view text) {
  const std::string word(pathLevelName(text));
  for (size_t type = 0; type <= static_cast<size_t>(PathType::sys); ++type)
    if (::strcasecmp(word.c_str(), kPathNames.at(type)) == 0) return static_cast<PathType>(type);
  return invalidArgument(
      "\"{}\" is no level: LOC, NVL, NVB, C2C, PIX, PXB, P2C, PXN, PHB, SYS, or a number from 0 on",
      text.substr(0, 40));
}

bool isBetter(const Path& a, const Path& b) {
  if (a.type != b.type) return a.type < b.type;
  if (a.bandwidth != b.bandwidth) return a.bandwidth > b.bandwidth;
  return a.hops < b.hops;
}

bool Paths::isBetter(const Packed& a, const Packed& b) {
  if (a.type != b.type) return a.type < b.type;
  if (a.width != b.width) return a.width < b.width;
  return a.hops < b.hops;
}

Paths::Paths(const Graph& graph, PathOptions options)
    : graph_(graph), options_(options), count_(graph.nodes().size()), plain_(count_ * count_) {
  for (NodeId id = 0; id < count_; ++id)
    for (const HardwareLink& link : graph.node(id).links) {
      levels_.push_back(typeOf(graph, id, link));
      widths_.push_back(link.bandwidth);
    }
  std::ranges::sort(levels_);
  levels_.erase(std::unique(levels_.begin(), levels_.end()), levels_.end());
  std::ranges::sort(widths_, std::greater());
  widths_.erase(std::unique(widths_.begin(), widths_.end()), widths_.end());
  for (NodeId from = 0; from < count_; ++from) computeFrom(from);
  best_ = plain_;
  for (NodeId from = 0; from < count_; ++from)
    for (NodeId to = 0; to < count_; ++to) bestVia(from, to, &best_[from * count_ + to]);
}

// The order of paths is not kept when both get longer by the same link: of a wide and long path, and a narrow
// and short one, the second may win once both pass a narrow link. So no search that keeps one best path a
// node is right. Instead, from the best combination of type and width to the worst: which nodes can be
// reached by links of at least that quality? The first combination that reaches a node is its path's, and
// breadth first gives the fewest hops.
void Paths::computeFrom(NodeId from) {
  Packed* row = &plain_[from * count_];
  row[from].type = PathType::loc;
  row[from].width = 0;
  for (const PathType level : levels_) {
    size_t missing = 0;
    search(graph_, from, level, 0,
           [&](NodeId to, NodeId, uint16_t) { missing += row[to].type == PathType::dis; });
    for (size_t w = 0; w < widths_.size() && missing > 0; ++w)
      search(graph_, from, level, widths_[w], [&](NodeId to, NodeId, uint16_t hops) {
        if (row[to].type != PathType::dis) return;
        row[to].type = level;
        row[to].hops = hops & 0xfff;
        row[to].width = static_cast<uint16_t>(w + 1);
        --missing;
      });
  }
}

NodeId Paths::bestVia(NodeId from, NodeId to, Packed* path) const {
  const auto plain = [this](NodeId a, NodeId b) -> const Packed& { return plain_[a * count_ + b]; };
  const NodeType a = graph_.node(from).type, b = graph_.node(to).type;
  const auto isNet = [](NodeType type) { return type == NodeType::nic || type == NodeType::net; };
  NodeId best = kNoNode;
  const auto offer = [&](NodeId via, PathType type) {
    const Packed &one = plain(from, via), &two = plain(via, to);
    Packed candidate;
    candidate.type = type;
    candidate.hops = (one.hops + two.hops) & 0xfff;
    candidate.width = std::max(one.width, two.width);  // the narrower
    if (!isBetter(candidate, *path)) return;
    *path = candidate;
    best = via;
  };
  if (from == to || !(a == NodeType::gpu || b == NodeType::gpu)) return best;
  if (path->type <= PathType::nvb) return best;
  for (NodeId via = 0; via < count_; ++via) {
    const NodeType kind = graph_.node(via).type;
    if (via == from || via == to || (kind != NodeType::gpu && kind != NodeType::cpu)) continue;
    const PathType first = plain(from, via).type, second = plain(via, to).type;
    if (a == NodeType::gpu && b == NodeType::gpu) {
      if (options_.throughGpu && kind == NodeType::gpu && first == PathType::nvl && second == PathType::nvl)
        offer(via, PathType::nvb);
      continue;
    }
    if (!isNet(a) && !isNet(b)) continue;
    // A network path looks the same from both ends.
    const PathType atGpu = isNet(b) ? first : second, atNet = isNet(b) ? second : first;
    if (kind == NodeType::cpu && atGpu == PathType::c2c && atNet == PathType::phb) offer(via, PathType::p2c);
    if (options_.pxn && kind == NodeType::gpu && atGpu == PathType::nvl && atNet <= PathType::pxb)
      offer(via, PathType::pxn);
  }
  return best;
}

std::vector<NodeId> Paths::plainRoute(NodeId from, NodeId to) const {
  if (from == to) return {from};
  const Path path = whole(plain_[from * count_ + to]);
  if (path.type == PathType::dis) return {};
  std::vector<NodeId> previous(count_, kNoNode);
  search(graph_, from, path.type, path.bandwidth,
         [&](NodeId node, NodeId before, uint16_t) { previous[node] = before; });
  std::vector<NodeId> route;
  for (NodeId at = to; at != kNoNode; at = previous[at]) route.push_back(at);
  std::ranges::reverse(route);
  return route;
}

std::vector<NodeId> Paths::route(NodeId from, NodeId to) const {
  Packed path = plain_[from * count_ + to];
  const NodeId via = bestVia(from, to, &path);
  if (via == kNoNode) return plainRoute(from, to);
  std::vector<NodeId> nodes = plainRoute(from, via);
  const std::vector<NodeId> rest = plainRoute(via, to);
  nodes.insert(nodes.end(), rest.begin() + 1, rest.end());
  return nodes;
}

}  // namespace tutti
