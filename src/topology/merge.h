// Puts what libraries say into what files say: the one place where sources meet.
#pragma once

#include <string>
#include <vector>

#include "topology/cpu_layout.h"
#include "topology/description.h"
#include "topology/device_facts.h"
#include "topology/hwloc_library.h"

namespace tutti {

/// GPUs are found by PCI address and get their <gpu>. One that the description does not have (a masked /sys)
/// is added below the first CPU, with a note. `facts` of several sources for one GPU: the first one that says
/// something counts.
void mergeGpus(const std::vector<GpuFacts>& facts, SystemDescription* system,
               std::vector<std::string>* notes);

/// Ports are found by device and port number. Whether a port is up, its speed and its GUID are as the verbs
/// say (they ask the driver; /sys may be masked, or of another namespace). Ports that the description does
/// not have are added: to the card of their device, else below the first CPU, with a note.
void mergePorts(const std::vector<PortFacts>& facts, SystemDescription* system,
                std::vector<std::string>* notes);

/// Cores, where files show none; NUMA nodes, where files show none (`numaAssumed`: the single one of `system`
/// is an assumption).
void mergeHwloc(const HwlocFacts& facts, bool numaAssumed, SystemDescription* system, CpuLayout* cpus);

}  // namespace tutti
