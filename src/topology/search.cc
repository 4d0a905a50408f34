#include "topology/search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
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
/// Bounds are not exact: that something is left unsearched is said when it promises more than this.
constexpr double kWorthSaying = 1.05;
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

/// One way to search: how far steps may go, and whether rails may be crossed.
struct Pass {
  ChannelSearch::Task task;
  std::vector<Candidate> candidates;  // the best first
  Solution best;
};

class Planner {
 public:
  Planner(const Graph& graph, const Paths& paths, const SearchRequest& request)
      : request_(request),
        space_(graph, paths, request),
        search_(&space_),
        workLimit_(request.workLimit > 0 ? request.workLimit : defaultWorkLimit(request.members.size())),
        channelRate_(std::llround(static_cast<double>(request.channelBandwidth) * kRatePerGigabyte)) {}

  /// Rings: the best number and rate. Chains: `count` of them, the best rate.
  Solution best(bool ring, size_t count);
  uint64_t work() const { return work_; }
  bool limitReached() const { return limitReached_ || left() == 0; }
  Solution fallback() const;

 private:
  std::vector<Pass> passes(bool ring, size_t count);
  static double gainOf(const Pass& pass, const Pass& closer);
  static const Pass* choose(const std::vector<Pass>& passes);
  void searchQuickly(Pass* pass, size_t count, uint64_t allowance);
  void searchAll(Pass* pass, uint64_t allowance);
  bool find(Pass* pass, const Candidate& candidate, size_t count, bool greedy, uint64_t limit);
  bool exists(ChannelSearch::Task task);
  Rate boundOf(PathType level);
  std::vector<Candidate> candidates(PathType level, bool ring, size_t count);
  bool prefers(Rate a, Rate b) const;
  uint64_t left() const { return workLimit_ > work_ ? workLimit_ - work_ : 0; }

  const SearchRequest& request_;
  SearchSpace space_;
  ChannelSearch search_;
  uint64_t workLimit_;
  Rate channelRate_;
  std::array<std::optional<Rate>, 2> bounds_;  // with NVLink alone, with all links
  uint64_t work_ = 0;
  bool limitReached_ = false;
};

/// Of rates with the same total: the fastest that one channel can move; else the closest to that.
bool Planner::prefers(Rate a, Rate b) const {
  const bool fitsA = a <= channelRate_, fitsB = b <= channelRate_;
  if (fitsA != fitsB) return fitsA;
  return fitsA ? a > b : a < b;
}

/// What all channels together can have at most; of a ring. Chains: see candidates().
Rate Planner::boundOf(PathType level) {
  std::optional<Rate>& bound = bounds_[level <= PathType::nvb ? 0 : 1];
  if (!bound)
    bound = std::min({totalBound(space_, level, &work_), stepsBound(space_, level), bouncesBound(space_)});
  return *bound;
}

// Of k channels that share a link of capacity c, each gets c / k: no other rates can be the best.
std::vector<Candidate> Planner::candidates(PathType level, bool ring, size_t count) {
  std::vector<Rate> capacities;
  for (const SearchSpace::LinkInfo& link : space_.links())
    if (link.bandwidth < kLocalBandwidth && link.capacity > 0) capacities.push_back(link.capacity);
  std::ranges::sort(capacities);
  capacities.erase(std::unique(capacities.begin(), capacities.end()), capacities.end());
  const Rate bound = boundOf(level);
  const Rate chainBound = std::min({2 * bound, stepsBound(space_, level), bouncesBound(space_)});
  const Rate unlimited = static_cast<Rate>(kLocalBandwidth * kRatePerGigabyte);
  if (bound >= unlimited) return {{unlimited, count > 0 ? static_cast<int64_t>(count) : 1}};
  const int64_t most = count > 0 ? static_cast<int64_t>(count) : request_.maxChannels;
  std::vector<Candidate> all;
  for (const Rate capacity : capacities)
    // A link of PCI may be on the way of three steps of a channel; more are no use.
    for (int64_t share = 1; share <= 3 * most; ++share) {
      const Rate rate = capacity / (ring ? kHalves * share : share);
      if (rate < 1) break;
      // Chains are not bounded by the flow, which counts whole rates; but by twice of it.
      const int64_t channels = count > 0 ? most : std::min(most, bound / rate);
      if (channels > 0 && rate * channels <= (count > 0 ? chainBound : bound))
        all.push_back({rate, channels});
    }
  // Totals in steps of 1/2000, so that "the same" has an order.
  const auto step = [&](const Candidate& one) {
    return std::llround(std::log(one.total()) / std::log(kSame));
  };
  std::ranges::sort(all, [&](const Candidate& a, const Candidate& b) {
    if (step(a) != step(b)) return step(a) > step(b);
    return a.rate != b.rate && prefers(a.rate, b.rate);
  });
  all.erase(std::unique(all.begin(), all.end(),
                        [](const Candidate& a, const Candidate& b) { return a.rate == b.rate; }),
            all.end());
  return all;
}

/// Keeps what is better; returns whether all were found that the candidate hopes for.
bool Planner::find(Pass* pass, const Candidate& candidate, size_t count, bool greedy, uint64_t limit) {
  ChannelSearch::Task task = pass->task;
  task.rate = candidate.rate;
  task.wanted = static_cast<size_t>(candidate.channels);
  task.limit = std::max<uint64_t>(1, std::min(limit, left()));
  Solution found{search_.find(task, greedy), task.rate};
  work_ += search_.work();
  limitReached_ |= !greedy && search_.limitReached();
  const bool all = found.channels.size() == task.wanted;
  if ((count == 0 || all) && found.total() > pass->best.total() * kSame) pass->best = std::move(found);
  return all;
}

// Soon a good answer, mostly the best, without turning back over channels: what promises most; then rates
// that are half of each other, to find the scale; then the rates around the best of these.
void Planner::searchQuickly(Pass* pass, size_t count, uint64_t allowance) {
  const uint64_t end = work_ + allowance;
  const auto attempt = [&](const Candidate& candidate) {
    if (work_ >= end || candidate.total() <= pass->best.total() * kSame) return false;
    const uint64_t steps = 300 + 3 * space_.members() * static_cast<size_t>(candidate.channels);
    return find(pass, candidate, count, true, std::min(steps, end - work_));
  };
  constexpr size_t kFirst = 4;
  for (size_t i = 0; i < std::min(kFirst, pass->candidates.size()); ++i)
    if (attempt(pass->candidates[i])) return;
  std::vector<Candidate> byRate = pass->candidates;
  std::ranges::sort(byRate, std::greater(), &Candidate::rate);
  Rate step = std::numeric_limits<Rate>::max();
  for (const Candidate& candidate : byRate) {
    if (candidate.rate > step) continue;
    attempt(candidate);
    step = candidate.rate / 2;
  }
  const double best = static_cast<double>(pass->best.rate);
  const auto distance = [best](const Candidate& candidate) {
    const double ratio = static_cast<double>(candidate.rate) / best;
    return std::max(ratio, 1 / ratio);
  };
  if (best > 0) std::ranges::stable_sort(byRate, {}, distance);
  for (const Candidate& candidate : byRate) attempt(candidate);
}

// Candidates that promise more than what was found, until all combinations were seen or the allowance is
// used.
void Planner::searchAll(Pass* pass, uint64_t allowance) {
  const uint64_t end = work_ + allowance;
  for (const Candidate& candidate : pass->candidates) {
    if (candidate.total() <= pass->best.total() * kSame) return;
    Candidate bounded = candidate;
    if (work_ < end)
      bounded.channels =
          channelBound(space_, pass->task.levelIntra, candidate.rate, candidate.channels, &work_);
    if (bounded.total() <= pass->best.total() * kSame) continue;
    if (work_ >= end || static_cast<size_t>(bounded.channels) * space_.members() > kMostDepth) {
      limitReached_ |= bounded.total() > pass->best.total() * kWorthSaying;
      return;
    }
    // No candidate may use up what the others need.
    find(pass, bounded, 0, false, std::max<uint64_t>(1, (end - work_) / 4));
  }
}

/// Whether there is any channel, however slow.
bool Planner::exists(ChannelSearch::Task task) {
  task.rate = 1;
  task.limit = std::max<uint64_t>(1, left() / 16);
  const bool found = !search_.find(task, true).empty();
  work_ += search_.work();
  limitReached_ |= search_.limitReached();
  return found || search_.limitReached();
}

std::vector<Pass> Planner::passes(bool ring, size_t count) {
  std::vector<Pass> all;
  std::vector<PathType> inter = space_.netTypes();
  if (inter.empty()) inter.push_back(PathType::loc);
  for (const bool crossNic : {false, true}) {
    if (crossNic && (!ring || space_.nets() == 0)) continue;
    // Even where rails must not be crossed, an answer that does is better than none.
    if (crossNic && request_.crossNic == CrossNic::never && !all.empty()) continue;
    if (!crossNic && ring && space_.nets() > 0 && request_.crossNic == CrossNic::always) continue;
    for (const PathType levelInter : inter)
      for (const PathType levelIntra : space_.memberTypes()) {
        Pass pass;
        pass.task.ring = ring;
        pass.task.crossNic = crossNic;
        pass.task.levelInter = levelInter;
        pass.task.levelIntra = levelIntra;
        if (!exists(pass.task)) continue;
        pass.candidates = candidates(levelIntra, ring, count);
        all.push_back(std::move(pass));
      }
  }
  return all;
}

/// By how much a pass must be better than a closer one.
double Planner::gainOf(const Pass& pass, const Pass& closer) {
  return pass.task.crossNic != closer.task.crossNic ? kCrossGain : kFartherGain;
}

/// The closest pass that nothing farther beats by enough.
const Pass* Planner::choose(const std::vector<Pass>& passes) {
  const Pass* best = nullptr;
  for (const Pass& pass : passes) {
    if (pass.best.channels.empty()) continue;
    if (best == nullptr || pass.best.total() > best->best.total() * gainOf(pass, *best)) best = &pass;
  }
  return best;
}

Solution Planner::best(bool ring, size_t count) {
  std::vector<Pass> all = passes(ring, count);
  // Half of the steps for good answers, the rest for better ones. Passes that cannot bring enough are left
  // out.
  const auto worthwhile = [&](const Pass& pass) {
    const Pass* best = choose(all);
    return best == nullptr || best == &pass ||
           (!pass.candidates.empty() &&
            pass.candidates.front().total() > best->best.total() * gainOf(pass, *best));
  };
  uint64_t quick = left() / 2;
  for (Pass& pass : all) {
    if (!worthwhile(pass)) continue;
    const uint64_t before = work_;
    searchQuickly(&pass, count, quick / 2);
    quick -= std::min(quick, work_ - before);
  }
  // Chains need no more: their heads and tails leave room. Rings leave them a share.
  for (size_t i = 0; i < all.size() && ring; ++i)
    if (worthwhile(all[i])) searchAll(&all[i], left() / (all.size() - i + 1));
  const Pass* best = choose(all);
  return best == nullptr ? Solution{} : best->best;
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

/// Where a second rank is as close to the port as the head, it comes second and takes the children's half of
/// the traffic; unless that costs something.
void balance(const Graph& graph, const Paths& paths, const SearchRequest& request, ChannelSet* trees) {
  ChannelSet balanced = *trees;
  balanced.pattern = ChannelPattern::balancedTree;
  for (Channel& channel : balanced.channels) {
    if (channel.netIn == kNoNode || channel.order.size() < 2) return;
    const auto distance = [&](int32_t member) {
      return paths.between(request.members[static_cast<size_t>(member)], channel.netIn).type;
    };
    const auto second =
        std::ranges::min_element(channel.order.begin() + 1, channel.order.end(), {}, distance);
    std::rotate(channel.order.begin() + 1, second, second + 1);
  }
  measureChannels(graph, paths, request, &balanced);
  if (balanced.typeInter <= trees->typeInter && balanced.typeIntra <= trees->typeIntra &&
      balanced.rate() >= trees->rate())
    *trees = std::move(balanced);
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

uint64_t defaultWorkLimit(size_t members) { return 300'000 + 500 * uint64_t{members} * members; }

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
  balance(graph, paths, request, &plan.trees);
  plan.work = planner.work();
  plan.limitReached = planner.limitReached();
  return plan;
}

}  // namespace tutti
