// ncclConfig_t: versions, defaults, checks.
#pragma once

#include "base/status.h"
#include "core/communicator.h"
#include "nccl.h"

namespace tutti {

/// Puts what a caller's configuration says into `setup`. Callers compiled against an older or newer header
/// pass structures of another size: the common part is used, the rest takes defaults. Null means all
/// defaults.
Status applyConfig(const ncclConfig_t* config, CommunicatorSetup& setup);

}  // namespace tutti
