#include "algorithms/simulator/simulate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "algorithms/hierarchical.h"
#include "algorithms/registry.h"

namespace tutti::sim {
namespace {

/// The orders that the ranks stand in, by channel, and what each channel moves.
struct Plan {
  const Algorithm* algorithm = nullptr;
  ScheduleRequest request;
  std::vector<std::vector<int32_t>> orders;
  std::vector<ChannelShare> channels;
  int32_t channelCount = 1;
  bool ring = false;

  /// Channels of one order become one.
  void joinAlike() {
    for (size_t c = 0; c < orders.size(); ++c)
      for (size_t other = orders.size() - 1; other > c; --other) {
        if (orders[other] != orders[c]) continue;
        channels[c].bytes += channels[other].bytes;
        channels[c].limit += channels[other].limit;
        orders.erase(orders.begin() + static_cast<ptrdiff_t>(other));
        channels.erase(channels.begin() + static_cast<ptrdiff_t>(other));
      }
  }
  /// Every other order takes its neighbour's share.
  void halve() {
    for (size_t c = 0; c + 1 < orders.size(); ++c) {
      channels[c].bytes += channels[c + 1].bytes;
      channels[c].limit += channels[c + 1].limit;
      orders.erase(orders.begin() + static_cast<ptrdiff_t>(c + 1));
      channels.erase(channels.begin() + static_cast<ptrdiff_t>(c + 1));
    }
  }
  /// One channel stands for all.
  void merge() {
    if (channels.size() < 2) return;
    orders.resize(1);
    ChannelShare all{0, -1, 0};
    for (const ChannelShare& channel : channels) {
      all.bytes += channel.bytes;
      all.limit += channel.limit;
    }
    channels = {all};
  }
};

Result<Plan> makePlan(const Cluster& cluster, const Job& job) {
  Plan plan;
  plan.algorithm = findAlgorithm(job.algorithm);
  if (plan.algorithm == nullptr) return invalidArgument("there is no algorithm \"{}\"", job.algorithm);
  const Medium medium = plan.algorithm->medium;
  if (!plan.algorithm->implements(job.collective, cluster.ranks()))
    return invalidArgument("{} does not implement {} on {} ranks", plan.algorithm->name, name(job.collective),
                           cluster.ranks());
  if ((medium == Medium::sharedScratch || medium == Medium::userBuffers) &&
      (cluster.hosts() > 1 || cluster.host().gpus))
    return invalidArgument("{} works through memory that all ranks share: one host without GPUs",
                           plan.algorithm->name);
  if (medium == Medium::hosts && (cluster.hosts() < 2 || cluster.hosts() >= cluster.ranks()))
    return invalidArgument("{} needs several hosts with several ranks; there are {} hosts and {} ranks",
                           plan.algorithm->name, cluster.hosts(), cluster.ranks());
  plan.request.collective = job.collective;
  plan.request.ranks = cluster.ranks();
  plan.request.root = job.root;
  plan.request.blocks = job.blocks;
  plan.request.hosts = cluster.ranksOfHosts();
  plan.request.intra = plan.algorithm->intra;
  plan.request.inter = plan.algorithm->inter;
  plan.channelCount = job.channels > 0 ? job.channels : cluster.rings();
  // Every channel of a ring goes its own way. Others spread over the ports of each rank anyway, but where
  // each channel has its own order, ranks take turns at what only some do (a tree's root).
  plan.ring = plan.algorithm->name == "ring";
  const double block = cluster.host().channelBytesPerSecond * cluster.latencies().efficiency;
  for (int32_t c = 0; c < plan.channelCount; ++c) {
    plan.orders.push_back(cluster.ringOrder(c));
    if (job.inRankOrder) std::ranges::sort(plan.orders.back());
    plan.channels.push_back({job.bytes / plan.channelCount, plan.ring ? c : -1, block});
  }
  const bool alike =
      std::ranges::all_of(plan.orders, [&](const auto& order) { return order == plan.orders[0]; });
  if (!plan.ring && alike) plan.merge();
  return plan;
}

Layout layoutOf(const std::vector<int32_t>& order) {
  return std::ranges::is_sorted(order) ? Layout() : Layout(order);
}

/// Rank 0's generator call, for position `position` of the identity layout.
Schedule atPosition(const Plan& plan, int32_t position) {
  ScheduleRequest request = plan.request;
  request.rank = position;
  request.layout = Layout();
  // Positions instead of ranks: hosts are blocks of them.
  for (int32_t first = 0; std::vector<int32_t> & host : request.hosts) {
    std::iota(host.begin(), host.end(), first);
    first += static_cast<int32_t>(host.size());
  }
  return plan.algorithm->schedule(request);
}

double slicesOf(const Plan& plan, const Job& job) {
  return sliceCount(atPosition(plan, 0), job.bytes / plan.channelCount, job.slotBytes);
}

Result<Program> makeProgram(const Plan& plan, const Job& job) {
  Program program;
  program.slices = slicesOf(plan, job);
  ProgramBuilder builder(&program);
  for (size_t c = 0; c < plan.channels.size(); ++c) {
    ScheduleRequest request = plan.request;
    request.layout = layoutOf(plan.orders[c]);
    request.hosts = plan.request.hosts;
    TUTTI_ASSIGN(const std::vector<Schedule> schedules, generateAll(plan.algorithm->name, request));
    builder.add(schedules, plan.channels[c]);
  }
  return program;
}

/// Steps of all ranks and channels, from those of some: the root may have more than others.
double stepsOf(const Plan& plan) {
  const int32_t p = plan.request.ranks;
  double most = 0;
  for (const int32_t position : {0, 1, 2, p / 2, p - 1})
    if (position < p && position != plan.request.root)
      most = std::max(most, stepCount(atPosition(plan, position)));
  const double ofRoot = stepCount(atPosition(plan, plan.request.root));
  return (ofRoot + most * (p - 1)) * static_cast<double>(plan.channels.size());
}

/// The rings over hosts of "hierarchical": every round moves a block of every rail to the next host, and
/// inside the hosts the ranks' contributions to the next block, or results of the one before.
Timing runHierarchy(const Cluster& cluster, const Plan& plan, const Job& job, double slices) {
  const std::vector<std::vector<int32_t>>& hosts = plan.request.hosts;
  const auto h = static_cast<double>(hosts.size());
  const int32_t rails = railCount(hosts);
  const double block = job.bytes / h / rails;
  const auto workerOf = [&](size_t host, int32_t rail) {
    return hosts[host][static_cast<size_t>(rail) % hosts[host].size()];
  };
  Timing timing;
  timing.linkBusy.resize(cluster.capacity().size());
  FairShares shares(cluster.capacity());
  double seconds = cluster.latencies().call;
  double limit = 0;
  for (const ChannelShare& channel : plan.channels) limit += channel.limit;
  for (const bool gathers : {true, false}) {
    std::vector<Route> routes;
    for (size_t host = 0; host < hosts.size(); ++host)
      for (int32_t rail = 0; rail < rails; ++rail) {
        const int32_t worker = workerOf(host, rail);
        routes.push_back(cluster.route(worker, workerOf((host + 1) % hosts.size(), rail)));
        for (const int32_t rank : hosts[host])
          if (rank != worker)
            routes.push_back(gathers ? cluster.route(rank, worker) : cluster.route(worker, rank));
      }
    std::vector<Flow> flows;
    for (const Route& route : routes) {
      flows.push_back({route.hops, block / slices, limit});
      for (const Hop& hop : route.hops)
        timing.linkBusy[hop.link] +=
            h * block * static_cast<double>(hop.weight) / shares.capacity()[hop.link];
    }
    std::vector<double> each;
    shares.finishTimes(flows, &each);
    double round = 0;
    for (size_t i = 0; i < each.size(); ++i) round = std::max(round, each[i] + routes[i].latency);
    const auto most = static_cast<double>(
        std::ranges::max(hosts, {}, [](const std::vector<int32_t>& ranks) { return ranks.size(); }).size());
    if (gathers) round += most * block / slices * cluster.latencies().gamma;
    seconds += slices * h * round;
  }
  timing.seconds = seconds;
  timing.rounds = static_cast<int32_t>(2 * h);
  return timing;
}

Result<Engine> chooseEngine(const Plan& plan, const Job& job, bool symmetric, double steps, double slices) {
  if (job.engine == Engine::symmetric && !symmetric)
    return invalidUsage("the schedules of {} are not alike", plan.algorithm->name);
  if (job.engine == Engine::hierarchy && plan.algorithm->name != "hierarchical")
    return invalidUsage("this engine knows hierarchical only");
  if (job.engine != Engine::automatic) return job.engine;
  if (symmetric) return Engine::symmetric;
  if (steps * slices <= kMostEvents) return Engine::events;
  if (plan.algorithm->name == "hierarchical") return Engine::hierarchy;
  if (steps <= kMostSteps) return Engine::rounds;
  return invalidUsage(
      "{} on {} ranks has {:.0f} million steps, and the simulator takes {:.0f} where ranks differ",
      plan.algorithm->name, plan.request.ranks, steps / 1e6, kMostSteps / 1e6);
}

void findLimit(const Cluster& cluster, const Timing& timing, Outcome* outcome) {
  size_t busiest = 0;
  for (size_t link = 0; link < timing.linkBusy.size(); ++link)
    if (timing.linkBusy[link] > timing.linkBusy[busiest] * (1 + 1e-9)) busiest = link;
  outcome->limitShare =
      timing.seconds > 0 && !timing.linkBusy.empty() ? timing.linkBusy[busiest] / timing.seconds : 0;
  outcome->limit = outcome->limitShare < 0.5 ? "latency" : cluster.label(static_cast<uint32_t>(busiest));
}

}  // namespace

const char* name(Engine engine) {
  static constexpr std::array<const char*, 5> kNames = {"automatic", "events", "rounds", "symmetric",
                                                        "hierarchy"};
  return kNames[static_cast<size_t>(engine)];
}

double busFactor(Collective collective, int32_t ranks) {
  const double p = ranks;
  switch (collective) {
    case Collective::allReduce:
      return 2 * (p - 1) / p;
    case Collective::broadcast:
    case Collective::reduce:
    case Collective::sendRecv:
      return 1;
    default:
      return (p - 1) / p;
  }
}

Result<Outcome> simulate(const Cluster& cluster, const Job& job) {
  TUTTI_ASSIGN(Plan plan, makePlan(cluster, job));
  Outcome outcome;
  outcome.channels = plan.channelCount;
  outcome.slices = slicesOf(plan, job);
  const bool canBeSymmetric = job.engine == Engine::automatic || job.engine == Engine::symmetric;
  const int32_t ranks = plan.request.ranks;
  const Symmetry symmetry =
      canBeSymmetric && ranks > 1 ? plan.algorithm->symmetryOf(job.collective, ranks) : Symmetry::none;
  const bool symmetric = symmetry != Symmetry::none;
  // Where all ranks do the same, so do channels. And what one channel's order costs too much to follow, many
  // do.
  if (!plan.ring && symmetric) plan.merge();
  while (!plan.ring && plan.channels.size() > 3 && stepsOf(plan) > kMostChannelSteps) plan.halve();
  if (!plan.ring && stepsOf(plan) > kMostSteps) plan.merge();
  TUTTI_ASSIGN(outcome.engine,
               chooseEngine(plan, job, symmetric, symmetric ? 0 : stepsOf(plan), outcome.slices));
  Timing timing;
  if (outcome.engine == Engine::symmetric) {
    timing =
        runSymmetric(cluster, {atPosition(plan, 0), symmetry, plan.orders, plan.channels, outcome.slices});
  } else if (outcome.engine == Engine::hierarchy) {
    timing = runHierarchy(cluster, plan, job, outcome.slices);
    timing.approximate = true;
  } else {
    TUTTI_ASSIGN(const Program program, makeProgram(plan, job));
    TUTTI_ASSIGN(timing, outcome.engine == Engine::events ? runEvents(cluster, program, job.fifoSlots)
                                                          : runRounds(cluster, program));
  }
  outcome.seconds = timing.seconds;
  outcome.approximate = timing.approximate;
  findLimit(cluster, timing, &outcome);
  return outcome;
}

}  // namespace tutti::sim
