#include "topology/channel_search.h"

#include <utility>

namespace tutti {

ChannelSearch::ChannelSearch(SearchSpace* space) : space_(space) {}

std::vector<Channel> ChannelSearch::find(const Task& task, bool greedy) {
  task_ = task;
  greedy_ = greedy;
  work_ = 0;
  left_.clear();
  for (const SearchSpace::LinkInfo& link : space_->links()) left_.push_back(link.capacity);
  visited_.assign(space_->members(), false);
  channel_ = {};
  choices_.clear();
  lower_.clear();
  tight_ = false;
  found_.clear();
  best_.clear();
  if (!greedy) {
    nextChannel();
    return std::move(best_);
  }
  // One after the other: the depth of the recursion stays that of one channel.
  for (size_t before = 0; best_.size() < task_.wanted; before = best_.size()) {
    channel_ = {};
    chooseChannel();
    if (best_.size() == before) break;
  }
  return std::move(best_);
}

// Functions from here on return whether the search is over: all channels were found (the one, of a greedy
// search), or the limit is reached.

bool ChannelSearch::nextChannel() {
  if (found_.size() > best_.size()) best_ = found_;
  if (found_.size() == task_.wanted) return true;
  const auto before = std::pair(std::exchange(channel_, {}), std::exchange(choices_, {}));
  const auto enders = std::pair(enders_, isEnder_);
  const auto lower = std::exchange(lower_, before.second);
  const bool wasTight = std::exchange(tight_, !lower_.empty());
  visited_.assign(space_->members(), false);
  const bool over = chooseChannel() || limitReached();
  // Also when it is over: callers undo their steps of this channel.
  channel_ = before.first;
  choices_ = before.second;
  enders_ = enders.first;
  isEnder_ = enders.second;
  lower_ = lower;
  tight_ = wasTight;
  for (const int32_t member : channel_.order) visited_[static_cast<size_t>(member)] = true;
  return over;
}

size_t ChannelSearch::firstChoice() const { return tight_ ? lower_[choices_.size()] : 0; }

template <typename Then>
bool ChannelSearch::choice(size_t index, const Then& then) {
  const bool wasTight = tight_;
  tight_ = tight_ && index == lower_[choices_.size()];
  choices_.push_back(static_cast<uint16_t>(index));
  const bool over = then();
  choices_.pop_back();
  tight_ = wasTight;
  return over;
}

bool ChannelSearch::chooseChannel() { return space_->nets() > 0 ? choosePort() : chooseFirst(0); }

bool ChannelSearch::choosePort() {
  for (size_t net = firstChoice(); net < space_->nets(); ++net) {
    // The port itself is full: no need to try it with each member.
    const std::vector<LinkId>& in = space_->fromNet(net, space_->nearest(net)[0]);
    if (!in.empty() && left_[in.front()] < kHalves * task_.rate) continue;
    const bool over = choice(net, [&] {
      channel_.netIn = space_->netNode(net);
      return chooseFirst(net);
    });
    if (over) return true;
  }
  return false;
}

bool ChannelSearch::chooseFirst(size_t port) {
  const bool hasPort = space_->nets() > 0;
  // A ring of a host alone has no first rank: it is the first member's.
  const size_t last = !hasPort && task_.ring ? 1 : space_->members();
  for (size_t index = firstChoice(); index < last; ++index) {
    const size_t member = hasPort ? space_->nearest(port)[index] : index;
    if (hasPort && space_->netType(member, port) > task_.levelInter) break;
    if (!markEnders(port, member)) continue;
    const auto enter = [&] {
      visited_[member] = true;
      channel_.order.push_back(static_cast<int32_t>(member));
      const bool over = choice(index, [&] { return chooseNext(); });
      channel_.order.pop_back();
      visited_[member] = false;
      return over;
    };
    if (!hasPort) {
      if (enter()) return true;
      continue;
    }
    // The head of a chain sends and receives through its port.
    const std::vector<LinkId>& in = space_->fromNet(port, member);
    if (!take(in, kHalves)) {
      if (limitReached()) return true;
      continue;
    }
    bool over = false;
    if (task_.ring) {
      over = enter();
    } else if (const std::vector<LinkId>& out = space_->toNet(member, port); take(out, kHalves)) {
      channel_.netOut = channel_.netIn;
      over = enter();
      if (!over) giveBack(out, kHalves);
    }
    if (over) return true;
    giveBack(in, kHalves);
  }
  return false;
}

// Whom a ring may end with, or without this a search would notice only at the last rank that it cannot close.
bool ChannelSearch::markEnders(size_t port, size_t first) {
  enders_ = 0;
  isEnder_.assign(space_->members(), !task_.ring);
  if (!task_.ring || space_->members() == 1) return true;
  for (size_t member = 0; member < space_->members(); ++member) {
    if (member == first) continue;
    bool closes = false;
    if (space_->nets() == 0) closes = space_->memberType(member, first) <= task_.levelIntra;
    for (size_t net = 0; net < space_->nets() && !closes; ++net)
      closes = (net == port || task_.crossNic) && space_->netType(member, net) <= task_.levelInter;
    isEnder_[member] = closes;
    enders_ += closes;
  }
  return enders_ > 0;
}

bool ChannelSearch::take(const std::vector<LinkId>& links, int64_t halves) {
  ++work_;
  const Rate amount = halves * task_.rate;
  if (limitReached()) return false;
  for (size_t i = 0; i < links.size(); ++i) {
    if (left_[links[i]] >= amount) {
      left_[links[i]] -= amount;
      continue;
    }
    while (i > 0) left_[links[--i]] += amount;
    return false;
  }
  return true;
}
void ChannelSearch::giveBack(const std::vector<LinkId>& links, int64_t halves) {
  for (const LinkId link : links) left_[link] += halves * task_.rate;
}

template <typename Then>
bool ChannelSearch::step(size_t from, size_t to, const Then& then) {
  const std::vector<LinkId>& there = space_->route(from, to);
  const int64_t halves = task_.ring ? kHalves : kHalves / 2;
  if (!take(there, halves)) return limitReached();
  if (task_.ring) {
    if (then()) return true;
  } else if (const std::vector<LinkId>& back = space_->route(to, from); take(back, halves)) {
    if (then()) return true;
    giveBack(back, halves);
  }
  giveBack(there, halves);
  return limitReached();
}

bool ChannelSearch::chooseNext() {
  if (channel_.order.size() == space_->members()) return task_.ring ? closeRing() : finishChannel();
  const auto from = static_cast<size_t>(channel_.order.back());
  const std::span<const uint16_t> neighbours = space_->neighbours(from);
  for (size_t index = firstChoice(); index < neighbours.size(); ++index) {
    const size_t to = neighbours[index];
    if (space_->memberType(from, to) > task_.levelIntra) break;
    if (visited_[to]) continue;
    const bool isLast = channel_.order.size() + 1 == space_->members();
    if (task_.ring && isEnder_[to] && enders_ == 1 && !isLast) continue;
    const bool over = step(from, to, [&] {
      visited_[to] = true;
      enders_ -= isEnder_[to];
      channel_.order.push_back(static_cast<int32_t>(to));
      const bool done = choice(index, [&] { return chooseNext(); });
      channel_.order.pop_back();
      enders_ += isEnder_[to];
      visited_[to] = false;
      return done;
    });
    if (over) return true;
  }
  return false;
}

bool ChannelSearch::closeRing() {
  const auto last = static_cast<size_t>(channel_.order.back());
  if (space_->nets() == 0) {
    if (space_->members() == 1) return finishChannel();
    const auto first = static_cast<size_t>(channel_.order.front());
    if (space_->memberType(last, first) > task_.levelIntra) return false;
    return step(last, first, [&] { return finishChannel(); });
  }
  const size_t own = space_->netIndex(channel_.netIn);
  const std::vector<uint16_t> ports =
      task_.crossNic ? space_->portsFor(last, own) : std::vector<uint16_t>{static_cast<uint16_t>(own)};
  for (size_t index = firstChoice(); index < ports.size(); ++index) {
    const size_t net = ports[index];
    if (space_->netType(last, net) > task_.levelInter) continue;
    const std::vector<LinkId>& out = space_->toNet(last, net);
    if (!take(out, kHalves)) {
      if (limitReached()) return true;
      continue;
    }
    channel_.netOut = space_->netNode(net);
    if (choice(index, [&] { return finishChannel(); })) return true;
    giveBack(out, kHalves);
  }
  return false;
}

bool ChannelSearch::finishChannel() {
  if (greedy_) {
    best_.push_back(channel_);
    return true;
  }
  found_.push_back(channel_);
  if (nextChannel()) return true;
  found_.pop_back();
  return false;
}

}  // namespace tutti
