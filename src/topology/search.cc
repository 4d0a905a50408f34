#include "topology/search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "topology/channel_search.h"
#include "topology/search_space.h"

namespace tutti {
namespace {

/// A farther kind of way (PCI beside NVLink, SYS beside PCI) must bring a quarter more: it costs latency, and
/// others need it.
constexpr double kFartherGain = 1.25;
/// A crossing of rails must bring something.
constexpr double kCrossGain = 1.01;
/// Totals that differ by less are the same: rates are rounded.
constexpr double kSame = 1.0005;
/// Complete searches go as deep as this many steps of all channels together.
constexpr size_t kMostDepth = 4096;

struct Candidate {
  Rate rate = 0;
  int64_t channels = 0;  // at most
  double total() const { return static_cast<double>(rate) * static_cast<double>(channels); }
};

struct Solution {
  std::vector<Channel> channels;
  Rate rate = 0;
  double total() const { return static_cast<double>(rate) * static_cast<double>(channels.size()); }
};

class Planner {
 public:
  Planner(const Graph& graph, const Paths& paths, const SearchRequest& request)
      : request_(request),
        space_(graph, paths, request),
        channelRate_(std::llround(static_cast<double>(request.channelBandwidth) * kRatePerGigabyte)) {}

  /// Rings: the best number and rate. Chains: `count` of them, the best rate.
  Solution best(bool ring, size_t count);
  uint64_t work() const { return work_; }
  bool limitReached() const { return limitReached_; }
  Solution fallback() const;

 private:
  Solution bestOfLevels(bool ring, size_t count, bool crossNic);
  Solution bestOf(ChannelSearch::Task task, size_t count, double toBeat);
  bool exists(ChannelSearch::Task task);
  std::vector<Candidate> candidates(PathType level, size_t count);
  bool prefers(Rate a, Rate b) const;
  uint64_t left() const { return request_.workLimit > work_ ? request_.workLimit - work_ : 0; }

  const SearchRequest& request_;
  SearchSpace space_;
  Rate channelRate_;
  uint64_t work_ = 0;
  bool limitReached_ = false;
};

/// Of rates with the same total: the fastest that one channel can move; else the closest to that.
bool Planner::prefers(Rate a, Rate b) const {
  const bool fitsA = a <= channelRate_, fitsB = b <= channelRate_;
  if (fitsA != fitsB) return fitsA;
  return fitsA ? a > b : a < b;
}

// Of k channels that share a link of capacity c, each gets c / k: no other rates can be the best.
std::vector<Candidate> Planner::candidates(PathType level, size_t count) {
  std::vector<Rate> capacities;
  Rate narrowest = std::numeric_limits<Rate>::max();
  for (const SearchSpace::LinkInfo& link : space_.links())
    if (link.bandwidth < kLocalBandwidth && link.capacity > 0) capacities.push_back(link.capacity);
  std::ranges::sort(capacities);
  capacities.erase(std::unique(capacities.begin(), capacities.end()), capacities.end());
  if (!capacities.empty()) narrowest = capacities.front();
  capacities.push_back(static_cast<Rate>(kLocalBandwidth * kRatePerGigabyte) * kHalves);
  const Rate bound = totalBound(space_, level, &work_);
  const int64_t most = count > 0 ? static_cast<int64_t>(count) : request_.maxChannels;
  const Rate slowest = std::max<Rate>(1, std::min(narrowest, bound) / kHalves / (4 * most));
  std::vector<Candidate> all;
  for (const Rate capacity : capacities)
    for (int64_t share = 1; share <= 4 * kHalves * most; ++share) {
      const Rate rate = capacity / share;
      if (rate < slowest) break;
      // Chains: not bounded by the flow, which counts whole rates.
      const int64_t channels = count > 0 ? most : std::min(most, bound / rate);
      if (channels > 0 && (count == 0 || rate / 2 * most <= bound)) all.push_back({rate, channels});
    }
  // Totals in steps of 1/2000, so that "the same" has an order.
  const auto step = [&](const Candidate& one) {
    return std::llround(std::log(one.total()) / std::log(kSame));
  };
  std::ranges::sort(all, [&](const Candidate& a, const Candidate& b) {
    if (step(a) != step(b)) return step(a) > step(b);
    if (a.rate != b.rate) return prefers(a.rate, b.rate);
    return a.channels < b.channels;
  });
  all.erase(std::unique(all.begin(), all.end(),
                        [](const Candidate& a, const Candidate& b) { return a.rate == b.rate; }),
            all.end());
  return all;
}

Solution Planner::bestOf(ChannelSearch::Task task, size_t count, double toBeat) {
  Solution best;
  const std::vector<Candidate> all = candidates(task.levelIntra, count);
  ChannelSearch search(&space_);
  for (size_t i = 0; i < all.size() && left() > 0; ++i) {
    const Candidate& candidate = all[i];
    if (candidate.total() < toBeat || candidate.total() <= best.total() * kSame) break;
    task.rate = candidate.rate;
    task.wanted = static_cast<size_t>(candidate.channels);
    if (count == 0) {
      task.wanted = static_cast<size_t>(
          channelBound(space_, task.levelIntra, candidate.rate, candidate.channels, &work_));
      if (static_cast<double>(task.wanted) * static_cast<double>(task.rate) <= best.total() * kSame) continue;
    }
    const auto attempt = [&](bool greedy) {
      // No candidate may use up what the others need.
      task.limit = std::max<uint64_t>(1, left() / (greedy ? 16 : 8));
      Solution found{search.find(task, greedy), task.rate};
      work_ += search.work();
      limitReached_ |= search.limitReached();
      const bool enough = count == 0 || found.channels.size() == count;
      if (enough && found.total() > best.total() * kSame) best = std::move(found);
      return best.rate == task.rate && best.channels.size() == task.wanted;
    };
    if (attempt(true)) continue;
    if (task.ring && task.wanted * space_.members() <= kMostDepth) attempt(false);
  }
  return best;
}

/// Whether there is any channel, however slow.
bool Planner::exists(ChannelSearch::Task task) {
  ChannelSearch search(&space_);
  task.rate = 1;
  task.limit = std::max<uint64_t>(1, left() / 16);
  const bool found = !search.find(task, true).empty();
  work_ += search.work();
  return found;
}

Solution Planner::bestOfLevels(bool ring, size_t count, bool crossNic) {
  Solution best;
  ChannelSearch::Task task;
  task.ring = ring;
  task.crossNic = crossNic;
  std::vector<PathType> inter = space_.netTypes();
  if (inter.empty()) inter.push_back(PathType::loc);
  for (const PathType levelInter : inter)
    for (const PathType levelIntra : space_.memberTypes()) {
      task.levelInter = levelInter;
      task.levelIntra = levelIntra;
      if (!exists(task)) continue;
      Solution found = bestOf(task, count, best.total() * kFartherGain);
      if (found.total() > best.total() * (best.channels.empty() ? 1 : kFartherGain)) best = std::move(found);
    }
  return best;
}

Solution Planner::best(bool ring, size_t count) {
  if (!ring || space_.nets() == 0) return bestOfLevels(ring, count, false);
  Solution best;
  if (request_.crossNic != CrossNic::always) best = bestOfLevels(ring, count, false);
  if (request_.crossNic == CrossNic::never && !best.channels.empty()) return best;
  Solution crossing = bestOfLevels(ring, count, true);
  if (crossing.total() > best.total() * (best.channels.empty() ? 1 : kCrossGain)) return crossing;
  return best;
}

/// What always exists: the members in their order, one channel.
Solution Planner::fallback() const {
  Channel channel;
  for (size_t member = 0; member < space_.members(); ++member)
    channel.order.push_back(static_cast<int32_t>(member));
  if (space_.nets() > 0) channel.netIn = channel.netOut = space_.netNode(0);
  return {{std::move(channel)}, 0};
}

Status check(const Graph& graph, const SearchRequest& request) {
  if (request.members.empty()) return invalidArgument("a search needs at least one member");
  if (request.members.size() > kMaxMembers)
    return invalidArgument("{} members of one host; at most {} are searched", request.members.size(),
                           kMaxMembers);
  if (request.minChannels < 1 || request.maxChannels < request.minChannels ||
      request.maxChannels > kMaxChannels)
    return invalidArgument("{} to {} channels: must be in 1 .. {}", request.minChannels, request.maxChannels,
                           kMaxChannels);
  for (const NodeId id : request.members) {
    if (id >= graph.nodes().size()) return invalidArgument("member {} is no node of the graph", id);
    const Node& node = graph.node(id);
    if (node.type != NodeType::gpu && node.type != NodeType::cpu)
      return invalidArgument("member {} is neither GPU nor CPU", graph.label(id));
    if (node.host != graph.node(request.members[0]).host)
      return invalidArgument("members {} and {} are on different hosts", graph.label(request.members[0]),
                             graph.label(id));
  }
  return Status::ok();
}

/// Channels once more, until there are `least`; all get slower.
void repeat(int32_t least, int32_t most, std::vector<Channel>* channels) {
  const size_t distinct = channels->size();
  while (channels->size() < static_cast<size_t>(least) &&
         channels->size() + distinct <= static_cast<size_t>(most))
    for (size_t i = 0; i < distinct; ++i) channels->push_back((*channels)[i]);
}

}  // namespace

const char* channelPatternName(ChannelPattern pattern) {
  switch (pattern) {
    case ChannelPattern::balancedTree:
      return "balanced tree";
    case ChannelPattern::splitTree:
      return "split tree";
    case ChannelPattern::tree:
      return "tree";
    case ChannelPattern::ring:
      return "ring";
  }
  return "?";
}

std::vector<NodeId> defaultMembers(const Graph& graph, int32_t host) {
  std::vector<NodeId> members;
  for (const NodeType type : {NodeType::gpu, NodeType::cpu}) {
    for (const NodeId id : graph.all(type))
      if (graph.node(id).host == host) members.push_back(id);
    if (!members.empty()) break;
  }
  return members;
}

Result<ChannelPlan> searchChannels(const Graph& graph, const Paths& paths, const SearchRequest& request) {
  TUTTI_TRY(check(graph, request));
  Planner planner(graph, paths, request);
  ChannelPlan plan;
  Solution rings = planner.best(true, 0);
  if (rings.channels.empty()) rings = planner.fallback();
  Solution trees = planner.best(false, rings.channels.size());
  if (trees.channels.empty()) trees.channels = rings.channels;
  repeat(request.minChannels, request.maxChannels, &rings.channels);
  repeat(request.minChannels, request.maxChannels, &trees.channels);
  plan.rings.channels = std::move(rings.channels);
  plan.trees.pattern = ChannelPattern::tree;
  plan.trees.channels = std::move(trees.channels);
  measureChannels(graph, paths, request, &plan.rings);
  measureChannels(graph, paths, request, &plan.trees);
  // Where the second rank is as close to the port, it takes the children's half of the traffic.
  ChannelSet balanced = plan.trees;
  balanced.pattern = ChannelPattern::balancedTree;
  measureChannels(graph, paths, request, &balanced);
  if (balanced.inter > 0 && balanced.typeInter <= plan.trees.typeInter &&
      balanced.rate() >= plan.trees.rate() && request.members.size() > 1)
    plan.trees = std::move(balanced);
  plan.work = planner.work();
  plan.limitReached = planner.limitReached();
  return plan;
}

}  // namespace tutti
