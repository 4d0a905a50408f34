#include "base/auth_connector.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <optional>
#include <utility>

#include "base/handshake_messages.h"
#include "base/log.h"
#include "base/random.h"

namespace tutti {
namespace {

constexpr std::chrono::milliseconds kAttemptLimit{10000};

}  // namespace

/// Runs on the service thread; the mutex is there for destruction by another one. Kept alive by the handlers
/// that are registered.
struct AuthConnector::State : std::enable_shared_from_this<AuthConnector::State> {
  using Outcome = std::optional<Result<UniqueFd>>;  // empty: goes on

  mutable std::mutex mutex;
  std::vector<SocketAddress> addresses;
  uint64_t service = 0;
  Secret secret;
  std::string payload;
  RetryPolicy retry;
  Done done;

  bool ended = false;  // done is called, or must not be
  size_t index = 0;    // of the address being tried
  int64_t round = 0;
  UniqueFd fd;
  IoService::Id watch = 0;
  IoService::Id timer = 0;
  bool helloSent = false;
  std::string helloBody;
  std::string input;
  Status last;
  Status refusal;  // of a listener that is the right one: says more than what other addresses lead to

  /// One step of the machine: `step` runs with the lock, `done` without it.
  template <typename Step>
  void run(Step&& step) {
    Outcome outcome;
    {
      const std::lock_guard lock(mutex);
      if (ended) return;
      outcome = step();
      if (!outcome) return;
      ended = true;
    }
    done(std::move(*outcome));
  }

  Outcome tryNext() {
    for (; index < addresses.size(); ++index) {
      auto started = startConnect(addresses[index]);
      if (!started.isOk()) {
        last = started.status();
        continue;
      }
      fd = std::move(started).value();
      helloSent = false;
      input.clear();
      auto added = ioService().add(fd.get(), EPOLLOUT, [self = shared_from_this()](uint32_t) {
        self->run([&] { return self->ready(); });
      });
      if (!added.isOk()) return added.status();
      watch = *added;
      return setTimer(patience(), [](State& self) {
        return self.attemptFailed(
            remoteError("connect to {}: no answer in time", self.addresses[self.index].text()));
      });
    }
    return roundFailed();
  }

  /// The first rounds are quick, so that an address that leads nowhere costs little when there are others.
  std::chrono::milliseconds patience() const {
    if (addresses.size() == 1) return kAttemptLimit;
    return std::min(kAttemptLimit, std::chrono::milliseconds(1000) * (round + 1));
  }

  Outcome setTimer(std::chrono::microseconds delay, Outcome (*then)(State&)) {
    auto added = ioService().addTimer(
        delay, [self = shared_from_this(), then] { self->run([&] { return then(*self); }); });
    if (!added.isOk()) return added.status();
    timer = *added;
    return std::nullopt;
  }

  Outcome roundFailed() {
    const Status& why = refusal.isOk() ? last : refusal;
    if (addresses.empty()) return why;
    if (!retry.untilDeadline && round >= retry.retries) return why.withContext("after {} tries", round + 1);
    ++round;
    const int64_t pause = std::min<int64_t>(retry.pauseMs * round, 1000);
    return setTimer(std::chrono::milliseconds(pause), [](State& self) {
      self.index = 0;
      return self.tryNext();
    });
  }

  Outcome attemptFailed(const Status& why, bool hopeless = false) {
    ioService().remove(watch);
    ioService().remove(timer);
    fd.reset();
    last = why;
    logTrace(Subsystem::net, "{}", why.message());
    if (hopeless) {
      addresses.erase(addresses.begin() + static_cast<std::ptrdiff_t>(index));
    } else {
      ++index;
    }
    return tryNext();
  }

  /// The socket is connected (or failed), or has something to read.
  Outcome ready() {
    const std::string where = addresses[index].text();
    if (!helloSent) {
      if (const int error = connectError(fd.get()); error != 0)
        return attemptFailed(systemError(error, "connect to {}", where));
      tuneConnection(fd.get());
      if (Status status = sendHello(); !status.isOk())
        return attemptFailed(status.withContext("handshake with {}", where));
      helloSent = true;
      ioService().modify(watch, EPOLLIN);
      return std::nullopt;
    }
    bool hopeless = false;
    auto proven = readAnswer(hopeless);
    if (!proven.isOk())
      return attemptFailed(proven.status().withContext("handshake with {}", where), hopeless);
    if (!*proven) return std::nullopt;
    ioService().remove(watch);
    ioService().remove(timer);
    return std::move(fd);
  }

  Status sendHello() {
    HelloMessage hello;
    hello.service = service;
    hello.payload = payload;
    TUTTI_TRY(randomBytes(hello.nonce.data(), hello.nonce.size()));
    helloBody = hello.encode();
    return sendNow(makeFrame(kHelloFrame, helloBody));
  }

  /// The first few kilobytes on a new connection always find room.
  Status sendNow(const std::string& bytes) { return sendAll(fd.get(), bytes, Deadline::after({}), nullptr); }

  /// True when the listener has proved itself and our proof is sent; false when more must come.
  Result<bool> readAnswer(bool& hopeless) {
    for (;;) {
      size_t wanted = FrameHeader::kBytes;
      FrameHeader header;
      if (input.size() >= wanted) {
        TUTTI_ASSIGN(header, FrameHeader::decode(std::string_view(input).substr(0, wanted), kMaxRejectBytes));
        wanted += header.length;
        if (input.size() >= wanted)
          return checkAnswer(header.type, input.substr(FrameHeader::kBytes), hopeless);
      }
      std::array<char, FrameHeader::kBytes + kMaxRejectBytes> buffer;
      const ssize_t got = ::recv(fd.get(), buffer.data(), wanted - input.size(), MSG_DONTWAIT);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) return false;
      if (got < 0) return systemError(errno, "receive");
      if (got == 0) return remoteError("closed by the listener");
      input.append(buffer.data(), static_cast<size_t>(got));
    }
  }

  Result<bool> checkAnswer(uint16_t type, const std::string& body, bool& hopeless) {
    if (type == kRejectFrame) {
      refusal = remoteError("{} refused: {}", addresses[index].text(), body);
      return refusal;
    }
    ChallengeMessage challenge;
    if (type != kChallengeFrame || !challenge.decode(body))
      return remoteError("the answer is no challenge (frame type {}, {} bytes)", type, body.size());
    if (!equalInConstantTime(challenge.proof, proofOf(secret, "listener", helloBody, challenge.nonce))) {
      hopeless = true;
      return remoteError("the listener does not know this job's secret");
    }
    TUTTI_TRY(sendNow(makeFrame(kProofFrame, proofOf(secret, "connector", helloBody, challenge.nonce))));
    return true;
  }
};

Result<std::unique_ptr<AuthConnector>> AuthConnector::start(const std::vector<SocketAddress>& addresses,
                                                            uint64_t service, const Secret& secret,
                                                            std::string payload, RetryPolicy retry,
                                                            Done done) {
  if (addresses.empty()) return invalidArgument("connect: no address is known");
  if (payload.size() > kMaxHelloPayload)
    return internalError("handshake payload of {} bytes", payload.size());
  auto state = std::make_shared<State>();
  state->addresses = addresses;
  state->service = service;
  state->secret = secret;
  state->payload = std::move(payload);
  state->retry = retry;
  state->done = std::move(done);
  const std::lock_guard lock(state->mutex);
  if (auto failed = state->setTimer({}, [](State& self) { return self.tryNext(); })) return failed->status();
  return std::unique_ptr<AuthConnector>(new AuthConnector(state));
}

AuthConnector::~AuthConnector() {
  IoService::Id watch = 0;
  IoService::Id timer = 0;
  {
    const std::lock_guard lock(state_->mutex);
    state_->ended = true;
    watch = state_->watch;
    timer = state_->timer;
  }
  // A handler that runs now either sees `ended`, or is in done() and has registered nothing since: then its
  // id is one of these two, and remove() waits for it.
  ioService().remove(watch);
  ioService().remove(timer);
}

bool AuthConnector::finished() const {
  const std::lock_guard lock(state_->mutex);
  return state_->ended;
}

}  // namespace tutti
