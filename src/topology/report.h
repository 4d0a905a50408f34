// A graph as text, for people.
#pragma once

#include <string>

#include "topology/graph.h"
#include "topology/paths.h"

namespace tutti {

/// The tree, one node a line, with the bandwidth of each link, then what the description left open:
///
///   CPU0  (CPUs 0-23)  to CPU1 22 GB/s
///     PCI switch 0000:08:00.0  6 GB/s
///       GPU0 0000:0f:00.0  48 GB/s  sm 90, rank 0, NVLink to NVSwitch 18 x 20.6 = 370.8 GB/s
std::string treeText(const Graph& graph);

/// The matrix of `nvidia-smi topo -m`: GPUs and network ports (cards, where no port is known) against each
/// other, with NCCL's path types ("NV18" for 18 NVLinks), each one's CPUs and NUMA node, and a legend of what
/// occurs. CPUs take the GPUs' place on a host without any.
std::string matrixText(const Graph& graph, const Paths& paths);

/// Control characters of a file's names must not steer the terminal: they become question marks.
std::string printableText(std::string text);

}  // namespace tutti
