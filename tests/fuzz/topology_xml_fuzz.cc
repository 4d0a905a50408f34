// A topology file: parsed, written, parsed again, and, where it is small, made into a graph with paths.
#include "fuzz.h"
#include "topology/fill.h"
#include "topology/paths.h"
#include "topology/report.h"
#include "topology/system_xml.h"

using namespace tutti;
using fuzz::require;

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
  const auto graph = Graph::build(*system);
  require(graph.isOk() || !graph.status().message().empty(), "an error has a text");
  if (!graph.isOk() || graph->nodes().size() > 64) return 0;
  const Paths paths(*graph);
  require(treeText(*graph).find('\x1b') == std::string::npos, "a tree does not steer the terminal");
  require(matrixText(*graph, paths).ends_with('\n'), "a matrix ends");
  for (NodeId a = 0; a < graph->nodes().size(); ++a) {
    require(!graph->label(a).empty(), "every node has a label");
    for (NodeId b = 0; b < graph->nodes().size(); ++b) {
      const Path& path = paths.between(a, b);
      const std::vector<NodeId> route = paths.route(a, b);
      require(route.empty() == (path.type == PathType::dis), "a path has a route");
      require(route.empty() || route.size() == path.hops + 1u, "of its length");
      require(route.empty() || (route.front() == a && route.back() == b), "between its ends");
    }
  }
  return 0;
}
