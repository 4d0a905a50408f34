// connectAuthenticated (base/handshake.h) for those who must not block: the same exchange, on the service
// thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/handshake.h"

namespace tutti {

/// One connection in the making. Tries the addresses in turn, and all of them again as `retry` says.
class AuthConnector {
 public:
  /// Called once, on the service thread, unless the connector is destroyed before. Must not block and must
  /// not destroy the connector. The socket is non-blocking; the caller may send at once.
  using Done = std::function<void(Result<UniqueFd>)>;

  static Result<std::unique_ptr<AuthConnector>> start(const std::vector<SocketAddress>& addresses,
                                                      uint64_t service, const Secret& secret,
                                                      std::string payload, RetryPolicy retry, Done done);
  /// Gives up. After it returns `done` isn't running and will not run.
  ~AuthConnector();
  AuthConnector(const AuthConnector&) = delete;
  AuthConnector& operator=(const AuthConnector&) = delete;

  /// True once `done` has been called or is about to be.
  bool finished() const;

 private:
  struct State;
  explicit AuthConnector(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

}  // namespace tutti
