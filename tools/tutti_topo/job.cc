#include "tutti_topo/job.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "topology/graph_xml.h"

namespace tutti::topo {
namespace {

class Environment {
 public:
  explicit Environment(Job* job) : job_(*job) {}

  Status number(const char* name, int low, int high, std::optional<int>* value) {
    const char* text = valueOf(name);
    if (text == nullptr) return Status::ok();
    int parsed = 0;
    const auto [end, code] = std::from_chars(text, text + std::strlen(text), parsed);
    if (code != std::errc() || *end != '\0' || parsed < low || parsed > high)
      return invalidArgument("{}=\"{}\" is not in {} .. {}", name, text, low, high);
    *value = parsed;
    return Status::ok();
  }

  Status level(const char* name, std::optional<PathType>* value) {
    const char* text = valueOf(name);
    if (text == nullptr) return Status::ok();
    auto parsed = parsePathLevel(text);
    if (!parsed.isOk()) return invalidArgument("{}: {}", name, parsed.status().message());
    *value = *parsed;
    return Status::ok();
  }

 private:
  const char* valueOf(const char* name) {
    const char* text = std::getenv(name);
    if (text == nullptr || *text == '\0') return nullptr;
    job_.set.push_back(fmt::format("{}={}", name, text));
    return text;
  }

  Job& job_;
};

}  // namespace

Result<Job> jobOfEnvironment() {
  Job job;
  Environment environment(&job);
  std::optional<int> noPxn, noNvb, noP2p, crossNic, least, most;
  TUTTI_TRY(environment.number("NCCL_PXN_DISABLE", 0, 1, &noPxn));
  TUTTI_TRY(environment.number("NCCL_NVB_DISABLE", 0, 1, &noNvb));
  TUTTI_TRY(environment.number("NCCL_P2P_DISABLE", 0, 1, &noP2p));
  TUTTI_TRY(environment.level("NCCL_P2P_LEVEL", &job.levels.p2p));
  TUTTI_TRY(environment.level("NCCL_NET_GDR_LEVEL", &job.levels.gdr));
  TUTTI_TRY(environment.number("NCCL_CROSS_NIC", 0, 2, &crossNic));
  TUTTI_TRY(environment.number("NCCL_MIN_NCHANNELS", 1, kMaxChannels, &least));
  TUTTI_TRY(environment.number("NCCL_MAX_NCHANNELS", 1, kMaxChannels, &most));
  job.paths = {.throughGpu = noNvb != 1, .pxn = noPxn != 1};
  if (noP2p == 1) job.levels.p2p = PathType::loc;
  if (crossNic) job.search.crossNic = static_cast<CrossNic>(*crossNic);
  if (job.levels.gdr) job.search.gdrLevel = *job.levels.gdr;
  if (most) job.search.maxChannels = *most;
  if (least) job.search.minChannels = *least;
  // As in NCCL, the least number wins over the largest.
  job.search.maxChannels = std::max(job.search.maxChannels, job.search.minChannels);
  return job;
}

Result<HostPlan> planOf(const Graph& graph, const Paths& paths, const Job& job, bool acrossHosts,
                        const std::string& graphFile) {
  HostPlan host{job.search, {}};
  host.request.members = defaultMembers(graph);
  host.request.acrossHosts = acrossHosts;
  TUTTI_ASSIGN(host.plan, searchChannels(graph, paths, host.request));
  if (graphFile.empty()) return host;
  TUTTI_ASSIGN(const std::vector<GraphDescription> graphs, readGraphXml(graphFile));
  TUTTI_TRY(applyGraphXml(graphs, graphFile, graph, paths, host.request, &host.plan));
  return host;
}

}  // namespace tutti::topo
