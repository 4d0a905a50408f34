// Ranks of a host merge what each sees: in containers, a rank may see its own GPU only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topology/description.h"
#include "topology/graph.h"

namespace tutti {

struct FusedSystem {
  SystemDescription system;
  std::vector<std::string> notes;  // where the views contradict each other, and what was taken
};

/// The union of several descriptions of one host.
///
/// - NUMA nodes are matched by number (and host hash), PCI devices by address, ports by card, name and port.
/// What a
///   view leaves open is taken from the next one; where they contradict each other, the first one counts and
///   a note says so. A switch that only one view shows is put above the devices that this view has below it.
/// - Containers number the GPUs and ports that they see from 0 on. Where numbers occur twice, all are
/// numbered
///   anew, by address; ranks find theirs by `rank` or address, not by number.
/// - Devices and nodes are put in order of number and address, so the order of the views does not matter
/// where they
///   do not contradict each other. All ranks of a host, given all views in order of rank, get the same.
FusedSystem fuseSystems(const std::vector<SystemDescription>& views);

/// Where these ranks compute, by the `rank` of a graph's GPUs; kNoNode for a rank that none has.
std::vector<NodeId> membersOfRanks(const Graph& graph, const std::vector<int32_t>& ranks);

}  // namespace tutti
