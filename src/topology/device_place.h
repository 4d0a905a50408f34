// Where a device of the host runtime is: ranks without a GPU compute on cores, and those are somewhere too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topology/cpu_layout.h"
#include "topology/description.h"
#include "topology/graph.h"

namespace tutti {

struct DevicePlace {
  int32_t numaNode = -1;          // -1: not known
  std::vector<int32_t> nodeCpus;  // of that NUMA node, ascending
  std::vector<int32_t> cpus;      // of the device's share of the cores, ascending
  int32_t package = -1;
  uint64_t l2Bytes = 0;
  uint64_t l3Bytes = 0;
  bool operator==(const DevicePlace&) const = default;

  /// "NUMA node 1, package 1, CPUs 16-19, L2 1 MiB, L3 32 MiB".
  std::string text() const;
};

/// Devices 0 .. `devices`-1 are spread evenly over the cores, in order of NUMA node and cache: devices that
/// are neighbours share caches. Each has whole cores of one NUMA node, at least one core; several share one
/// when there are more devices than cores. NUMA nodes are those of `system` (a file may describe others than
/// detection finds), cores those of `layout`; CPUs that it does not have count as a core each. A place
/// without CPUs where the system has none.
DevicePlace placeOfDevice(const SystemDescription& system, const CpuLayout& layout, int device, int devices);

/// Where a GPU is: at the NUMA node above it, whose CPUs are all as near. Without CPUs where that has none.
DevicePlace placeOfGpu(const Graph& graph, const CpuLayout& layout, NodeId gpu);

/// How many NUMA nodes with CPUs the host has. With one there is nothing to bind.
size_t numaNodesWithCpus(const SystemDescription& system);

}  // namespace tutti
