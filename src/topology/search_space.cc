#include "topology/search_space.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace tutti {
namespace {

constexpr Rate kUnbounded = Rate{1} << 50;

std::tuple<PathType, float, uint16_t> rankOf(const Path& path) {
  return {path.type, -path.bandwidth, path.hops};
}

void sortUnique(std::vector<PathType>* types) {
  std::ranges::sort(*types);
  types->erase(std::unique(types->begin(), types->end()), types->end());
}

}  // namespace

SearchSpace::SearchSpace(const Graph& graph, const Paths& paths, const SearchRequest& request)
    : graph_(graph), paths_(paths), gdrLevel_(request.gdrLevel), members_(request.members) {
  for (NodeId id = 0; id < graph.nodes().size(); ++id) {
    firstLink_.push_back(static_cast<LinkId>(links_.size()));
    for (const HardwareLink& link : graph.node(id).links) {
      // Whole MB/s: constants such as 20.6 are no exact binary numbers.
      const Rate capacity = std::llround(static_cast<double>(link.bandwidth) * 1000) * 1000;
      links_.push_back({id, link.to, link.type, link.bandwidth, capacity * kHalves});
    }
  }
  if (request.acrossHosts)
    for (const NodeId net : graph.all(NodeType::net))
      if (graph.node(net).host == graph.node(members_[0]).host) nets_.push_back(net);
  orderNeighbours();
  orderNets();
  routes_.resize(members_.size() * members_.size());
  in_.resize(members_.size() * nets_.size());
  out_.resize(members_.size() * nets_.size());
}

PathType SearchSpace::memberType(size_t from, size_t to) const {
  return paths_.between(members_[from], members_[to]).type;
}
PathType SearchSpace::netType(size_t member, size_t net) const {
  return paths_.between(members_[member], nets_[net]).type;
}

size_t SearchSpace::netIndex(NodeId node) const {
  return static_cast<size_t>(std::ranges::find(nets_, node) - nets_.begin());
}

void SearchSpace::orderNeighbours() {
  const size_t count = members_.size();
  for (size_t from = 0; from < count; ++from) {
    const size_t begin = neighbours_.size();
    for (size_t step = 1; step < count; ++step) {
      neighbours_.push_back(static_cast<uint16_t>((from + step) % count));
      memberTypes_.push_back(memberType(from, neighbours_.back()));
    }
    std::stable_sort(neighbours_.begin() + static_cast<ptrdiff_t>(begin), neighbours_.end(),
                     [&](uint16_t a, uint16_t b) {
                       return rankOf(paths_.between(members_[from], members_[a])) <
                              rankOf(paths_.between(members_[from], members_[b]));
                     });
    sortUnique(&memberTypes_);
  }
  std::erase(memberTypes_, PathType::dis);
  if (memberTypes_.empty()) memberTypes_.push_back(count == 1 ? PathType::loc : PathType::dis);
}

void SearchSpace::orderNets() {
  const size_t count = members_.size();
  const auto sortMembers = [&](NodeId net, auto begin, auto end) {
    std::stable_sort(begin, end, [&](uint16_t a, uint16_t b) {
      return rankOf(paths_.between(members_[a], net)) < rankOf(paths_.between(members_[b], net));
    });
  };
  // A port counts for the closest member that has the fewest so far, and stands where that one's turn is.
  std::vector<size_t> ports(count);
  std::vector<std::tuple<size_t, size_t, NodeId>> order;
  for (const NodeId net : nets_) {
    const auto rank = [&](size_t member) { return rankOf(paths_.between(members_[member], net)); };
    size_t best = 0;
    for (size_t member = 1; member < count; ++member)
      if (std::tuple(rank(member), ports[member]) < std::tuple(rank(best), ports[best])) best = member;
    order.emplace_back(ports[best]++, best, net);
  }
  std::ranges::stable_sort(
      order, {}, [](const auto& entry) { return std::pair(std::get<0>(entry), std::get<1>(entry)); });
  for (size_t n = 0; n < nets_.size(); ++n) {
    nets_[n] = std::get<2>(order[n]);
    const auto begin = static_cast<ptrdiff_t>(nearest_.size());
    for (size_t member = 0; member < count; ++member) {
      nearest_.push_back(static_cast<uint16_t>((std::get<1>(order[n]) + member) % count));
      netTypes_.push_back(netType(member, n));
    }
    sortMembers(nets_[n], nearest_.begin() + begin, nearest_.end());
    sortUnique(&netTypes_);
  }
  std::erase(netTypes_, PathType::dis);
  if (netTypes_.empty()) nets_.clear();  // none that anybody reaches
}

std::vector<uint16_t> SearchSpace::portsFor(size_t member, size_t own) const {
  std::vector<uint16_t> ports(nets_.size());
  for (size_t net = 0; net < nets_.size(); ++net) ports[net] = static_cast<uint16_t>(net);
  std::ranges::stable_sort(ports, {}, [&](uint16_t net) {
    return std::tuple(rankOf(paths_.between(members_[member], nets_[net])), net != own);
  });
  return ports;
}

void SearchSpace::append(NodeId from, NodeId to, std::vector<LinkId>* links) const {
  const std::vector<NodeId> nodes = paths_.route(from, to);
  for (size_t i = 0; i + 1 < nodes.size(); ++i) {
    const auto& candidates = graph_.node(nodes[i]).links;
    // Two nodes may have several kinds of links (NVLink and PCI never end at the same pair, C2C and PCI do).
    size_t best = candidates.size();
    for (size_t l = 0; l < candidates.size(); ++l)
      if (candidates[l].to == nodes[i + 1] &&
          (best == candidates.size() || candidates[l].bandwidth > candidates[best].bandwidth))
        best = l;
    links->push_back(firstLink_[nodes[i]] + static_cast<LinkId>(best));
  }
}

const std::vector<LinkId>& SearchSpace::route(size_t from, size_t to) {
  Route& route = routes_[from * members_.size() + to];
  if (!route.known) append(members_[from], members_[to], &route.links);
  route.known = true;
  return route.links;
}

bool SearchSpace::usesGdr(size_t member, size_t net) const {
  const NodeId node = members_[member];
  if (graph_.node(node).type != NodeType::gpu) return true;  // data of a host device is in host memory
  return tutti::usesGdr(graph_, paths_, node, nets_[net], gdrLevel_);
}

const std::vector<LinkId>& SearchSpace::netRoute(size_t net, size_t member, bool in) {
  Route& route = (in ? in_ : out_)[net * members_.size() + member];
  if (route.known) return route.links;
  route.known = true;
  const NodeId node = members_[member], port = nets_[net];
  const NodeId cpu = graph_.cpuOf(node);
  const NodeId from = in ? port : node, to = in ? node : port;
  if (usesGdr(member, net) || cpu == kNoNode) {
    append(from, to, &route.links);
  } else {
    append(from, cpu, &route.links);
    append(cpu, to, &route.links);
  }
  return route.links;
}

namespace {

/// Maximum flow by shortest augmenting paths (Edmonds and Karp 1972).
class FlowNetwork {
 public:
  FlowNetwork(size_t nodes, uint64_t* work) : edges_(nodes), work_(work) {}

  void add(size_t from, size_t to, int64_t capacity) {
    if (capacity <= 0) return;
    edges_[from].push_back(static_cast<uint32_t>(to_.size()));
    to_.push_back(to);
    capacity_.push_back(capacity);
    edges_[to].push_back(static_cast<uint32_t>(to_.size()));
    to_.push_back(from);
    capacity_.push_back(0);
  }

  /// The flow from one node to another, at most `limit`.
  int64_t flow(size_t from, size_t to, int64_t limit) {
    std::vector<int64_t> left = capacity_;
    int64_t total = 0;
    std::vector<uint32_t> by(edges_.size());
    std::vector<size_t> queue;
    while (total < limit) {
      *work_ += std::exchange(seen_, 0) / kEdgesPerStep + 1;
      std::ranges::fill(by, kUnseen);
      queue.assign(1, from);
      for (size_t next = 0; next < queue.size() && by[to] == kUnseen; ++next)
        for (const uint32_t edge : edges_[queue[next]]) {
          ++seen_;
          if (left[edge] == 0 || by[to_[edge]] != kUnseen || to_[edge] == from) continue;
          by[to_[edge]] = edge;
          queue.push_back(to_[edge]);
        }
      if (by[to] == kUnseen) break;
      int64_t amount = limit - total;
      for (size_t at = to; at != from; at = to_[by[at] ^ 1]) amount = std::min(amount, left[by[at]]);
      for (size_t at = to; at != from; at = to_[by[at] ^ 1]) {
        left[by[at]] -= amount;
        left[by[at] ^ 1] += amount;
      }
      total += amount;
    }
    return total;
  }

 private:
  static constexpr uint32_t kUnseen = UINT32_MAX;
  std::vector<std::vector<uint32_t>> edges_;
  std::vector<size_t> to_;
  std::vector<int64_t> capacity_;
  static constexpr uint64_t kEdgesPerStep = 16;  // what takes as long as a step of the search
  uint64_t* work_;
  uint64_t seen_ = 0;
};

}  // namespace

int64_t channelBound(const SearchSpace& space, PathType level, Rate rate, int64_t limit, uint64_t* work) {
  const size_t nodes = space.graph().nodes().size();
  FlowNetwork network(nodes + 1, work);
  const bool onlyNvlink = space.nets() == 0 && level <= PathType::nvb;
  for (const SearchSpace::LinkInfo& link : space.links())
    if (!onlyNvlink || link.type == LinkType::nvlink)
      network.add(link.from, link.to, link.capacity / (kHalves * rate));
  const size_t outside = nodes;
  for (size_t net = 0; net < space.nets(); ++net) {
    network.add(outside, space.netNode(net), limit);
    network.add(space.netNode(net), outside, limit);
  }
  const size_t source = space.nets() > 0 ? outside : space.memberNode(0);
  int64_t bound = limit;
  for (size_t member = 0; member < space.members(); ++member) {
    const size_t node = space.memberNode(member);
    if (node == source) continue;
    bound = network.flow(source, node, bound);
    bound = network.flow(node, source, bound);
  }
  return bound;
}

Rate totalBound(const SearchSpace& space, PathType level, uint64_t* work) {
  return channelBound(space, level, 1, kUnbounded, work);
}

Rate stepsBound(const SearchSpace& space, PathType level) {
  if (space.members() < 2) return kUnbounded;
  std::vector<bool> isMember(space.graph().nodes().size());
  Rate all = 0;
  for (size_t member = 0; member < space.members(); ++member) {
    const NodeId node = space.memberNode(member);
    if (space.graph().node(node).type != NodeType::gpu || isMember[node]) return kUnbounded;
    isMember[node] = true;
  }
  for (const SearchSpace::LinkInfo& link : space.links())
    if (isMember[link.from] && (level > PathType::nvb || link.type == LinkType::nvlink))
      all += link.capacity / kHalves;
  return all / static_cast<Rate>(space.members() - 1);
}

Rate bouncesBound(const SearchSpace& space) {
  for (size_t net = 0; net < space.nets(); ++net)
    for (size_t member = 0; member < space.members(); ++member)
      if (space.usesGdr(member, net)) return kUnbounded;
  if (space.nets() == 0) return kUnbounded;
  Rate up = 0, down = 0;
  for (const SearchSpace::LinkInfo& link : space.links()) {
    if (link.type == LinkType::sys) continue;
    if (space.graph().node(link.to).type == NodeType::cpu) up += link.capacity / kHalves;
    if (space.graph().node(link.from).type == NodeType::cpu) down += link.capacity / kHalves;
  }
  return std::min(up, down) / 2;
}

}  // namespace tutti
