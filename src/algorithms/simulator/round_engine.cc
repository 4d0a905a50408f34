#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

#include "algorithms/simulator/engines.h"

namespace tutti::sim {
namespace {

/// What a lane waits for next, and what it has passed.
struct Clock {
  double time = 0;
  double senderFree[2] = {0, 0};    // inside the host, to others
  int32_t depth = 0;                // of the messages that it has seen
  int32_t senderDepth[2] = {0, 0};  // of the last that it sent
  int32_t localDepth = 0;           // of the last local step
  bool inARow = false;
};

struct Arrival {
  double time = 0;
  int32_t depth = 0;
};

/// How long the transfer of a step takes: a message, or local traffic.
struct Duration {
  double seconds = 0;
  double latency = 0;
  bool leavesHost = false;
};

class RoundEngine {
 public:
  RoundEngine(const Cluster& cluster, const Program& program)
      : cluster_(cluster),
        program_(program),
        latencies_(cluster.latencies()),
        durations_(program.ops.size()),
        depths_(program.ops.size(), -1) {
    timing_.linkBusy.resize(cluster.capacity().size());
  }

  Result<Timing> run() {
    findWays();
    TUTTI_TRY(pass(1));  // with no durations yet: finds the depths
    measure();
    const double most = std::min(program_.slices, 3.0);
    TUTTI_TRY(pass(static_cast<int>(most)));
    double seconds = sliceEnds_.back();
    if (program_.slices > most) {
      double perSlice = sliceEnds_[2] - sliceEnds_[1];
      for (const double busy : timing_.linkBusy) perSlice = std::max(perSlice, busy);
      seconds += (program_.slices - most) * perSlice;
    }
    for (double& busy : timing_.linkBusy) {
      busy *= program_.slices;
      seconds = std::max(seconds, busy);
    }
    timing_.seconds = seconds + latencies_.call;
    timing_.rounds = rounds_;
    return std::move(timing_);
  }

 private:
  double bytesOf(const LaneOps& lane, double share) const {
    return share * program_.channels[static_cast<size_t>(lane.channel)].bytes / program_.slices;
  }

  /// Runs `slices` slices of all lanes, in any order that messages allow.
  Status pass(int slices) {
    arrivals_.assign(program_.streams.size(), {});
    waiting_.assign(program_.streams.size(), -1);
    clocks_.assign(program_.lanes.size(), {});
    sliceEnds_.assign(static_cast<size_t>(slices), 0);
    std::vector<uint32_t> pc(program_.lanes.size()), flags(program_.lanes.size());
    std::vector<int> slice(program_.lanes.size());
    ready_.clear();
    for (uint32_t lane = 0; lane < program_.lanes.size(); ++lane) ready_.push_back(lane);
    size_t finished = 0;
    while (!ready_.empty()) {
      const uint32_t lane = ready_.front();
      ready_.pop_front();
      const LaneOps& ops = program_.lanes[lane];
      while (slice[lane] < slices) {
        if (pc[lane] == ops.count) {
          pc[lane] = 0;
          double& end = sliceEnds_[static_cast<size_t>(slice[lane])];
          end = std::max({end, clocks_[lane].time, clocks_[lane].senderFree[0], clocks_[lane].senderFree[1]});
          if (++slice[lane] == slices) ++finished;
          continue;
        }
        if (!execute(lane, ops.first + pc[lane], &flags[lane])) break;
        flags[lane] = 0;
        ++pc[lane];
      }
    }
    if (finished == program_.lanes.size()) return Status::ok();
    for (uint32_t lane = 0; lane < program_.lanes.size(); ++lane)
      if (slice[lane] < slices)
        return internalError("simulation: rank {} waits for ever in step {} of {}", program_.lanes[lane].rank,
                             pc[lane], program_.lanes[lane].count);
    return Status::ok();
  }

  bool take(uint32_t lane, uint32_t stream, Clock* clock) {
    std::deque<Arrival>& queue = arrivals_[stream];
    if (queue.empty()) {
      waiting_[stream] = static_cast<int32_t>(lane);
      return false;
    }
    clock->time = std::max(clock->time, queue.front().time);
    clock->depth = std::max(clock->depth, queue.front().depth);
    queue.pop_front();
    return true;
  }

  void put(uint32_t stream, const Arrival& arrival) {
    arrivals_[stream].push_back(arrival);
    rounds_ = std::max(rounds_, arrival.depth);
    if (waiting_[stream] >= 0) ready_.push_back(static_cast<uint32_t>(std::exchange(waiting_[stream], -1)));
  }

  bool execute(uint32_t lane, uint32_t number, uint32_t* flags) {
    const Op& op = program_.ops[number];
    const LaneOps& ops = program_.lanes[lane];
    Clock& clock = clocks_[lane];
    if (op.receives >= 0) {
      if (!take(lane, static_cast<uint32_t>(op.receives), &clock)) return false;
      clock.time += bytesOf(ops, op.reduced) * latencies_.gamma;
      clock.inARow = false;
    }
    if (op.traffic > 0) {
      clock.localDepth = std::max(clock.depth, clock.localDepth) + 1;
      if (depths_[number] < 0) depths_[number] = clock.localDepth;
      if (op.sends < 0) clock.time += durations_[number].seconds;
    }
    for (; *flags < op.waits; ++*flags) {
      if (!take(lane, program_.peers[op.firstPeer + *flags], &clock)) return false;
      if (*flags > 0) clock.time += latencies_.perMessage;
    }
    for (uint32_t i = 0; i < op.raises; ++i)
      put(program_.peers[op.firstPeer + i], {clock.time + latencies_.signal, clock.depth + 1});
    if (op.sends < 0) return true;
    if (op.receives < 0 && clock.inARow) clock.time += latencies_.perMessage;
    clock.inARow = op.receives < 0;
    const size_t which = durations_[number].leavesHost ? 1 : 0;
    double& free = clock.senderFree[which];
    int32_t& depth = clock.senderDepth[which];
    depth = std::max(clock.depth, depth) + 1;
    if (depths_[number] < 0) depths_[number] = depth;
    free = std::max(clock.time, free) + durations_[number].seconds;
    put(static_cast<uint32_t>(op.sends), {free + durations_[number].latency, depth});
    return true;
  }

  void findWays() {
    for (size_t number = 0; number < program_.ops.size(); ++number)
      if (const Op& op = program_.ops[number]; op.sends >= 0) {
        const Stream& stream = program_.streams[static_cast<size_t>(op.sends)];
        durations_[number].leavesHost = cluster_.hostOf(stream.from) != cluster_.hostOf(stream.to);
      }
  }

  /// Lays the messages of each depth on the links.
  void measure() {
    rounds_ = 0;
    std::vector<std::vector<uint32_t>> groups;
    std::vector<uint32_t> laneOf(program_.ops.size());
    for (uint32_t lane = 0; lane < program_.lanes.size(); ++lane)
      for (uint32_t i = 0; i < program_.lanes[lane].count; ++i) {
        const uint32_t number = program_.lanes[lane].first + i;
        laneOf[number] = lane;
        if (depths_[number] < 0) continue;
        if (groups.size() <= static_cast<size_t>(depths_[number]))
          groups.resize(static_cast<size_t>(depths_[number]) + 1);
        groups[static_cast<size_t>(depths_[number])].push_back(number);
      }
    FairShares shares(cluster_.capacity());
    std::vector<Route> routes;
    std::vector<Flow> flows;
    std::vector<double> seconds;
    for (const std::vector<uint32_t>& group : groups) {
      routes.clear();
      flows.clear();
      for (const uint32_t number : group) routes.push_back(routeOf(number, program_.lanes[laneOf[number]]));
      for (size_t i = 0; i < group.size(); ++i) {
        const Op& op = program_.ops[group[i]];
        const LaneOps& lane = program_.lanes[laneOf[group[i]]];
        const bool sends = op.sends >= 0;
        flows.push_back({routes[i].hops, bytesOf(lane, sends ? op.share : op.traffic)});
        if (sends) flows.back().limit = program_.channels[static_cast<size_t>(lane.channel)].limit;
        for (const Hop& hop : routes[i].hops)
          timing_.linkBusy[hop.link] +=
              flows.back().bytes * static_cast<double>(hop.weight) / shares.capacity()[hop.link];
      }
      shares.finishTimes(flows, &seconds);
      for (size_t i = 0; i < group.size(); ++i)
        durations_[group[i]] = {seconds[i], routes[i].latency, routes[i].leavesHost};
    }
  }

  Route routeOf(uint32_t number, const LaneOps& lane) const {
    const Op& op = program_.ops[number];
    if (op.sends < 0) return {cluster_.memory(lane.rank), 0};
    const Stream& stream = program_.streams[static_cast<size_t>(op.sends)];
    return cluster_.route(stream.from, stream.to,
                          program_.channels[static_cast<size_t>(stream.channel)].ring);
  }

  const Cluster& cluster_;
  const Program& program_;
  const Latencies& latencies_;
  std::vector<Duration> durations_;  // by step
  std::vector<int32_t> depths_;      // the same; -1: moves nothing
  std::vector<std::deque<Arrival>> arrivals_;
  std::vector<int32_t> waiting_;
  std::vector<Clock> clocks_;
  std::vector<double> sliceEnds_;
  std::deque<uint32_t> ready_;
  int32_t rounds_ = 0;
  Timing timing_;
};

}  // namespace

Result<Timing> runRounds(const Cluster& cluster, const Program& program) {
  return RoundEngine(cluster, program).run();
}

}  // namespace tutti::sim
