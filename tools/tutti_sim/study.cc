#include "tutti_sim/study.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "algorithms/cost_model.h"
#include "topology/graph.h"
#include "topology/system_xml.h"

namespace tutti::simtool {
namespace {

constexpr int32_t kRanksPerPlainHost = 8;
constexpr int32_t kManyRanks = 2048;
constexpr double kLargePipeline = 64 << 20;

}  // namespace

Result<Study> Study::make(const Options& options) {
  Study study(options);
  if (options.topoFile.empty()) return study;
  TUTTI_ASSIGN(study.system_, readSystemXml(options.topoFile));
  TUTTI_ASSIGN(const Graph graph, Graph::build(study.system_));
  const std::vector<NodeId> gpus = graph.all(NodeType::gpu);
  study.gpusPerHost_ =
      static_cast<int32_t>(std::ranges::count_if(gpus, [&](NodeId id) { return graph.node(id).host == 0; }));
  if (study.gpusPerHost_ == 0) return invalidUsage("--topo {}: no GPU in it", options.topoFile);
  return study;
}

int32_t Study::hostsFor(int32_t ranks) const {
  if (options_->hosts > 0) return options_->hosts;
  if (options_->networkGiven && options_->network.kind == sim::NetworkKind::none) return 1;
  const int32_t perHost = options_->perHost > 0 ? options_->perHost
                          : gpus()              ? gpusPerHost_
                                                : kRanksPerPlainHost;
  return sim::ceilDiv(ranks, perHost);
}

std::vector<sim::Protocol> Study::protocols() const {
  return gpus() ? options_->protocols : std::vector<sim::Protocol>{sim::Protocol::simple};
}

std::vector<sim::Protocol> Study::protocolsFor(const std::string& algorithm, int32_t ranks, double bytes) {
  const std::vector<sim::Protocol> all = protocols();
  if (ranks <= kManyRanks || all.size() == 1) return all;
  // A large vector in a pipeline hides latency: bytes are all that counts.
  const CostQuery query{algorithm, options_->collective, ranks, static_cast<size_t>(bytes), hostsFor(ranks)};
  if (const CostForm form = costForm(query, 1); form.stages > 0 && bytes * form.largest > kLargePipeline)
    return {all.front()};
  sim::Protocol best = all.front();
  double least = std::numeric_limits<double>::infinity();
  for (const sim::Protocol protocol : all) {
    const auto on = cluster(ranks, protocol, algorithm == "tree");
    if (!on.isOk()) return all;
    const sim::HostModel& host = (*on)->host();
    const sim::Latencies& times = (*on)->latencies();
    const double inside = static_cast<double>((*on)->rings()) * host.channelBytesPerSecond * times.efficiency;
    TwoLevelCosts costs = gpuCosts(inside, host.portBytesPerSecond * host.ports * times.efficiency);
    costs.call = times.call;
    costs.inside.alpha = costs.inside.sliceAlpha = times.inside;
    costs.between.alpha = costs.between.sliceAlpha = times.between;
    costs.inside.sliceBytes = static_cast<size_t>(job(algorithm, bytes, protocol).slotBytes);
    const double seconds = predictSeconds(
        {algorithm, options_->collective, ranks, static_cast<size_t>(bytes), (*on)->hosts(), (*on)->rings()},
        costs);
    if (seconds >= least) continue;
    least = seconds;
    best = protocol;
  }
  return {best};
}

Result<sim::Cluster> Study::build(int32_t ranks, sim::Protocol protocol, bool tree,
                                  const std::vector<int32_t>& placement) const {
  sim::FabricOptions fabric;
  fabric.ranks = ranks;
  fabric.hosts = hostsFor(ranks);
  fabric.network = options_->network;
  fabric.ports = options_->ports;
  fabric.portBytesPerSecond = options_->portBytesPerSecond;
  fabric.wire = options_->wire;
  fabric.channels = options_->channels;
  fabric.placement = placement;
  if (gpus())
    return gpuCluster(system_, fabric, sim::gpuLatencies(protocol, tree))
        .withContext("{}", options_->topoFile);
  return cpuCluster(fabric);
}

Result<const sim::Cluster*> Study::cluster(int32_t ranks, sim::Protocol protocol, bool tree) {
  const std::tuple key{ranks, protocol, tree};
  if (const auto found = clusters_.find(key); found != clusters_.end()) return &found->second;
  TUTTI_ASSIGN(sim::Cluster built, build(ranks, protocol, tree, {}));
  return &clusters_.emplace(key, std::move(built)).first->second;
}

Result<std::vector<std::string>> Study::algorithmsFor(int32_t ranks) const {
  std::vector<std::string> names;
  if (!options_->algorithms.empty()) {
    for (const std::string& name : options_->algorithms) {
      const Algorithm* found = findAlgorithm(name);
      std::string known;
      for (const Algorithm& algorithm : algorithms())
        known += (known.empty() ? "" : ", ") + std::string(algorithm.name);
      if (found == nullptr) return invalidUsage("--algo: \"{}\" is no algorithm; known are {}", name, known);
      names.emplace_back(found->name);
    }
    return names;
  }
  for (const Algorithm& algorithm : algorithms())
    if (algorithm.implements(options_->collective, ranks) && (ranks <= kManyRanks || algorithm.inter.empty()))
      names.emplace_back(algorithm.name);
  if (names.empty())
    return invalidUsage("no algorithm implements {} on {} ranks", name(options_->collective), ranks);
  return names;
}

sim::Job Study::job(const std::string& algorithm, double bytes, sim::Protocol protocol) const {
  sim::Job job;
  job.algorithm = algorithm;
  job.collective = options_->collective;
  job.bytes = bytes;
  job.root = options_->root;
  job.channels = options_->channels;
  job.blocks = options_->blocks;
  job.engine = options_->engine;
  job.slotBytes = gpus() ? sim::gpuMessageBytes(protocol) : static_cast<double>(CostParameters{}.sliceBytes);
  if (options_->slotBytes > 0) job.slotBytes = options_->slotBytes;
  return job;
}

/// By the closed form, with the slowest kind of message.
int32_t Study::chooseBlocks(const Algorithm& algorithm, const sim::Cluster& cluster, double bytes) const {
  if (!pipelinesBlocks(algorithm.name, options_->collective)) return 0;
  if (options_->blocks > 0) return options_->blocks;
  const bool several = cluster.hosts() > 1;
  CostParameters costs;
  costs.alpha = costs.sliceAlpha = several ? cluster.latencies().between : cluster.latencies().inside;
  double slowest = std::numeric_limits<double>::infinity();
  if (cluster.ranks() > 1)
    for (const sim::Hop& hop : cluster.route(0, cluster.ranks() - 1).hops)
      slowest = std::min(slowest, cluster.capacity()[hop.link]);
  costs.beta = 1 / slowest;
  costs.gamma = cluster.latencies().gamma;
  return bestBlocks({algorithm.name, options_->collective, cluster.ranks(), static_cast<size_t>(bytes)},
                    costs);
}

Result<Row> Study::run(const std::string& algorithm, int32_t ranks, double bytes) {
  const Algorithm& known = *findAlgorithm(algorithm);
  Row best;
  Status failure;
  for (const sim::Protocol protocol : protocolsFor(algorithm, ranks, bytes)) {
    TUTTI_ASSIGN(const sim::Cluster* const on, cluster(ranks, protocol, algorithm == "tree"));
    Row row{ranks, on->hosts(), bytes, algorithm, gpus() ? sim::name(protocol) : "", 0, {}};
    row.blocks = chooseBlocks(known, *on, bytes);
    sim::Job what = job(algorithm, bytes, protocol);
    what.blocks = row.blocks;
    auto outcome = simulate(*on, what);
    if (!outcome.isOk()) return outcome.status();
    row.outcome = std::move(outcome).value();
    if (best.ranks == 0 || row.outcome.seconds < best.outcome.seconds) best = std::move(row);
  }
  return best;
}

Result<std::vector<Row>> Study::runAll() {
  std::vector<Row> rows;
  for (const int32_t ranks : options_->ranks) {
    TUTTI_ASSIGN(const std::vector<std::string> names, algorithmsFor(ranks));
    TUTTI_TRY(
        cluster(ranks, protocols().front(), false).status());  // what is wrong with the cluster is an error
    const std::string pairs =
        fmt::format("pairs of algorithms above {} ranks, for their time: name them with --algo", kManyRanks);
    if (ranks > kManyRanks && options_->algorithms.empty() && options_->collective == Collective::allReduce &&
        std::ranges::find(leftOut_, pairs) == leftOut_.end())
      leftOut_.push_back(pairs);
    for (const double bytes : options_->bytes) {
      std::vector<Row> some;
      for (const std::string& algorithm : names) {
        auto row = run(algorithm, ranks, bytes);
        if (row.isOk()) {
          some.push_back(std::move(row).value());
        } else if (!options_->algorithms.empty()) {
          return row.status();
        } else if (std::ranges::find(leftOut_, row.status().message()) == leftOut_.end()) {
          leftOut_.push_back(row.status().message());
        }
      }
      if (options_->best && !some.empty())
        some = {*std::ranges::min_element(some, {}, [](const Row& row) { return row.outcome.seconds; })};
      rows.insert(rows.end(), some.begin(), some.end());
    }
  }
  if (rows.empty()) return invalidUsage("no algorithm can run this: {}", fmt::join(leftOut_, "; "));
  return rows;
}

std::string Study::describe(int32_t ranks) const {
  const int32_t hosts = hostsFor(ranks);
  std::string text =
      fmt::format("{} rank{} on {} host{}", ranks, ranks == 1 ? "" : "s", hosts, hosts == 1 ? "" : "s");
  text += gpus() ? fmt::format(", GPUs of {}", options_->topoFile.substr(options_->topoFile.rfind('/') + 1))
                 : ", no GPUs";
  if (hosts == 1) return text;
  if (options_->portBytesPerSecond > 0 || options_->ports > 0 || !gpus()) {
    const double speed = options_->portBytesPerSecond > 0 ? options_->portBytesPerSecond : 1.25e9;
    const bool fromFile = gpus() && options_->portBytesPerSecond == 0;
    text += fmt::format(", {} {}",
                        options_->ports > 0 ? std::to_string(options_->ports)
                        : gpus()            ? "the file's"
                                            : "1",
                        options_->ports == 1 || (!gpus() && options_->ports == 0) ? "port" : "ports");
    if (!fromFile) text += fmt::format(" of {:g} Gbit/s", speed * 8 / 1e9);
  }
  text += fmt::format(", {}", sim::name(options_->network.kind));
  if (options_->network.oversubscription > 1)
    text += fmt::format(" {:g}:1", options_->network.oversubscription);
  return text;
}

}  // namespace tutti::simtool
