#include "core/config.h"

#include <strings.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/params.h"

namespace tutti {
namespace {

constexpr size_t kSmallestSize =
    offsetof(ncclConfig_t, cgaClusterSize);  // 2.14 had size, magic, version, blocking

Status checkFlag(const char* name, int value) {
  if (value == NCCL_CONFIG_UNDEF_INT || value == 0 || value == 1) return Status::ok();
  return invalidArgument("config.{} is {}, but must be 0 or 1", name, value);
}

Status checkCount(const char* name, int value) {
  if (value == NCCL_CONFIG_UNDEF_INT || value > 0) return Status::ok();
  return invalidArgument("config.{} is {}, but must be at least 1", name, value);
}

/// Bytes of the structure that a caller compiled against that version can have set: what came later holds
/// whatever its memory held.
size_t knownSize(unsigned version) {
  if (version < NCCL_VERSION(2, 17, 0)) return offsetof(ncclConfig_t, cgaClusterSize);
  if (version < NCCL_VERSION(2, 18, 0)) return offsetof(ncclConfig_t, splitShare);
  if (version < NCCL_VERSION(2, 26, 0)) return offsetof(ncclConfig_t, trafficClass);
  if (version < NCCL_VERSION(2, 27, 0)) return offsetof(ncclConfig_t, commName);
  if (version < NCCL_VERSION(2, 28, 0)) return offsetof(ncclConfig_t, nChannelsPerNetPeer);
  return sizeof(ncclConfig_t);
}

Status applyCallers(const ncclConfig_t* config, CommunicatorSetup& setup) {
  if (config == nullptr) return Status::ok();
  if (config->magic != NCCL_API_MAGIC) {
    return invalidArgument(
        "config.magic is {:#x} instead of {:#x}: initialise the structure with NCCL_CONFIG_INITIALIZER",
        config->magic, NCCL_API_MAGIC);
  }
  if (config->size < kSmallestSize) {
    return invalidArgument("config.size is {}, but a configuration has at least {} bytes", config->size,
                           kSmallestSize);
  }
  ncclConfig_t own = NCCL_CONFIG_INITIALIZER;
  std::memcpy(&own, config, std::min({config->size, sizeof own, knownSize(config->version)}));
  TUTTI_TRY(checkFlag("blocking", own.blocking));
  TUTTI_TRY(checkCount("minCTAs", own.minCTAs));
  TUTTI_TRY(checkCount("maxCTAs", own.maxCTAs));
  const bool bothSet = own.minCTAs != NCCL_CONFIG_UNDEF_INT && own.maxCTAs != NCCL_CONFIG_UNDEF_INT;
  if (bothSet && own.minCTAs > own.maxCTAs) {
    return invalidArgument("config.minCTAs ({}) is larger than config.maxCTAs ({})", own.minCTAs,
                           own.maxCTAs);
  }
  if (own.minCTAs != NCCL_CONFIG_UNDEF_INT) setup.minChannels = own.minCTAs;
  if (own.maxCTAs != NCCL_CONFIG_UNDEF_INT) setup.maxChannels = own.maxCTAs;
  if (own.blocking != NCCL_CONFIG_UNDEF_INT) setup.blocking = own.blocking != 0;
  if (own.netName != nullptr && ::strcasecmp(own.netName, "Socket") != 0) {
    return invalidUsage("config.netName is \"{}\", but the only network here is \"Socket\"", own.netName);
  }
  if (own.commName != nullptr) setup.name = own.commName;
  // A caller of an older header has no name for this number.
  if (config->version >= NCCL_VERSION(2, 30, 0)) setup.timedOut = kTimeoutResult;
  return Status::ok();
}

}  // namespace

Status applyConfig(const ncclConfig_t* config, CommunicatorSetup& setup) {
  TUTTI_TRY(applyCallers(config, setup));
  // As in NCCL, the environment has the last word.
  if (params().commBlocking() >= 0) setup.blocking = params().commBlocking() != 0;
  return Status::ok();
}

}  // namespace tutti
