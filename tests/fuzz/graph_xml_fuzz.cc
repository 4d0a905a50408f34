// A graph file: parsed, written, parsed again, and made into a plan of a small host. And, where the input is
// none, the bytes that hosts exchange: what is accepted encodes to the same bytes.
#include "fuzz.h"
#include "topology/cluster_plan.h"
#include "topology/graph_xml.h"
#include "topology/plan_report.h"
#include "topology/system_xml.h"

using namespace tutti;
using fuzz::require;

namespace {

struct Host {
  Graph graph = *Graph::build(*parseSystemXml(
      R"(<system><cpu><pci busid="1:0.0"><gpu dev="0"/></pci><pci busid="2:0.0"><gpu dev="1"/></pci>
         <nic><net dev="0" speed="100000"/><net dev="1" speed="100000"/></nic></cpu></system>)",
      "host.xml"));
  Paths paths{graph};
  SearchRequest request;
};

void plans(const std::vector<GraphDescription>& graphs) {
  static Host& host = *new Host();
  for (const bool acrossHosts : {false, true}) {
    host.request.members = defaultMembers(host.graph);
    host.request.acrossHosts = acrossHosts;
    ChannelPlan plan;
    const Status status = applyGraphXml(graphs, "fuzz.xml", host.graph, host.paths, host.request, &plan);
    require(status.isOk() || status.message().starts_with("fuzz.xml:"), "an error names file and line");
    if (!status.isOk() || plan.rings.channels.empty() || plan.trees.channels.empty()) continue;
    require(planText(host.graph, host.request.members, plan).ends_with('\n'), "a plan can be printed");
    const auto summary = summarise(host.graph, host.request, plan, {0, 1});
    require(summary.isOk(), "a plan can be told");
    const auto decoded = decodeHostPlan(encodeHostPlan(*summary));
    require(decoded.isOk() && *decoded == *summary, "and arrives as it was");
    require(ClusterPlan::connect({encodeHostPlan(*summary)}).isOk(), "and makes a job of one host");
  }
}

void bytes(std::string_view text) {
  const auto plan = decodeHostPlan(text);
  require(plan.isOk() || !plan.status().message().empty(), "an error has a text");
  if (!plan.isOk()) return;
  require(encodeHostPlan(*plan) == text, "there is one encoding");
  ClusterPlan::connect({std::string(text)}).status().ignore();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::viewOf(data, size);
  bytes(text);
  const auto graphs = parseGraphXml(text, "fuzz.xml");
  if (!graphs.isOk()) {
    require(graphs.status().message().starts_with("fuzz.xml:"), "an error names file and line");
    return 0;
  }
  const std::string written = graphXmlText(*graphs);
  const auto again = parseGraphXml(written, "again.xml");
  require(again.isOk(), "what is written can be read");
  require(*again == *graphs, "and says the same");
  require(graphXmlText(*again) == written, "and is written the same");
  plans(*graphs);
  return 0;
}
