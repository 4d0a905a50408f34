#include "base/dialer.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <unordered_set>
#include <utility>

#include "base/handshake_messages.h"
#include "base/log.h"
#include "base/random.h"

namespace tutti {
namespace {

/// For one try at one address, handshake included.
constexpr std::chrono::milliseconds kTryLimit{10000};
constexpr std::chrono::milliseconds kHeadStart{200};
constexpr std::chrono::milliseconds kStagger{50};
constexpr int64_t kMaxPauseMs = 1000;
/// So many addresses are named in an error.
constexpr size_t kNamed = 4;

/// Addresses with ports, so of processes, that have answered.
class WorkingAddresses {
 public:
  static WorkingAddresses& ofProcess() {
    static auto* const kAll =
        new WorkingAddresses;  // never destroyed: used by the service thread, also at exit
    return *kAll;
  }
  void add(const SocketAddress& address) {
    const std::lock_guard lock(mutex_);
    if (known_.size() >= kMost) known_.clear();  // only order is lost
    known_.insert(keyOf(address));
  }
  void remove(const SocketAddress& address) {
    const std::lock_guard lock(mutex_);
    known_.erase(keyOf(address));
  }
  void putFirst(std::vector<SocketAddress>& addresses) {
    const std::lock_guard lock(mutex_);
    std::stable_partition(addresses.begin(), addresses.end(),
                          [&](const SocketAddress& a) { return known_.count(keyOf(a)) != 0; });
  }

 private:
  static constexpr size_t kMost = 4096;
  static std::string keyOf(const SocketAddress& address) {
    return WireWriter().u32(address.scope()).raw(address.encode()).bytes();
  }
  std::mutex mutex_;
  std::unordered_set<std::string> known_;
};

}  // namespace

struct Dialer::Route {
  SocketAddress address;
  UniqueFd fd;  // while a try is under way
  IoService::Id guard = 0;
  Clock::time_point due;  // the next try, or the end of this one
  int64_t tries = 0;
  bool over = false;
  bool helloSent = false;
  bool refused = false;  // the last answer was a no
  std::string helloBody;
  std::string input;
  Status last;
};

void addressWorks(const SocketAddress& address) { WorkingAddresses::ofProcess().add(address); }

Dialer::Dialer(Request request) : request_(std::move(request)) {}

Result<std::unique_ptr<Dialer>> Dialer::start(Request request) {
  if (request.addresses.empty()) return invalidArgument("connect: no address is known");
  if (request.payload.size() > kMaxHelloPayload)
    return internalError("handshake payload of {} bytes", request.payload.size());
  WorkingAddresses::ofProcess().putFirst(request.addresses);
  std::unique_ptr<Dialer> dialer(new Dialer(std::move(request)));
  dialer->epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!dialer->epoll_) return systemError(errno, "epoll_create");
  auto due = Clock::now();
  for (const SocketAddress& address : dialer->request_.addresses) {
    Route& route = dialer->routes_.emplace_back();
    route.address = address;
    route.due = due;
    due += dialer->routes_.size() == 1 ? kHeadStart : kStagger;
  }
  return dialer;
}

Dialer::~Dialer() {
  for (Route& route : routes_) close(route);
}

Dialer::Clock::time_point Dialer::wake() const {
  auto earliest = Clock::time_point::max();
  for (const Route& route : routes_)
    if (!route.over) earliest = std::min(earliest, route.due);
  return earliest;
}

std::optional<Result<UniqueFd>> Dialer::advance() {
  harvest();
  const auto now = Clock::now();
  for (size_t i = 0; i < routes_.size() && !taken_; ++i) {
    Route& route = routes_[i];
    if (route.over || route.due > now) continue;
    if (route.fd) {
      failed(route, remoteError("{} {}: no answer in time", route.helloSent ? "handshake with" : "connect to",
                                route.address.text()));
    } else {
      begin(route);
    }
  }
  if (taken_) return std::move(taken_);
  if (std::any_of(routes_.begin(), routes_.end(), [](const Route& route) { return !route.over; }))
    return std::nullopt;
  return request_.retry.retries > 0 ? trouble().withContext("after {} tries", tries()) : trouble();
}

/// Takes what epoll knows to the routes.
void Dialer::harvest() {
  std::array<epoll_event, 16> events;
  for (;;) {
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count && !taken_; ++i) {
      Route& route = routes_[events[static_cast<size_t>(i)].data.u64];
      if (route.fd) ready(route);
    }
    if (count < static_cast<int>(events.size()) || taken_) return;
  }
}

void Dialer::begin(Route& route) {
  route.refused = false;
  auto started = startConnect(route.address);
  if (!started.isOk()) {
    const int error = errno;
    route.refused = error == ECONNREFUSED;
    // No descriptor is left: that is for the user to see, and does not go away by waiting.
    return failed(route, started.status(), error == EMFILE || error == ENFILE);
  }
  route.fd = std::move(started).value();
  route.helloSent = false;
  route.input.clear();
  route.due = Clock::now() + kTryLimit;
  epoll_event event{};
  event.events = EPOLLOUT;
  event.data.u64 = static_cast<uint64_t>(&route - routes_.data());
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, route.fd.get(), &event) != 0)
    return failed(route, systemError(errno, "watch a connection"));
  if (!request_.guardOverFork) return;
  auto guard = ioService().guardOverFork(route.fd.get());
  if (!guard.isOk()) return failed(route, guard.status());
  route.guard = *guard;
}

/// The socket is connected (or failed), or has something to read.
void Dialer::ready(Route& route) {
  if (!route.helloSent) {
    int error = connectError(route.fd.get());
    // TCP can connect a socket to itself when the target is a free port of this machine in the ephemeral
    // range.
    if (error == 0 && route.address.family() != AF_UNIX &&
        localAddress(route.fd.get()) == peerAddress(route.fd.get()))
      error = ECONNREFUSED;
    route.refused = error == ECONNREFUSED;
    if (error != 0) return failed(route, systemError(error, "connect to {}", route.address.text()));
    tuneConnection(route.fd.get());
    if (const Status status = sendHello(route); !status.isOk())
      return failed(route, status.withContext("handshake with {}", route.address.text()));
    route.helloSent = true;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = static_cast<uint64_t>(&route - routes_.data());
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, route.fd.get(), &event) != 0)
      failed(route, systemError(errno, "watch a connection"));
    return;
  }
  bool hopeless = false;
  auto proven = readAnswer(route, hopeless);
  if (!proven.isOk())
    return failed(route, proven.status().withContext("handshake with {}", route.address.text()), hopeless);
  if (!*proven) return;
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, route.fd.get(), nullptr);
  ioService().remove(route.guard);
  route.guard = 0;
  taken_ = std::move(route.fd);
  addressWorks(route.address);
}

void Dialer::close(Route& route) {
  if (route.guard != 0) ioService().remove(route.guard);
  route.guard = 0;
  route.fd.reset();  // epoll forgets it
}

void Dialer::failed(Route& route, const Status& why, bool hopeless) {
  close(route);
  logTrace(Subsystem::net, "{}", why.message());
  WorkingAddresses::ofProcess().remove(route.address);
  route.last = why;
  ++route.tries;
  const RetryPolicy& retry = request_.retry;
  route.over = hopeless || (!retry.untilDeadline && route.tries > retry.retries) ||
               (route.refused && route.tries > request_.refusals);
  const auto now = Clock::now();
  route.due = now + std::chrono::milliseconds(std::min(retry.pauseMs * route.tries, kMaxPauseMs));
  for (Route& other : routes_)
    if (other.tries == 0 && !other.fd && other.due > now) {
      other.due = now;
      return;
    }
}

Status Dialer::sendHello(Route& route) {
  HelloMessage hello;
  hello.service = request_.service;
  hello.payload = request_.payload;
  TUTTI_TRY(randomBytes(hello.nonce.data(), hello.nonce.size()));
  route.helloBody = hello.encode();
  // The first few kilobytes on a new connection always find room.
  return sendAll(route.fd.get(), makeFrame(kHelloFrame, route.helloBody), Deadline::after({}), nullptr);
}

/// True when the listener has proved itself and our proof is sent; false when more must come.
Result<bool> Dialer::readAnswer(Route& route, bool& hopeless) {
  for (;;) {
    size_t wanted = FrameHeader::kBytes;
    if (route.input.size() >= wanted) {
      TUTTI_ASSIGN(const FrameHeader header,
                   FrameHeader::decode(std::string_view(route.input).substr(0, wanted), kMaxRejectBytes));
      wanted += header.length;
      if (route.input.size() >= wanted)
        return checkAnswer(route, header.type, route.input.substr(FrameHeader::kBytes), hopeless);
    }
    std::array<char, FrameHeader::kBytes + kMaxRejectBytes> buffer;
    const ssize_t got = ::recv(route.fd.get(), buffer.data(), wanted - route.input.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return false;
    if (got == 0 || (got < 0 && errno == ECONNRESET))
      return remoteError("receive: the peer closed the connection{}", got == 0 ? "" : " (reset)");
    if (got < 0) return systemError(errno, "receive");
    route.input.append(buffer.data(), static_cast<size_t>(got));
  }
}

Result<bool> Dialer::checkAnswer(Route& route, uint16_t type, const std::string& body, bool& hopeless) {
  if (type == kRejectFrame) {
    route.refused = body.starts_with(kNothingHere);
    hopeless = !(route.refused && request_.serviceMayCome);  // a process out of descriptors stays so
    return remoteError("refused: {}", body);
  }
  ChallengeMessage challenge;
  if (type != kChallengeFrame || !challenge.decode(body))
    return remoteError("the answer is no challenge (frame type {}, {} bytes)", type, body.size());
  if (!equalInConstantTime(challenge.proof,
                           proofOf(request_.secret, "listener", route.helloBody, challenge.nonce))) {
    hopeless = true;
    return remoteError(
        "the listener does not know this job's secret (another job, or another TUTTI_SECRET_FILE)");
  }
  TUTTI_TRY(
      sendAll(route.fd.get(),
              makeFrame(kProofFrame, proofOf(request_.secret, "connector", route.helloBody, challenge.nonce)),
              Deadline::after({}), nullptr));
  return true;
}

int64_t Dialer::tries() const {
  int64_t most = 0;
  for (const Route& route : routes_) most = std::max(most, route.tries + (route.fd ? 1 : 0));
  return most;
}

std::optional<Result<UniqueFd>> Dialer::finish(Deadline deadline, const FaultState* faults) {
  for (;;) {
    if (auto outcome = advance()) return outcome;
    const Deadline limit = std::min(deadline, Deadline::at(wake()));
    if (waitFor(descriptor(), POLLIN, limit, faults).isOk()) continue;
    if (deadline.passed() || (faults != nullptr && faults->stopped())) return std::nullopt;
  }
}

Result<UniqueFd> Dialer::connect(Deadline deadline, const FaultState* faults) {
  if (auto outcome = finish(deadline, faults)) return std::move(*outcome);
  return faults != nullptr && faults->stopped() ? faults->error() : timedOut();
}

Status Dialer::trouble() const {
  std::string text;
  ncclResult_t code = ncclRemoteError;
  size_t named = 0;
  for (const Route& route : routes_) {
    if (named == kNamed) {
      text += fmt::format("; and {} more addresses", routes_.size() - named);
      break;
    }
    if (!route.last.isOk()) code = route.last.code();
    text += named == 0 ? "" : "; ";
    text += !route.last.isOk() ? route.last.message()
            : route.helloSent  ? fmt::format("handshake with {}: no answer", route.address.text())
            : route.tries == 0 && !route.fd ? fmt::format("{}: not tried", route.address.text())
                                            : fmt::format("connect to {}: no answer", route.address.text());
    ++named;
  }
  return {code, text};
}

bool Dialer::turnedAway() const {
  return routes_.front().refused &&
         std::all_of(routes_.begin(), routes_.end(), [](const Route& route) { return route.over; });
}

Status Dialer::timedOut() const { return trouble().withContext("timed out after {} tries", tries()); }

}  // namespace tutti
