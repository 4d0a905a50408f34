// Joining, leaving, and what the service thread does with connections and frames.
#include "bootstrap/control_hub.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/dialer.h"
#include "base/identity.h"
#include "base/log.h"
#include "base/params.h"
#include "base/random.h"
#include "base/wire.h"
#include "bootstrap/control_frames.h"

namespace tutti {
namespace {

/// For the whole of an orderly goodbye; peers that are alive answer in a round trip.
constexpr std::chrono::milliseconds kLeaveLimit{1000};

/// A rank that fails waits so long until the others know it: its process may end at once.
constexpr std::chrono::milliseconds kTellLimit{1000};
/// When rank 0 cannot be reached, the reason is about to be told.
constexpr std::chrono::milliseconds kNewsLimit{500};
constexpr std::chrono::seconds kRootLimit{5};

}  // namespace

Control::Hub::Hub(const JoinRequest& request)
    : rank_(request.rank),
      size_(request.nranks),
      faults_(request.faults),
      timedOut_(request.timedOut),
      kin_(request.kin),
      onFault_(request.onFault),
      onNote_(request.onNote),
      peers_(static_cast<size_t>(request.nranks), PeerState::unknown),
      star_(static_cast<size_t>(request.nranks)) {}

Control::Hub::~Hub() {
  if (owner_ == forkCount() && listener_) listener_->withdraw(service_);
}

/// What proves that a connection to a rank's listener comes from this job; known before the table is.
Secret Control::Hub::linkSecret(uint64_t service) const {
  return idSecret_.derive(WireWriter().string("link").u64(service).bytes());
}

Status Control::Hub::start(const UniqueId& given, Deadline deadline) {
  UniqueId id = given;
  if (id.kind == UniqueId::Kind::rankZeroServes) {
    TUTTI_ASSIGN(id.secret, secretOfCommId());
    // The name may mean another address here than where the id was made. What is told here goes first.
    if (!params().commId().empty()) {
      TUTTI_ASSIGN(std::vector<SocketAddress> addresses, addressesOfCommId());
      for (const SocketAddress& address : given.addresses)
        if (std::find(addresses.begin(), addresses.end(), address) == addresses.end() &&
            address.port() == addresses.front().port())
          addresses.push_back(address);
      if (addresses.front().port() == given.addresses.front().port()) id.addresses = std::move(addresses);
    }
  }
  idSecret_ = id.secret;
  TUTTI_ASSIGN(listener_, AuthListener::ofProcess());
  TUTTI_ASSIGN(service_, randomU64());
  // Peers may connect as soon as the root has told them, which may be before it has told us.
  TUTTI_TRY(listener_->offer(service_, linkSecret(service_),
                             [weak = weak_from_this()](AcceptedConnection connection) {
                               if (auto self = weak.lock()) self->accept(std::move(connection));
                             }));
  if (id.kind == UniqueId::Kind::rankZeroServes && rank_ == 0) TUTTI_TRY(serveRendezvous(id, deadline));
  if (id.kind == UniqueId::Kind::derived && rank_ == 0)
    TUTTI_TRY(Root::start(listener_, id.id, id.secret, kin_));
  TUTTI_TRY(meetOthers(id, deadline));
  return rank_ == 0 ? Status::ok() : connectStar(deadline);
}

void Control::Hub::endRendezvous(uint64_t id, const Status& outcome) {
  std::shared_ptr<Link> root;
  bool heard = false;
  {
    const std::lock_guard lock(mutex_);
    root = root_;
    joined_ = true;
    heard = faultRaised_;
  }
  if (outcome.isOk()) {
    root->send(kJoinedFrame, {}).ignore();
    root->finish(kRootLimit);
    return;
  }
  // Who is aborted does not wait long.
  const bool stopped = faults_->stopped() && !heard;
  const Deadline limit = Deadline::after(stopped ? kFarewellLimit : kTellLimit);
  if (root) {
    root->send(kErrorFrame, encodeError(heard ? faults_->error() : leavingError(self_, outcome))).ignore();
    root->finish(std::chrono::milliseconds(limit.pollTimeoutMs(1000)));
    while (!root->closed() && !limit.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  Root::awaitTold(id, limit);
}

void Control::Hub::handle(uint64_t tag, Handler handler) {
  const std::lock_guard lock(mutex_);
  handlers_[tag] = std::make_shared<const Handler>(std::move(handler));
}

size_t Control::Hub::queuedBytes(int peer) const {
  const std::lock_guard lock(mutex_);
  const auto link = direct_.find(peer);
  return link == direct_.end() ? 0 : link->second->queuedBytes();
}

ncclUniqueId Control::Hub::deriveId(int leader, std::string_view purpose) const {
  UniqueId id;
  id.kind = UniqueId::Kind::derived;
  const std::string name =
      WireWriter().string("derived").u32(static_cast<uint32_t>(leader)).string(purpose).bytes();
  id.secret = secret_.derive(name);
  const Digest digest = sha256(WireWriter().u64(session_).raw(name).bytes());
  std::memcpy(&id.id, digest.data(), sizeof id.id);
  const std::lock_guard lock(mutex_);
  id.addresses = members_[static_cast<size_t>(leader)].addresses;
  return id.encode();
}

std::vector<Kin> Control::Hub::kin(const std::vector<int>& ranks) const {
  std::vector<Kin> all;
  const std::lock_guard lock(mutex_);
  for (const int rank : ranks) {
    const Member& member = members_[static_cast<size_t>(rank)];
    all.push_back({member, linkSecret(member.service)});
  }
  return all;
}

/// NCCL_COMM_ID: rank 0 listens at that address. The port may still be held by the communicator before.
Status Control::Hub::serveRendezvous(const UniqueId& id, Deadline deadline) {
  const Deadline patience = std::min(deadline, Deadline::after(std::chrono::seconds(10)));
  for (;;) {
    auto listener = AuthListener::listenWhereItCan(id.addresses);
    if (listener.isOk()) return Root::start(std::move(*listener), id.id, id.secret);
    const Status status =
        listener.status().withContext("rank 0 serves NCCL_COMM_ID and must run on the host that it names");
    if (!sleepFor(100, patience, faults_.get()).isOk()) return faults_->stopped() ? faults_->error() : status;
  }
}

Status Control::Hub::meetOthers(const UniqueId& given, Deadline deadline) {
  UniqueId id = given;
  id.addresses = withScopes(id.addresses, listener_->addresses());
  JoinHello hello;
  hello.version = versionOfRank();
  hello.nranks = size_;
  const int64_t limit = params().initTimeout() * 1000;
  hello.limitMs = static_cast<uint32_t>(
      deadline.isNever() ? limit : deadline.pollTimeoutMs(static_cast<int>(24 * 3600 * 1000)));
  self_ = {rank_, hostName().substr(0, 255), ::getpid(), service_, listener_->addresses()};
  hello.member = self_;
  TUTTI_ASSIGN(Meeting meeting,
               meet(id, hello, deadline, faults_.get(), kin_.empty() ? nullptr : &kin_.front()));
  // The rendezvous has put the address first from which the rank came.
  for (const Member& member : meeting.table.members) addressWorks(member.addresses.front());
  session_ = meeting.table.session;
  secret_ = idSecret_.derive(WireWriter().string("session").u64(session_).bytes());
  {
    const std::lock_guard lock(mutex_);
    members_ = std::move(meeting.table.members);
  }
  return watchRoot(std::move(meeting.root), id.kind != UniqueId::Kind::makerServes);
}

/// Until all ranks are connected to rank 0 they hear of one that dies from the root.
Status Control::Hub::watchRoot(UniqueFd fd, bool isRankZero) {
  const SocketAddress address = peerAddress(fd.get());
  Link::Callbacks callbacks;
  callbacks.onFrame = [weak = weak_from_this()](uint16_t type, const std::string& body) {
    const auto self = weak.lock();
    if (self && type == kErrorFrame) self->raiseFault(decodeError(body));
  };
  callbacks.onClosed = [weak = weak_from_this(), address, isRankZero](const Status& why) {
    if (const auto self = weak.lock()) self->onRootClosed(address, isRankZero, why);
  };
  const std::lock_guard lock(mutex_);
  TUTTI_ASSIGN(root_, Link::open(std::move(fd), std::move(callbacks)));
  return Status::ok();
}

/// Whoever served the rendezvous has gone before all were connected. When it is a rank, that one is dead.
void Control::Hub::onRootClosed(const SocketAddress& root, bool isRankZero, const Status& why) {
  std::string who;
  {
    const std::lock_guard lock(mutex_);
    if (leaving_ || joined_ || faultRaised_) return;
    for (const Member& member : members_) {
      const auto& all = member.addresses;
      const bool serves =
          isRankZero ? member.rank == 0 : std::find(all.begin(), all.end(), root) != all.end();
      if (serves) who += (who.empty() ? "" : ", ") + member.text();
    }
  }
  if (!who.empty()) raiseFault(remoteError("{} died during initialisation: {}", who, why.message()));
}

Status Control::Hub::connectStar(Deadline deadline) {
  return rootCause(dial(0, LinkKind::star, deadline, faults_.get()).status());
}

Status Control::Hub::rootCause(Status status) const {
  if (status.isOk() || (status.code() != ncclRemoteError && status.code() != ncclSystemError)) return status;
  const Deadline limit = Deadline::after(kNewsLimit);
  while (!faults_->stopped() && !limit.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return faults_->stopped() ? faults_->error() : status;
}

/// Connects to a peer's listener.
Result<std::shared_ptr<Link>> Control::Hub::dial(int peer, LinkKind kind, Deadline deadline,
                                                 const FaultState* faults) {
  Member member;
  {
    const std::lock_guard lock(mutex_);
    member = members_[static_cast<size_t>(peer)];
  }
  auto fd = connectAuthenticated(withScopes(member.addresses, listener_->addresses()), member.service,
                                 linkSecret(member.service), linkHello(kind, rank_), deadline, faults);
  if (!fd.isOk()) return fd.status().withContext("rank {}: connect to {}", rank_, member.text());
  return addLink(peer, kind, std::move(*fd));
}

/// Starts watching a connection and makes it known.
Result<std::shared_ptr<Link>> Control::Hub::addLink(int peer, LinkKind kind, UniqueFd fd) {
  Link::Callbacks callbacks;
  callbacks.onFrame = [weak = weak_from_this(), peer, kind](uint16_t type, const std::string& body) {
    if (auto self = weak.lock()) self->onFrame(peer, kind, type, body);
  };
  callbacks.onClosed = [weak = weak_from_this(), peer, kind](const Status& why) {
    if (auto self = weak.lock()) self->onClosed(peer, kind, why);
  };
  // Under the lock, so that no frame is handled before the connection is in the tables.
  const std::lock_guard lock(mutex_);
  if (leaving_) return remoteError("rank {} has left", rank_);
  TUTTI_ASSIGN(const std::shared_ptr<Link> link, Link::open(std::move(fd), std::move(callbacks)));
  connections_.push_back({peer, kind, link});
  if (kind == LinkKind::star) {
    star_[static_cast<size_t>(peer)] = link;
    // Who comes after a failure hears of it, too.
    if (failureRelayed_ && peer != failed_) link->send(kFailureFrame, failure_).ignore();
  } else {
    direct_.emplace(peer, link);  // the first one stays: messages must not overtake each other
  }
  changed_.notify();
  return link;
}

void Control::Hub::accept(AcceptedConnection connection) {
  WireReader in(connection.payload);
  const auto kind = static_cast<LinkKind>(in.u8());
  const int from = in.i32();
  if (in.finished() && kind == LinkKind::probe) return;  // it knows now that this rank is there
  const bool sane = in.finished() && from >= 0 && from < size_ && from != rank_ &&
                    (kind == LinkKind::direct || (kind == LinkKind::star && rank_ == 0));
  bool twice = false;
  if (sane && kind == LinkKind::star) {
    const std::lock_guard lock(mutex_);
    twice = star_[static_cast<size_t>(from)] != nullptr;
  }
  if (!sane || twice) {
    logWarn("control connection from {} dropped: {}", connection.peer.text(),
            twice ? fmt::format("rank {} is connected already", from) : "malformed hello");
    return;
  }
  if (auto link = addLink(from, kind, std::move(connection.fd)); !link.isOk())
    logInfo(Subsystem::bootstrap, "control connection from rank {} dropped: {}", from,
            link.status().message());
}

void Control::Hub::onFrame(int peer, LinkKind kind, uint16_t type, const std::string& body) {
  switch (type) {
    case kGatherFrame:
      if (rank_ == 0 && kind == LinkKind::star) onGather(peer, body);
      return;
    case kGatheredFrame:
    case kMissingFrame: {
      WireReader in(body);
      const uint64_t sequence = in.u64();
      if (peer != 0 || !in.ok()) return;
      const std::lock_guard lock(mutex_);
      (type == kGatheredFrame ? gathered_ : missing_)[sequence] = std::string(in.raw(in.left()));
      break;
    }
    case kMessageFrame: {
      WireReader in(body);
      const uint64_t tag = in.u64();
      if (!in.ok()) return;
      std::shared_ptr<const Handler> handler;
      {
        const std::lock_guard lock(mutex_);
        if (const auto known = handlers_.find(tag); known != handlers_.end()) {
          if (leaving_) return;
          handler = known->second;
        } else {
          inbox_[{peer, tag}].emplace_back(in.raw(in.left()));
        }
      }
      if (handler != nullptr) {
        (*handler)(peer, in.raw(in.left()));
        return;
      }
      break;
    }
    case kGoodbyeFrame: {
      const std::lock_guard lock(mutex_);
      peers_[static_cast<size_t>(peer)] = PeerState::left;
      break;
    }
    case kAskFrame:
      if (rank_ == 0) onAsk(peer, body);
      return;
    case kNoteFrame:
      if (kind == LinkKind::star && onNote_) onNote_(peer, body);
      return;
    case kFailureFrame:
      onFailureNotice(peer, body);
      return;
    default:
      logWarn("control message of unknown type {} from {}", type, describe(peer));
      return;
  }
  changed_.notify();
}

void Control::Hub::onGather(int peer, std::string_view body) {
  WireReader in(body);
  const uint64_t sequence = in.u64();
  if (!in.ok()) return;
  {
    const std::lock_guard lock(mutex_);
    contribute(peer, sequence, std::string(in.raw(in.left())));
  }
  changed_.notify();
}

/// Rank 0: takes one rank's part; with the last one the result goes to everybody.
void Control::Hub::contribute(int from, uint64_t sequence, std::string bytes) {
  auto& parts = contributions_[sequence];
  parts.resize(static_cast<size_t>(size_));
  parts[static_cast<size_t>(from)] = std::move(bytes);
  if (!std::all_of(parts.begin(), parts.end(), [](const auto& part) { return part.has_value(); })) return;
  WireWriter out;
  for (const auto& part : parts) out.string(*part);
  const std::string result = std::move(out).bytes();
  const std::string frame = WireWriter().u64(sequence).raw(result).bytes();
  for (const auto& link : star_)
    if (link) link->send(kGatheredFrame, frame).ignore();  // a dead peer is noticed when its connection ends
  gathered_[sequence] = result;
  contributions_.erase(sequence);
}

void Control::Hub::onAsk(int peer, std::string_view body) {
  WireReader in(body);
  const uint64_t sequence = in.u64();
  const std::lock_guard lock(mutex_);
  if (const auto& link = star_[static_cast<size_t>(peer)])
    link->send(kMissingFrame, WireWriter().u64(sequence).raw(missingFrom(sequence)).bytes()).ignore();
}

void Control::Hub::onFailureNotice(int peer, std::string_view body) {
  WireReader in(body);
  const int about = in.i32();
  const bool timedOut = in.u8() != 0;
  const std::string text(in.string());
  if (!in.finished() || about < 0 || about >= size_ || (rank_ != 0 && peer != 0)) return;
  if (rank_ == 0) {
    const std::lock_guard lock(mutex_);
    relayFailure(about, timedOut, text);
  }
  raiseFault(Status(timedOut ? timedOut_ : ncclRemoteError, text));
}

/// Rank 0: tells everybody but the rank concerned, once; what fails later follows from the first failure.
void Control::Hub::relayFailure(int about, bool timedOut, const std::string& text) {
  if (failureRelayed_) return;
  failureRelayed_ = true;
  failed_ = about;
  failure_ = WireWriter().i32(about).u8(timedOut ? 1 : 0).string(text).bytes();
  for (size_t i = 0; i < star_.size(); ++i)
    if (star_[i] && static_cast<int>(i) != about) star_[i]->send(kFailureFrame, failure_).ignore();
}

void Control::Hub::onClosed(int peer, LinkKind kind, const Status& why) {
  bool died = false;
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    connections_.erase(std::remove_if(connections_.begin(), connections_.end(),
                                      [](const Connection& c) { return c.link->closed(); }),
                       connections_.end());
    PeerState& state = peers_[static_cast<size_t>(peer)];
    died = !leaving_ && state == PeerState::unknown;
    if (died) {
      state = PeerState::dead;
      text = fmt::format("{} died: {}", describeLocked(peer), why.message());
      deaths_[peer] = text;
      if (rank_ == 0) relayFailure(peer, false, text);
    }
  }
  changed_.notify();
  logTrace(Subsystem::bootstrap, "rank {}: {} connection with rank {} ended: {}", rank_,
           kind == LinkKind::star ? "star" : "direct", peer, why.message());
  if (died) raiseFault(remoteError("{}", text));
}

void Control::Hub::raiseFault(const Status& why) {
  {
    const std::lock_guard lock(mutex_);
    if (faultRaised_ || leaving_) return;
    faultRaised_ = true;
    telling_ = true;  // leave() waits until the owner's callback has returned
  }
  logWarn("rank {}: {}", rank_, why.message());
  faults_->raise(why);
  changed_.notify();
  if (onFault_) onFault_();
  {
    const std::lock_guard lock(mutex_);
    telling_ = false;
  }
  changed_.notify();
}

void Control::Hub::announceFault(const Status& why) {
  if (owner_ != forkCount()) return;
  const std::lock_guard lock(mutex_);
  if (leaving_ || faultRaised_) return;  // a failure that came from a peer is no news
  faultRaised_ = true;                   // the owner knows; what peers say about it afterwards is no news
  const std::string text = fmt::format("{} stopped: {}", describeLocked(rank_), why.message());
  const bool timedOut = timedOut_ != ncclRemoteError && why.code() == timedOut_;
  if (rank_ == 0) {
    relayFailure(rank_, timedOut, text);
  } else if (star_[0]) {
    star_[0]->send(kFailureFrame, WireWriter().i32(rank_).u8(timedOut ? 1 : 0).string(text).bytes()).ignore();
  }
}

void Control::Hub::leave(Deadline deadline) {
  if (owner_ != forkCount()) return;  // a forked child: the connections are the parent's
  std::vector<Connection> connections;
  {
    const std::lock_guard lock(mutex_);
    if (leaving_) return;
    leaving_ = true;
    connections = connections_;
  }
  if (listener_) listener_->withdraw(service_);
  const Deadline limit = std::min(deadline, Deadline::after(kLeaveLimit));
  for (const Connection& connection : connections) {
    connection.link->send(kGoodbyeFrame, {}).ignore();
    connection.link->finish(std::chrono::milliseconds(limit.pollTimeoutMs(1000)));
  }
  // The peers answer by closing their ends. Waiting for it keeps the goodbye from being lost in a reset.
  for (;;) {
    const uint32_t ticket = changed_.ticket();
    {
      const std::lock_guard lock(mutex_);
      const bool telling = telling_ && !ioService().onServiceThread();
      if (!telling && (connections_.empty() || limit.passed())) break;
    }
    changed_.wait(ticket, std::chrono::milliseconds(std::max(1, limit.pollTimeoutMs(20))));
  }
  for (const Connection& connection : connections) connection.link->close();
  listener_.reset();
}

Status Control::Hub::note(int peer, std::string_view bytes) {
  if (owner_ != forkCount()) return invalidUsage("a forked child has no connections");
  const std::lock_guard lock(mutex_);
  if (leaving_) return invalidUsage("rank {} has left the communicator", rank_);
  if (peer < 0 || peer >= size_ || (rank_ == 0) == (peer == 0) || !star_[static_cast<size_t>(peer)])
    return internalError("rank {} has no connection with rank {}", rank_, peer);
  return star_[static_cast<size_t>(peer)]->send(kNoteFrame, bytes);
}

void Control::Hub::whereabouts(int peer, std::string& host, int64_t& pid) const {
  const std::lock_guard lock(mutex_);
  if (peer < 0 || static_cast<size_t>(peer) >= members_.size()) return;
  host = members_[static_cast<size_t>(peer)].host;
  pid = members_[static_cast<size_t>(peer)].pid;
}

std::string Control::Hub::gone(int peer) const {
  const std::lock_guard lock(mutex_);
  switch (peers_[static_cast<size_t>(peer)]) {
    case PeerState::left:
      return "has left the communicator";
    case PeerState::dead: {
      const std::string& text = deaths_.at(peer);
      const std::string name = describeLocked(peer) + " ";
      return text.starts_with(name) ? text.substr(name.size()) : text;
    }
    case PeerState::unknown:
      break;
  }
  return {};
}

std::string Control::Hub::describe(int peer) const {
  const std::lock_guard lock(mutex_);
  return describeLocked(peer);
}

std::string Control::Hub::describeLocked(int peer) const {
  if (peer < 0 || static_cast<size_t>(peer) >= members_.size()) return fmt::format("rank {}", peer);
  return members_[static_cast<size_t>(peer)].text();
}

}  // namespace tutti
