// Who this process is, as other ranks see it.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace tutti {

/// Host name up to the first dot.
std::string hostName();
/// The kernel's boot id: equal in all containers of a machine, which share its processors. Empty where the
/// system tells none.
std::string machineIdentity();
/// NCCL_HOSTID where it is set; else host name, boot id and network namespace together. Processes with equal
/// values may share memory.
std::string hostIdentity();
/// Random, the same for all ranks of this process, another one in a forked child.
Result<uint64_t> processToken();
/// How many forks lie between this process and the one that used the library first: what belongs to a process
/// keeps the number and is not taken for the child's. (Not the process id: in PID namespaces parent and child
/// may have the same.)
uint64_t forkCount();

}  // namespace tutti
