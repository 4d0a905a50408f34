// ncclComm_t: the user's handle of a communicator, and the checks that a handle passes before it is used.
// docs/communicators.md draws its states.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "base/status.h"
#include "nccl.h"

namespace tutti {
class Communicator;
}

/// What ncclComm_t points to. Handles are never freed (they are small, and are not used again), so that a
/// call with a destroyed communicator finds its tombstone instead of somebody else's memory.
struct ncclComm {
  static constexpr uint64_t kMagic = 0x7475747469434f4dULL;
  enum class State : uint8_t { initialising, ready, failed, ended };

  explicit ncclComm(std::unique_ptr<tutti::Communicator> made, bool blocks);
  ~ncclComm();

  const uint64_t magic = kMagic;
  std::atomic<State> state{State::initialising};
  std::atomic<bool> finalized{false};
  const bool blocking;
  std::atomic<uint32_t> users{0};    // calls that are working with the communicator
  std::atomic<uint32_t> pending{0};  // calls that go on in the background
  /// Set from the beginning until the handle has ended and its last user has gone.
  std::unique_ptr<tutti::Communicator> communicator;

  const uint64_t forks;  // forkCount() of the process that made it

  std::mutex mutex;  // guards failure and closing
  /// The communicator while ncclCommDestroy ends it: an abort interrupts it.
  tutti::Communicator* closing = nullptr;
  tutti::Status failure;  // why init, or a call in the background, failed
};

namespace tutti {

/// A call's permission to work with the communicator of a handle: until it is gone the communicator stays,
/// although perhaps as one that has failed. Movable.
class CommUse {
 public:
  explicit CommUse(ncclComm_t comm) : comm_(comm) {}
  CommUse(CommUse&& other) noexcept : comm_(std::exchange(other.comm_, nullptr)) {}
  CommUse& operator=(CommUse&& other) noexcept {
    std::swap(comm_, other.comm_);
    return *this;
  }
  ~CommUse() {
    if (comm_ != nullptr) comm_->users.fetch_sub(1, std::memory_order_release);
  }

  Communicator* get() const { return comm_->communicator.get(); }
  Communicator* operator->() const { return get(); }
  Communicator& operator*() const { return *get(); }
  ncclComm_t handle() const { return comm_; }

 private:
  ncclComm_t comm_;
};

/// A new handle, owned by the library for the life of the process.
ncclComm_t newHandle(std::unique_ptr<Communicator> communicator, bool blocking);

/// An error when this is not, and never was, a communicator.
Status checkHandle(ncclComm_t comm);

/// What a call may find.
enum class Allow : uint8_t {
  ready,   // initialised, and nothing goes on in the background
  making,  // or still being made; for abort and for queries
};

/// The communicator behind a handle, or an error that says what is wrong with the handle. It may have failed,
/// been finalized or revoked.
Result<CommUse> resolveHandle(ncclComm_t comm, Allow allow = Allow::ready);

/// For calls that need a communicator which has not been finalized, revoked or not.
Status checkNotFinalized(const CommUse& use);

/// As resolveHandle, for a call that wants to enqueue something: not after finalize or revoke.
Result<CommUse> resolveForWork(ncclComm_t comm);
/// As resolveForWork, when work that was accepted is launched: whatever goes on in the background, this is
/// part of it.
Result<CommUse> resolveForLaunch(ncclComm_t comm);

}  // namespace tutti
