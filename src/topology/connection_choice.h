// How two ranks, or a rank and a network port, move data, by NCCL's rules of how close they must be.
#pragma once

#include "topology/graph.h"
#include "topology/paths.h"

namespace tutti {

/// Without NCCL_NET_GDR_LEVEL: a GPU and a port may be several PCI switches apart, or on C2C and PCI.
constexpr PathType kDefaultGdrLevel = PathType::p2c;

/// Without NCCL_P2P_LEVEL: several PCI switches, not the processor; but any way where an AMD processor has no
/// more than two GPUs.
PathType defaultP2pLevel(const Graph& graph);

/// Whether a network card reads and writes that GPU's memory itself: both can, and they are no farther apart
/// than `level`. Through a peer (PXN) it is the peer's memory, and the peer's distance counts.
bool usesGdr(const Graph& graph, const Paths& paths, NodeId gpu, NodeId net, PathType level);

/// The GPU on the way of a PXN path from `gpu`; `gpu` itself where the path is none.
NodeId proxyOf(const Graph& graph, const Paths& paths, NodeId gpu, NodeId net);

}  // namespace tutti
