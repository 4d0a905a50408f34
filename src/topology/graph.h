// A host's hardware as a graph: what is connected to what, how, and how fast.
//
//     GPU0 ══════ NVS ══════ GPU1        ══ nvlink
//      │ pci                  │
//    switch ── NIC ── net   switch       net: one port
//      │ pci                  │
//    CPU 0 ────── sys ────── CPU 1       CPU: a NUMA node
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "topology/description.h"

namespace tutti {

enum class NodeType : uint8_t { cpu, pci, gpu, nvswitch, nic, net };
enum class LinkType : uint8_t { nvlink, c2c, pci, sys, net };

using NodeId = uint32_t;
constexpr NodeId kNoNode = UINT32_MAX;

/// One direction of a connection.
struct HardwareLink {
  NodeId to = kNoNode;
  LinkType type = LinkType::pci;
  float bandwidth = 0;  // GB/s
  int32_t count = 1;    // links side by side (NVLink)
};

struct Node {
  NodeType type = NodeType::cpu;
  NodeId parent = kNoNode;  // towards the CPU; none for CPUs and NVSwitches
  int32_t number = -1;      // cpu: NUMA node; gpu: device; net: network device. -1: the description says none
  int32_t rank = -1;        // gpu
  int32_t sm = 0;           // gpu: compute capability, 90 for 9.0
  int32_t host = 0;         // hosts of a description are numbered in order of their hash's first occurrence
  bool gdr = false;         // gpu, net: GPUDirect RDMA
  BusId busId;              // pci, gpu, nic
  std::string name;         // net
  std::string cpuMask;      // cpu
  std::string vendor;       // cpu: "GenuineIntel", "AuthenticAMD", ...
  std::vector<HardwareLink> links;
};

/// Names of kinds, for people: "CPU", "PCI switch", ...
const char* nodeTypeName(NodeType type);
const char* linkTypeName(LinkType type);

/// Immutable once built.
class Graph {
 public:
  /// Takes every GPU, every network card, and what connects them to the NUMA nodes; other devices are left
  /// out. A device whose class the description does not tell (a skeleton file without detection) is kept as
  /// a PCI node. What had to be assumed is in assumptions(). Fails (ncclInvalidUsage) only beyond
  /// kMaxGraphNodes.
  static Result<Graph> build(const SystemDescription& system);

  const std::vector<Node>& nodes() const { return nodes_; }
  const Node& node(NodeId id) const { return nodes_[id]; }
  /// Ids of all nodes of a type, in order of number (absent numbers last), then of the description.
  std::vector<NodeId> all(NodeType type) const;
  /// The GPU with that address, on the first host; kNoNode where there is none.
  NodeId gpuAt(const BusId& busId) const;
  /// "GPU3", "mlx5_0", "NIC 0000:0c:00.0", "CPU1", "PCI switch 0000:0d:00.0", "NVSwitch"; "NIC" alone for one
  /// that is not on PCI.
  std::string label(NodeId id) const;
  /// A copy without the links between two nodes, both ways: what would be the next best way?
  Graph without(NodeId a, NodeId b) const;
  /// The NUMA node above a node; kNoNode for NVSwitches.
  NodeId cpuOf(NodeId id) const;
  /// Values that the description does not tell, and what was taken instead; one text each.
  const std::vector<std::string>& assumptions() const { return assumptions_; }

 private:
  friend class GraphBuilder;
  std::vector<Node> nodes_;
  std::vector<std::string> assumptions_;
};

/// More nodes are refused: paths take memory with the square.
constexpr size_t kMaxGraphNodes = 2048;

/// GB/s of a link that is none: no limit in practice.
constexpr float kLocalBandwidth = 5000;
/// GB/s of one NVLink of a GPU of that compute capability, by NCCL's constants.
float nvlinkBandwidth(int32_t sm);
/// GB/s between two NUMA nodes, by NCCL's constants; `known` tells whether the processor is one of them.
float socketBandwidth(const CpuDescription& cpu, bool* known);

}  // namespace tutti
