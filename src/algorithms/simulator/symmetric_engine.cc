#include <algorithm>
#include <bit>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "algorithms/layout.h"
#include "algorithms/simulator/engines.h"

namespace tutti::sim {
namespace {

/// Distances whose transfers are computed and kept. An AlltoAll has as many as ranks: then those that are
/// alike (same offset within a host, about the same number of hosts away) share one.
constexpr size_t kMostDistances = 64;
/// Positions x iterations after which a loop that has not become periodic is taken to be so.
constexpr double kMostWork = 4e8;
/// Messages under way that are kept apart. Where each rank starts one to every other before it takes any, the
/// rest are taken to arrive with their latest.
constexpr size_t kMostPending = 512;

int32_t roundDistance(int32_t distance, int32_t places, int32_t positions) {
  const int32_t hosts = distance / places;
  const int32_t back = (positions - distance) / places;
  const auto near = static_cast<uint32_t>(std::min(hosts, back));
  return near < 2 ? distance : static_cast<int32_t>(std::bit_floor(near)) * places + distance % places;
}

class SymmetricEngine {
 public:
  SymmetricEngine(const Cluster& cluster, const SymmetricJob& job)
      : cluster_(cluster),
        job_(job),
        latencies_(cluster.latencies()),
        shares_(cluster.capacity()),
        p_(job.schedule.ranks) {
    timing_.linkBusy.resize(cluster.capacity().size());
    std::vector<bool> seen(static_cast<size_t>(p_));
    size_t distances = 0;
    for (const Block& block : job.schedule.lanes[0].blocks)
      for (const Step& step : block.steps)
        if (sends(step.kind))
          for (int32_t i = 0; i < block.iterations; ++i) {
            const auto at = static_cast<size_t>(distanceTo(step.peerTo.at(i)));
            if (!seen[at]) ++distances;
            seen[at] = true;
            if (step.peerTo.stride == 0) break;
          }
    roundsDistances_ = distances > kMostDistances;
  }

  Timing run() {
    double seconds = 0;
    for (channel_ = 0; channel_ < job_.channels.size(); ++channel_)
      if (!likeAnEarlierOne()) seconds = std::max(seconds, runChannel());
    for (const auto& [distance, bytes] : moved_) {
      const Transfers& transfers = transfersAt(distance);
      for (const auto& [link, busy] : transfers.busy) timing_.linkBusy[link] += busy * bytes;
    }
    // Ranks that are not in step with each other may have been given more of a link than there is.
    for (const double busy : timing_.linkBusy) seconds = std::max(seconds, busy);
    timing_.seconds = seconds + latencies_.call;
    return std::move(timing_);
  }

 private:
  /// All positions send a byte to the one at a distance: seconds and latency of each, on each channel.
  struct Transfers {
    std::vector<std::vector<double>> seconds;
    std::vector<std::vector<double>> latency;
    std::vector<std::vector<uint8_t>> leavesHost;
    std::vector<std::pair<uint32_t, double>> busy;
  };

  using Arrivals = std::shared_ptr<std::vector<double>>;  // at each position

  size_t at(int32_t position) const { return static_cast<size_t>(position); }
  int32_t distanceTo(int32_t peer) const { return peer; }  // from position 0
  int32_t target(int32_t position, int32_t distance) const {
    return job_.symmetry == Symmetry::exclusiveOr ? position ^ distance : wrap(position + distance, p_);
  }

  const Transfers& transfersAt(int32_t distance) {
    if (roundsDistances_) distance = roundDistance(distance, cluster_.host().places, p_);
    const auto [found, isNew] = transfers_.try_emplace(distance);
    Transfers& transfers = found->second;
    if (!isNew) return transfers;
    std::vector<Route> routes;
    std::vector<Flow> flows;
    for (size_t c = 0; c < job_.channels.size(); ++c)
      for (int32_t x = 0; x < p_; ++x)
        routes.push_back(cluster_.route(job_.orders[c][at(x)], job_.orders[c][at(target(x, distance))],
                                        job_.channels[c].ring));
    std::map<uint32_t, double> busy;
    for (size_t i = 0; i < routes.size(); ++i) {
      const ChannelShare& channel = job_.channels[i / static_cast<size_t>(p_)];
      flows.push_back({routes[i].hops, channel.bytes, channel.limit});
      for (const Hop& hop : routes[i].hops)
        busy[hop.link] += channel.bytes * static_cast<double>(hop.weight) / shares_.capacity()[hop.link];
    }
    transfers.busy.assign(busy.begin(), busy.end());
    std::vector<double> seconds;
    shares_.finishTimes(flows, &seconds);
    for (size_t c = 0; c < job_.channels.size(); ++c) {
      const auto first = static_cast<ptrdiff_t>(c) * p_;
      transfers.seconds.emplace_back(seconds.begin() + first, seconds.begin() + first + p_);
      std::vector<double>& latency = transfers.latency.emplace_back();
      std::vector<uint8_t>& leaves = transfers.leavesHost.emplace_back();
      for (int32_t x = 0; x < p_; ++x) {
        latency.push_back(routes[static_cast<size_t>(first + x)].latency);
        leaves.push_back(routes[static_cast<size_t>(first + x)].leavesHost ? 1 : 0);
      }
    }
    return transfers;
  }

  double runChannel() {
    time_.assign(at(p_), 0);
    for (std::vector<double>& free : senderFree_) free.assign(at(p_), 0);
    queues_.clear();
    pending_ = 0;
    latest_ = nullptr;
    inARow_ = false;
    const double most = std::min(job_.slices, 3.0);
    double ends[3] = {0, 0, 0};
    counting_ = channel_ == 0;
    for (int slice = 0; slice < static_cast<int>(most); ++slice) {
      for (const Block& block : job_.schedule.lanes[0].blocks) runBlock(block);
      ends[slice] = latest();
      counting_ = false;
    }
    double seconds = ends[static_cast<int>(most) - 1];
    if (job_.slices > most) seconds += (job_.slices - most) * (ends[2] - ends[1]);
    return seconds;
  }

  /// Rings that begin at different ranks of the hosts take as long. Distances are known from the first
  /// channel on.
  bool likeAnEarlierOne() const {
    for (size_t other = 0; other < channel_; ++other) {
      bool alike = job_.channels[other].bytes == job_.channels[channel_].bytes;
      for (const auto& [distance, transfers] : transfers_) {
        alike = alike && transfers.latency[other] == transfers.latency[channel_] &&
                std::ranges::equal(transfers.seconds[other], transfers.seconds[channel_],
                                   [](double a, double b) { return std::abs(a - b) <= 1e-9 * a; });
      }
      if (alike) return true;
    }
    return false;
  }

  double latest() const {
    double value = 0;
    for (size_t x = 0; x < time_.size(); ++x)
      value = std::max({value, time_[x], senderFree_[0][x], senderFree_[1][x]});
    return value;
  }

  void runBlock(const Block& block) {
    bool moving = false;  // peers depend on the iteration
    for (const Step& step : block.steps)
      moving = moving || step.peerTo.stride != 0 || step.peerFrom.stride != 0;
    // A ring passes the same links again in the next host, or below the next switch.
    int32_t period = cluster_.host().places;
    if (const int32_t longer = period * cluster_.hostsPerSwitch(); block.iterations >= 8 * longer)
      period = longer;
    std::vector<double> before, beforeSender[2];
    double lastMost = 0;
    for (int32_t i = 0; i < block.iterations; ++i) {
      for (const Step& step : block.steps) runStep(step, i);
      const int32_t left = block.iterations - 1 - i;
      if (moving || left < 2 * period || i % period != period - 1) continue;
      // Periodic when everything has become later by the same time since the last look.
      const double most = latest();
      const double step = most - lastMost;
      bool same = !before.empty();
      for (size_t x = 0; same && x < time_.size(); ++x)
        same = isLater(time_[x], before[x], step) && isLater(senderFree_[0][x], beforeSender[0][x], step) &&
               isLater(senderFree_[1][x], beforeSender[1][x], step);
      const bool givesUp = static_cast<double>(i) * p_ > kMostWork && !before.empty();
      before = time_;
      for (size_t which = 0; which < 2; ++which) beforeSender[which] = senderFree_[which];
      lastMost = most;
      if (!same && !givesUp) continue;
      timing_.approximate = timing_.approximate || !same;
      skip(block, left / period, period, step);
      i += left / period * period;
      before.clear();
    }
  }

  /// A sender that nothing is sent by stands still.
  static bool isLater(double now, double before, double step) {
    return now == 0 || std::abs(now - before - step) <= 1e-9 * step;
  }

  /// `times` periods of `period` iterations that each take `step`.
  void skip(const Block& block, int32_t times, int32_t period, double step) {
    const double later = times * step;
    for (double& t : time_) t += later;
    for (std::vector<double>& free : senderFree_)
      for (double& t : free) t += later;
    for (auto& [key, queue] : queues_)
      for (const Arrivals& arrivals : queue)
        for (double& t : *arrivals) t += later;
    for (const Step& s : block.steps)
      if (sends(s.kind)) count(distanceTo(s.peerTo.at(0)), movedShare(job_.schedule, s) * times * period);
  }

  void count(int32_t distance, double share) {
    if (counting_)
      moved_[roundsDistances_ ? roundDistance(distance, cluster_.host().places, p_) : distance] += share;
  }

  void runStep(const Step& step, int32_t i) {
    const double perShare = job_.channels[channel_].bytes / job_.slices;
    const double share = movedShare(job_.schedule, step);
    if (receives(step.kind))
      receive(step, i, reducesMessage(step.kind) ? share * perShare * latencies_.gamma : 0);
    if (!receives(step.kind) && !sends(step.kind)) moveLocally(localTraffic(job_.schedule, step) * perShare);
    if (sends(step.kind)) send(step, i, share);
  }

  void receive(const Step& step, int32_t i, double busy) {
    inARow_ = false;
    const int32_t from = step.peerFrom.at(i);
    std::deque<Arrivals>& queue = queues_[{from, step.portFrom}];
    if (queue.empty()) return;  // a schedule that the checker would refuse
    const std::vector<double>& arrivals = *queue.front();
    for (int32_t x = 0; x < p_; ++x) time_[at(x)] = std::max(time_[at(x)], arrivals[at(x)]) + busy;
    queue.pop_front();
    if (--pending_ == 0) latest_ = nullptr;
  }

  void send(const Step& step, int32_t i, double share) {
    const int32_t distance = distanceTo(step.peerTo.at(i));
    const Transfers& transfers = transfersAt(distance);
    const double scale = share / job_.slices;
    const std::vector<double>& seconds = transfers.seconds[channel_];
    const std::vector<double>& latency = transfers.latency[channel_];
    const std::vector<uint8_t>& leaves = transfers.leavesHost[channel_];
    const bool alone = !receives(step.kind);
    const double wait = alone && inARow_ ? latencies_.perMessage : 0;
    inARow_ = alone;
    Arrivals own;
    const bool apart = pending_ < kMostPending;
    if (apart || latest_ == nullptr) {
      Arrivals& fresh = apart ? own : latest_;
      fresh = std::make_shared<std::vector<double>>(at(p_), 0.0);
    }
    std::vector<double>& arrivals = apart ? *own : *latest_;
    for (int32_t x = 0; x < p_; ++x) {
      time_[at(x)] += wait;
      double& free = senderFree_[leaves[at(x)]][at(x)];
      free = std::max(time_[at(x)], free) + seconds[at(x)] * scale;
      double& arrival = arrivals[at(target(x, distance))];
      arrival = std::max(arrival, free + latency[at(x)]);
    }
    // Position 0 takes it from here under the name of the position that sends to it.
    const int32_t sender = job_.symmetry == Symmetry::exclusiveOr ? distance : wrap(-distance, p_);
    queues_[{sender, step.portTo}].push_back(apart ? std::move(own) : latest_);
    ++pending_;
    count(distance, share);
  }

  void moveLocally(double bytes) {
    if (bytes <= 0) return;
    if (localSeconds_.empty()) {
      std::vector<std::vector<Hop>> hops;
      std::vector<Flow> flows;
      for (int32_t x = 0; x < p_; ++x) hops.push_back(cluster_.memory(x));
      for (const std::vector<Hop>& way : hops) flows.push_back({way, 1.0});
      shares_.finishTimes(flows, &localSeconds_);
    }
    for (int32_t x = 0; x < p_; ++x) time_[at(x)] += localSeconds_[at(x)] * bytes;
  }

  const Cluster& cluster_;
  const SymmetricJob& job_;
  const Latencies& latencies_;
  FairShares shares_;
  int32_t p_;
  bool roundsDistances_ = false;
  bool counting_ = false;  // bytes by distance: they are those of every channel and slice
  size_t channel_ = 0;
  bool inARow_ = false;
  std::vector<double> time_, senderFree_[2];  // of senders inside hosts, and to others
  std::vector<double> localSeconds_;
  std::map<std::pair<int32_t, int32_t>, std::deque<Arrivals>> queues_;  // by sender to position 0, port
  size_t pending_ = 0;
  Arrivals latest_;  // of messages that are not kept apart
  std::map<int32_t, Transfers> transfers_;
  std::map<int32_t, double> moved_;  // share of the vector that has gone so far
  Timing timing_;
};

}  // namespace

Timing runSymmetric(const Cluster& cluster, const SymmetricJob& job) {
  return SymmetricEngine(cluster, job).run();
}

}  // namespace tutti::sim
