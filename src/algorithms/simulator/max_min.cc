#include "algorithms/simulator/max_min.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>
#include <utility>

namespace tutti::sim {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNear = 1 + 1e-9;

}  // namespace

FairShares::FairShares(std::vector<double> capacity)
    : capacity_(std::move(capacity)), slot_(capacity_.size(), -1) {}

void FairShares::rates(std::span<const Flow> flows, std::vector<double>* rates) {
  rates->assign(flows.size(), -1);
  states_.clear();
  used_.clear();
  for (const Flow& flow : flows)
    for (const Hop& hop : flow.hops) {
      if (hop.weight <= 0 || capacity_[hop.link] == kInfinity) continue;
      int32_t& slot = slot_[hop.link];
      if (slot < 0) {
        slot = static_cast<int32_t>(states_.size());
        states_.push_back({capacity_[hop.link], 0, 0, 0});
        used_.push_back(hop.link);
      }
      LinkState& state = states_[static_cast<size_t>(slot)];
      state.weight += hop.weight;
      ++state.count;
    }
  const size_t links = states_.size();
  // A flow's own limit is a link of its own.
  for (const Flow& flow : flows)
    if (flow.limit < kInfinity) states_.push_back({flow.limit, 1, 0, 1});
  uint32_t total = 0;
  for (LinkState& state : states_) {
    state.first = total;
    total += std::exchange(state.count, 0);
  }
  members_.resize(total);
  for (uint32_t f = 0; f < flows.size(); ++f)
    for (const Hop& hop : flows[f].hops)
      if (hop.weight > 0 && slot_[hop.link] >= 0) {
        LinkState& state = states_[static_cast<size_t>(slot_[hop.link])];
        members_[state.first + state.count++] = f;
      }

  for (uint32_t f = 0, s = static_cast<uint32_t>(links); f < flows.size(); ++f)
    if (flows[f].limit < kInfinity) {
      members_[states_[s].first] = f;
      states_[s++].count = 1;
    }

  // Shares only grow while flows stop, so a link's share in the queue is never too large, and one that is out
  // of date goes back with its new share.
  using Entry = std::pair<double, uint32_t>;
  std::vector<Entry> entries;
  entries.reserve(states_.size());
  for (uint32_t s = 0; s < states_.size(); ++s) entries.emplace_back(shareOf(states_[s]), s);
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue(std::greater<>(), std::move(entries));
  while (!queue.empty()) {
    const auto [share, s] = queue.top();
    queue.pop();
    LinkState& full = states_[s];
    if (full.weight <= 1e-12) continue;
    const double now = std::max(0.0, shareOf(full));
    if (now > share * kNear + 1e-300) {
      queue.emplace(now, s);
      continue;
    }
    for (uint32_t m = 0; m < full.count; ++m) {
      const uint32_t f = members_[full.first + m];
      if ((*rates)[f] >= 0) continue;
      (*rates)[f] = now;
      for (const Hop& hop : flows[f].hops) {
        if (hop.weight <= 0 || slot_[hop.link] < 0) continue;
        LinkState& state = states_[static_cast<size_t>(slot_[hop.link])];
        state.left = std::max(0.0, state.left - hop.weight * now);
        state.weight -= hop.weight;
      }
    }
    full.weight = 0;
  }
  for (double& rate : *rates)
    if (rate < 0) rate = kInfinity;
  for (const uint32_t link : used_) slot_[link] = -1;
}

void FairShares::finishTimes(std::span<const Flow> flows, std::vector<double>* seconds) {
  seconds->assign(flows.size(), 0);
  std::vector<Flow> active;
  std::vector<size_t> index;
  for (size_t i = 0; i < flows.size(); ++i)
    if (flows[i].bytes > 0 && (!flows[i].hops.empty() || flows[i].limit < kInfinity)) {
      active.push_back(flows[i]);
      index.push_back(i);
    }
  double now = 0;
  std::vector<double> rate;
  for (int shares = 1; !active.empty(); ++shares) {
    rates(active, &rate);
    double step = kInfinity;
    for (size_t i = 0; i < active.size(); ++i) step = std::min(step, active[i].bytes / rate[i]);
    size_t kept = 0;
    for (size_t i = 0; i < active.size(); ++i) {
      const double needs = active[i].bytes / rate[i];
      if (shares >= kMaxShares || needs <= step * kNear) {
        (*seconds)[index[i]] = now + needs;
        continue;
      }
      active[kept] = active[i];
      active[kept].bytes -= rate[i] * step;
      index[kept++] = index[i];
    }
    active.resize(kept);
    index.resize(kept);
    now += step;
  }
}

}  // namespace tutti::sim
