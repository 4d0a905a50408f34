// A search's result as text, for people.
#pragma once

#include <string>

#include "topology/graph.h"
#include "topology/search.h"

namespace tutti {

/// Rings and trees, equal channels on one line, and what limits them:
///
///   Rings: 16 channels of 22.5 GB/s, 360 GB/s in all (NVL between ranks, PXN to the network)
///      0  mlx5_0 > GPU0 > GPU1 > ... > GPU7 > mlx5_0
///     Limited by mlx5_0 to NIC 0000:0c:00.0: net of 22.5 GB/s for 1 channel (31 other links are as full)
///
/// `members`: what the search was asked about.
std::string planText(const Graph& graph, const std::vector<NodeId>& members, const ChannelPlan& plan);

/// "GPU0 to NVSwitch: NVLink of 370.8 GB/s for 16 channels (15 other links are as full)".
std::string bottleneckText(const Graph& graph, const Bottleneck& bottleneck);

}  // namespace tutti
