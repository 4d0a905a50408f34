// What the library knows of the machine that it runs on, and what follows for one rank: where its device is,
// on which CPUs its threads run, where its memory comes from.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "topology/cpu_layout.h"
#include "topology/description.h"
#include "topology/device_place.h"
#include "topology/graph.h"
#include "topology/paths.h"

namespace tutti {

class HostTopology {
 public:
  SystemDescription system;
  CpuLayout cpus;
  Graph graph;
  /// Of the description: equal for ranks that see the same.
  uint64_t digest = 0;
  /// More than one NUMA node has CPUs: only then are threads and memory bound.
  bool severalNodes = false;

  /// In the graph; made on first use. Any thread.
  const Paths& paths() const;

 private:
  mutable std::once_flag pathsMade_;
  mutable std::optional<Paths> paths_;
};

/// This host: what NCCL_TOPO_FILE says, completed by detection. Found once a process (and again in a forked
/// child, or when NCCL_TOPO_FILE has changed), in a few milliseconds, by reading files alone. A file that
/// does not exist is a warning; one that cannot be understood is an error (ncclInvalidUsage) that names file,
/// line, element and reason. Any thread.
Result<std::shared_ptr<const HostTopology>> hostTopology();

/// The GPU of the host that a device is, real or (with NCCL_TOPO_FILE) a virtual one; nothing for devices of
/// the host runtime, and where the topology does not have it.
std::optional<BusId> gpuOf(const HostTopology& host, int device);

/// The place of a device of this process's runtime; without CPUs where it is not known. A GPU is at the NUMA
/// node that it hangs on, with all of that node's CPUs.
DevicePlace devicePlace(const HostTopology& host, int device);

/// What a rank binds: nothing on a host with one NUMA node.
struct RankBinding {
  std::vector<int32_t> cpus;  // of the rank's threads; empty: they stay as they are
  int32_t memoryNode = -1;    // of its memory; -1: as it comes
};
/// The CPUs of the device's NUMA node that the calling thread may use; all of that node's with
/// NCCL_IGNORE_CPU_AFFINITY.
RankBinding bindingOf(const HostTopology& host, const DevicePlace& place);

/// Writes NCCL_TOPO_DUMP_FILE if that is set and `rank` is NCCL_TOPO_DUMP_FILE_RANK: all that files and
/// libraries tell of this host. A file that cannot be written is a warning. Takes tens of milliseconds.
void dumpTopology(int rank);

}  // namespace tutti
