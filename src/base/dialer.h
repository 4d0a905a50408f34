// One connection in the making, to a listener that has several addresses of which some may lead nowhere.
//
//   ms   0        200  250  300 ...
//        |         |    |    |
//        first --connect--------------------hello--------challenge==> proof: this one is taken, the others
//        end
//                 second --connect--hello--
//                      third --connect--refused--pause--connect--
//
// Each address has its own tries. The first one gets a head start, since it usually answers; the others
// follow one soon after the other, and at once when one has failed. So an address from which nothing ever
// comes back costs a fraction of a second, not a time-out. (RFC 8305, "Happy Eyeballs", does the same for web
// browsers.) Only the first that proves to be the right listener gets our proof: the listener never sees two
// connections.
#pragma once

#include <chrono>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/handshake.h"
#include "base/io_service.h"

namespace tutti {

/// Not thread-safe. Driven by advance(), which never blocks (AuthConnector), or by finish() and connect().
class Dialer {
 public:
  using Clock = std::chrono::steady_clock;

  struct Request {
    std::vector<SocketAddress> addresses;  // best first; those known to work are tried before
    uint64_t service = 0;
    Secret secret;
    std::string payload;
    RetryPolicy retry;                                       // for each address
    int64_t refusals = std::numeric_limits<int64_t>::max();  // so often it is tried again after a refusal
    bool serviceMayCome = false;  // a listener that does not know the service is asked again
    bool guardOverFork = false;   // see IoService::guardOverFork; only where the service thread runs anyway
  };

  static Result<std::unique_ptr<Dialer>> start(Request request);
  ~Dialer();
  Dialer(const Dialer&) = delete;
  Dialer& operator=(const Dialer&) = delete;

  /// Readable (poll, epoll) when advance() has something to do.
  int descriptor() const { return epoll_.get(); }
  /// When advance() must be called at the latest.
  Clock::time_point wake() const;
  /// Does what can be done now. Empty: it goes on. Else the outcome, a non-blocking socket or the error; not
  /// to be called again.
  std::optional<Result<UniqueFd>> advance();
  /// advance(), and waits in between, until there is an outcome. Empty: the deadline has passed, or `faults`
  /// (may be null) have stopped. Blocks.
  std::optional<Result<UniqueFd>> finish(Deadline deadline, const FaultState* faults);
  /// finish(), where giving up is an error as well.
  Result<UniqueFd> connect(Deadline deadline, const FaultState* faults);

  /// Why there is no connection so far: each address (a few of them, when there are many) with what came of
  /// it.
  Status trouble() const;
  /// The same as the error of who gives up.
  Status timedOut() const;
  /// After an outcome that is an error: whether the target is not there any more. Its best address has said
  /// so (nobody listens, or what listens does not know the service), and nothing is open about the others.
  bool turnedAway() const;

 private:
  struct Route;
  explicit Dialer(Request request);
  void harvest();
  void begin(Route& route);
  void ready(Route& route);
  void failed(Route& route, const Status& why, bool hopeless = false);
  void close(Route& route);
  Status sendHello(Route& route);
  Result<bool> readAnswer(Route& route, bool& hopeless);
  Result<bool> checkAnswer(Route& route, uint16_t type, const std::string& body, bool& hopeless);
  int64_t tries() const;

  Request request_;
  std::vector<Route> routes_;
  UniqueFd epoll_;
  UniqueFd taken_;
};

/// Tells all dialers of this process that an address has led to its listener. They try it first.
void addressWorks(const SocketAddress& address);

}  // namespace tutti
