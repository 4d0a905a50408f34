#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <queue>
#include <utility>

#include "algorithms/simulator/engines.h"

namespace tutti::sim {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// Messages of a stream, in the order of their arrival.
struct StreamState {
  std::deque<double> arrivals;
  int32_t inFlight = 0;          // sent and not yet taken: what occupies FIFO slots
  int32_t waitingReceiver = -1;  // lanes
  int32_t waitingSender = -1;
};

struct Transfer {
  uint32_t lane = 0;
  int32_t stream = -1;  // -1: local traffic, whose end wakes the lane
  double bytes = 0;
  double latency = 0;
  std::vector<Hop> hops;
  bool leavesHost = false;
  double limit = kNever;
  double rate = 0;
};

struct LaneState {
  uint32_t pc = 0;
  double slice = 0;
  double time = 0;            // it is busy until then
  bool localRunning = false;  // the traffic of the current step moves
  bool localDone = false;     // it has been moved
  bool taken = false;         // its message has been taken
  bool inARow = false;        // the step before only sent, too
  uint32_t flagsDone = 0;
  bool finished = false;
  std::deque<Transfer> toSend[2];  // inside the host, to others
  bool sending[2] = {false, false};
};

class EventEngine {
 public:
  EventEngine(const Cluster& cluster, const Program& program, int32_t fifoSlots)
      : cluster_(cluster),
        program_(program),
        fifoSlots_(fifoSlots),
        shares_(cluster.capacity()),
        streams_(program.streams.size()),
        lanes_(program.lanes.size()) {
    timing_.linkBusy.resize(cluster.capacity().size());
  }

  Result<Timing> run() {
    for (uint32_t lane = 0; lane < lanes_.size(); ++lane) schedule(lane, 0);
    while (true) {
      const double next = nextTime();
      if (next == kNever) break;
      moveTo(next);
      while (!events_.empty() && events_.top().first <= now_ * (1 + 1e-12)) {
        const uint32_t lane = events_.top().second;
        events_.pop();
        advance(lane);
      }
    }
    for (uint32_t lane = 0; lane < lanes_.size(); ++lane)
      if (!lanes_[lane].finished)
        return internalError("simulation: rank {} waits for ever in step {} of {}", program_.lanes[lane].rank,
                             lanes_[lane].pc, program_.lanes[lane].count);
    timing_.seconds = std::max(now_, last_) + cluster_.latencies().call;
    return std::move(timing_);
  }

 private:
  double bytesOf(const LaneOps& lane, double share) const {
    return share * program_.channels[static_cast<size_t>(lane.channel)].bytes / program_.slices;
  }
  void schedule(uint32_t lane, double time) { events_.emplace(time, lane); }

  double nextTime() {
    if (changed_) share();
    double next = events_.empty() ? kNever : events_.top().first;
    for (const Transfer& transfer : active_) next = std::min(next, now_ + transfer.bytes / transfer.rate);
    return next;
  }

  void share() {
    std::vector<Flow> flows;
    flows.reserve(active_.size());
    for (const Transfer& transfer : active_) flows.push_back({transfer.hops, transfer.bytes, transfer.limit});
    std::vector<double> rates;
    shares_.rates(flows, &rates);
    for (size_t i = 0; i < active_.size(); ++i) active_[i].rate = rates[i];
    changed_ = false;
  }

  /// Moves bytes until `time`; what ends then arrives later, and its lane's sender takes the next.
  void moveTo(double time) {
    const double step = time - now_;
    now_ = time;
    std::vector<Transfer> ended;
    size_t kept = 0;
    for (size_t i = 0; i < active_.size(); ++i) {
      Transfer& transfer = active_[i];
      const double needs = transfer.bytes / transfer.rate;
      if (needs <= step * (1 + 1e-9) + 1e-15) {
        ended.push_back(std::move(transfer));
        continue;
      }
      transfer.bytes -= transfer.rate * step;
      if (kept != i) active_[kept] = std::move(transfer);
      ++kept;
    }
    active_.resize(kept);
    changed_ = changed_ || !ended.empty();
    for (Transfer& transfer : ended) end(transfer);
  }

  void end(const Transfer& transfer) {
    last_ = std::max(last_, now_);
    if (transfer.stream < 0) {
      lanes_[transfer.lane].localDone = true;
      schedule(transfer.lane, now_);
      return;
    }
    deliver(static_cast<uint32_t>(transfer.stream), now_ + transfer.latency);
    lanes_[transfer.lane].sending[transfer.leavesHost ? 1 : 0] = false;
    sendNext(transfer.lane, transfer.leavesHost);
  }

  void deliver(uint32_t stream, double arrival) {
    StreamState& state = streams_[stream];
    state.arrivals.push_back(arrival);
    if (state.waitingReceiver >= 0)
      schedule(static_cast<uint32_t>(std::exchange(state.waitingReceiver, -1)), arrival);
  }

  void sendNext(uint32_t lane, bool leavesHost) {
    LaneState& state = lanes_[lane];
    const size_t which = leavesHost ? 1 : 0;
    if (state.sending[which] || state.toSend[which].empty()) return;
    state.sending[which] = true;
    Transfer next = std::move(state.toSend[which].front());
    state.toSend[which].pop_front();
    start(std::move(next));
  }

  void start(Transfer transfer) {
    for (const Hop& hop : transfer.hops)
      timing_.linkBusy[hop.link] +=
          transfer.bytes * static_cast<double>(hop.weight) / shares_.capacity()[hop.link];
    if (transfer.bytes <= 0 || transfer.hops.empty()) {
      end(transfer);
      return;
    }
    active_.push_back(std::move(transfer));
    changed_ = true;
  }

  /// Runs a lane's steps until it has to wait.
  void advance(uint32_t lane) {
    LaneState& state = lanes_[lane];
    const LaneOps& ops = program_.lanes[lane];
    while (!state.finished) {
      if (state.time > now_ * (1 + 1e-12)) {
        schedule(lane, state.time);
        return;
      }
      if (state.pc == ops.count) {
        state.pc = 0;
        state.slice += 1;
        if (state.slice >= program_.slices || ops.count == 0) {
          state.finished = true;
          last_ = std::max(last_, state.time);
          return;
        }
      }
      if (!execute(lane, program_.ops[ops.first + state.pc])) return;
      state.localDone = state.localRunning = state.taken = false;
      state.flagsDone = 0;
      ++state.pc;
    }
  }

  /// False: the lane waits, and something will wake it.
  bool execute(uint32_t lane, const Op& op) {
    LaneState& state = lanes_[lane];
    const LaneOps& ops = program_.lanes[lane];
    if (op.receives >= 0 && !state.taken) {
      StreamState& stream = streams_[static_cast<size_t>(op.receives)];
      if (!arrived(lane, stream)) return false;
      stream.arrivals.pop_front();
      --stream.inFlight;
      if (stream.waitingSender >= 0)
        schedule(static_cast<uint32_t>(std::exchange(stream.waitingSender, -1)), now_);
      state.taken = true;
      state.inARow = false;
      const double busy = bytesOf(ops, op.reduced) * cluster_.latencies().gamma;
      if (busy > 0) {
        state.time = now_ + busy;
        schedule(lane, state.time);
        return false;
      }
    }
    if (op.traffic > 0 && !state.localDone) {
      std::vector<Hop> hops = cluster_.memory(ops.rank);
      if (state.localRunning) return false;
      if (!hops.empty()) {
        state.localRunning = true;
        start({lane, -1, bytesOf(ops, op.traffic), 0, std::move(hops), false, kNever, 0});
        return state.localDone;  // at once for no bytes
      }
    }
    for (; state.flagsDone < op.waits; ++state.flagsDone) {
      StreamState& flag = streams_[program_.peers[op.firstPeer + state.flagsDone]];
      if (!arrived(lane, flag)) return false;
      flag.arrivals.pop_front();
      if (state.flagsDone > 0) state.time = std::max(state.time, now_) + cluster_.latencies().perMessage;
    }
    for (uint32_t i = 0; i < op.raises; ++i)
      deliver(program_.peers[op.firstPeer + i], now_ + cluster_.latencies().signal);
    if (op.sends >= 0) return send(lane, op);
    return true;
  }

  bool arrived(uint32_t lane, StreamState& stream) {
    if (stream.arrivals.empty()) {
      stream.waitingReceiver = static_cast<int32_t>(lane);
      return false;
    }
    if (stream.arrivals.front() <= now_ * (1 + 1e-12)) return true;
    schedule(lane, stream.arrivals.front());
    return false;
  }

  bool send(uint32_t lane, const Op& op) {
    LaneState& state = lanes_[lane];
    StreamState& stream = streams_[static_cast<size_t>(op.sends)];
    if (stream.inFlight >= fifoSlots_) {
      stream.waitingSender = static_cast<int32_t>(lane);
      return false;
    }
    if (op.receives < 0 && std::exchange(state.inARow, op.receives < 0)) {
      state.inARow = false;  // once for each message
      if (const double busy = cluster_.latencies().perMessage; busy > 0) {
        state.time = now_ + busy;
        schedule(lane, state.time);
        return false;
      }
    }
    state.inARow = op.receives < 0;
    ++stream.inFlight;
    const Stream& way = program_.streams[static_cast<size_t>(op.sends)];
    const ChannelShare& channel = program_.channels[static_cast<size_t>(way.channel)];
    Route route = cluster_.route(way.from, way.to, channel.ring);
    const bool leavesHost = route.leavesHost;
    state.toSend[leavesHost ? 1 : 0].push_back({lane, op.sends, bytesOf(program_.lanes[lane], op.share),
                                                route.latency, std::move(route.hops), leavesHost,
                                                channel.limit, 0});
    sendNext(lane, leavesHost);
    return true;
  }

  using Event = std::pair<double, uint32_t>;
  const Cluster& cluster_;
  const Program& program_;
  int32_t fifoSlots_;
  FairShares shares_;
  std::vector<StreamState> streams_;
  std::vector<LaneState> lanes_;
  std::vector<Transfer> active_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  double now_ = 0;
  double last_ = 0;
  bool changed_ = false;
  Timing timing_;
};

}  // namespace

Result<Timing> runEvents(const Cluster& cluster, const Program& program, int32_t fifoSlots) {
  return EventEngine(cluster, program, fifoSlots).run();
}

}  // namespace tutti::sim
