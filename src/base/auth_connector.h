// connectAuthenticated (base/handshake.h) for those who must not block: the same, on the service thread.
#pragma once

#include <functional>
#include <memory>

#include "base/dialer.h"

namespace tutti {

/// One connection in the making.
class AuthConnector {
 public:
  /// Called once, on the service thread, unless the connector is destroyed before. Must not block and must
  /// not destroy the connector. The socket is non-blocking; the caller may send at once.
  using Done = std::function<void(Result<UniqueFd>)>;
  /// Called on the service thread when there is no connection after some time, with what hinders it.
  using Slow = std::function<void(const Status& trouble)>;

  static Result<std::unique_ptr<AuthConnector>> start(Dialer::Request request, Deadline deadline, Done done,
                                                      Slow slow = {});
  /// Gives up. After it returns neither function is running and none will run.
  ~AuthConnector();
  AuthConnector(const AuthConnector&) = delete;
  AuthConnector& operator=(const AuthConnector&) = delete;

  /// True once `done` has been called or is about to be.
  bool finished() const;
  /// From `done` on: Dialer::turnedAway.
  bool turnedAway() const;

 private:
  struct State;
  explicit AuthConnector(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

}  // namespace tutti
