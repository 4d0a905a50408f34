// Why two devices have the path, the bandwidth and the transport that they have.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "topology/graph.h"
#include "topology/paths.h"

namespace tutti {

/// What a job's environment decides. Absent: the default.
struct ConnectionLevels {
  std::optional<PathType> p2p;  // NCCL_P2P_LEVEL
  std::optional<PathType> gdr;  // NCCL_NET_GDR_LEVEL
};

/// The route with each link's bandwidth and the narrowest marked; other ways and why they were not taken; the
/// transport that follows and what would change it.
///
///   GPU0 to mlx5_3: PXN, 22.5 GB/s, 5 links
///
///   Route
///     GPU0 > NVSwitch                 NVLink  370.8 GB/s  18 links
///     ...
///     NIC 0000:2a:00.0 > mlx5_3       net      22.5 GB/s  the narrowest
///
///   Other ways
///     PHB, 6 GB/s: GPU0 > PCI switch 0000:08:00.0 > CPU0 > ...
///       farther: PHB comes after PXN
///
///   Transport
///     NET, with GPUDirect RDMA at GPU1: ...
std::string explainText(const Graph& graph, NodeId from, NodeId to, PathOptions options = {},
                        const ConnectionLevels& levels = {});

/// The node of a name as tutti-topo prints it, in any case: "gpu0", "mlx5_0", "CPU1", "NET3" (a port by
/// number), "NVSwitch", or a PCI address. Errors say what is not there, or what it could be.
Result<NodeId> findNode(const Graph& graph, std::string_view name);

}  // namespace tutti
