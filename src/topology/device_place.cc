#include "topology/device_place.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "topology/cpu_mask.h"

namespace tutti {
namespace {

struct Core {
  size_t node = 0;  // index into NumaNodes
  std::vector<int32_t> cpus;
  const CoreGroup* group = nullptr;
};

struct NumaNode {
  int32_t id = -1;
  std::vector<int32_t> cpus;
};

std::vector<NumaNode> nodesOf(const SystemDescription& system) {
  std::vector<NumaNode> nodes;
  for (size_t i = 0; i < system.cpus.size(); ++i) {
    const CpuDescription& cpu = system.cpus[i];
    auto cpus = parseCpuMask(cpu.affinity);
    if (cpus && !cpus->empty())
      nodes.push_back({cpu.numaId.value_or(static_cast<int32_t>(i)), std::move(*cpus)});
  }
  return nodes;
}

/// The cores of a NUMA node, those that share a cache beside each other.
void addCores(const NumaNode& node, size_t index, const CpuLayout& layout, std::vector<Core>& cores) {
  std::set<int32_t> left(node.cpus.begin(), node.cpus.end());
  for (const CoreGroup& group : layout.groups)
    for (const std::vector<int32_t>& core : group.cores) {
      Core found{index, {}, &group};
      for (const int32_t cpu : core)
        if (left.erase(cpu) != 0) found.cpus.push_back(cpu);
      if (!found.cpus.empty()) cores.push_back(std::move(found));
    }
  for (const int32_t cpu : left) cores.push_back({index, {cpu}, nullptr});
}

std::string sizeText(uint64_t bytes) {
  return bytes % (1u << 20) == 0 ? fmt::format("{} MiB", bytes >> 20) : fmt::format("{} KiB", bytes >> 10);
}

}  // namespace

size_t numaNodesWithCpus(const SystemDescription& system) { return nodesOf(system).size(); }

DevicePlace placeOfDevice(const SystemDescription& system, const CpuLayout& layout, int device, int devices) {
  const std::vector<NumaNode> nodes = nodesOf(system);
  std::vector<Core> cores;
  for (size_t i = 0; i < nodes.size(); ++i) addCores(nodes[i], i, layout, cores);
  DevicePlace place;
  if (cores.empty() || device < 0 || device >= devices) return place;
  const auto count = static_cast<size_t>(devices), slot = static_cast<size_t>(device);
  const size_t first = slot * cores.size() / count;
  const size_t end = std::max(first + 1, (slot + 1) * cores.size() / count);
  const Core& start = cores[first];
  for (size_t i = first; i < end && cores[i].node == start.node; ++i)
    place.cpus.insert(place.cpus.end(), cores[i].cpus.begin(), cores[i].cpus.end());
  std::ranges::sort(place.cpus);
  place.numaNode = nodes[start.node].id;
  place.nodeCpus = nodes[start.node].cpus;
  if (start.group == nullptr) return place;
  place.package = start.group->package;
  place.l2Bytes = start.group->l2Bytes;
  place.l3Bytes = start.group->l3Bytes;
  return place;
}

DevicePlace placeOfGpu(const Graph& graph, const CpuLayout& layout, NodeId gpu) {
  DevicePlace place;
  const NodeId above = graph.cpuOf(gpu);
  if (above == kNoNode) return place;
  const auto cpus = parseCpuMask(graph.node(above).cpuMask);
  if (!cpus || cpus->empty()) return place;
  place.numaNode = graph.node(above).number;
  place.nodeCpus = place.cpus = *cpus;
  for (const CoreGroup& group : layout.groups)
    for (const std::vector<int32_t>& core : group.cores)
      if (std::ranges::find(core, cpus->front()) != core.end()) place.package = group.package;
  return place;
}

std::string DevicePlace::text() const {
  if (cpus.empty()) return "place not known";
  std::string text = fmt::format("NUMA node {}", numaNode);
  if (package >= 0) text += fmt::format(", package {}", package);
  text += fmt::format(", CPU{} {}", cpus.size() == 1 ? "" : "s", cpuListText(cpus));
  if (l2Bytes > 0) text += ", L2 " + sizeText(l2Bytes);
  if (l3Bytes > 0) text += ", L3 " + sizeText(l3Bytes);
  return text;
}

}  // namespace tutti
