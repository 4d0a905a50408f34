// Finds out what hardware a host has.
#pragma once

#include <string>
#include <vector>

#include "topology/cpu_layout.h"
#include "topology/description.h"

namespace tutti {

struct Detection {
  SystemDescription system;
  CpuLayout cpus;  // without groups where it is not known
  /// What could not be found out, and what was taken instead; one text each.
  std::vector<std::string> assumptions;
};

/// From /sys and /proc/cpuinfo below `root`, which may be a captured tree of another machine: NUMA nodes with
/// their CPUs, GPUs and network cards with the PCI switches above them, network ports. There is always at
/// least one CPU: where /sys is missing, masked or wrong (containers, VMs), defaults are taken, and one INFO
/// line says so. GPUs are PCI devices without <gpu>: what the driver knows of them is not in /sys.
Detection detectSystem(const std::string& root = "/");

}  // namespace tutti
