// The rank's side of the rendezvous.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/dialer.h"
#include "base/identity.h"
#include "base/log.h"
#include "base/params.h"
#include "bootstrap/rendezvous.h"

namespace tutti {
namespace {

/// The root answers at the deadline of the rank that gives up first; that rank waits so much longer for it.
constexpr std::chrono::seconds kRootGrace{3};
/// For a rank whose connection was closed before an answer came.
constexpr int kMoreTries = 3;
constexpr std::chrono::seconds kNextTryLimit{2};
constexpr int64_t kDerivedPauseMs = 10;
constexpr size_t kMaxReason = 1000;
constexpr uint32_t kDeclinedMs = 20000;
/// The maker of a unique id was there before the id: where nobody listens any more, it has gone. (A network
/// may come back; that takes the usual tries.) About 3 s, unless NCCL_SOCKET_RETRY_CNT says something.
constexpr int64_t kRefusalsOfTheMaker = 7;
/// A leader that lets wait for itself is asked for where it comes from: first after, and at the latest after.
constexpr std::chrono::milliseconds kFirstAsk{1000};
constexpr std::chrono::milliseconds kLastAsk{4000};
constexpr std::chrono::milliseconds kAskLimit{2000};

/// Waits until the peer has closed its side, so that what was sent last is not lost in a reset.
void drain(int fd, Deadline deadline) {
  char rest[256];
  while (waitFor(fd, POLLIN, deadline, nullptr).isOk()) {
    const ssize_t got = ::recv(fd, rest, sizeof rest, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return;
  }
}

/// A rank that is stopped meanwhile says so, and why: the root tells the others.
Result<Frame> awaitAnswer(int fd, const JoinHello& hello, Deadline patience, const FaultState* faults) {
  const Status ready = waitFor(fd, POLLIN, patience, faults);
  if (ready.isOk()) return receiveFrame(fd, Link::kMaxFrame, patience, faults);
  if (faults == nullptr || !faults->stopped()) return ready;
  const Deadline limit = Deadline::after(kFarewellLimit);
  const Status why = leavingError(hello.member, faults->error());
  if (sendFrame(fd, kErrorFrame, encodeError(why), limit, nullptr).isOk()) {
    ::shutdown(fd, SHUT_WR);
    drain(fd, limit);
  }
  return faults->error();
}

/// An error when the leader has gone; ok when there is none to be asked.
Status checkLeader(const Kin* leader, const JoinHello& hello, Deadline deadline, const FaultState* faults) {
  if (leader == nullptr || hello.member.rank == 0) return Status::ok();
  const Status there =
      checkOffered(leader->member.addresses, leader->member.service, leader->secret,
                   linkHello(LinkKind::probe, -1), std::min(deadline, Deadline::after(kAskLimit)), faults);
  return there.isOk() ? there : goneError(0, leader->member, there);
}

/// connectAuthenticated, but not so patient with a maker of the id that has gone.
Result<UniqueFd> dialRoot(const UniqueId& id, const JoinHello& hello, Deadline deadline,
                          const FaultState* faults, const RetryPolicy& retry) {
  if (id.kind != UniqueId::Kind::makerServes || params().socketRetryCnt.isSet())
    return connectAuthenticated(id.addresses, id.id, id.secret, hello.encode(), deadline, faults, retry);
  Dialer::Request request{id.addresses, id.id, id.secret, hello.encode(), retry};
  request.refusals = kRefusalsOfTheMaker;
  TUTTI_ASSIGN(const std::unique_ptr<Dialer> dialer, Dialer::start(std::move(request)));
  return dialer->connect(deadline, faults);
}

/// Connects to the root. A leader that does not serve it yet is waited for as long as it is there.
Result<UniqueFd> reachRoot(const UniqueId& id, const JoinHello& hello, Deadline deadline,
                           const FaultState* faults, const RetryPolicy& retry, const Kin* leader) {
  for (auto pause = kFirstAsk;; pause = std::min(2 * pause, kLastAsk)) {
    const bool asks = leader != nullptr && hello.member.rank != 0;
    const Deadline limit = asks ? std::min(deadline, Deadline::after(pause)) : deadline;
    auto connected = dialRoot(id, hello, limit, faults, retry);
    if (connected.isOk() || !asks || deadline.passed() || (faults != nullptr && faults->stopped()))
      return connected;
    TUTTI_TRY(checkLeader(leader, hello, deadline, faults));
  }
}

void sayFarewell(const UniqueId& id, JoinHello hello, const Status& why, const RetryPolicy& retry) {
  hello.leaving = why.message().substr(0, kMaxReason);
  (void)connectAuthenticated(id.addresses, id.id, id.secret, hello.encode(), Deadline::after(kFarewellLimit),
                             nullptr, retry);
}

}  // namespace

std::string versionOfRank() { return fmt::format("{} (NCCL {})", tuttiVersion(), NCCL_VERSION_CODE); }

void declineToMeet(const ncclUniqueId& bytes, int rank, int nranks, const Status& why) {
  const auto id = UniqueId::decode(bytes);
  if (!id.isOk()) return;
  JoinHello hello;
  hello.version = versionOfRank();
  hello.nranks = nranks;
  hello.limitMs = kDeclinedMs;
  hello.member = {rank, hostName().substr(0, 255), ::getpid(), 0, id->addresses};
  sayFarewell(*id, std::move(hello), why, RetryPolicy{});
}

Status leavingError(const Member& member, const Status& why) {
  return remoteError("{} left during initialisation: {}", member.text(), why.message().substr(0, kMaxReason));
}

Result<Meeting> meet(const UniqueId& id, const JoinHello& hello, Deadline deadline, const FaultState* faults,
                     const Kin* leader) {
  RetryPolicy retry = RetryPolicy::fromParams();
  // Rank 0 may start any time later; the maker of a unique id was there before the id.
  retry.untilDeadline = id.kind != UniqueId::Kind::makerServes;
  if (id.kind == UniqueId::Kind::derived) retry.pauseMs = kDerivedPauseMs;  // rank 0 is in the same call
  std::string where;
  for (const SocketAddress& address : id.addresses) where += (where.empty() ? " at " : ", ") + address.text();
  where.insert(0, id.kind == UniqueId::Kind::makerServes ? "the process that made the unique id" : "rank 0");
  auto connected = reachRoot(id, hello, deadline, faults, retry, leader);
  if (!connected.isOk()) {
    if (faults != nullptr && faults->stopped()) sayFarewell(id, hello, faults->error(), retry);
    return std::move(connected).status().withContext("rank {}: reach the rendezvous of {}", hello.member.rank,
                                                     where);
  }
  const Deadline patience = deadline.isNever() ? deadline : Deadline::at(deadline.at() + kRootGrace);
  auto answer = awaitAnswer(connected->get(), hello, patience, faults);
  // A listener that strangers besiege may have taken the connection for one of theirs before the proof came.
  retry.untilDeadline = false;
  for (int again = 0; !answer.isOk() && again < kMoreTries; ++again) {
    if (deadline.passed() || (faults != nullptr && faults->stopped())) break;
    TUTTI_TRY(checkLeader(leader, hello, deadline, faults));
    const Deadline limit = std::min(deadline, Deadline::after(kNextTryLimit));
    auto next = dialRoot(id, hello, limit, faults, retry);
    if (!next.isOk()) break;
    connected = std::move(next);
    answer = awaitAnswer(connected->get(), hello, patience, faults);
  }
  if (!answer.isOk())
    return answer.status().withContext("rank {}: wait for the other ranks at the rendezvous of {}",
                                       hello.member.rank, where);
  if (answer->type == kErrorFrame) return decodeError(answer->body);
  if (answer->type != kTableFrame) return remoteError("rendezvous: answer of type {}", answer->type);
  TUTTI_ASSIGN(RendezvousTable table, RendezvousTable::decode(answer->body));
  if (table.members.size() != static_cast<size_t>(hello.nranks))
    return remoteError("the rank table has {} entries, expected {}", table.members.size(), hello.nranks);
  return Meeting{std::move(table), std::move(*connected)};
}

}  // namespace tutti
