// A topology file: parsed, written, parsed again, and, where it is small, made into a graph with paths.
#include "fuzz.h"
#include "topology/explain.h"
#include "topology/fill.h"
#include "topology/fusion.h"
#include "topology/paths.h"
#include "topology/plan_report.h"
#include "topology/report.h"
#include "topology/search.h"
#include "topology/system_xml.h"

using namespace tutti;
using fuzz::require;

namespace {

void search(const Graph& graph, const Paths& paths) {
  SearchRequest request;
  request.members = defaultMembers(graph);
  request.workLimit = 3000;
  if (request.members.empty() || request.members.size() > 12) return;
  for (const bool acrossHosts : {false, true}) {
    request.acrossHosts = acrossHosts;
    const auto plan = searchChannels(graph, paths, request);
    require(plan.isOk(), "there always is an answer");
    for (const ChannelSet* set : {&plan->rings, &plan->trees})
      for (const Channel& channel : set->channels)
        require(channel.order.size() == request.members.size(), "with every member");
    for (const LinkLoad& load : linkLoads(graph, paths, request, plan->rings))
      require(load.load <= load.bandwidth * 1.001f + 0.001f, "and no link is used beyond what it has");
    require(planText(graph, request.members, *plan).ends_with('\n'), "it can be printed");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  parsePathLevel(fuzz::viewOf(data, size)).status().ignore();
  const auto system = parseSystemXml(fuzz::viewOf(data, size), "fuzz.xml");
  if (!system.isOk()) {
    require(system.status().message().starts_with("fuzz.xml:"), "an error names file and line");
    return 0;
  }
  const std::string text = systemXmlText(*system);
  const auto again = parseSystemXml(text, "again.xml");
  require(again.isOk(), "what is written can be read");
  require(*again == *system, "and says the same");
  require(systemXmlText(*again) == text, "and is written the same");
  SystemDescription other;
  fillIn(*system, &other);
  require(other == *system, "an empty system becomes the other");
  if (!other.cpus.empty()) other.cpus.resize(1);
  fillIn(*system, &other);
  const FusedSystem fused = fuseSystems({*system, other});
  require(fuseSystems({fused.system}).system == fused.system, "a fused system is one");
  const auto graph = Graph::build(*system);
  require(graph.isOk() || !graph.status().message().empty(), "an error has a text");
  if (!graph.isOk() || graph->nodes().size() > 64) return 0;
  const Paths paths(*graph);
  require(treeText(*graph).find('\x1b') == std::string::npos, "a tree does not steer the terminal");
  require(matrixText(*graph, paths).ends_with('\n'), "a matrix ends");
  search(*graph, paths);
  if (graph->nodes().size() > 1) require(!explainText(*graph, 0, 1).empty(), "a path is explained");
  for (NodeId a = 0; a < graph->nodes().size(); ++a) {
    require(!graph->label(a).empty(), "every node has a label");
    for (NodeId b = 0; b < graph->nodes().size(); ++b) {
      const Path path = paths.between(a, b);
      const std::vector<NodeId> route = paths.route(a, b);
      require(route.empty() == (path.type == PathType::dis), "a path has a route");
      require(route.empty() || route.size() == path.hops + 1u, "of its length");
      require(route.empty() || (route.front() == a && route.back() == b), "between its ends");
    }
  }
  return 0;
}
