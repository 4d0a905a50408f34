#include "base/auth_connector.h"

#include <sys/epoll.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

namespace tutti {
namespace {

/// After this time somebody should hear what hinders the connection.
constexpr std::chrono::seconds kSlowAfter{3};

}  // namespace

/// Runs on the service thread; the mutex is there for destruction by another one. Kept alive by the handlers
/// that are registered.
struct AuthConnector::State : std::enable_shared_from_this<AuthConnector::State> {
  using Clock = std::chrono::steady_clock;

  mutable std::mutex mutex;
  std::unique_ptr<Dialer> dialer;
  Deadline deadline = Deadline::never();
  Done done;
  Slow slow;
  Clock::time_point slowAt = Clock::now() + kSlowAfter;

  bool ended = false;  // done is called, or must not be
  bool turnedAway = false;
  IoService::Id watch = 0;
  IoService::Id timer = 0;
  IoService::Id previousTimer = 0;  // its handler may still be on its way out

  /// Something has happened, or it is time.
  void run() {
    std::optional<Result<UniqueFd>> outcome;
    Status trouble;
    {
      const std::lock_guard lock(mutex);
      if (ended) return;
      outcome = step();
      if (!outcome && Clock::now() >= slowAt) {
        slowAt = Clock::time_point::max();
        trouble = dialer->trouble();
      }
      if (!outcome) outcome = wait();
      if (outcome) {
        ended = true;
        turnedAway = !outcome->isOk() && dialer->turnedAway();
        ioService().remove(watch);
        ioService().remove(timer);
        dialer.reset();
      }
    }
    if (outcome) {
      done(std::move(*outcome));
    } else if (!trouble.isOk() && slow) {
      slow(trouble);
    }
  }

  std::optional<Result<UniqueFd>> step() {
    auto outcome = dialer->advance();
    if (!outcome && deadline.passed()) return dialer->timedOut();
    return outcome;
  }

  /// Sets the timer for the next step. Locked.
  std::optional<Result<UniqueFd>> wait() {
    ioService().remove(timer);
    auto next = std::min(dialer->wake(), slowAt);
    if (!deadline.isNever()) next = std::min(next, deadline.at());
    const auto delay = std::chrono::ceil<std::chrono::microseconds>(next - Clock::now());
    auto added = ioService().addTimer(std::max(delay, std::chrono::microseconds(0)),
                                      [self = shared_from_this()] { self->run(); });
    if (!added.isOk()) return added.status();
    previousTimer = timer;
    timer = *added;
    return std::nullopt;
  }
};

Result<std::unique_ptr<AuthConnector>> AuthConnector::start(Dialer::Request request, Deadline deadline,
                                                            Done done, Slow slow) {
  auto state = std::make_shared<State>();
  request.guardOverFork = true;
  TUTTI_ASSIGN(state->dialer, Dialer::start(std::move(request)));
  state->deadline = deadline;
  state->done = std::move(done);
  state->slow = std::move(slow);
  std::unique_ptr<AuthConnector> connector(new AuthConnector(state));  // cleans up when the rest fails
  Status failure;
  {
    const std::lock_guard lock(state->mutex);  // run() waits until both ids are known
    auto watch = ioService().add(state->dialer->descriptor(), EPOLLIN, [state](uint32_t) { state->run(); });
    if (watch.isOk()) state->watch = *watch;
    failure = watch.status();
    if (failure.isOk())
      if (const auto failed = state->wait()) failure = failed->status();
    if (failure.isOk()) return connector;
  }
  return failure;
}

AuthConnector::~AuthConnector() {
  IoService::Id ids[3] = {};
  std::unique_ptr<Dialer> dialer;
  {
    const std::lock_guard lock(state_->mutex);
    state_->ended = true;
    ids[0] = state_->watch;
    ids[1] = state_->timer;
    ids[2] = state_->previousTimer;
    dialer = std::move(state_->dialer);
  }
  // A handler that runs now either sees `ended`, or is in done() or slow(): then its id is one of these, and
  // remove() waits for it. The dialer, and so the watched descriptor, goes after that.
  for (const IoService::Id id : ids) ioService().remove(id);
}

bool AuthConnector::finished() const {
  const std::lock_guard lock(state_->mutex);
  return state_->ended;
}

bool AuthConnector::turnedAway() const {
  const std::lock_guard lock(state_->mutex);
  return state_->turnedAway;
}

}  // namespace tutti
