#include "transport/message_transport.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/params.h"
#include "base/random.h"
#include "base/socket.h"
#include "base/wire.h"
#include "transport/socket/connection.h"

namespace tutti {
namespace {

/// A destroyed transport waits this long for a peer that takes nothing before it drops the rest.
constexpr std::chrono::seconds kStuckLimit{60};

/// How soon messages of a thread that stopped without parking are looked after, and how often from then on.
constexpr std::chrono::milliseconds kTick{5};
constexpr std::chrono::milliseconds kAbandonedTick{50};

uint64_t keyOf(const LaneId& id, int channels) {
  const auto connection =
      (static_cast<uint64_t>(id.peer) * static_cast<uint64_t>(channels) + static_cast<uint64_t>(id.channel)) *
          kEndpointPorts +
      static_cast<uint64_t>(id.port);
  return connection * 2 + (id.sends ? 1 : 0);
}

}  // namespace

Secret transportSecret(const EndpointOptions& options) {
  Secret secret;
  static_assert(sizeof(options.secret) == sizeof(secret.bytes));
  std::memcpy(secret.bytes.data(), options.secret, sizeof(options.secret));
  return secret.derive("transport");
}

std::string MessageTransport::Address::encode() const {
  WireWriter writer;
  writer.u64(service);
  for (const SocketAddress& socket : sockets) writer.raw(socket.encode());
  return std::move(writer).bytes();
}

Result<MessageTransport::Address> MessageTransport::Address::decode(std::string_view bytes) {
  WireReader reader(bytes);
  Address address;
  address.service = reader.u64();
  std::string_view rest = reader.raw(reader.left());
  if (!reader.ok()) return internalError("malformed data address of {} bytes", bytes.size());
  while (!rest.empty()) {
    address.sockets.push_back(SocketAddress::decode(rest));
    if (!address.sockets.back().isValid())
      return internalError("malformed data address of {} bytes", bytes.size());
  }
  return address;
}

MessageTransport::MessageTransport(const std::vector<PeerInfo>& peers, int rank,
                                   const EndpointOptions& options, Doorbell* bell,
                                   std::shared_ptr<FaultState> faults)
    : peers_(peers),
      rank_(rank),
      options_(options),
      secret_(transportSecret(options)),
      bell_(bell),
      faults_(std::move(faults)) {}

MessageTransport::Turn::Turn(MessageTransport& transport) : transport_(transport) {
  transport_.waiting_.fetch_add(1, std::memory_order_seq_cst);
  transport_.mutex_.lock();
  transport_.waiting_.fetch_sub(1, std::memory_order_seq_cst);
}

MessageTransport::Turn::~Turn() {
  transport_.mutex_.unlock();
  if (!transport_.turnedAway_.exchange(false, std::memory_order_seq_cst)) return;
  const std::lock_guard lock(transport_.mutex_);
  transport_.owesPark_ = true;
  transport_.startTick(kTick);
}

Result<std::unique_ptr<MessageTransport>> MessageTransport::listen(const std::vector<PeerInfo>& peers,
                                                                   int rank, const EndpointOptions& options,
                                                                   Doorbell* bell, bool bellHasLine,
                                                                   std::shared_ptr<FaultState> faults) {
  std::unique_ptr<MessageTransport> transport(
      new MessageTransport(peers, rank, options, bell, std::move(faults)));
  TUTTI_TRY(transport->openListener().withContext("rank {}: prepare data connections", rank));
  if (bellHasLine) {
    // Without it the service thread wakes the rank.
    auto line = bell->openLine();
    if (line.isOk()) {
      transport->line_ = std::move(line).value();
    } else {
      logInfo(Subsystem::net, "rank {}: {}", rank, line.status().message());
    }
  }
  return transport;
}

Status MessageTransport::openListener() {
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return systemError(errno, "epoll_create");
  TUTTI_ASSIGN(watch_, ioService().add(epoll_.get(), 0, [this](uint32_t) { onServiceThread(); }));
  TUTTI_ASSIGN(listener_, AuthListener::ofProcess());
  TUTTI_ASSIGN(service_, randomU64());
  return listener_->offer(service_, secret_,
                          [this](AcceptedConnection connection) { accepted(std::move(connection)); });
}

MessageTransport::~MessageTransport() {
  deliverPending();
  IoService::Id ticks[2] = {};
  {
    const Turn turn(*this);
    closing_ = true;
    ticks[0] = tick_;
    ticks[1] = previousTick_;
  }
  if (listener_ && service_ != 0) listener_->withdraw(service_);
  connectors_.clear();
  for (const IoService::Id tick : ticks) ioService().remove(tick);
  ioService().remove(watch_);
  for (NetLane* lane : connected_) {
    ioService().remove(lane->guard());
    if (!lane->failed()) lane->connection()->sayGoodbye();
  }
}

MessageTransport::Address MessageTransport::address() const { return {listener_->addresses(), service_}; }

std::string MessageTransport::describePeer(int peer) const {
  const PeerInfo& info = peers_[static_cast<size_t>(peer)];
  return fmt::format("rank {} (host {}, process {})", peer, info.hostName, info.pid);
}

Result<NetLane*> MessageTransport::lane(LaneId id) {
  auto& lane = lanes_[keyOf(id, options_.channels)];
  if (!lane) {
    TUTTI_ASSIGN(LocalRing ring, LocalRing::make(options_.slotBytes));
    if (id.sends) {
      lane = std::make_unique<SendLane>(id, std::move(ring), bell_);
    } else {
      lane = std::make_unique<ReceiveLane>(id, std::move(ring), bell_);
    }
  }
  return lane.get();
}

Result<FifoReceiver*> MessageTransport::receiver(int peer, int channel, int port) {
  const Turn turn(*this);
  TUTTI_ASSIGN(NetLane* const found, lane({peer, channel, port, false}));
  return static_cast<ReceiveLane*>(found)->user();
}

Result<FifoSender*> MessageTransport::sender(int peer, int channel, int port) {
  const LaneId id{peer, channel, port, true};
  NetLane* made = nullptr;
  std::vector<std::unique_ptr<AuthConnector>> finished;  // destroyed without the lock, which they may want
  {
    const Turn turn(*this);
    for (auto& connector : connectors_)
      if (connector->finished()) finished.push_back(std::move(connector));
    std::erase(connectors_, nullptr);
    const bool known = lanes_.count(keyOf(id, options_.channels)) != 0;
    TUTTI_ASSIGN(made, lane(id));
    if (known) return static_cast<SendLane*>(made)->user();
  }
  const Address& address = addresses_[static_cast<size_t>(peer)];
  Dialer::Request request{withScopes(address.sockets, listener_->addresses()), address.service, secret_,
                          WireWriter().i32(rank_).i32(peer).i32(channel).i32(port).bytes(),
                          RetryPolicy::fromParams()};
  request.serviceMayCome = true;
  const auto patience = params().peerTimeout.time();
  TUTTI_ASSIGN(auto connector,
               AuthConnector::start(
                   std::move(request), patience.count() == 0 ? Deadline::never() : Deadline::after(patience),
                   [this, made](Result<UniqueFd> fd) { connected(made, std::move(fd)); },
                   [this, peer](const Status& trouble) {
                     logWarn("rank {}: no data connection to {} so far: {}", rank_, describePeer(peer),
                             trouble.message());
                   })
                   .withContext("data connection to {}", describePeer(peer)));
  const Turn turn(*this);
  connectors_.push_back(std::move(connector));
  owesPark_ = true;  // the caller is about to publish
  startTick(kTick);
  return static_cast<SendLane*>(made)->user();
}

/// Service thread: a connection that sender() started is up, or cannot be made.
void MessageTransport::connected(NetLane* lane, Result<UniqueFd> fd) {
  const Turn turn(*this);
  if (closing_) return;
  if (!fd.isOk()) return raise(lane, fd.status());
  std::string far = peerAddress(fd->get()).text();
  Status status = attach(lane, std::make_unique<SocketSender>(std::move(fd).value(), std::move(far)));
  if (!status.isOk()) raise(lane, status);
}

/// Service thread: a peer's sender has connected to us.
void MessageTransport::accepted(AcceptedConnection connection) {
  const Turn turn(*this);
  if (closing_) return;
  const std::string far = connection.peer.text();
  Status status = accept(connection);
  if (!status.isOk()) logWarn("rank {}: data connection from {} dropped: {}", rank_, far, status.message());
}

Status MessageTransport::accept(AcceptedConnection& connection) {
  WireReader hello(connection.payload);
  const int source = hello.i32();
  const int destination = hello.i32();
  const int channel = hello.i32();
  const int port = hello.i32();
  if (!hello.finished() || source < 0 || source >= static_cast<int>(peers_.size()) || destination != rank_ ||
      channel < 0 || channel >= options_.channels || port < 0 || port >= kEndpointPorts)
    return remoteError("it asks for a connection that does not exist (rank {} to {}, channel {}, port {})",
                       source, destination, channel, port);
  TUTTI_ASSIGN(NetLane* const found, lane({source, channel, port, false}));
  if (found->connected())
    return remoteError("rank {} is connected already on channel {} port {}", source, channel, port);
  return attach(found, std::make_unique<SocketReceiver>(std::move(connection.fd), connection.peer.text()));
}

Status MessageTransport::attach(NetLane* lane, std::unique_ptr<NetConnection> connection) {
  const int fd = connection->descriptor();
  epoll_event event{};
  event.events = connection->watchedEvents() | EPOLLET;
  event.data.ptr = lane;
  TUTTI_ASSIGN(const IoService::Id guard, ioService().guardOverFork(fd));
  Status status;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    status = systemError(errno, "watch a data connection");
  if (status.isOk()) status = lane->connect(connection, guard);
  if (!status.isOk()) {
    ioService().remove(guard);  // before the connection closes its descriptor
    return status;
  }
  connected_.push_back(lane);
  active_.store(true, std::memory_order_release);
  if (parked_) {
    pumpAll();
    ioService().modify(watch_, EPOLLIN);
  } else {
    owesPark_ = true;
    startTick(kTick);  // the thread that took the lanes may be gone
  }
  return Status::ok();
}

/// Hands what epoll knows to the connections. Locked.
void MessageTransport::harvest() {
  std::array<epoll_event, 64> events;
  for (;;) {
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      static_cast<NetLane*>(event.data.ptr)->connection()->onEvents(event.events);
    }
    if (count < static_cast<int>(events.size())) return;
  }
}

/// Locked.
bool MessageTransport::pumpAll() {
  harvest();
  bool moved = false;
  for (NetLane* lane : connected_) {
    Status status = lane->pump(&moved);
    if (!status.isOk()) raise(lane, status);
  }
  return moved;
}

void MessageTransport::raise(const NetLane* lane, const Status& status) {
  const LaneId& id = lane->id();
  faults_->raise(status.withContext("rank {}: {} {} on channel {} port {}", rank_,
                                    id.sends ? "sending to" : "receiving from", describePeer(id.peer),
                                    id.channel, id.port));
  bell_->ring();
}

bool MessageTransport::progress() {
  if (!active_.load(std::memory_order_acquire)) return false;
  parked_.store(false, std::memory_order_relaxed);
  turnedAway_.store(true, std::memory_order_seq_cst);
  if (waiting_.load(std::memory_order_seq_cst) != 0) return false;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  turnedAway_.store(false, std::memory_order_relaxed);
  ++rounds_;
  owesPark_ = true;
  startTick(kTick);
  return pumpAll();
}

void MessageTransport::sendNow() {
  if (!active_.load(std::memory_order_acquire) || waiting_.load(std::memory_order_seq_cst) != 0) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  bool moved = false;
  for (NetLane* lane : connected_) {
    if (!lane->pending()) continue;
    Status status = lane->pump(&moved);
    if (!status.isOk()) raise(lane, status);
  }
}

void MessageTransport::take() { parked_.store(false, std::memory_order_release); }

/// The rank's thread has looked at everything, in vain, and keeps the lanes.
bool MessageTransport::sleep(uint32_t ticket, uint32_t limitMicros) {
  if (!line_ || !active_.load(std::memory_order_acquire)) return false;
  // The last progress() did nothing: what the rank published may be unsent. park() sees to it.
  if (turnedAway_.load(std::memory_order_relaxed)) return false;
  // Whoever else moves lanes meanwhile (the timer, if this takes long) takes events out of epoll_ from under
  // poll(), but rings the bell; its line is not in epoll_, so that they cannot take the ring as well.
  bell_->sleepPolling(ticket, limitMicros, line_.get(), epoll_.get());
  return true;
}

void MessageTransport::park() {
  // Also when parked already: the caller may have published since, and nobody else would notice.
  const Turn turn(*this);
  turnedAway_.store(false, std::memory_order_relaxed);
  owesPark_ = false;
  parkLocked();
}

void MessageTransport::parkLocked() {
  parked_.store(true, std::memory_order_relaxed);
  if (connected_.empty()) return;
  // What is left after this waits for the network, and the network's next event is reported by epoll.
  while (pumpAll()) continue;
  ioService().modify(watch_, EPOLLIN);
}

/// Service thread: epoll_ has something.
void MessageTransport::onServiceThread() {
  {
    const Turn turn(*this);
    if (!parked_.load(std::memory_order_acquire)) {
      ioService().modify(watch_, 0);  // the running thread looks itself
      return;
    }
    if (bell_->sleepers.load(std::memory_order_seq_cst) == 0) {
      while (parked_.load(std::memory_order_relaxed) && pumpAll()) continue;
      return;
    }
    // The rank's thread waits for what came. It moves it better itself: what it copies is then in the caches
    // of the core that works on it. The timer moves the lanes if the sleeper is after something else.
    ioService().modify(watch_, 0);
    owesPark_ = true;
    startTick(kTick);
  }
  bell_->ring();  // without the lock: whoever wakes up wants it at once
}

/// Locked. No-op when the timer runs.
void MessageTransport::startTick(std::chrono::milliseconds delay) {
  if (ticking_ || closing_) return;
  roundsSeen_ = rounds_;
  auto added = ioService().addTimer(delay, [this] { onTick(); });
  ticking_ = added.isOk();  // else the next progress() tries again
  if (!ticking_) return;
  previousTick_ = tick_;
  tick_ = *added;
}

/// Service thread, while a thread has the lanes: is it still there?
void MessageTransport::onTick() {
  const Turn turn(*this);
  ticking_ = false;
  if (closing_ || !owesPark_) return;
  const bool abandoned = rounds_ == roundsSeen_;
  if (abandoned) parkLocked();
  startTick(abandoned ? kAbandonedTick : kTick);
}

/// What ranks published must arrive, although they have stopped caring.
void MessageTransport::deliverPending() {
  take();
  Deadline stuck = Deadline::after(kStuckLimit);
  for (;;) {
    {
      const Turn turn(*this);
      if (pumpAll()) stuck = Deadline::after(kStuckLimit);
      const auto waiting = std::count_if(lanes_.begin(), lanes_.end(), [](const auto& entry) {
        return entry.second->pending() && !entry.second->failed();
      });
      if (waiting == 0 || faults_->stopped()) return;
      if (stuck.passed()) {
        logWarn(
            "rank {}: {} data connections dropped with messages that their peers did not take within {} s",
            rank_, waiting, kStuckLimit.count());
        return;
      }
    }
    // Connections may still come up, so look again every few milliseconds, whatever epoll says.
    waitFor(epoll_.get(), POLLIN, Deadline::after(std::chrono::milliseconds(5)), faults_.get()).ignore();
  }
}

}  // namespace tutti
