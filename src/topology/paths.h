// Paths between devices: by which kind of way, how fast, over how many links. Kinds and names are NCCL's.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "topology/graph.h"

namespace tutti {

/// From the closest to the farthest; the order counts.
enum class PathType : uint8_t {
  loc,  // the same device
  nvl,  // NVLink, also through NVSwitches
  nvb,  // NVLink through one GPU between
  c2c,  // chip-to-chip link between GPU and CPU
  pix,  // at most one PCI switch
  pxb,  // several PCI switches, not the CPU
  p2c,  // GPU to NIC: C2C to the CPU, and PCI from there
  pxn,  // GPU to NIC: NVLink to a GPU that is close to the NIC
  phb,  // through the CPU
  sys,  // between NUMA nodes
  net,  // over the network
  dis   // no way
};

/// "NVL".
const char* pathTypeName(PathType type);

/// The value of NCCL_P2P_LEVEL or NCCL_NET_GDR_LEVEL: a name in any case (LOC NVL NVB C2C PIX PXB P2C PXN PHB
/// SYS), or the old number (0 LOC, 1 PIX, 2 PXB, 3 PHB, 4 and above SYS).
Result<PathType> parsePathLevel(std::string_view text);

struct Path {
  PathType type = PathType::dis;
  uint16_t hops = 0;    // links
  float bandwidth = 0;  // GB/s of the narrowest link, in one direction
  bool operator==(const Path&) const = default;
};

/// By type, then bandwidth, then hops.
bool isBetter(const Path& a, const Path& b);

struct PathOptions {
  bool throughGpu = true;  // NVB (NCCL_NVB_DISABLE)
  bool pxn = true;         // PXN (NCCL_PXN_DISABLE)
};

/// The best path between any two nodes of a graph. Computed once, then immutable.
class Paths {
 public:
  /// Keeps a reference to the graph. Time grows with nodes × links × kinds of links, memory with nodes²
  /// (8 bytes a pair: 0.9 MB for 72 GPUs with a card each).
  explicit Paths(const Graph& graph, PathOptions options = {});

  /// dis where there is none; loc, with no hops, of a node to itself.
  Path between(NodeId from, NodeId to) const { return whole(best_[from * count_ + to]); }
  /// The nodes of that path, both ends included. Empty where there is none.
  std::vector<NodeId> route(NodeId from, NodeId to) const;

 private:
  /// A path in 4 bytes. A path is as wide as one of its links, so a number in widths_ will do: 0 is no limit,
  /// i is widths_[i - 1]. (There are at most 65536 links, since a description has no more elements.)
  struct Packed {
    PathType type : 4 = PathType::dis;
    uint16_t hops : 12 = 0;  // at most two ways through all of kMaxGraphNodes
    uint16_t width = UINT16_MAX;
  };
  static_assert(2 * kMaxGraphNodes <= 1 << 12);

  Path whole(const Packed& path) const {
    if (path.type == PathType::dis) return {};
    return {path.type, path.hops,
            path.width == 0 ? std::numeric_limits<float>::infinity() : widths_[path.width - 1U]};
  }
  static bool isBetter(const Packed& a, const Packed& b);
  void computeFrom(NodeId from);
  /// Paths joined of two at a GPU or CPU between: what plain routing may not pass. kNoNode: none is better.
  NodeId bestVia(NodeId from, NodeId to, Packed* path) const;
  std::vector<NodeId> plainRoute(NodeId from, NodeId to) const;

  const Graph& graph_;
  PathOptions options_;
  size_t count_;
  std::vector<PathType> levels_;  // types that links have, the best first
  std::vector<float> widths_;     // bandwidths that links have, the highest first
  std::vector<Packed> plain_;     // without vias
  std::vector<Packed> best_;
};

}  // namespace tutti
