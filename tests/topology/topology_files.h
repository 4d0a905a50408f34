// The topology files in tests/topology/data, and short ones written in tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "topology/graph.h"
#include "topology/system_xml.h"

namespace tutti::test {

inline std::string topologyFile(const std::string& name) {
  return std::string(TUTTI_SOURCE_DIR) + "/tests/topology/data/" + name;
}

/// The description of a text that must be right.
inline SystemDescription describe(std::string_view text) {
  const auto parsed = parseSystemXml(text, "test.xml");
  EXPECT_TRUE(parsed.isOk()) << parsed.status().message();
  return parsed.isOk() ? *parsed : SystemDescription{};
}

inline Graph graphOf(const SystemDescription& system) {
  auto built = Graph::build(system);
  EXPECT_TRUE(built.isOk()) << built.status().message();
  return built.isOk() ? std::move(*built) : *Graph::build({});
}

inline Graph graphOfFile(const std::string& name) {
  const auto read = readSystemXml(topologyFile(name));
  EXPECT_TRUE(read.isOk()) << read.status().message();
  return graphOf(read.isOk() ? *read : SystemDescription{});
}

/// The node that has that label; fails the test when there is none.
inline NodeId nodeOf(const Graph& graph, const std::string& label) {
  for (NodeId id = 0; id < graph.nodes().size(); ++id)
    if (graph.label(id) == label) return id;
  ADD_FAILURE() << "no node " << label;
  return 0;
}

}  // namespace tutti::test
