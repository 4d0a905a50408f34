// ncclComm_t: the user's handle of a communicator, and the checks that a handle passes before it is used.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "nccl.h"

namespace tutti {
class Communicator;
}

/// What ncclComm_t points to. Handles are never freed (they are 64 bytes, and are not used again), so that a
/// call with a destroyed communicator finds its tombstone instead of somebody else's memory.
struct ncclComm {
  static constexpr uint64_t kMagic = 0x7475747469434f4dULL;
  enum class State : uint8_t { initialising, ready, failed, destroyed };

  uint64_t magic = kMagic;
  std::atomic<State> state{State::initialising};
  std::unique_ptr<tutti::Communicator> communicator;  // set while ready
  tutti::Status failure;                              // why init failed
  ~ncclComm();
  ncclComm();
};

namespace tutti {

/// A new handle, owned by the library for the life of the process.
ncclComm_t newHandle();

/// The communicator behind a handle, or an error that says what is wrong with the handle.
Result<Communicator*> resolveHandle(ncclComm_t comm);

}  // namespace tutti
