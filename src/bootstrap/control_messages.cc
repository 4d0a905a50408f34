// Control's blocking calls, on the rank's own thread.
#include <algorithm>

#include "base/log.h"
#include "base/wire.h"
#include "bootstrap/control_frames.h"
#include "bootstrap/control_hub.h"

namespace tutti {
namespace {

/// Waits look at the fault state so often, since others raise it without telling us.
constexpr std::chrono::milliseconds kSlice{20};
/// A sender waits while so much is queued for a slow peer.
constexpr size_t kQueueLimit = 4u << 20;

}  // namespace

/// Sleeps until something has changed, or a slice. Not ok when waiting has no sense any more.
Status Control::Hub::waitSlice(uint32_t ticket, Deadline deadline) {
  if (faults_->stopped()) return faults_->error();
  if (deadline.passed()) return {ncclSystemError, "timed out"};
  changed_.wait(ticket, std::chrono::milliseconds(deadline.pollTimeoutMs(static_cast<int>(kSlice.count()))));
  return Status::ok();
}

/// Not ok when nothing will come from or reach the peer any more.
Status Control::Hub::checkPeer(int peer) const {
  switch (peers_[static_cast<size_t>(peer)]) {
    case PeerState::left:
      return remoteError("{} has left the communicator", describeLocked(peer));
    case PeerState::dead:
      return remoteError("{}", deaths_.at(peer));
    case PeerState::unknown:
      break;
  }
  return Status::ok();
}

std::string Control::Hub::missingFrom(uint64_t sequence) const {
  std::vector<int> missing;
  const auto parts = contributions_.find(sequence);
  for (int i = 0; i < size_; ++i)
    if (parts == contributions_.end() || !parts->second[static_cast<size_t>(i)]) missing.push_back(i);
  return missing.empty() ? "" : rankList(missing);
}

/// After a time-out: who is to blame, as far as rank 0 knows.
std::string Control::Hub::askWhoIsMissing(uint64_t sequence) {
  if (rank_ == 0) {
    const std::lock_guard lock(mutex_);
    return missingFrom(sequence);
  }
  const Deadline limit = Deadline::after(std::chrono::milliseconds(500));
  for (bool asked = false;;) {
    const uint32_t ticket = changed_.ticket();
    {
      const std::lock_guard lock(mutex_);
      if (!asked && (!star_[0] || !star_[0]->send(kAskFrame, WireWriter().u64(sequence).bytes()).isOk()))
        return "rank 0";
      asked = true;
      if (const auto answer = missing_.find(sequence); answer != missing_.end()) {
        std::string text = std::move(answer->second);
        missing_.erase(answer);
        return text;
      }
    }
    if (!waitSlice(ticket, limit).isOk()) return "rank 0";
  }
}

Result<std::vector<std::string>> Control::Hub::allGather(std::string_view mine, Deadline deadline) {
  uint64_t sequence = 0;
  {
    const std::lock_guard lock(mutex_);
    if (leaving_) return invalidUsage("rank {} has left the communicator", rank_);
    if (faults_->stopped()) return faults_->error();  // the first failure, not what followed from it
    sequence = gathers_++;
    if (rank_ == 0) {
      contribute(0, sequence, std::string(mine));
    } else {
      TUTTI_TRY(checkPeer(0));
      // A connection that has just closed refuses the frame; why it closed is known a moment later, and the
      // loop below tells that.
      star_[0]->send(kGatherFrame, WireWriter().u64(sequence).raw(mine).bytes()).ignore();
    }
  }
  std::string encoded;
  const auto taken = [&] {  // mutex_ held
    const auto found = gathered_.find(sequence);
    if (found == gathered_.end()) return false;
    encoded = std::move(found->second);
    gathered_.erase(found);
    return true;
  };
  for (;;) {
    const uint32_t ticket = changed_.ticket();
    {
      const std::lock_guard lock(mutex_);
      if (taken()) break;
      // A rank that has left will never contribute what it has not sent.
      for (int peer = 0; peer < size_; ++peer)
        if (peer == 0 || rank_ == 0) {
          const auto parts = contributions_.find(sequence);
          const bool came =
              parts != contributions_.end() && parts->second[static_cast<size_t>(peer)].has_value();
          if (!came) TUTTI_TRY(faults_->stopped() ? faults_->error() : checkPeer(peer));
        }
    }
    if (Status status = waitSlice(ticket, deadline); !status.isOk()) {
      {
        // The result may have come together with the end of its sender.
        const std::lock_guard lock(mutex_);
        if (taken()) break;
      }
      if (faults_->stopped()) return status;
      return status.withContext("rank {}: waiting for {}", rank_, askWhoIsMissing(sequence));
    }
  }
  WireReader in(encoded);
  std::vector<std::string> result;
  for (int i = 0; i < size_; ++i) result.emplace_back(in.string());
  if (!in.finished()) return remoteError("malformed result of an all-gather from {}", describe(0));
  return result;
}

/// The connection for messages to a peer: the star where it joins the two, else a direct one, made now if
/// needed.
Result<std::shared_ptr<Link>> Control::Hub::linkTo(int peer, Deadline deadline) {
  {
    const std::lock_guard lock(mutex_);
    if (leaving_) return invalidUsage("rank {} has left the communicator", rank_);
    TUTTI_TRY(checkPeer(peer));
    if (peer == 0 || rank_ == 0) {
      const auto& link = star_[static_cast<size_t>(peer)];
      if (!link) return internalError("no connection with rank {}", peer);
      return link;
    }
    if (const auto found = direct_.find(peer); found != direct_.end()) return found->second;
  }
  TUTTI_TRY(dial(peer, LinkKind::direct, deadline, faults_.get()).status());
  const std::lock_guard lock(mutex_);
  return direct_.at(peer);  // the peer's own connection may have come first
}

Status Control::Hub::send(int peer, uint64_t tag, std::string_view bytes, Deadline deadline) {
  if (peer < 0 || peer >= size_) return invalidArgument("rank {}: send to rank {} of {}", rank_, peer, size_);
  if (peer == rank_) {
    {
      const std::lock_guard lock(mutex_);
      inbox_[{peer, tag}].emplace_back(bytes);
    }
    changed_.notify();
    return Status::ok();
  }
  if (faults_->stopped()) return faults_->error();
  TUTTI_ASSIGN(const std::shared_ptr<Link> link, linkTo(peer, deadline));
  TUTTI_TRY(link->send(kMessageFrame, WireWriter().u64(tag).raw(bytes).bytes())
                .withContext("rank {}: send to {}", rank_, describe(peer)));
  while (link->queuedBytes() > kQueueLimit && !link->closed()) {
    TUTTI_TRY(waitSlice(changed_.ticket(), deadline)
                  .withContext("rank {}: {} does not take what is sent to it", rank_, describe(peer)));
  }
  return Status::ok();
}

Result<std::string> Control::Hub::receive(int peer, uint64_t tag, Deadline deadline) {
  if (peer < 0 || peer >= size_)
    return invalidArgument("rank {}: receive from rank {} of {}", rank_, peer, size_);
  for (;;) {
    const uint32_t ticket = changed_.ticket();
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = inbox_.find({peer, tag}); found != inbox_.end()) {
        std::string message = std::move(found->second.front());
        found->second.pop_front();
        if (found->second.empty()) inbox_.erase(found);
        return message;
      }
      if (leaving_) return invalidUsage("rank {} has left the communicator", rank_);
      if (!faults_->stopped()) TUTTI_TRY(checkPeer(peer).withContext("rank {}: receive", rank_));
    }
    if (Status status = waitSlice(ticket, deadline); !status.isOk()) {
      if (faults_->stopped()) return status;
      return status.withContext("rank {}: waiting for a message from {}", rank_, describe(peer));
    }
  }
}

}  // namespace tutti
