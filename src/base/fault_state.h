// What is wrong with a communicator: one object, shared by every part of it that waits.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "base/log.h"
#include "base/status.h"

namespace tutti {

/// Set once, by the first part that notices a failure (dead peer, time-out, mismatch) or by ncclCommAbort;
/// read in every wait loop. Thread-safe; reading `stopped()` costs one relaxed load.
class FaultState {
 public:
  /// True once the communicator must not wait for anything any more.
  bool stopped() const { return stopped_.load(std::memory_order_acquire); }

  /// Records the first error; later ones are dropped, since they follow from it. An abort counts as an error.
  void raise(Status error) {
    bool tell = false;
    {
      const std::lock_guard lock(mutex_);
      if (error_.isOk()) {
        error_ = std::move(error);
        tell = told_;
      }
    }
    stopped_.store(true, std::memory_order_release);
    // A program that does not ask ncclCommGetAsyncError() goes on with wrong data: it shall not do so in
    // silence. (With warnings on, whoever noticed the failure has printed it.)
    if (tell && !logEnabled(LogLevel::warn, Subsystem::init)) detail::logAlways(this->error().message());
  }

  /// Whether the first error is printed whatever NCCL_DEBUG says: while operations may run, and nobody has
  /// asked for the end.
  void tellAlways(bool tell) {
    const std::lock_guard lock(mutex_);
    told_ = tell;
  }

  /// The first error, or ok.
  Status error() const {
    if (!stopped()) return Status::ok();
    const std::lock_guard lock(mutex_);
    return error_;
  }

 private:
  std::atomic<bool> stopped_{false};
  mutable std::mutex mutex_;
  Status error_;
  bool told_ = false;
};

}  // namespace tutti
