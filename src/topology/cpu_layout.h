// Cores, caches and packages of a host: where a rank without a GPU computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "topology/sysfs.h"

namespace tutti {

/// Cores that share a last-level cache.
struct CoreGroup {
  int32_t package = -1;                     // socket; -1: not known
  std::vector<std::vector<int32_t>> cores;  // the CPUs (hardware threads) of each, ascending
  uint64_t l2Bytes = 0;                     // of one core; 0: not known
  uint64_t l3Bytes = 0;                     // of the group; 0: not known, or none
  bool operator==(const CoreGroup&) const = default;
};

struct CpuLayout {
  std::vector<CoreGroup> groups;  // by lowest CPU
  bool operator==(const CpuLayout&) const = default;

  size_t cores() const;
  size_t packages() const;  // that are known
};

/// From /sys/devices/system/cpu; without groups where that does not show them. Reads little: a few files a
/// core, the caches of one core a group.
CpuLayout readCpuLayout(const Sysfs& sysfs);

}  // namespace tutti
