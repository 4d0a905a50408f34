#include "core/handle.h"

#include <mutex>
#include <vector>

#include "core/communicator.h"

ncclComm::ncclComm() = default;
ncclComm::~ncclComm() = default;

namespace tutti {

ncclComm_t newHandle() {
  // Kept reachable and never destroyed: a handle must stay readable in calls made from static destructors.
  static std::mutex& mutex = *new std::mutex;
  static std::vector<ncclComm_t>& all = *new std::vector<ncclComm_t>;
  const std::lock_guard lock(mutex);
  all.push_back(new ncclComm);
  return all.back();
}

Result<Communicator*> resolveHandle(ncclComm_t comm) {
  if (comm == nullptr) return invalidArgument("the communicator is null");
  if (comm->magic != ncclComm::kMagic) {
    return invalidArgument("{} is not a communicator (wrong magic number)", static_cast<const void*>(comm));
  }
  switch (comm->state.load(std::memory_order_acquire)) {
    case ncclComm::State::ready:
      return comm->communicator.get();
    case ncclComm::State::initialising:
      return invalidUsage(
          "the communicator is not ready: its initialisation has not ended (inside a group it ends with "
          "ncclGroupEnd)");
    case ncclComm::State::failed:
      return comm->failure.withContext("the communicator's initialisation failed");
    case ncclComm::State::destroyed:
      break;
  }
  return invalidArgument("the communicator was destroyed or aborted before");
}

}  // namespace tutti
