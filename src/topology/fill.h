// A topology file does not have to say everything: detection fills in the rest.
#pragma once

#include "topology/description.h"

namespace tutti {

/// What `system` (a file that describes this host) leaves open is taken from `detected`; what it says stays.
///
/// - CPUs are matched by NUMA node, PCI devices by address: absent attributes, <gpu> and network ports are
///   filled in. Skeletons move devices to places that /sys does not show: places stay as the file has them.
/// - GPUs and cards that the file does not have are added, below the closest switch that it has, else below
///   the CPU of their NUMA node, else below the first. A file without CPUs becomes `detected`.
void fillIn(const SystemDescription& detected, SystemDescription* system);

}  // namespace tutti
