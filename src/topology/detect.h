// Finds out what hardware a host has.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "topology/cpu_layout.h"
#include "topology/cuda_driver.h"
#include "topology/description.h"
#include "topology/device_facts.h"
#include "topology/hwloc_library.h"
#include "topology/nvml.h"
#include "topology/verbs.h"

namespace tutti {

/// Libraries that know more of this machine than files do. Each is opened when there is something to ask it
/// for; null: not at all. Tests give their own.
struct MachineLibraries {
  std::function<Result<HwlocApi>()> hwloc;      // when /sys shows no cores or no NUMA nodes
  std::function<Result<VerbsApi>()> verbs;      // when there are RDMA devices, or /dev/infiniband
  std::function<Result<NvmlApi>()> nvml;        // when there is a GPU of NVIDIA, or its driver
  std::function<Result<CudaDriverApi>()> cuda;  // as above, for what NVML did not say

  /// All of this machine's: for a program of ours.
  static MachineLibraries forProgram();
  /// For a part of somebody's program: nothing that the program would notice. hwloc is not asked (it may
  /// write to standard error, and loads plugins), nor a CUDA driver that the program has not loaded.
  static MachineLibraries forLibrary();
};

struct Detection {
  SystemDescription system;
  CpuLayout cpus;  // without groups where it is not known
  /// What libraries said, beyond what is in `system`: UUIDs, peer access, GIDs, ...
  std::vector<GpuFacts> gpus;
  std::vector<PortFacts> ports;
  /// What could not be found out, and what was taken instead; one text each.
  std::vector<std::string> assumptions;
};

/// From /sys and /proc/cpuinfo below `root`, which may be a captured tree of another machine: NUMA nodes with
/// their CPUs, cores and caches, GPUs and network cards with the PCI switches above them, network ports.
/// There is always at least one CPU: where /sys is missing, masked or wrong (containers, VMs), defaults are
/// taken, and one INFO line says so. Takes a few milliseconds, starts nothing and loads nothing. GPUs are PCI
/// devices without <gpu>: what the driver knows of them is not in /sys.
Detection detectSystem(const std::string& root = "/");

/// As above, completed by libraries: compute capability and NVLinks of GPUs, ports as the verbs see them.
/// What a library should know but does not becomes part of the INFO line. May take hundreds of milliseconds.
Detection detectSystem(const std::string& root, const MachineLibraries& libraries);

}  // namespace tutti
