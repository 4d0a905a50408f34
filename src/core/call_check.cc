#include "core/call_check.h"

#include <algorithm>
#include <cstring>

#include "base/params.h"
#include "core/communicator.h"
#include "core/operation_run.h"

namespace tutti {
namespace {

constexpr int kCheckChannel = 0;
constexpr int kCheckPort = 0;
constexpr size_t kClaimBytes = 2 * sizeof(uint64_t) + CallName::kBytes;

enum : uint8_t { kClaims = 'C', kHeader = 'M' };

Status strange(int from, size_t bytes) {
  return invalidUsage(
      "the ranks' calls do not match: rank {} sent {} bytes that belong to another call than this one "
      "(TUTTI_CHECK)",
      from, bytes);
}

/// Puts bytes into the next slot of a stream; false when there is none free.
Result<bool> put(Endpoint& endpoint, int peer, int port, std::string_view bytes) {
  TUTTI_ASSIGN(FifoSender * sender, endpoint.sender(peer, kCheckChannel, port));
  std::byte* slot = sender->tryAcquire();
  if (slot == nullptr) return false;
  std::memcpy(slot, bytes.data(), bytes.size());
  sender->publish(static_cast<uint32_t>(bytes.size()));
  return true;
}

}  // namespace

bool callsAreChecked() { return params().check() || params().checkMode() == 2; }

void CollectiveCheck::begin(Communicator& communicator, const Operation& operation, uint64_t number) {
  communicator_ = &communicator;
  number_ = number;
  WireWriter claim;
  claim.u64(number);
  CallName::of(operation).encode(claim);
  claim.u64(communicator.planner().pinned());
  least_ = {std::move(claim).bytes(), communicator.rank()};
  greatest_ = least_;
  distance_ = 1;
  sent_ = false;
  status_ = Status::ok();
}

HostRun::State CollectiveCheck::advance() {
  communicator_->executor().takeConnections();
  communicator_->endpoint().progress();
  bool moved = false;
  while (distance_ < communicator_->ranks()) {
    const bool sentBefore = sent_;
    Result<bool> done = round();
    if (!done.isOk()) {
      status_ = done.status();
      return HostRun::State::failed;
    }
    moved = moved || *done || sent_ != sentBefore;
    if (!*done) return moved ? HostRun::State::progressed : HostRun::State::waiting;
  }
  status_ = verdict();
  return status_.isOk() ? HostRun::State::done : HostRun::State::failed;
}

/// True when the round is over.
Result<bool> CollectiveCheck::round() {
  const int ranks = communicator_->ranks();
  const int to = (communicator_->rank() + distance_) % ranks;
  const int from = (communicator_->rank() + ranks - distance_) % ranks;
  Endpoint& endpoint = communicator_->endpoint();
  if (!sent_) {
    WireWriter message;
    message.u8(kClaims);
    for (const Claim* claim : {&least_, &greatest_}) message.raw(claim->bytes).i32(claim->rank);
    TUTTI_ASSIGN(sent_, put(endpoint, to, kCheckPort, message.bytes()));
    if (!sent_) return false;
  }
  TUTTI_ASSIGN(FifoReceiver * receiver, endpoint.receiver(from, kCheckChannel, kCheckPort));
  uint32_t bytes = 0;
  const std::byte* message = receiver->tryPeek(&bytes);
  if (message == nullptr) return false;
  TUTTI_TRY(merge({reinterpret_cast<const char*>(message), bytes}, from));
  receiver->release();
  sent_ = false;
  distance_ *= 2;
  return true;
}

Status CollectiveCheck::merge(std::string_view message, int from) {
  WireReader in(message);
  const bool known = in.u8() == kClaims;
  for (int i = 0; i < 2; ++i) {
    Claim claim;
    claim.bytes = std::string(in.raw(kClaimBytes));
    claim.rank = in.i32();
    if (!known || !in.ok()) return strange(from, message.size());
    if (claim.bytes < least_.bytes || (claim.bytes == least_.bytes && claim.rank < least_.rank))
      least_ = claim;
    if (claim.bytes > greatest_.bytes || (claim.bytes == greatest_.bytes && claim.rank < greatest_.rank))
      greatest_ = claim;
  }
  return in.finished() ? Status::ok() : strange(from, message.size());
}

Status CollectiveCheck::verdict() const {
  if (least_.bytes == greatest_.bytes) return Status::ok();
  const Claim* claims[] = {&least_, &greatest_};
  if (greatest_.rank < least_.rank) std::swap(claims[0], claims[1]);
  std::string texts[2];
  constexpr size_t kCallBytes = sizeof(uint64_t) + CallName::kBytes;
  if (least_.bytes.substr(0, kCallBytes) == greatest_.bytes.substr(0, kCallBytes))
    return invalidUsage(
        "{} and {} called alike, but tuttiCommSetAlgo was told differently there: it must be the same on all "
        "ranks "
        "(TUTTI_CHECK)",
        communicator_->control().describe(claims[0]->rank),
        communicator_->control().describe(claims[1]->rank));
  for (int i = 0; i < 2; ++i) {
    WireReader in(claims[i]->bytes);
    const uint64_t number = in.u64();
    texts[i] =
        fmt::format("{} called {} as its collective {}", communicator_->control().describe(claims[i]->rank),
                    CallName::decode(in).text(), number);
  }
  return invalidUsage("the ranks' calls do not match: {}, but {} (TUTTI_CHECK)", texts[0], texts[1]);
}

void CollectiveCheck::waits(std::vector<WaitFor>* found) const {
  const int ranks = communicator_->ranks();
  if (distance_ >= ranks) return;
  const int peer = sent_ ? communicator_->rank() + ranks - distance_ : communicator_->rank() + distance_;
  found->push_back({.peer = peer % ranks, .what = WaitFor::What::call});
}

void CheckedMessages::begin(Communicator& communicator, const std::vector<Operation>& messages) {
  communicator_ = &communicator;
  status_ = Status::ok();
  streams_.clear();
  for (const Operation& message : messages) {
    const bool own = message.root < 0 || message.root == communicator.rank();
    const bool sends = message.kind != Operation::Kind::recv;
    const int peer = own ? communicator.rank() : message.root;
    Launch unused;
    int port = 0;
    status_ = plan(message, &unused, &port);
    if (!status_.isOk()) return;
    auto found = std::find_if(streams_.begin(), streams_.end(), [&](const Stream& one) {
      return one.peer == peer && one.sends == sends && one.port == port;
    });
    if (found == streams_.end()) {
      streams_.push_back(
          {.peer = peer, .port = port, .sends = sends, .messages = {}, .launch = {}, .run = {}});
      found = streams_.end() - 1;
    }
    found->messages.push_back(&message);
  }
}

Status CheckedMessages::plan(const Operation& message, Launch* launch, int* port) const {
  TUTTI_ASSIGN(const Plan plan, communicator_->planner().planMessage(message));
  *launch = makeLaunch(*communicator_, message, plan, kCheckChannel);
  const Step& step = plan.schedule->lanes.front().blocks.front().steps.front();
  *port = step.kind == StepKind::recv ? step.portFrom : step.portTo;
  return Status::ok();
}

/// True when the header of the stream's first message has been sent, or has come and fits.
Result<bool> CheckedMessages::passHeader(Stream& stream) {
  const Operation& message = *stream.messages.front();
  if (stream.peer == communicator_->rank()) {
    if (message.kind == Operation::Kind::send && message.count != message.receivedCount)
      return invalidUsage("rank {} sends itself {} bytes, but receives {}", stream.peer, message.count,
                          message.receivedCount);
    return true;
  }
  Endpoint& endpoint = communicator_->endpoint();
  if (stream.sends)
    return put(endpoint, stream.peer, stream.port, WireWriter().u8(kHeader).u64(message.count).bytes());
  TUTTI_ASSIGN(FifoReceiver * receiver, endpoint.receiver(stream.peer, kCheckChannel, stream.port));
  uint32_t bytes = 0;
  const std::byte* header = receiver->tryPeek(&bytes);
  if (header == nullptr) return false;
  WireReader in({reinterpret_cast<const char*>(header), bytes});
  const bool known = in.u8() == kHeader;
  const uint64_t sent = in.u64();
  if (!known || !in.finished()) return strange(stream.peer, bytes);
  if (sent != message.count)
    return invalidUsage(
        "the ranks' calls do not match: {} sends {} bytes, but {} receives {} bytes from it (TUTTI_CHECK)",
        communicator_->control().describe(stream.peer), sent,
        communicator_->control().describe(communicator_->rank()), message.count);
  receiver->release();
  return true;
}

Result<HostRun::State> CheckedMessages::advanceStream(Stream& stream, size_t byteBudget) {
  using State = HostRun::State;
  bool moved = false;
  while (!stream.messages.empty()) {
    if (stream.run == nullptr) {
      TUTTI_ASSIGN(const bool passed, passHeader(stream));
      if (!passed) return moved ? State::progressed : State::waiting;
      int port = 0;
      TUTTI_TRY(plan(*stream.messages.front(), &stream.launch, &port));
      TUTTI_ASSIGN(stream.run, communicator_->executor().start({&stream.launch, 1}));
      moved = true;
    }
    const State state = stream.run->advance(byteBudget);
    if (state == State::failed) return stream.run->status();
    if (state == State::waiting) return moved ? State::progressed : State::waiting;
    if (state == State::progressed) return state;
    stream.run.reset();
    stream.messages.pop_front();
    moved = true;
  }
  return State::done;
}

HostRun::State CheckedMessages::advance(size_t byteBudget) {
  using State = HostRun::State;
  if (!status_.isOk()) return State::failed;
  communicator_->executor().takeConnections();
  communicator_->endpoint().progress();
  bool moved = false;
  bool finished = true;
  for (Stream& stream : streams_) {
    if (stream.messages.empty()) continue;
    const Result<State> state = advanceStream(stream, byteBudget);
    if (!state.isOk()) {
      status_ = state.status();
      return State::failed;
    }
    moved = moved || state.value() != State::waiting;
    finished = finished && state.value() == State::done;
  }
  return finished ? State::done : moved ? State::progressed : State::waiting;
}

void CheckedMessages::waits(std::vector<WaitFor>* found) const {
  for (const Stream& stream : streams_) {
    if (stream.messages.empty()) continue;
    if (stream.run == nullptr) {
      found->push_back(
          {.peer = stream.peer, .what = stream.sends ? WaitFor::What::room : WaitFor::What::call});
    } else {
      appendWaits(*stream.run, found);
    }
  }
}

void CheckedMessages::end() { streams_.clear(); }

}  // namespace tutti
