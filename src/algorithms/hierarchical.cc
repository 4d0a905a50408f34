#include "algorithms/hierarchical.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tutti {
namespace {

static_assert(2 * kMostRailsPerRank <= kVariableCountPort, "each of a rank's rails has two ports");
static_assert(2 * kMostRailsPerRank <= kMaxFlags, "each of a rank's rails has two flags");

using Hosts = std::vector<std::vector<int32_t>>;

/// One rail as one rank sees it.
struct Rail {
  const std::vector<int32_t>& local;  // ranks of this host
  int32_t number;
  int32_t rails;
  int32_t host;
  int32_t hosts;
  int32_t worker;    // of this host
  int32_t next;      // the next host's worker
  int32_t previous;  // the previous host's
  int32_t port;      // of what the others of its host send to the worker; also the number of a flag
  int32_t portBack;  // of what they get from it
  int32_t portNext;
  int32_t portPrevious;

  Rail(const Hosts& all, int32_t hostNumber, int32_t railNumber, int32_t railsOfAll)
      : local(all[static_cast<size_t>(hostNumber)]),
        number(railNumber),
        rails(railsOfAll),
        host(hostNumber),
        hosts(static_cast<int32_t>(all.size())),
        worker(workerOf(local, number)),
        next(workerOf(all[static_cast<size_t>(wrap(host + 1, hosts))], number)),
        previous(workerOf(all[static_cast<size_t>(wrap(host - 1, hosts))], number)),
        port(ordinal(local, number)),
        portBack(kMostRailsPerRank + port),
        portNext(port),
        portPrevious(ordinal(all[static_cast<size_t>(wrap(host - 1, hosts))], number)) {}

  static int32_t workerOf(const std::vector<int32_t>& ranks, int32_t rail) {
    return ranks[static_cast<size_t>(rail) % ranks.size()];
  }
  /// Which of its worker's rails it is: tells streams between the same two ranks apart.
  static int32_t ordinal(const std::vector<int32_t>& ranks, int32_t rail) {
    return rail / static_cast<int32_t>(ranks.size());
  }
  /// Segment of the host `distance + i` before this one, as i counts a loop's iterations. Each host has one
  /// segment of the rail.
  Affine before(int32_t distance) const {
    return {wrap(host - distance, hosts) * rails + number, -rails, hosts * rails};
  }
  int32_t own() const { return host * rails + number; }
};

Location inputAt(Affine segment) { return {Buffer::input, segment}; }
Location outputAt(Affine segment) { return {Buffer::output, segment}; }

/// The other ranks of the host, beginning with the next one: workers that all began with the same one would
/// crowd at it.
std::vector<int32_t> othersOf(const std::vector<int32_t>& local, int32_t rank) {
  const auto own = std::ranges::find(local, rank);
  std::vector<int32_t> others(std::next(own), local.end());
  others.insert(others.end(), local.begin(), own);
  return others;
}

/// Flags of a rail: the ranks of its host say "my buffers are ready" to the worker, and it says "I am done".
int32_t readyFlag(const Rail& rail) { return rail.port; }
int32_t doneFlag(const Rail& rail) { return kMostRailsPerRank + rail.port; }

constexpr int kTeam = 0;  // of the host's ranks, the worker first

/// The worker's lane where buffers are mapped.
///
///   ring:    input -> next     previous + inputs -> next ...     previous + inputs = outputs -> next ...
///            (of the host)     (h - 2 times)                     then previous = outputs -> next (h - 2
///            times)
void workInPlace(const Rail& rail, Lane& lane) {
  const auto sumOver = [](Step& step) -> Step& {
    step.team = kTeam;
    step.messageFirst = receives(step.kind);
    return step;
  };
  lane.waitTeam(kTeam, readyFlag(rail));
  sumOver(lane.send(rail.next, inputAt(rail.own()), rail.portNext));
  lane.loop(rail.hosts - 2);
  sumOver(lane.recvReduceSend(rail.previous, inputAt(rail.before(1)), rail.next, rail.portPrevious,
                              rail.portNext));
  lane.once();
  const Affine last = rail.before(rail.hosts - 1).base;
  Step& whole = sumOver(lane.recvReduceCopySend(rail.previous, inputAt(last), outputAt(last), rail.next,
                                                rail.portPrevious, rail.portNext));
  whole.finalize = true;
  whole.dstTeam = kTeam;
  lane.loop(rail.hosts - 2);
  lane.recvCopySend(rail.previous, outputAt(rail.before(0)), rail.next, rail.portPrevious, rail.portNext)
      .dstTeam = kTeam;
  lane.once();
  lane.recv(rail.previous, outputAt(rail.before(rail.hosts - 2).base), rail.portPrevious).dstTeam = kTeam;
  lane.signalTeam(kTeam, doneFlag(rail));
}

/// The worker's lane with messages from and to the other ranks of its host. Partial sums lie in the output.
class MessageWorker {
 public:
  MessageWorker(const Rail& rail, Lane& lane) : rail_(rail), lane_(lane) {
    others_ = othersOf(rail.local, rail.worker);
  }

  void build() {
    addHost(rail_.own(), false, false);
    lane_.loop(rail_.hosts - 2);
    addHost(rail_.before(1), true, false);
    lane_.once();
    const Affine last = rail_.before(rail_.hosts - 1).base;
    addHost(last, true, true);
    giveHost(last);
    lane_.loop(rail_.hosts - 2);
    lane_.recvCopySend(rail_.previous, outputAt(rail_.before(0)), rail_.next, rail_.portPrevious,
                       rail_.portNext);
    giveHost(rail_.before(0));
    lane_.once();
    const Affine end = rail_.before(rail_.hosts - 2).base;
    lane_.recv(rail_.previous, outputAt(end), rail_.portPrevious);
    giveHost(end);
  }

 private:
  /// (message +) own + others' -> next; the last step also keeps the whole sum.
  void addHost(Affine segment, bool afterMessage, bool whole) {
    std::vector<std::pair<int32_t, int32_t>> messages;  // from which rank, on which port
    if (afterMessage) messages.emplace_back(rail_.previous, rail_.portPrevious);
    for (const int32_t rank : others_) messages.emplace_back(rank, rail_.port);
    if (messages.empty()) {
      lane_.send(rail_.next, inputAt(segment), rail_.portNext);
      return;
    }
    for (size_t i = 0; i < messages.size(); ++i) {
      const auto [from, port] = messages[i];
      const Location held = i == 0 ? inputAt(segment) : outputAt(segment);
      Step* step = nullptr;
      if (i + 1 < messages.size()) {
        step = &lane_.recvReduce(from, held, outputAt(segment), port);
      } else if (whole) {
        step = &lane_.recvReduceCopySend(from, held, outputAt(segment), rail_.next, port, rail_.portNext);
        step->finalize = true;
      } else {
        step = &lane_.recvReduceSend(from, held, rail_.next, port, rail_.portNext);
      }
      // The same order as where buffers are mapped: what came over the ring, this rank's, the others'.
      step->messageFirst = afterMessage && i == 0;
    }
  }

  void giveHost(Affine segment) {
    for (const int32_t rank : others_) lane_.send(rank, outputAt(segment), rail_.portBack);
  }

  const Rail& rail_;
  Lane& lane_;
  std::vector<int32_t> others_;
};

/// The lane of a rank that is not the rail's worker, with messages.
void serve(const Rail& rail, Lane& lane) {
  lane.loop(rail.hosts).send(rail.worker, inputAt(rail.before(0)), rail.port);
  lane.loop(rail.hosts).recv(rail.worker, outputAt(rail.before(rail.hosts - 1)), rail.portBack);
}

/// Two lanes that every rank of a host with mapped buffers has. They are apart from the workers' lanes so
/// that the host's ranks need not go from slice to slice together.
void announce(const Hosts& hosts, int32_t host, int32_t rails, Schedule& schedule) {
  Lane ready;
  Lane done;
  for (int32_t number = 0; number < rails; ++number) {
    const Rail rail(hosts, host, number, rails);
    if (rail.worker == schedule.rank) continue;
    ready.signal(rail.worker, readyFlag(rail));
    done.wait(rail.worker, doneFlag(rail));
  }
  schedule.lanes.push_back(std::move(ready));
  schedule.lanes.push_back(std::move(done));
}

/// All ranks are on one host: no ring, and a worker for each part.
Schedule onOneHost(const ScheduleRequest& request, const std::vector<int32_t>& local, Schedule schedule) {
  schedule.parts = request.ranks;
  for (int32_t part = 0; part < request.ranks; ++part) {
    const int32_t worker = local[static_cast<size_t>(part)];
    Lane& lane = schedule.lanes.emplace_back();
    if (worker != request.rank) {
      lane.send(worker, inputAt(part));
      lane.recv(worker, outputAt(part), kMostRailsPerRank);
      continue;
    }
    std::vector<int32_t> others = local;
    std::erase(others, worker);
    for (size_t i = 0; i < others.size(); ++i)
      lane.recvReduce(others[i], i == 0 ? inputAt(part) : outputAt(part), outputAt(part)).finalize =
          i + 1 == others.size();
    for (const int32_t rank : others) lane.send(rank, outputAt(part), kMostRailsPerRank);
  }
  return tidy(std::move(schedule));
}

}  // namespace

int32_t railCount(const Hosts& hosts) {
  size_t largest = 1;
  size_t smallest = SIZE_MAX;
  for (const std::vector<int32_t>& ranks : hosts) {
    largest = std::max(largest, ranks.size());
    smallest = std::min(smallest, ranks.size());
  }
  return static_cast<int32_t>(std::min(largest, smallest * static_cast<size_t>(kMostRailsPerRank)));
}

Schedule hierarchical(const ScheduleRequest& request) {
  if (request.ranks == 1) return singleRank(request, "hierarchical");
  const Hosts hosts = hostsOf(request);
  const int32_t rails = railCount(hosts);
  const int32_t host = hostOf(hosts, request.rank);
  const std::vector<int32_t>& local = hosts[static_cast<size_t>(host)];
  Schedule schedule = makeSchedule(request, "hierarchical", static_cast<int32_t>(hosts.size()) * rails);
  if (hosts.size() == 1) return onOneHost(request, local, std::move(schedule));

  const bool mapped = request.mapped && local.size() > 1;
  schedule.sharedUserBuffers = mapped;
  if (mapped) {
    schedule.flags = 2 * kMostRailsPerRank;
    std::vector<int32_t>& team = schedule.teams.emplace_back(1, request.rank);
    std::ranges::copy(othersOf(local, request.rank), std::back_inserter(team));
  }
  for (int32_t number = 0; number < rails; ++number) {
    const Rail rail(hosts, host, number, rails);
    if (rail.worker == request.rank) {
      Lane& lane = schedule.lanes.emplace_back();
      if (mapped) {
        workInPlace(rail, lane);
      } else {
        MessageWorker(rail, lane).build();
      }
    } else if (!mapped) {
      serve(rail, schedule.lanes.emplace_back());
    }
  }
  if (mapped) announce(hosts, host, rails, schedule);
  return tidy(std::move(schedule));
}

}  // namespace tutti
