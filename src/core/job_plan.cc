#include "core/job_plan.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/log.h"
#include "base/output_file.h"
#include "base/params.h"
#include "base/wire.h"
#include "topology/fusion.h"
#include "topology/graph_xml.h"
#include "topology/plan_report.h"
#include "topology/search.h"
#include "topology/system_xml.h"

namespace tutti {
namespace {

class JobPlanner {
 public:
  JobPlanner(const std::vector<PeerInfo>& peers, const HostTopology& host, OobChannel& oob, Deadline deadline)
      : peers_(peers), host_(host), oob_(oob), deadline_(deadline), rank_(oob.rank()) {
    std::map<std::string, size_t> known;
    for (const PeerInfo& peer : peers_) {
      const auto [entry, isNew] = known.try_emplace(peer.hostId, hosts_.size());
      if (isNew) hosts_.emplace_back();
      hosts_[entry->second].push_back(peer.rank);
      if (peer.rank == rank_) mine_ = entry->second;
    }
  }

  Result<JobPlan> run() {
    TUTTI_TRY(exchangeDescriptions());
    const bool dumps = !params().graphDumpFile().empty() && rank_ == params().graphDumpFileRank();
    const bool leads = rank_ == hosts_[mine_].front();
    std::string summary;
    if (leads || dumps) {
      auto made = summarise(dumps);
      if (leads) summary = encode(made);
    }
    return connect(summary);
  }

 private:
  /// Of each description that the ranks of a host have, the lowest rank that has it.
  std::vector<int32_t> distinctViews(size_t host) const {
    std::set<uint64_t> seen;
    std::vector<int32_t> ranks;
    for (const int32_t rank : hosts_[host])
      if (seen.insert(peers_[static_cast<size_t>(rank)].topologyDigest).second) ranks.push_back(rank);
    return ranks;
  }

  /// Only where ranks of a host see different things, in containers say: they merge them. All ranks know
  /// whether.
  Status exchangeDescriptions() {
    bool needed = false;
    for (size_t host = 0; host < hosts_.size(); ++host) needed = needed || distinctViews(host).size() > 1;
    if (!needed) return Status::ok();
    const std::vector<int32_t> tellers = distinctViews(mine_);
    const bool tells = tellers.size() > 1 && std::ranges::find(tellers, rank_) != tellers.end();
    TUTTI_ASSIGN(const auto texts, oob_.allGather(tells ? systemXmlText(host_.system) : "", deadline_));
    if (tellers.size() == 1) return Status::ok();
    std::vector<SystemDescription> views;
    for (const int32_t rank : tellers) {
      TUTTI_ASSIGN(SystemDescription view,
                   parseSystemXml(texts[static_cast<size_t>(rank)],
                                  fmt::format("the topology that rank {} sees", rank)));
      views.push_back(std::move(view));
    }
    FusedSystem fused = fuseSystems(views);
    for (const std::string& note : fused.notes) logInfo(Subsystem::graph, "topology: {}", note);
    TUTTI_ASSIGN(fused_, Graph::build(fused.system));
    logInfo(Subsystem::init,
            "rank {}: the ranks of this host see {} different topologies; together: {} NUMA node(s), {} "
            "GPU(s), {} "
            "network port(s)",
            rank_, views.size(), fused.system.cpus.size(), fused_->all(NodeType::gpu).size(),
            fused_->all(NodeType::net).size());
    return Status::ok();
  }

  const Graph& graph() const { return fused_ ? *fused_ : host_.graph; }

  /// The rank's GPU, else the NUMA node where its device is; where that is not known, the first.
  NodeId memberOf(int32_t rank) const {
    const auto gpu = parseBusId(peers_[static_cast<size_t>(rank)].gpu);
    if (const NodeId node = gpu ? graph().gpuAt(*gpu) : kNoNode; node != kNoNode) return node;
    const std::vector<NodeId>& cpus = graph().all(NodeType::cpu);
    const auto found = std::ranges::find_if(cpus, [&](NodeId node) {
      return graph().node(node).number == peers_[static_cast<size_t>(rank)].numaNode;
    });
    return found != cpus.end() ? *found : cpus.front();
  }

  SearchRequest request() const {
    SearchRequest request;
    for (const int32_t rank : hosts_[mine_]) request.members.push_back(memberOf(rank));
    request.acrossHosts = hosts_.size() > 1;
    request.crossNic = static_cast<CrossNic>(params().crossNic());
    if (!params().netGdrLevel.isAuto())
      request.gdrLevel = static_cast<PathType>(params().netGdrLevel.level());
    if (params().maxNchannels() > 0) request.maxChannels = static_cast<int32_t>(params().maxNchannels());
    if (params().minNchannels() > 0) request.minChannels = static_cast<int32_t>(params().minNchannels());
    request.maxChannels = std::max(request.maxChannels, request.minChannels);
    return request;
  }

  /// The ranks in their order, where nothing better can be found.
  HostPlan plainPlan() const {
    HostPlan plan;
    plan.ranks = hosts_[mine_];
    for (RailChannels* set : {&plan.rings, &plan.trees}) {
      RailChannel& channel = set->channels.emplace_back();
      for (size_t i = 0; i < plan.ranks.size(); ++i) channel.order.push_back(static_cast<uint16_t>(i));
    }
    plan.trees.pattern = ChannelPattern::tree;
    return plan;
  }

  /// This host's plan. Fails for what the user said, only.
  Result<HostPlan> summarise(bool dumps) const {
    if (hosts_[mine_].size() > kMaxMembers || graph().all(NodeType::cpu).empty()) return plainPlan();
    const Paths paths(graph(), {.throughGpu = !params().nvbDisable(), .pxn = !params().pxnDisable()});
    const SearchRequest request = this->request();
    auto plan = searchChannels(graph(), paths, request);
    if (!plan.isOk()) {
      logInfo(Subsystem::graph, "rank {}: no rings and trees for this host: {}", rank_,
              plan.status().message());
      return plainPlan();
    }
    if (const std::string file = params().graphFile(); !file.empty()) {
      TUTTI_ASSIGN(const auto graphs, readGraphXml(file).withContext("NCCL_GRAPH_FILE"));
      TUTTI_TRY(applyGraphXml(graphs, file, graph(), paths, request, &*plan).withContext("NCCL_GRAPH_FILE"));
    }
    logLines(planText(graph(), request.members, *plan));
    if (dumps) dump(request, *plan);
    auto summary = tutti::summarise(graph(), request, *plan, hosts_[mine_]);
    if (summary.isOk()) return summary;
    logInfo(Subsystem::graph, "rank {}: {}", rank_, summary.status().message());
    return plainPlan();
  }

  void dump(const SearchRequest& request, const ChannelPlan& plan) const {
    const std::string path = params().graphDumpFile();
    const Status status = replaceFile(path, graphXmlText(describePlan(graph(), request, plan)));
    if (status.isOk()) {
      logInfo(Subsystem::init, "rank {}: rings and trees written to {}", rank_, path);
    } else {
      logWarn("NCCL_GRAPH_DUMP_FILE: {}", status.message());
    }
  }

  void logLines(const std::string& text) const {
    if (!logEnabled(LogLevel::info, Subsystem::graph)) return;
    for (size_t from = 0, to = 0; from < text.size(); from = to + 1) {
      to = std::min(text.find('\n', from), text.size());
      logInfo(Subsystem::graph, "rank {}: {}", rank_, text.substr(from, to - from));
    }
  }

  /// A plan, or why there is none: the others must hear it.
  static std::string encode(const Result<HostPlan>& plan) {
    if (plan.isOk()) return WireWriter().u8(1).string(encodeHostPlan(*plan)).bytes();
    return WireWriter().u8(0).string(plan.status().message()).bytes();
  }

  Result<JobPlan> connect(const std::string& mine) const {
    TUTTI_ASSIGN(const auto all, oob_.allGather(mine, deadline_));
    std::vector<std::string> summaries;
    for (const std::vector<int32_t>& host : hosts_) {
      const auto leader = static_cast<size_t>(host.front());
      WireReader reader(all[leader]);
      const bool good = reader.u8() != 0;
      const std::string_view bytes = reader.string();
      if (!reader.finished())
        return remoteError("rank {}: malformed plan of {} bytes", leader, all[leader].size());
      if (!good) return invalidUsage("rank {} (host {}): {}", leader, peers_[leader].hostName, bytes);
      summaries.emplace_back(bytes);
    }
    TUTTI_ASSIGN(const ClusterPlan cluster, ClusterPlan::connect(summaries));
    if (cluster.ranks() != oob_.size())
      return remoteError("the hosts' plans are for {} ranks of {}", cluster.ranks(), oob_.size());
    JobPlan plan;
    plan.hosts = cluster.hosts();
    plan.ring = cluster.ring(0);
    if (hosts_.size() > 1) plan.linkBandwidth = static_cast<double>(cluster.linkRate()) * 1e9;
    plan.deviceBandwidth = static_cast<double>(cluster.ringRate()) * cluster.channels() * 1e9;
    plan.crowded = isCrowded(peers_);
    if (rank_ == 0)
      logInfo(Subsystem::graph, "{} host(s), {} channel(s) of {:.1f} GB/s; rings pass ranks {}",
              cluster.hosts(), cluster.channels(), cluster.ringRate(), fmt::join(plan.ring, " "));
    return plan;
  }

  const std::vector<PeerInfo>& peers_;
  const HostTopology& host_;
  OobChannel& oob_;
  const Deadline deadline_;
  const int32_t rank_;
  std::vector<std::vector<int32_t>> hosts_;  // ascending, by their lowest ranks
  size_t mine_ = 0;
  std::optional<Graph> fused_;  // where this host's ranks see different things
};

}  // namespace

bool isCrowded(const std::vector<PeerInfo>& peers) {
  std::map<std::string_view, int> ranksOf;
  return std::ranges::any_of(peers, [&](const PeerInfo& peer) {
    const int ranks = ++ranksOf[peer.machineId.empty() ? peer.hostId : peer.machineId];
    return peer.processors > 0 && ranks > peer.processors;
  });
}

Result<JobPlan> planJob(const std::vector<PeerInfo>& peers, const HostTopology& host, OobChannel& oob,
                        Deadline deadline) {
  return JobPlanner(peers, host, oob, deadline).run();
}

}  // namespace tutti
