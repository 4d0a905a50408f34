#include "topology/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <utility>

#include "topology/cpu_mask.h"

namespace tutti {
namespace {

void forEachDevice(std::vector<PciDescription>& devices, const std::function<void(PciDescription&)>& visit) {
  for (PciDescription& device : devices) {
    visit(device);
    forEachDevice(device.children, visit);
  }
}
void forEachDevice(SystemDescription& system, const std::function<void(PciDescription&)>& visit) {
  for (CpuDescription& cpu : system.cpus) forEachDevice(cpu.pci, visit);
}

template <typename T>
void take(const std::optional<T>& from, std::optional<T>* to) {
  if (!*to) *to = from;
}

/// As sysfs writes it: "32.0 GT/s PCIe".
std::string pciSpeedText(int32_t generation) {
  constexpr std::array kSpeeds = {"2.5", "5.0", "8.0", "16.0", "32.0", "64.0", "128.0"};
  const auto index = static_cast<size_t>(generation) - 1;
  return index < kSpeeds.size() ? fmt::format("{} GT/s PCIe", kSpeeds[index]) : "";
}

void describeGpu(const GpuFacts& facts, PciDescription& pci) {
  if (!pci.gpu) pci.gpu.emplace();
  GpuDescription& gpu = *pci.gpu;
  take(facts.dev, &gpu.dev);
  take(facts.sm, &gpu.sm);
  take(facts.gdr, &gpu.gdr);
  if (gpu.nvlinks.empty())
    for (const NvlinkFacts& link : facts.nvlinks) {
      const auto same = std::ranges::find(gpu.nvlinks, link.description.target, &NvlinkDescription::target);
      if (same != gpu.nvlinks.end()) {
        *same->count += 1;
      } else {
        gpu.nvlinks.push_back(link.description);
      }
    }
  if (gpu.c2c.empty()) gpu.c2c = facts.c2c;
  if (pci.linkSpeed.empty() && facts.pciGeneration) pci.linkSpeed = pciSpeedText(*facts.pciGeneration);
  take(facts.pciWidth, &pci.linkWidth);
}

PciDescription hiddenGpu(const GpuFacts& facts) {
  PciDescription pci;
  pci.busId = facts.busId;
  pci.classCode = kPciClassGpu;
  pci.vendor = kPciVendorNvidia;
  return pci;
}

/// The class of every NVLink's far end: files know it, NVML only for some.
void classifyTargets(SystemDescription* system) {
  std::map<BusId, int32_t> classes;
  forEachDevice(*system, [&](PciDescription& pci) {
    if (pci.classCode) classes[pci.busId] = *pci.classCode;
  });
  forEachDevice(*system, [&](PciDescription& pci) {
    if (!pci.gpu) return;
    for (NvlinkDescription& link : pci.gpu->nvlinks)
      if (const auto known = classes.find(link.target); known != classes.end() && !link.targetClass)
        link.targetClass = known->second;
  });
}

bool isPort(const NetDescription& net, const PortFacts& facts) {
  return net.name == facts.device && net.port.value_or(1) == facts.port;
}

void describePort(const PortFacts& facts, NetDescription& net) {
  net.name = facts.device;
  net.port = facts.port;
  if (facts.speed) net.speed = facts.speed;
  if (facts.guid != 0) net.guid = facts.guid;
  if (facts.maxQueuePairs > 0) net.maxConnections = facts.maxQueuePairs;
}

class PortMerger {
 public:
  PortMerger(SystemDescription* system, std::vector<std::string>* notes) : system_(system), notes_(notes) {
    forEachNic([&](NicDescription& nic) {
      for (const NetDescription& net : nic.nets) next_ = std::max(next_, net.dev.value_or(-1) + 1);
    });
  }

  void merge(const PortFacts& facts) {
    if (!facts.active) {
      forEachNic([&](NicDescription& nic) {
        if (std::erase_if(nic.nets, [&](const NetDescription& net) { return isPort(net, facts); }) > 0)
          notes_->push_back(fmt::format("{} port {} is down, says libibverbs; /sys says it is up: left out",
                                        facts.device, facts.port));
      });
      return;
    }
    NicDescription* card = nullptr;
    bool known = false;
    forEachNic([&](NicDescription& nic) {
      for (NetDescription& net : nic.nets) {
        if (net.name == facts.device) card = &nic;
        if (!isPort(net, facts)) continue;
        describePort(facts, net);
        known = true;
      }
    });
    if (known) return;
    if (card == nullptr) {
      notes_->push_back(fmt::format("where {} is in the machine is not known: taken as NUMA node {}",
                                    facts.device, system_->cpus[0].numaId.value_or(0)));
      card = &system_->cpus[0].nics.emplace_back();
    }
    NetDescription& net = card->nets.emplace_back();
    net.dev = next_++;
    describePort(facts, net);
  }

 private:
  void forEachNic(const std::function<void(NicDescription&)>& visit) {
    for (CpuDescription& cpu : system_->cpus)
      for (NicDescription& nic : cpu.nics) visit(nic);
    forEachDevice(*system_, [&](PciDescription& pci) {
      for (NicDescription& nic : pci.nics) visit(nic);
    });
  }

  SystemDescription* system_;
  std::vector<std::string>* notes_;
  int32_t next_ = 0;
};

}  // namespace

void mergeGpus(const std::vector<GpuFacts>& facts, SystemDescription* system,
               std::vector<std::string>* notes) {
  size_t hidden = 0;
  if (system->cpus.empty()) system->cpus.emplace_back();
  for (const GpuFacts& one : facts) {
    bool known = false;
    forEachDevice(*system, [&](PciDescription& pci) {
      if (pci.busId != one.busId) return;
      describeGpu(one, pci);
      known = true;
    });
    if (known) continue;
    ++hidden;
    describeGpu(one, system->cpus[0].pci.emplace_back(hiddenGpu(one)));
  }
  if (hidden > 0)
    notes->push_back(fmt::format("where {} GPUs are in the machine is not known: taken as NUMA node {}",
                                 hidden, system->cpus[0].numaId.value_or(0)));
  classifyTargets(system);
}

void mergePorts(const std::vector<PortFacts>& facts, SystemDescription* system,
                std::vector<std::string>* notes) {
  if (system->cpus.empty()) system->cpus.emplace_back();
  PortMerger merger(system, notes);
  for (const PortFacts& one : facts) merger.merge(one);
}

void mergeHwloc(const HwlocFacts& facts, bool numaAssumed, SystemDescription* system, CpuLayout* cpus) {
  if (cpus->groups.empty()) *cpus = facts.cpus;
  if (!numaAssumed || facts.numaNodes.empty()) return;
  const CpuDescription assumed = std::move(system->cpus[0]);
  system->cpus.clear();
  for (const HwlocFacts::NumaNode& node : facts.numaNodes) {
    CpuDescription& cpu = system->cpus.emplace_back();
    if (system->cpus.size() == 1) cpu = assumed;  // with the devices
    cpu.arch = assumed.arch;
    cpu.vendor = assumed.vendor;
    cpu.family = assumed.family;
    cpu.model = assumed.model;
    cpu.numaId = node.id;
    cpu.affinity = cpuMaskText(node.cpus);
  }
}

}  // namespace tutti
