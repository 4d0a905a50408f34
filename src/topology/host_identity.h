// Who and where this process is, as its peers need to know it.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace tutti {

struct HostIdentity {
  std::string hostName;  // up to the first dot
  /// Equal on two processes that may share memory. Necessary, not sufficient: a memory file must really have
  /// been passed. See hostIdentity() in base/identity.h.
  std::string hostId;
  int64_t pid = 0;
  /// Random, the same for all threads of this process, another one in a forked child.
  uint64_t processToken = 0;
  std::string machineId;  // see machineIdentity() in base/identity.h
};

/// Read anew at every call. Fails only where the system gives no random numbers.
Result<HostIdentity> thisProcess();

}  // namespace tutti
