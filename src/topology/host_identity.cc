#include "topology/host_identity.h"

#include <unistd.h>

#include "base/identity.h"

namespace tutti {

Result<HostIdentity> thisProcess() {
  HostIdentity identity;
  identity.hostName = hostName();
  identity.hostId = hostIdentity();
  identity.pid = ::getpid();
  identity.machineId = machineIdentity();
  TUTTI_ASSIGN(identity.processToken, processToken());
  return identity;
}

}  // namespace tutti
