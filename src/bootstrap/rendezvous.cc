#include "bootstrap/rendezvous.h"

#include <algorithm>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "base/params.h"
#include "base/random.h"
#include "base/wire.h"

namespace tutti {
namespace {

constexpr int kMaxRanks = 1 << 20;
constexpr size_t kMaxAddresses = 64;
/// An id that nobody uses is forgotten after this time.
constexpr uint32_t kIdleLimitMs = 24u * 3600 * 1000;
/// After the deadline of the ranks: they are gone then.
constexpr std::chrono::seconds kGrace{3};
constexpr std::chrono::seconds kFlushLimit{5};
/// Kin that have not come are asked for so often.
constexpr std::chrono::milliseconds kAskEvery{1000};
constexpr std::chrono::milliseconds kAnswerLimit{2000};
constexpr size_t kMaxError = 4096;
/// How long ranks without a deadline are watched after they have the table.
constexpr std::chrono::steady_clock::duration kAfterTable = std::chrono::hours(1);
/// When it is first said who is missing; with a shorter TUTTI_STALL_WARN, then.
constexpr std::chrono::milliseconds kFirstReminder{10000};
/// After a failure, ranks that come so late still hear why; the deadline may end this earlier.
constexpr uint32_t kLatecomerLimitMs = 20000;

/// The rendezvous that this process serves.
struct Served {
  std::mutex mutex;
  std::map<uint64_t, std::weak_ptr<Root>> roots;
};
Served& served() {
  static Served& all = *new Served;  // never destroyed: used by the service thread, also at exit
  return all;
}

void encodeMember(WireWriter& out, const Member& member) {
  out.i32(member.rank).string(member.host).i64(member.pid).u64(member.service);
  out.u8(static_cast<uint8_t>(member.addresses.size()));
  for (const SocketAddress& address : member.addresses) out.string(address.encode());
}

bool decodeMember(WireReader& in, Member& member) {
  member.rank = in.i32();
  member.host = std::string(in.string());
  member.pid = in.i64();
  member.service = in.u64();
  const size_t count = in.u8();
  if (count == 0 || count > kMaxAddresses) return false;
  for (size_t i = 0; i < count && in.ok(); ++i) {
    std::string_view bytes = in.string();
    member.addresses.push_back(SocketAddress::decode(bytes));
    if (!member.addresses.back().isValid()) return false;
  }
  return in.ok();
}

/// Moves addresses of the hosts given, whatever their ports, to the front.
void putFirst(std::vector<SocketAddress>& addresses, const std::vector<SocketAddress>& hosts) {
  std::stable_partition(addresses.begin(), addresses.end(), [&](const SocketAddress& address) {
    return std::any_of(hosts.begin(), hosts.end(),
                       [&](const SocketAddress& host) { return host.sameHost(address); });
  });
}

}  // namespace

std::string Member::text() const {
  if (host.empty()) return fmt::format("rank {}", rank);
  return fmt::format("rank {} (host {}, pid {})", rank, host, pid);
}

std::string JoinHello::encode() const {
  WireWriter out;
  out.string(version).i32(nranks).u32(limitMs);
  encodeMember(out, member);
  out.string(leaving);
  return std::move(out).bytes();
}

Result<JoinHello> JoinHello::decode(std::string_view bytes) {
  WireReader in(bytes);
  JoinHello hello;
  hello.version = std::string(in.string());
  hello.nranks = in.i32();
  hello.limitMs = in.u32();
  const bool known = decodeMember(in, hello.member);
  hello.leaving = std::string(in.string());
  if (!known || !in.finished()) return remoteError("malformed hello of {} bytes", bytes.size());
  return hello;
}

std::string RendezvousTable::encode() const {
  WireWriter out;
  out.u64(session).u32(static_cast<uint32_t>(members.size()));
  for (const Member& member : members) encodeMember(out, member);
  return std::move(out).bytes();
}

Result<RendezvousTable> RendezvousTable::decode(std::string_view bytes) {
  WireReader in(bytes);
  RendezvousTable table;
  table.session = in.u64();
  const uint32_t count = in.u32();
  for (uint32_t i = 0; i < count && in.ok(); ++i) {
    Member member;
    if (!decodeMember(in, member) || member.rank != static_cast<int>(i))
      return remoteError("malformed rank table");
    table.members.push_back(std::move(member));
  }
  if (!in.finished()) return remoteError("malformed rank table");
  return table;
}

std::string linkHello(LinkKind kind, int from) {
  return WireWriter().u8(static_cast<uint8_t>(kind)).i32(from).bytes();
}

Status goneError(int rank, const Member& kin, const Status& why) {
  return remoteError("rank {} will not come: as {} of the communicator before, it has died or left ({})",
                     rank, kin.text(), why.message());
}

std::string rankList(const std::vector<int>& ranks) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i;
    while (end + 1 < ranks.size() && ranks[end + 1] == ranks[end] + 1) ++end;
    if (end >= i + 2) {
      parts.push_back(fmt::format("{} to {}", ranks[i], ranks[end]));
      i = end + 1;
    } else {
      parts.push_back(std::to_string(ranks[i++]));
    }
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < parts.size(); ++i)
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  return text;
}

std::string encodeError(const Status& why) {
  return WireWriter()
      .u32(static_cast<uint32_t>(why.code()))
      .string(why.message().substr(0, kMaxError))
      .bytes();
}

Status decodeError(std::string_view body) {
  WireReader in(body);
  const uint32_t code = in.u32();
  std::string message(in.string());
  if (!in.finished() || code == ncclSuccess || code >= ncclNumResults)
    return remoteError("rendezvous: malformed error of {} bytes", body.size());
  return {static_cast<ncclResult_t>(code), std::move(message)};
}

Status Root::start(std::shared_ptr<AuthListener> listener, uint64_t id, const Secret& secret,
                   std::vector<Kin> kin) {
  AuthListener& server = *listener;
  std::shared_ptr<Root> root(new Root(std::move(listener), id, std::move(kin)));
  // Before the service is offered: afterwards the members belong to the service thread.
  auto timer = ioService().addTimer(std::chrono::milliseconds(kIdleLimitMs), [root] { root->expire(); });
  if (!timer.isOk()) return timer.status();
  root->timer_ = *timer;
  Status status = server.offer(id, secret, [root](AcceptedConnection c) { root->arrive(std::move(c)); });
  if (!status.isOk()) {
    ioService().remove(root->timer_);
    return status;
  }
  const std::lock_guard lock(served().mutex);
  served().roots[id] = root;
  return status;
}

namespace {

std::shared_ptr<Root> rootOf(uint64_t id) {
  const std::lock_guard lock(served().mutex);
  const auto found = served().roots.find(id);
  return found == served().roots.end() ? nullptr : found->second.lock();
}

}  // namespace

void Root::awaitTold(uint64_t id, Deadline deadline) {
  const std::shared_ptr<Root> root = rootOf(id);
  while (root != nullptr && !root->allTold_.load(std::memory_order_acquire) && !deadline.passed())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void Root::cancel(uint64_t id) {
  const std::shared_ptr<Root> root = rootOf(id);
  if (root == nullptr) return;
  ioService()
      .post([root] {
        if (root->arrivals_.empty() && !root->done_) root->finish();
      })
      .ignore();
}

/// Why this rank may not join, beside those that are here; ok when it may.
Status Root::check(const JoinHello& hello) const {
  const Member& member = hello.member;
  if (hello.nranks < 1 || hello.nranks > kMaxRanks)
    return invalidArgument("{}: nranks is {}", member.text(), hello.nranks);
  if (member.rank < 0 || member.rank >= hello.nranks)
    return invalidArgument("{}: the rank is outside 0..{}", member.text(), hello.nranks - 1);
  for (const auto& [rank, other] : arrivals_) {
    if (other.hello.version != hello.version)
      return invalidUsage("{} runs Tutti {}, {} runs {}", other.hello.member.text(), other.hello.version,
                          member.text(), hello.version);
    if (other.hello.nranks != hello.nranks)
      return invalidArgument("{} says that there are {} ranks, {} says {}", other.hello.member.text(),
                             other.hello.nranks, member.text(), hello.nranks);
    break;  // those that are here agree with one another
  }
  if (!hello.leaving.empty())
    return remoteError("{} left during initialisation: {}", member.text(), hello.leaving);
  if (const auto same = arrivals_.find(member.rank); same != arrivals_.end()) {
    const Member& first = same->second.hello.member;
    return invalidArgument("rank {} came twice: host {}, pid {}, and host {}, pid {}", member.rank,
                           first.host, first.pid, member.host, member.pid);
  }
  return Status::ok();
}

void Root::arrive(AcceptedConnection connection) {
  auto hello = JoinHello::decode(connection.payload);
  if (!hello.isOk()) {
    logWarn("rendezvous: connection from {} dropped: {}", connection.peer.text(), hello.status().message());
    return;
  }
  // The address that this rank's packets come from is known to work: it goes first. When it is of this very
  // host it may work here only; then those go first by which other hosts have come (see complete()).
  putFirst(hello->member.addresses, {connection.peer});
  const auto isLocal = [&](const SocketAddress& known) { return known.sameHost(connection.local); };
  if (!connection.peer.sameHost(connection.local) && std::none_of(reached_.begin(), reached_.end(), isLocal))
    reached_.push_back(connection.local);
  admit(std::move(*hello), std::move(connection));
}

void Root::admit(JoinHello hello, AcceptedConnection connection) {
  const int rank = hello.member.rank;
  Status verdict = failure_.isOk() ? check(hello) : failure_;
  came_.insert(rank);
  if (hello.nranks > 0) fewest_ = fewest_ == 0 ? hello.nranks : std::min(fewest_, hello.nranks);
  Link::Callbacks callbacks;
  callbacks.onFrame = [weak = weak_from_this(), rank, accepted = verdict.isOk()](uint16_t type,
                                                                                 const std::string& body) {
    if (const auto self = weak.lock(); self && accepted) self->onWord(rank, type, body);
  };
  callbacks.onClosed = [weak = weak_from_this(), rank, accepted = verdict.isOk()](const Status& why) {
    const auto self = weak.lock();
    if (!self) return;
    if (accepted) self->onClosed(rank, why);
    self->noteTold();
  };
  auto link = Link::open(std::move(connection.fd), std::move(callbacks));
  if (!link.isOk()) {
    if (failure_.isOk()) fail(link.status());
    return;
  }
  if (!verdict.isOk()) {
    if (failure_.isOk()) fail(verdict);
    refuse(*link);
    return;
  }
  logTrace(Subsystem::bootstrap, "rendezvous: {} of {} came", hello.member.text(), hello.nranks);
  const uint32_t limitMs = hello.limitMs;
  const auto total = static_cast<size_t>(hello.nranks);
  if (arrivals_.empty()) first_ = std::chrono::steady_clock::now();
  arrivals_[rank] = {std::move(hello), *link};
  if (arrivals_.size() == total) {
    complete();
  } else {
    setTimer(limitMs);
    if (reminder_ == 0) remind();
    if (asking_ == 0 && !kin_.empty()) askForMissing();
  }
}

/// A rank that has come says something, once.
void Root::onWord(int rank, uint16_t type, std::string_view body) {
  const auto arrival = arrivals_.find(rank);
  if (done_ || !failure_.isOk() || arrival == arrivals_.end()) return;
  if (type == kErrorFrame) {
    fail(decodeError(body));
  } else if (type == kJoinedFrame && complete_) {
    arrival->second.joined = true;
    arrival->second.link->finish(kFlushLimit);
    if (std::all_of(arrivals_.begin(), arrivals_.end(), [](const auto& one) { return one.second.joined; }))
      finish();
  }
}

void Root::onClosed(int rank, const Status& why) {
  const auto arrival = arrivals_.find(rank);
  if (done_ || !failure_.isOk() || arrival == arrivals_.end() || arrival->second.joined) return;
  fail(remoteError("{} died during initialisation: {}", arrival->second.hello.member.text(), why.message()));
}

/// Now and then: whether those who have not come are still where they come from. The first time only waits.
void Root::askForMissing() {
  const bool first = asking_ == 0;
  asking_ = 0;
  if (done_ || complete_ || !failure_.isOk() || arrivals_.empty()) return;
  auto timer = ioService().addTimer(kAskEvery, [self = shared_from_this()] { self->askForMissing(); });
  if (timer.isOk()) asking_ = *timer;
  if (first) return;
  for (const int rank : missing()) {
    auto& question = questions_[rank];
    if (static_cast<size_t>(rank) >= kin_.size() || (question != nullptr && !question->finished())) continue;
    const Kin& kin = kin_[static_cast<size_t>(rank)];
    Dialer::Request request{withScopes(kin.member.addresses, listener_->addresses()), kin.member.service,
                            kin.secret, linkHello(LinkKind::probe, -1), RetryPolicy{}};
    auto started = AuthConnector::start(std::move(request), Deadline::after(kAnswerLimit),
                                        [weak = weak_from_this(), rank](const Result<UniqueFd>& outcome) {
                                          if (const auto self = weak.lock())
                                            self->onAnswer(rank, outcome.status());
                                        });
    if (started.isOk()) question = std::move(*started);
  }
}

void Root::onAnswer(int rank, const Status& answer) {
  if (done_ || complete_ || !failure_.isOk() || answer.isOk() || arrivals_.count(rank) != 0) return;
  if (!questions_[rank]->turnedAway()) return;
  came_.insert(rank);  // there is nobody to be told
  fail(goneError(rank, kin_[static_cast<size_t>(rank)].member, answer));
}

/// The rank that gives up first decides: without it the others cannot succeed.
void Root::setTimer(uint32_t limitMs) {
  const Deadline limit = Deadline::after(std::chrono::milliseconds(limitMs));
  if (!(limit < deadline_)) return;
  ioService().remove(timer_);
  timer_ = 0;
  deadline_ = limit;
  auto timer = ioService().addTimer(std::chrono::milliseconds(limitMs),
                                    [self = shared_from_this()] { self->expire(); });
  if (timer.isOk()) {
    timer_ = *timer;
  } else {
    fail(timer.status());
  }
}

std::vector<int> Root::missing() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < arrivals_.begin()->second.hello.nranks; ++rank)
    if (arrivals_.find(rank) == arrivals_.end()) ranks.push_back(rank);
  return ranks;
}

/// Says who is missing so far, at growing intervals.
void Root::remind() {
  reminder_ = 0;
  if (done_ || !failure_.isOk() || arrivals_.empty()) return;
  const auto waited = std::chrono::steady_clock::now() - first_;
  if (patience_.count() != 0) {
    // Whatever NCCL_DEBUG says, as the stall report: a job that stands still shall not do it in silence.
    detail::logAlways(fmt::format(
        "rendezvous: {} of {} came so far; waiting for {} since {:.1f} s (until {:.0f} s from now)",
        arrivals_.size(), arrivals_.begin()->second.hello.nranks, rankList(missing()),
        std::chrono::duration<double>(waited).count(),
        std::chrono::duration<double>(deadline_.at() - std::chrono::steady_clock::now()).count()));
  }
  patience_ = patience_.count() == 0 ? std::min(kFirstReminder, params().stallWarn.time()) : 2 * patience_;
  if (patience_.count() == 0) return;  // TUTTI_STALL_WARN=0
  const auto timer = ioService().addTimer(patience_, [self = shared_from_this()] { self->remind(); });
  if (timer.isOk()) reminder_ = *timer;
}

void Root::expire() {
  timer_ = 0;
  expired_ = true;
  if (complete_) {
    // The ranks have the same deadline and have found out by themselves.
    if (failure_.isOk() && !done_) fail({ncclSystemError, "the ranks did not connect in time"});
    return;
  }
  if (failure_.isOk() && !arrivals_.empty() && !done_) {
    const int total = arrivals_.begin()->second.hello.nranks;
    const auto waited =
        std::chrono::round<std::chrono::seconds>(std::chrono::steady_clock::now() - first_).count();
    fail(Status(ncclSystemError,
                fmt::format("{} of {} did not join within {} s (set TUTTI_INIT_TIMEOUT to wait longer)",
                            rankList(missing()), total, waited)));
  }
  finish();
}

void Root::complete() {
  RendezvousTable table;
  if (auto session = randomU64(); session.isOk()) {
    table.session = *session;
  } else {
    fail(session.status());
    return;
  }
  for (const auto& [rank, arrival] : arrivals_) {
    table.members.push_back(arrival.hello.member);
    putFirst(table.members.back().addresses, reached_);
  }
  const std::string body = table.encode();
  complete_ = true;
  stopServing();
  for (const auto& [rank, arrival] : arrivals_)
    arrival.link->send(kTableFrame, body).ignore();  // a rank that has gone by now is noticed in a moment
  logInfo(Subsystem::bootstrap, "rendezvous: all {} ranks came", arrivals_.size());
  // The timer keeps this object alive.
  const auto left = deadline_.isNever() ? kAfterTable : deadline_.at() - std::chrono::steady_clock::now();
  ioService().remove(timer_);
  auto timer = ioService().addTimer(std::chrono::ceil<std::chrono::microseconds>(left + kGrace),
                                    [self = shared_from_this()] { self->expire(); });
  if (!timer.isOk()) return fail(timer.status());
  timer_ = *timer;
}

/// Tells all that are here; those that come later, until the deadline, hear the same.
void Root::fail(Status why) {
  failure_ = std::move(why);
  logWarn("rendezvous failed: {}", failure_.message());
  for (const auto& [rank, arrival] : arrivals_)
    if (!arrival.joined) refuse(arrival.link);
  if (!complete_) setTimer(kLatecomerLimitMs);
  noteTold();
}

void Root::refuse(const std::shared_ptr<Link>& link) {
  link->send(kErrorFrame, encodeError(failure_)).ignore();
  link->finish(kFlushLimit);
  told_.push_back(link);
}

/// Whether all whom a failure concerns have heard of it: they have come, and closed their ends.
void Root::noteTold() {
  if (failure_.isOk() || allTold_.load(std::memory_order_relaxed)) return;
  const bool allCame = complete_ || expired_ || static_cast<int>(came_.size()) >= fewest_;
  const bool allClosed = std::all_of(told_.begin(), told_.end(), [](const std::weak_ptr<Link>& one) {
    const auto link = one.lock();
    return link == nullptr || link->closed();
  });
  if (!allCame || !allClosed) return;
  allTold_.store(true, std::memory_order_release);
  if (complete_) finish();
}

void Root::finish() {
  const auto self = shared_from_this();
  done_ = true;
  ioService().remove(timer_);
  timer_ = 0;
  arrivals_.clear();
  allTold_.store(true, std::memory_order_release);
  stopServing();
  listener_.reset();
}

/// Nobody else can come.
void Root::stopServing() {
  ioService().remove(reminder_);
  ioService().remove(asking_);
  reminder_ = asking_ = 0;
  questions_.clear();
  if (!serving_) return;
  serving_ = false;
  {
    const std::lock_guard lock(served().mutex);
    served().roots.erase(id_);
  }
  listener_->withdraw(id_);
}

}  // namespace tutti
