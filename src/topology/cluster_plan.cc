#include "topology/cluster_plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "topology/double_tree.h"

namespace tutti {
namespace {

/// Which of a host's `own` channels serves channel `c` of the job.
size_t channelOf(int32_t c, size_t own) { return static_cast<size_t>(c) % own; }

/// MB/s of each of `count` channels of the job on a host with these.
uint32_t rateOf(const RailChannels& set, int32_t count) {
  const auto own = static_cast<int32_t>(set.channels.size());
  return set.rate() / static_cast<uint32_t>((count + own - 1) / own);
}

}  // namespace

Result<ClusterPlan> ClusterPlan::connect(const std::vector<std::string>& summaries, int32_t maxChannels) {
  if (summaries.empty()) return invalidArgument("a job needs at least one host");
  if (maxChannels < 1 || maxChannels > kMaxChannels)
    return invalidArgument("{} channels: must be in 1 .. {}", maxChannels, kMaxChannels);
  if (summaries.size() > std::numeric_limits<uint16_t>::max())
    return invalidUsage("{} hosts; at most 65535 can be connected", summaries.size());
  ClusterPlan cluster;
  std::vector<HostPlan> plans;
  for (size_t i = 0; i < summaries.size(); ++i) {
    auto plan = decodeHostPlan(summaries[i]);
    if (!plan.isOk()) return remoteError("plan {} of {}: {}", i, summaries.size(), plan.status().message());
    plans.push_back(std::move(*plan));
  }
  std::ranges::sort(plans, {}, [](const HostPlan& plan) { return plan.ranks.front(); });
  std::map<std::string, int32_t> known;
  for (HostPlan& plan : plans) {
    const auto host = static_cast<uint16_t>(cluster.hosts_.size());
    const auto first = static_cast<int32_t>(cluster.ranks_.size());
    for (const int32_t rank : plan.ranks) {
      if (static_cast<size_t>(rank) >= cluster.hostOf_.size())
        cluster.hostOf_.resize(static_cast<size_t>(rank) + 1, UINT16_MAX);
      uint16_t& owner = cluster.hostOf_[static_cast<size_t>(rank)];
      if (owner != UINT16_MAX) return remoteError("rank {} is on two hosts", rank);
      owner = host;
      cluster.ranks_.push_back(rank);
    }
    // Hosts that are alike share a plan: alike is what says the same of ranks 0, 1, 2, ...
    for (size_t m = 0; m < plan.ranks.size(); ++m) plan.ranks[m] = static_cast<int32_t>(m);
    const auto [entry, isNew] =
        known.emplace(encodeHostPlan(plan), static_cast<int32_t>(cluster.plans_.size()));
    if (isNew) {
      plan.ranks = {};
      cluster.plans_.push_back(std::move(plan));
    }
    cluster.hosts_.push_back({first, entry->second});
  }
  if (const auto missing = std::ranges::find(cluster.hostOf_, UINT16_MAX); missing != cluster.hostOf_.end())
    return remoteError("rank {} is on no host", missing - cluster.hostOf_.begin());
  cluster.hosts_.shrink_to_fit();
  cluster.ranks_.shrink_to_fit();
  cluster.hostOf_.shrink_to_fit();
  cluster.chooseChannels(maxChannels);
  return cluster;
}

float ClusterPlan::linkRate() const {
  float least = std::numeric_limits<float>::max();
  for (const HostPlan& plan : plans_)
    least = std::min(least, static_cast<float>(plan.rings.inter) *
                                static_cast<float>(plan.rings.channels.size()) / 1000.f);
  return least;
}

void ClusterPlan::chooseChannels(int32_t maxChannels) {
  const auto slowest = [&](const RailChannels HostPlan::*set, int32_t count) {
    uint32_t rate = UINT32_MAX;
    for (const HostPlan& plan : plans_) rate = std::min(rate, rateOf(plan.*set, count));
    return rate;
  };
  uint64_t best = 0;
  for (int32_t count = 1; count <= maxChannels; ++count) {
    const uint64_t total = uint64_t{slowest(&HostPlan::rings, count)} * static_cast<uint64_t>(count);
    // Channels cost connections and memory: more must bring at least a twentieth.
    if (total <= best + best / 20) continue;
    best = total;
    channels_ = count;
  }
  ringRate_ = static_cast<float>(slowest(&HostPlan::rings, channels_)) / 1000.f;
  treeRate_ = static_cast<float>(slowest(&HostPlan::trees, channels_)) / 1000.f;
}

// A ring that comes in by rail a and goes out by rail b crosses rails at the next host, unless that one is
// passed the other way round: in by b, out by a. All rings of every second such host are.
ClusterPlan::View ClusterPlan::ringOf(int32_t host, int32_t channel) const {
  const RailChannels& rings = planOf(host).rings;
  const bool crosses =
      std::ranges::any_of(rings.channels, [](const RailChannel& one) { return one.railIn != one.railOut; });
  return {&rings.channels[channelOf(channel, rings.channels.size())], crosses && host % 2 == 1};
}

const RailChannel& ClusterPlan::treeOf(int32_t host, int32_t channel) const {
  const RailChannels& trees = planOf(host).trees;
  return trees.channels[channelOf(channel, trees.channels.size())];
}

int32_t ClusterPlan::rankOf(int32_t host, uint16_t member) const {
  return ranks_[static_cast<size_t>(hosts_[static_cast<size_t>(host)].first) + member];
}

int32_t ClusterPlan::headOf(int32_t host, int32_t channel) const {
  return rankOf(host, treeOf(host, channel).order[0]);
}

int32_t ClusterPlan::childrensRank(int32_t host, int32_t channel) const {
  const RailChannel& chain = treeOf(host, channel);
  const bool balanced = planOf(host).trees.pattern == ChannelPattern::balancedTree && chain.order.size() > 1;
  return rankOf(host, chain.order[balanced ? 1 : 0]);
}

void ClusterPlan::addTree(int32_t channel, int32_t host, uint16_t member, ChannelNeighbours* found) const {
  const RailChannel& chain = treeOf(host, channel);
  const size_t at = static_cast<size_t>(std::ranges::find(chain.order, member) - chain.order.begin());
  const TreeNode node = doubleTreeNode(hosts(), host, channel % 2);
  size_t children = 0;
  if (at + 1 < chain.order.size()) found->treeChildren[children++] = rankOf(host, chain.order[at + 1]);
  if (at > 0) {
    found->treeParent = rankOf(host, chain.order[at - 1]);
  } else if (node.parent >= 0) {
    found->treeParent = childrensRank(node.parent, channel);
    found->railTree = chain.railIn;
  }
  if (rankOf(host, member) != childrensRank(host, channel)) return;
  for (const int32_t child : node.children) {
    if (child < 0) continue;
    found->treeChildren[children++] = headOf(child, channel);
    found->railTree = chain.railIn;
  }
}

ChannelNeighbours ClusterPlan::neighbours(int32_t channel, int32_t rank) const {
  const int32_t host = hostOf_[static_cast<size_t>(rank)];
  const auto begin = ranks_.begin() + hosts_[static_cast<size_t>(host)].first;
  const View ring = ringOf(host, channel);
  const auto member = static_cast<uint16_t>(
      std::lower_bound(begin, begin + static_cast<ptrdiff_t>(ring.size()), rank) - begin);
  size_t at = 0;
  while (ring.at(at) != member) ++at;
  ChannelNeighbours found;
  const auto nearby = [&](int32_t step) { return (host + step + hosts()) % hosts(); };
  const bool alone = hosts() == 1;
  const size_t last = ring.size() - 1;
  if (at > 0) {
    found.ringPrevious = rankOf(host, ring.at(at - 1));
  } else {
    const View other = ringOf(nearby(-1), channel);
    found.ringPrevious = rankOf(nearby(-1), other.at(other.size() - 1));
    if (!alone) found.railIn = ring.railIn();
  }
  if (at < last) {
    found.ringNext = rankOf(host, ring.at(at + 1));
  } else {
    found.ringNext = rankOf(nearby(1), ringOf(nearby(1), channel).at(0));
    if (!alone) found.railOut = ring.railOut();
  }
  addTree(channel, host, member, &found);
  return found;
}

std::vector<int32_t> ClusterPlan::ring(int32_t channel) const {
  std::vector<int32_t> all;
  for (int32_t host = 0; host < hosts(); ++host) {
    const View ring = ringOf(host, channel);
    for (size_t i = 0; i < ring.size(); ++i) all.push_back(rankOf(host, ring.at(i)));
  }
  return all;
}

int32_t ClusterPlan::railCrossings() const {
  int32_t crossings = 0;
  for (int32_t channel = 0; channel < channels_; ++channel)
    for (int32_t host = 0; host < hosts() && hosts() > 1; ++host)
      crossings += ringOf(host, channel).railOut() != ringOf((host + 1) % hosts(), channel).railIn();
  return crossings;
}

size_t ClusterPlan::bytes() const {
  const auto of = [](const auto& list) { return list.capacity() * sizeof(list[0]); };
  size_t bytes = of(plans_) + of(hosts_) + of(ranks_) + of(hostOf_);
  for (const HostPlan& plan : plans_)
    for (const RailChannels* set : {&plan.rings, &plan.trees}) {
      bytes += of(set->channels);
      for (const RailChannel& channel : set->channels) bytes += of(channel.order);
    }
  return bytes;
}

}  // namespace tutti
