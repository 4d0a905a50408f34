// Who and where this process is, as its peers need to know it.
#pragma once

#include <cstdint>
#include <string>

namespace tutti {

struct HostIdentity {
  std::string hostName;  // as gethostname gives it, up to the first dot
  /// Equal on two processes that may share memory: NCCL_HOSTID where it is set, else host name, boot id of
  /// the kernel and network namespace. Necessary, not sufficient: a memory file must really have been passed.
  std::string hostId;
  int64_t pid = 0;
  uint64_t processToken = 0;  // see below
};

/// Reads the environment's NCCL_HOSTID and the system anew at every call. Never fails: what cannot be read
/// (no /proc) is left out of the id, which then is still equal on processes that see the same.
HostIdentity hostIdentity();

/// A random number, never 0, that is the same for all threads of a process and different in every other
/// process, also in a child after fork (whose pid may be equal in another pid namespace). Thread-safe.
uint64_t processToken();

}  // namespace tutti
