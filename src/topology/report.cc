#include "topology/report.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>
#include <vector>

#include "topology/cpu_mask.h"

namespace tutti {
namespace {

constexpr std::array<std::pair<PathType, const char*>, 11> kLegend = {{
    {PathType::loc, "ports of the same card"},
    {PathType::nvl, "NVLink; NV#: so many links"},
    {PathType::nvb, "NVLink through one GPU between"},
    {PathType::c2c, "chip-to-chip link between GPU and CPU"},
    {PathType::pix, "at most one PCI switch between"},
    {PathType::pxb, "several PCI switches between, not the CPU"},
    {PathType::p2c, "C2C to the CPU, and PCI from there"},
    {PathType::pxn, "NVLink to a GPU that is close to the NIC, and PCI from there"},
    {PathType::phb, "through the CPU (PCI host bridge)"},
    {PathType::sys, "through the link between NUMA nodes"},
    {PathType::dis, "no path"},
}};

std::string cpusOf(const std::string& mask) {
  const auto cpus = parseCpuMask(mask);
  return cpus ? cpuListText(*cpus) : "?";
}

class Tree {
 public:
  explicit Tree(const Graph& graph) : graph_(graph), below_(graph.nodes().size()) {
    for (NodeId id = 0; id < graph.nodes().size(); ++id)
      if (graph.node(id).parent != kNoNode) below_[graph.node(id).parent].push_back(id);
  }

  std::string text() {
    for (const NodeId id : graph_.all(NodeType::cpu)) write(id, 0);
    for (const NodeId id : graph_.all(NodeType::nvswitch)) write(id, 0);
    return std::move(text_);
  }

 private:
  void write(NodeId id, int depth) {
    text_ += fmt::format("{:{}}{}\n", "", 2 * depth, line(id));
    for (const NodeId child : below_[id]) write(child, depth + 1);
  }

  std::string line(NodeId id) const {
    const Node& node = graph_.node(id);
    std::string text = printableText(graph_.label(id));
    if (node.type == NodeType::gpu) text += " " + node.busId.text();
    for (const HardwareLink& link : node.links)
      if (link.to == node.parent && (link.type == LinkType::pci || link.type == LinkType::net) &&
          link.bandwidth < kLocalBandwidth)
        text += fmt::format("  {:g} GB/s", link.bandwidth);
    for (const std::string& detail : details(id)) text += "  " + detail;
    return text;
  }

  std::vector<std::string> details(NodeId id) const {
    const Node& node = graph_.node(id);
    std::vector<std::string> texts;
    if (node.type == NodeType::cpu && !node.cpuMask.empty())
      texts.push_back(fmt::format("(CPUs {})", cpusOf(node.cpuMask)));
    if (node.type == NodeType::net && node.number >= 0) texts.push_back(fmt::format("net {}", node.number));
    if (node.sm > 0) texts.push_back(fmt::format("sm {}", node.sm));
    if (node.rank >= 0) texts.push_back(fmt::format("rank {}", node.rank));
    if (node.gdr) texts.emplace_back("GDR");
    for (const HardwareLink& link : node.links) {
      const bool fromGpu =
          node.type == NodeType::gpu && (link.type == LinkType::nvlink || link.type == LinkType::c2c);
      if (!fromGpu && link.type != LinkType::sys) continue;
      texts.push_back(
          fmt::format("{} to {} {:g} GB/s", linkTypeName(link.type), graph_.label(link.to), link.bandwidth));
      if (link.count > 1) texts.back() += fmt::format(" ({} links)", link.count);
    }
    return texts;
  }

  const Graph& graph_;
  std::vector<std::vector<NodeId>> below_;
  std::string text_;
};

/// Rows and columns of the matrix.
std::vector<NodeId> devicesOf(const Graph& graph) {
  std::vector<NodeId> devices = graph.all(NodeType::gpu);
  if (devices.empty()) devices = graph.all(NodeType::cpu);
  std::set<NodeId> withPorts;
  for (const NodeId net : graph.all(NodeType::net)) {
    devices.push_back(net);
    withPorts.insert(graph.node(net).parent);
  }
  for (const NodeId nic : graph.all(NodeType::nic))
    if (!withPorts.contains(nic)) devices.push_back(nic);
  return devices;
}

std::string cell(const Graph& graph, const Paths& paths, NodeId from, NodeId to) {
  if (from == to) return "X";
  const Path path = paths.between(from, to);
  if (path.type != PathType::nvl) return pathTypeName(path.type);
  int32_t count = INT32_MAX;
  const std::vector<NodeId> route = paths.route(from, to);
  for (size_t i = 0; i + 1 < route.size(); ++i)
    for (const HardwareLink& link : graph.node(route[i]).links)
      if (link.to == route[i + 1] && link.type == LinkType::nvlink) count = std::min(count, link.count);
  return fmt::format("NV{}", count);
}

/// Columns as wide as their widest cell, two spaces between.
std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) line += fmt::format("{:<{}}", row[c], widths[c] + 2);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return text;
}

}  // namespace

std::string printableText(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return text;
}

std::string treeText(const Graph& graph) { return Tree(graph).text(); }

std::string matrixText(const Graph& graph, const Paths& paths) {
  const std::vector<NodeId> devices = devicesOf(graph);
  std::vector<std::vector<std::string>> rows = {{""}};
  for (const NodeId id : devices) rows[0].push_back(printableText(graph.label(id)));
  rows[0].insert(rows[0].end(), {"CPU Affinity", "NUMA Affinity"});
  std::set<PathType> seen;
  for (const NodeId from : devices) {
    std::vector<std::string>& row = rows.emplace_back();
    row.push_back(printableText(graph.label(from)));
    for (const NodeId to : devices) {
      row.push_back(cell(graph, paths, from, to));
      if (from != to) seen.insert(paths.between(from, to).type);
    }
    const NodeId cpu = graph.cpuOf(from);
    row.push_back(cpu == kNoNode ? "" : cpusOf(graph.node(cpu).cpuMask));
    row.push_back(cpu == kNoNode ? "" : fmt::format("{}", graph.node(cpu).number));
  }
  std::string text = aligned(rows);
  if (!seen.empty()) text += "\nLegend:\n";
  for (const auto& [type, meaning] : kLegend)
    if (seen.contains(type)) text += fmt::format("  {:<4} {}\n", pathTypeName(type), meaning);
  return text;
}

}  // namespace tutti
