// What the search for channels works on: members, ports, the routes between them as lists of links, and the
// links' capacities.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "topology/search.h"

namespace tutti {

/// One direction of a link of the graph.
using LinkId = uint32_t;

/// Rates are whole kB/s: every machine computes the same.
using Rate = int64_t;
constexpr double kRatePerGigabyte = 1e6;
/// A ring takes two halves of its rate of a link, a tree one of each direction.
constexpr int64_t kHalves = 2;

class SearchSpace {
 public:
  /// Keeps references.
  SearchSpace(const Graph& graph, const Paths& paths, const SearchRequest& request);

  const Graph& graph() const { return graph_; }
  size_t members() const { return members_.size(); }
  size_t nets() const { return nets_.size(); }
  NodeId memberNode(size_t member) const { return members_[member]; }
  /// Ports in the order in which channels should take them: each member's closest first, then each one's
  /// second.
  NodeId netNode(size_t net) const { return nets_[net]; }
  size_t netIndex(NodeId node) const;

  /// loc between members of one node.
  PathType memberType(size_t from, size_t to) const;
  /// Other members, the best to go to first: by path, then the next number.
  std::span<const uint16_t> neighbours(size_t member) const {
    return std::span(neighbours_).subspan(member * (members_.size() - 1), members_.size() - 1);
  }
  PathType netType(size_t member, size_t net) const;
  /// Members, the closest to the port first.
  std::span<const uint16_t> nearest(size_t net) const {
    return std::span(nearest_).subspan(net * members_.size(), members_.size());
  }
  /// Ports, the closest to a member first; of equal ones `own` first: rails are not crossed without need.
  std::vector<uint16_t> portsFor(size_t member, size_t own) const;
  /// Types that occur between members, and between members and ports; closest first; without dis.
  const std::vector<PathType>& memberTypes() const { return memberTypes_; }
  const std::vector<PathType>& netTypes() const { return netTypes_; }

  /// Links on the way; computed when first asked for.
  const std::vector<LinkId>& route(size_t from, size_t to);
  const std::vector<LinkId>& fromNet(size_t net, size_t member) { return netRoute(net, member, true); }
  const std::vector<LinkId>& toNet(size_t member, size_t net) { return netRoute(net, member, false); }

  /// Whether data goes between GPU and port without a stop in host memory.
  bool usesGdr(size_t member, size_t net) const;

  struct LinkInfo {
    NodeId from = kNoNode;
    NodeId to = kNoNode;
    LinkType type = LinkType::pci;
    float bandwidth = 0;
    Rate capacity = 0;  // in halves
  };
  const std::vector<LinkInfo>& links() const { return links_; }

 private:
  struct Route {
    bool known = false;
    std::vector<LinkId> links;
  };
  const std::vector<LinkId>& netRoute(size_t net, size_t member, bool in);
  void append(NodeId from, NodeId to, std::vector<LinkId>* links) const;
  void orderNeighbours();
  void orderNets();

  const Graph& graph_;
  const Paths& paths_;
  PathType gdrLevel_;
  std::vector<NodeId> members_;
  std::vector<NodeId> nets_;
  std::vector<LinkInfo> links_;
  std::vector<LinkId> firstLink_;  // by node
  std::vector<uint16_t> neighbours_, nearest_;
  std::vector<PathType> memberTypes_, netTypes_;
  std::vector<Route> routes_, in_, out_;
};

/// The largest number of channels of a rate that could exist, by maximum flow between members (between ports
/// and members, where there are ports): no more pass any cut than its links carry. `limit`: more are not of
/// interest. Counts its steps into `work`.
int64_t channelBound(const SearchSpace& space, PathType level, Rate rate, int64_t limit, uint64_t* work);
/// The same for infinitely many infinitely slow ones: the rate of all together.
Rate totalBound(const SearchSpace& space, PathType level, uint64_t* work);

/// Every channel goes out of all members but one by a link of their own: all together have no more than those
/// links.
Rate stepsBound(const SearchSpace& space, PathType level);
/// Where no GPU reaches any port directly, every channel goes up to the processors twice and down twice.
Rate bouncesBound(const SearchSpace& space);

}  // namespace tutti
