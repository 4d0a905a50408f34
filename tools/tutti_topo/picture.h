// A machine as a picture, with its rings drawn over it.
#pragma once

#include <string>

#include "base/status.h"
#include "topology/search.h"

namespace tutti::topo {

/// SVG: NUMA nodes at the top, below them PCI switches, GPUs and cards; NVLink below these. Links are as
/// thick as they are fast, and coloured by how much of them the rings use (red: full). The rings are arrows
/// between ranks; each port says which channels come in and go out by it; the lines below say what limits.
std::string pictureSvg(const Graph& graph, const Paths& paths, const SearchRequest& request,
                       const ChannelPlan& plan, const std::string& title);

}  // namespace tutti::topo
