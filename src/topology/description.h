// What is known about a host's hardware: the content of NCCL's system XML, as plain data.
//
// Both sources fill it: files (topology/system_xml.h) and detection (topology/detect.h). The graph is built
// from it (topology/graph.h). What a source does not say is absent, not zero.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "topology/pci.h"

namespace tutti {

/// <nvlink>: links of one GPU to one target.
struct NvlinkDescription {
  BusId target;
  std::optional<int32_t> count;
  std::optional<int32_t> targetClass;  // PCI class of the target: 0x068000 an NVSwitch, 0x0302xx a GPU
  bool operator==(const NvlinkDescription&) const = default;
};

/// <c2c>: a coherent chip-to-chip link between a GPU and its CPU.
struct C2cDescription {
  std::optional<int32_t> bandwidth;  // MB/s
  std::optional<int32_t> count;
  bool operator==(const C2cDescription&) const = default;
};

/// <gpu>, inside the <pci> of the GPU.
struct GpuDescription {
  std::optional<int32_t> dev;  // CUDA device
  std::optional<int32_t> sm;   // compute capability, 90 for 9.0
  std::optional<int32_t> rank;
  std::optional<int32_t> gdr;  // GPUDirect RDMA: 0 or 1
  std::vector<NvlinkDescription> nvlinks;
  std::vector<C2cDescription> c2c;
  bool operator==(const GpuDescription&) const = default;
};

/// <net>: a network port.
struct NetDescription {
  std::string name;
  std::optional<int32_t> dev;
  std::optional<int32_t> speed;  // Mb/s
  std::optional<int32_t> port;
  std::optional<double> latency;  // us
  std::optional<uint64_t> guid;
  std::optional<int32_t> maxConnections;
  std::optional<int32_t> gdr;
  std::optional<int32_t> coll;
  bool operator==(const NetDescription&) const = default;
};

/// <nic>: a network card, inside its <pci>, or inside <cpu> for one without a PCI device.
struct NicDescription {
  std::vector<NetDescription> nets;
  bool operator==(const NicDescription&) const = default;
};

/// <pci>: a switch with what hangs below it, or a device.
struct PciDescription {
  BusId busId;
  std::optional<int32_t> classCode;  // 0x030200
  std::optional<int32_t> vendor;
  std::optional<int32_t> device;
  std::optional<int32_t> subsystemVendor;
  std::optional<int32_t> subsystemDevice;
  std::string linkSpeed;  // as sysfs has it; empty: not known
  std::optional<int32_t> linkWidth;
  std::vector<PciDescription> children;
  std::optional<GpuDescription> gpu;
  std::vector<NicDescription> nics;
  bool operator==(const PciDescription&) const = default;

  PciKind kind() const { return pciKind(classCode.value_or(-1), vendor.value_or(-1)); }
};

/// <cpu>: a NUMA node.
struct CpuDescription {
  std::optional<int32_t> numaId;
  std::optional<uint64_t> hostHash;
  std::string affinity;  // CPUs as sysfs' cpumap: "00ff,ffffffff"; empty: not known
  std::string arch;      // "x86_64", "arm64", "ppc64"
  std::string vendor;    // "GenuineIntel", "AuthenticAMD", ...
  std::optional<int32_t> family;
  std::optional<int32_t> model;
  std::vector<PciDescription> pci;
  std::vector<NicDescription> nics;
  bool operator==(const CpuDescription&) const = default;
};

/// <system>.
struct SystemDescription {
  std::vector<CpuDescription> cpus;
  bool operator==(const SystemDescription&) const = default;
};

}  // namespace tutti
