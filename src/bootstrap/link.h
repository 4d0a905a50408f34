// An authenticated connection that carries frames, watched by the service thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/io_service.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace tutti {

/// Sends without blocking (what the socket does not take is queued) and hands every frame that comes to a
/// callback. Thread-safe. Keeps itself alive until the connection is closed, by either side.
class Link : public std::enable_shared_from_this<Link> {
 public:
  /// Called on the service thread, with nothing locked; must not block.
  struct Callbacks {
    std::function<void(uint16_t type, std::string body)> onFrame;
    /// The connection has ended, with why. Called once, unless close() came first; no frame comes after it.
    std::function<void(const Status& why)> onClosed;
  };

  static constexpr uint32_t kMaxFrame = 64u << 20;

  static Result<std::shared_ptr<Link>> open(UniqueFd fd, Callbacks callbacks);

  /// Queues a frame; an error when the link is closed or finishing.
  Status send(uint16_t type, std::string_view body);
  /// No more sends: flushes, closes this direction, and waits for the peer to close its own, `limit` at most;
  /// then onClosed is called. Returns at once.
  void finish(std::chrono::milliseconds limit);
  /// Closes now. After it returns no callback is running (unless called from one) or will run.
  void close();

  bool closed() const;
  size_t queuedBytes() const;

 private:
  Link(UniqueFd fd, Callbacks callbacks) : fd_(std::move(fd)), callbacks_(std::move(callbacks)) {}
  void ready(uint32_t events);
  Status readFrames();
  void flushLocked();
  void end(const Status& why);

  mutable std::mutex mutex_;  // guards fd_, out_ and the flags; never held while a callback runs
  UniqueFd fd_;
  std::string out_;
  size_t outDone_ = 0;
  bool finishing_ = false;
  bool halfClosed_ = false;
  bool closed_ = false;
  IoService::Id watch_ = 0;
  IoService::Id timer_ = 0;

  Callbacks callbacks_;  // used by the service thread only
  std::string in_;       // likewise
};

}  // namespace tutti
