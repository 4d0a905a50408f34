// How two ranks, or a rank and a network port, move data, by NCCL's rules of how close they must be.
#pragma once

#include <optional>
#include <string>

#include "topology/graph.h"
#include "topology/paths.h"

namespace tutti {

/// Without NCCL_NET_GDR_LEVEL: a GPU and a port may be several PCI switches apart, or on C2C and PCI.
constexpr PathType kDefaultGdrLevel = PathType::p2c;

/// Without NCCL_P2P_LEVEL: several PCI switches, not the processor; but any way where an AMD processor has no
/// more than two GPUs.
PathType defaultP2pLevel(const Graph& graph);

/// Whether GPUs with such a path between them use each other's memory directly. LOC forbids that to all, also
/// to ranks on one GPU: it is NCCL_P2P_DISABLE=1.
bool mayReach(PathType between, PathType level);
/// The same for two GPUs of a host; `level` is NCCL_P2P_LEVEL's, the default where nobody set one. Where they
/// may not, `why` says so: "they are SYS apart, farther than NCCL_P2P_LEVEL=PHB".
bool mayReach(const Graph& graph, const Paths& paths, NodeId gpu, NodeId peer, std::optional<PathType> level,
              std::string* why);

/// "NCCL_P2P_LEVEL=PHB", or "the default of NCCL_P2P_LEVEL here, PXB" where nobody set it.
std::string levelText(PathType level, bool isSet, const char* variable);

/// Whether a network card reads and writes that GPU's memory itself: both can, and they are no farther apart
/// than `level`. Through a peer (PXN) it is the peer's memory, and the peer's distance counts.
bool usesGdr(const Graph& graph, const Paths& paths, NodeId gpu, NodeId net, PathType level);

/// The GPU on the way of a PXN path from `gpu`; `gpu` itself where the path is none.
NodeId proxyOf(const Graph& graph, const Paths& paths, NodeId gpu, NodeId net);

}  // namespace tutti
