// The listening end of the handshake.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/handshake.h"
#include "base/handshake_messages.h"
#include "base/identity.h"
#include "base/log.h"
#include "base/params.h"
#include "base/random.h"

namespace tutti {

namespace {

/// Strangers must not use up the descriptors that the job needs: a process has two listeners at most, so half
/// of its limit stays free.
AuthListener::Limits limitsOfProcess() {
  AuthListener::Limits limits;
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) == 0 && descriptors.rlim_cur != RLIM_INFINITY)
    limits.unproven = std::clamp<size_t>(descriptors.rlim_cur / 4, 8, limits.unproven);
  return limits;
}

}  // namespace

/// One offered service. `mutex` is held while its handler runs, so that withdraw() can wait for it;
/// recursive, since the handler itself may withdraw.
struct AuthListener::Service {
  Secret secret;
  Handler handler;
  std::recursive_mutex mutex;
  bool withdrawn = false;
};

/// A connection in the middle of its handshake. Touched by the service thread only, apart from `watch` and
/// `timer`, which are set before it can run.
struct AuthListener::Pending {
  enum class Stage { hello, proof, rejected };

  AcceptedConnection connection;
  std::shared_ptr<Service> service;
  IoService::Id watch = 0;
  IoService::Id timer = 0;
  Stage stage = Stage::hello;
  std::string in;
  std::string out;  // not sent yet
  std::string helloBody;
  Nonce nonce{};
  std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();

  /// Reads until `in` holds a whole frame of `type`. True: it does; its body is in `body`.
  Result<bool> readFrame(uint16_t type, uint32_t maxLength, std::string& body);
  Status flush();
};

Result<bool> AuthListener::Pending::readFrame(uint16_t type, uint32_t maxLength, std::string& body) {
  for (;;) {
    size_t want = FrameHeader::kBytes;
    if (in.size() >= want) {
      TUTTI_ASSIGN(const FrameHeader header,
                   FrameHeader::decode(std::string_view(in).substr(0, want), maxLength));
      if (header.type != type) return remoteError("message of type {}, expected {}", header.type, type);
      want += header.length;
      if (in.size() == want) {
        body = in.substr(FrameHeader::kBytes);
        in.clear();
        return true;
      }
    } else if (in.size() >= 4 && std::string_view(in).substr(0, 4) != FrameHeader{}.encode().substr(0, 4)) {
      // Known to be something else before 16 bytes have come; decode() finds the words.
      return FrameHeader::decode(in, maxLength).status();
    }
    // Never more than this frame: what follows belongs to the service.
    char chunk[1024];
    const ssize_t got =
        ::recv(connection.fd.get(), chunk, std::min(sizeof chunk, want - in.size()), MSG_DONTWAIT);
    if (got > 0) {
      in.append(chunk, static_cast<size_t>(got));
    } else if (got == 0) {
      if (in.empty()) return remoteError("closed without a word");
      return remoteError("closed in the middle of a message, after \"{}\"",
                         in.substr(0, 4) == "TUTI" ? "TUTI..." : in.substr(0, 16));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return false;
    } else if (errno != EINTR) {
      return systemError(errno, "receive");
    }
  }
}

Status AuthListener::Pending::flush() {
  while (!out.empty()) {
    const ssize_t sent = ::send(connection.fd.get(), out.data(), out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      out.erase(0, static_cast<size_t>(sent));
    } else if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return Status::ok();
    } else if (sent < 0 && errno != EINTR) {
      return systemError(errno, "send");
    }
  }
  return Status::ok();
}

Result<std::shared_ptr<AuthListener>> AuthListener::listen(const std::vector<SocketAddress>& addresses) {
  return listen(addresses, limitsOfProcess());
}

Result<std::shared_ptr<AuthListener>> AuthListener::listen(const std::vector<SocketAddress>& addresses,
                                                           Limits limits) {
  std::shared_ptr<AuthListener> listener(new AuthListener);
  listener->limits_ = limits;
  TUTTI_TRY(listener->open(addresses));
  for (const Socket& socket : listener->sockets_)
    listener->addresses_.push_back(localAddress(socket.fd.get()));
  TUTTI_TRY(listener->startAccepting());
  return listener;
}

Result<std::shared_ptr<AuthListener>> AuthListener::listenWhereItCan(
    const std::vector<SocketAddress>& addresses) {
  std::shared_ptr<AuthListener> listener(new AuthListener);
  Status last = invalidArgument("listen: no address was given");
  for (const SocketAddress& address : addresses) {
    const size_t before = listener->sockets_.size();
    if (Status status = listener->open({address}); !status.isOk() && before == 0) last = status;
  }
  if (listener->sockets_.empty()) return last;
  for (const Socket& socket : listener->sockets_)
    listener->addresses_.push_back(localAddress(socket.fd.get()));
  TUTTI_TRY(listener->startAccepting());
  return listener;
}

Result<std::shared_ptr<AuthListener>> AuthListener::ofProcess() {
  static std::mutex* const kMutex = new std::mutex;
  static std::weak_ptr<AuthListener>* const kListener = new std::weak_ptr<AuthListener>;
  static uint64_t owner = 0;
  constexpr size_t kMaxAddresses = 32;
  const std::lock_guard lock(*kMutex);
  std::shared_ptr<AuthListener> existing = owner == forkCount() ? kListener->lock() : nullptr;
  auto usable = usableInterfaces(interfaceRulesFromParams(true));
  const auto noneLeft = [](const auto& all) {
    return std::all_of(all.begin(), all.end(), [](const auto& i) { return i.address.isLoopback(); });
  };
  const auto isLoopback = [](const SocketAddress& address) { return address.isLoopback(); };
  // A network that is gone, or seems to be, may come back: nobody elsewhere could use `lo` in its place.
  if (existing &&
      (!usable.isOk() || (noneLeft(*usable) && !std::all_of(existing->interfaces_.begin(),
                                                            existing->interfaces_.end(), isLoopback))))
    return existing;
  TUTTI_ASSIGN(std::vector<NetworkInterface> interfaces, std::move(usable));
  if (interfaces.size() > kMaxAddresses) {
    logWarn("{} addresses fit NCCL_SOCKET_IFNAME; peers are told of the first {}, up to {} {}",
            interfaces.size(), kMaxAddresses, interfaces[kMaxAddresses - 1].name,
            interfaces[kMaxAddresses - 1].address.hostText());
    interfaces.resize(kMaxAddresses);
  }
  if (existing &&
      std::equal(interfaces.begin(), interfaces.end(), existing->interfaces_.begin(),
                 existing->interfaces_.end(), [](const NetworkInterface& i, const SocketAddress& a) {
                   return i.address == a && i.address.scope() == a.scope();
                 }))
    return existing;
  std::shared_ptr<AuthListener> listener(new AuthListener);
  listener->limits_ = limitsOfProcess();
  TUTTI_TRY(listener->openInterfaces(interfaces));
  TUTTI_TRY(listener->startAccepting());
  *kListener = listener;
  owner = forkCount();
  return listener;
}

Status AuthListener::openInterfaces(const std::vector<NetworkInterface>& interfaces) {
  if (interfaces.size() == 1) {
    TUTTI_TRY(open({interfaces[0].address}));
  } else {
    // One socket for each family; connections by way of other interfaces are turned away when they come.
    std::vector<SocketAddress> wildcards;
    for (const int family : {AF_INET, AF_INET6})
      if (std::any_of(interfaces.begin(), interfaces.end(),
                      [&](const auto& i) { return i.address.family() == family; }))
        wildcards.push_back(SocketAddress::any(family, 0));
    TUTTI_TRY(open(wildcards));
    onlyListed_ = true;
  }
  for (const NetworkInterface& interface : interfaces) {
    interfaces_.push_back(interface.address);
    for (const Socket& socket : sockets_) {
      const SocketAddress bound = localAddress(socket.fd.get());
      if (bound.family() != interface.address.family()) continue;
      SocketAddress address = interface.address;
      address.setPort(bound.port());
      addresses_.push_back(address);
    }
    logInfo(Subsystem::init, "Bootstrap: using {} {}", interface.name, addresses_.back().text());
  }
  return Status::ok();
}

Status AuthListener::open(const std::vector<SocketAddress>& addresses) {
  for (const SocketAddress& address : addresses) {
    TUTTI_ASSIGN(UniqueFd fd, listenOn(address));
    Socket socket;
    socket.fd = std::move(fd);
    sockets_.push_back(std::move(socket));
  }
  return sockets_.empty() ? invalidArgument("listen: no address was given") : Status::ok();
}

Status AuthListener::startAccepting() {
  anchor_.reset(::eventfd(0, EFD_CLOEXEC));
  if (anchor_) spare_.reset(::fcntl(anchor_.get(), F_DUPFD_CLOEXEC, 0));
  if (!spare_) return systemError(errno, "listen: a spare descriptor");
  for (size_t i = 0; i < sockets_.size(); ++i) {
    TUTTI_ASSIGN(const IoService::Id id,
                 ioService().add(sockets_[i].fd.get(), EPOLLIN, [weak = weak_from_this(), i](uint32_t) {
                   if (auto self = weak.lock()) self->acceptAll(i);
                 }));
    const std::lock_guard lock(mutex_);
    sockets_[i].handler = id;
  }
  return Status::ok();
}

AuthListener::~AuthListener() {
  // Handlers hold weak pointers only, so none of them is inside this object any more.
  for (Socket& socket : sockets_) {
    ioService().remove(socket.resume);
    ioService().remove(socket.handler);
  }
  for (auto& [key, pending] : pending_) {
    ioService().remove(pending->timer);
    ioService().remove(pending->watch);
  }
}

Status AuthListener::offer(uint64_t service, const Secret& secret, Handler handler) {
  auto entry = std::make_shared<Service>();
  entry->secret = secret;
  entry->handler = std::move(handler);
  const std::lock_guard lock(mutex_);
  if (!services_.emplace(service, std::move(entry)).second)
    return internalError("service {:016x} is already offered here", service);
  return Status::ok();
}

void AuthListener::withdraw(uint64_t service) {
  std::shared_ptr<Service> entry;
  {
    const std::lock_guard lock(mutex_);
    const auto found = services_.find(service);
    if (found == services_.end()) return;
    entry = std::move(found->second);
    services_.erase(found);
  }
  const std::lock_guard lock(entry->mutex);
  entry->withdrawn = true;
}

size_t AuthListener::unproven() const {
  const std::lock_guard lock(mutex_);
  return pending_.size();
}

void AuthListener::acceptAll(size_t index) {
  for (int i = 0; i < 64; ++i) {  // then others get their turn; epoll calls again
    std::string refusal;
    auto accepted = acceptOne(index, &refusal);
    if (!accepted.isOk()) {
      pauseAccepting(index, accepted.status());
      return;
    }
    if (!*accepted) return;
    auto pending = std::make_shared<Pending>();
    pending->connection.fd = std::move(*accepted);
    pending->connection.peer = peerAddress(pending->connection.fd.get());
    pending->connection.local = localAddress(pending->connection.fd.get());
    const SocketAddress& local = pending->connection.local;
    if (onlyListed_ && std::none_of(addresses_.begin(), addresses_.end(),
                                    [&](const SocketAddress& a) { return a.sameHost(local); })) {
      logInfo(Subsystem::bootstrap,
              "connection from {} dropped: it came to {}, which is not an interface in use",
              pending->connection.peer.text(), local.text());
      continue;
    }
    if (!refusal.empty()) {
      pending->out = makeFrame(kRejectFrame, refusal.substr(0, kMaxRejectBytes));
      pending->stage = Pending::Stage::rejected;
    }
    startHandshake(std::move(pending));
  }
}

/// As acceptFrom. Where there is no descriptor left, one connection at a time is taken in order to be
/// refused.
Result<UniqueFd> AuthListener::acceptOne(size_t index, std::string* refusal) {
  if (!spare_) spare_.reset(::fcntl(anchor_.get(), F_DUPFD_CLOEXEC, 0));
  auto accepted = acceptFrom(sockets_[index].fd.get());
  if (accepted.isOk() || !spare_) return accepted;
  *refusal = fmt::format("process {} of host {} takes no more connections: {}", ::getpid(), hostName(),
                         accepted.status().message());
  spare_.reset();
  return acceptFrom(sockets_[index].fd.get());
}

void AuthListener::startHandshake(std::shared_ptr<Pending> pending) {
  evictOldest();
  uint64_t key = 0;
  {
    const std::lock_guard lock(mutex_);
    key = nextKey_++;
    pending_.emplace(key, pending);
  }
  // On the service thread: neither handler can run before this function returns.
  auto watch =
      ioService().add(pending->connection.fd.get(), pending->out.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT,
                      [weak = weak_from_this(), key](uint32_t) {
                        if (auto self = weak.lock()) self->advance(key);
                      });
  auto timer = ioService().addTimer(limits_.proof, [weak = weak_from_this(), key] {
    if (auto self = weak.lock()) self->drop(key, "no proof within the time limit");
  });
  if (watch.isOk()) pending->watch = *watch;
  if (timer.isOk()) pending->timer = *timer;
  if (!watch.isOk() || !timer.isOk())
    drop(key, "cannot be watched: " + watch.status().message() + timer.status().message());
}

/// Out of descriptors (or memory): the connection stays in the backlog; looking at once again would burn a
/// core.
void AuthListener::pauseAccepting(size_t index, const Status& why) {
  constexpr auto kBetweenComplaints = std::chrono::seconds(5);
  const auto now = std::chrono::steady_clock::now();
  if (now - complained_ > kBetweenComplaints) {
    complained_ = now;
    logWarn("{}: connections are refused, or wait until a descriptor is free", why.message());
  }
  watchSocket(index, 0);
  auto timer = ioService().addTimer(std::chrono::milliseconds(100), [weak = weak_from_this(), index] {
    if (auto self = weak.lock()) self->watchSocket(index, EPOLLIN);
  });
  if (!timer.isOk()) {
    watchSocket(index, EPOLLIN);
    return;
  }
  const std::lock_guard lock(mutex_);
  sockets_[index].resume = *timer;
}

void AuthListener::watchSocket(size_t index, uint32_t events) {
  const std::lock_guard lock(mutex_);
  ioService().modify(sockets_[index].handler, events);
}

/// Service thread. Who has named a service that is offered here (a random number) is hardly a stranger, and
/// once its proof is under way it takes itself for connected: such a one goes last. A peer that goes before
/// tries again.
void AuthListener::evictOldest() {
  uint64_t oldest = 0;
  bool named = true;  // whether that one has
  {
    const std::lock_guard lock(mutex_);
    if (pending_.size() < limits_.unproven) return;
    for (const auto& [key, pending] : pending_) {
      const bool hasNamed = pending->stage == Pending::Stage::proof;
      if (oldest != 0 && (hasNamed != named ? hasNamed : key > oldest)) continue;
      oldest = key;
      named = hasNamed;
    }
  }
  drop(oldest, "too many connections without proof; this was the oldest");
}

std::shared_ptr<AuthListener::Pending> AuthListener::forget(uint64_t key) {
  std::shared_ptr<Pending> pending;
  {
    const std::lock_guard lock(mutex_);
    const auto found = pending_.find(key);
    if (found == pending_.end()) return nullptr;
    pending = std::move(found->second);
    pending_.erase(found);
  }
  ioService().remove(pending->timer);
  ioService().remove(pending->watch);
  return pending;
}

void AuthListener::drop(uint64_t key, const std::string& why) {
  const std::shared_ptr<Pending> pending = forget(key);
  if (!pending) return;
  if (pending->stage != Pending::Stage::rejected)
    logInfo(Subsystem::bootstrap, "connection from {} dropped: {}", pending->connection.peer.text(), why);
  if (spare_ || pending->stage != Pending::Stage::rejected) return;
  // Its descriptor lets in the next one: replaced, not closed, so that no other thread gets it in between.
  const int fd = pending->connection.fd.release();
  spare_.reset(::dup3(anchor_.get(), fd, O_CLOEXEC));
  if (!spare_) ::close(fd);
  for (size_t i = 0; i < sockets_.size(); ++i) watchSocket(i, EPOLLIN);
}

void AuthListener::advance(uint64_t key) {
  std::shared_ptr<Pending> pending;
  {
    const std::lock_guard lock(mutex_);
    const auto found = pending_.find(key);
    if (found == pending_.end()) return;
    pending = found->second;
  }
  const Result<bool> proven = step(*pending);
  if (!proven.isOk()) {
    drop(key, proven.status().message());
  } else if (*proven) {
    forget(key);
    const std::shared_ptr<Service> service = pending->service;
    const std::lock_guard lock(service->mutex);
    if (!service->withdrawn) service->handler(std::move(pending->connection));
  } else {
    ioService().modify(pending->watch, pending->out.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT);
  }
}

/// Moves a handshake on as far as the socket allows. True: the peer has proved itself.
Result<bool> AuthListener::step(Pending& pending) {
  TUTTI_TRY(pending.flush());
  std::string body;
  if (pending.stage == Pending::Stage::hello) {
    TUTTI_ASSIGN(const bool complete,
                 pending.readFrame(kHelloFrame, kHelloFixedBytes + kMaxHelloPayload, body));
    if (!complete) return false;
    TUTTI_TRY(answerHello(pending, std::move(body)));
    TUTTI_TRY(pending.flush());
  }
  if (pending.stage == Pending::Stage::rejected) {
    char rest[64];  // wait for the peer to read the answer and close; closing first could destroy the answer
    if (::recv(pending.connection.fd.get(), rest, sizeof rest, MSG_DONTWAIT) == 0)
      return remoteError("closed after the refusal");
    return false;
  }
  TUTTI_ASSIGN(const bool complete, pending.readFrame(kProofFrame, kProofBytes, body));
  if (!complete) return false;
  if (!equalInConstantTime(body,
                           proofOf(pending.service->secret, "connector", pending.helloBody, pending.nonce)))
    return remoteError("its proof is wrong: it does not know the secret");
  return true;
}

Status AuthListener::answerHello(Pending& pending, std::string body) {
  HelloMessage hello;
  if (!hello.decode(body)) return remoteError("malformed hello of {} bytes", body.size());
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = services_.find(hello.service); found != services_.end())
      pending.service = found->second;
  }
  if (!pending.service) {
    logInfo(Subsystem::bootstrap, "connection from {} refused: nothing here answers to {:016x}",
            pending.connection.peer.text(), hello.service);
    pending.out = makeFrame(kRejectFrame,
                            std::string(kNothingHere) + " (already used, expired, or of another process)");
    pending.stage = Pending::Stage::rejected;
    return Status::ok();
  }
  pending.helloBody = std::move(body);
  pending.connection.payload = std::move(hello.payload);
  TUTTI_TRY(randomBytes(pending.nonce.data(), pending.nonce.size()));
  ChallengeMessage challenge;
  challenge.nonce = pending.nonce;
  challenge.proof = proofOf(pending.service->secret, "listener", pending.helloBody, pending.nonce);
  pending.out = makeFrame(kChallengeFrame, challenge.encode());
  pending.stage = Pending::Stage::proof;
  return Status::ok();
}

}  // namespace tutti
