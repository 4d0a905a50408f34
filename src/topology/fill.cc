#include "topology/fill.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti {
namespace {

template <typename T>
void fillValue(const std::optional<T>& from, std::optional<T>* to) {
  if (!*to) *to = from;
}
void fillValue(const std::string& from, std::string* to) {
  if (to->empty()) *to = from;
}

PciDescription* findDevice(std::vector<PciDescription>& devices, BusId busId) {
  for (PciDescription& device : devices) {
    if (device.busId == busId) return &device;
    if (PciDescription* below = findDevice(device.children, busId)) return below;
  }
  return nullptr;
}

PciDescription* findDevice(SystemDescription* system, BusId busId) {
  for (CpuDescription& cpu : system->cpus)
    if (PciDescription* device = findDevice(cpu.pci, busId)) return device;
  return nullptr;
}

class Filler {
 public:
  explicit Filler(SystemDescription* system) : system_(system) {}

  void fill(const SystemDescription& detected) {
    for (const CpuDescription& cpu : detected.cpus) {
      const size_t place = fillCpu(cpu);
      for (const PciDescription& device : cpu.pci) fillDevice(device, {place, {}});
      if (system_->cpus[place].nics.empty()) system_->cpus[place].nics = cpu.nics;
    }
    // Now: before, what is found would move when something is added beside it.
    for (const auto& [place, device] : added_) {
      PciDescription* above = place.above ? findDevice(system_, *place.above) : nullptr;
      (above != nullptr ? above->children : system_->cpus[place.cpu].pci).push_back(*device);
    }
  }

 private:
  struct Place {
    size_t cpu = 0;
    std::optional<BusId> above;  // a switch that the file has
  };

  /// The index of the file's CPU that matches, else of its first.
  size_t fillCpu(const CpuDescription& detected) {
    for (size_t i = 0; i < system_->cpus.size(); ++i) {
      CpuDescription& cpu = system_->cpus[i];
      if (cpu.numaId.value_or(static_cast<int32_t>(i)) != detected.numaId) continue;
      fillValue(detected.affinity, &cpu.affinity);
      if (cpu.arch.empty() && cpu.vendor.empty() && !cpu.family && !cpu.model) {  // one processor's, or none
        cpu.arch = detected.arch;
        cpu.vendor = detected.vendor;
        cpu.family = detected.family;
        cpu.model = detected.model;
      }
      return i;
    }
    return 0;
  }

  bool hasAny(const PciDescription& device) {
    return findDevice(system_, device.busId) != nullptr ||
           std::ranges::any_of(device.children, [this](const auto& child) { return hasAny(child); });
  }

  void fillDevice(const PciDescription& detected, Place place) {
    if (!hasAny(detected)) {
      added_.emplace_back(place, &detected);
      return;
    }
    if (PciDescription* device = findDevice(system_, detected.busId)) {
      place.above = detected.busId;
      fillValue(detected.classCode, &device->classCode);
      fillValue(detected.vendor, &device->vendor);
      fillValue(detected.device, &device->device);
      fillValue(detected.subsystemVendor, &device->subsystemVendor);
      fillValue(detected.subsystemDevice, &device->subsystemDevice);
      fillValue(detected.linkSpeed, &device->linkSpeed);
      fillValue(detected.linkWidth, &device->linkWidth);
      fillValue(detected.gpu, &device->gpu);
      if (device->nics.empty()) device->nics = detected.nics;
    }
    for (const PciDescription& child : detected.children) fillDevice(child, place);
  }

  SystemDescription* system_;
  std::vector<std::pair<Place, const PciDescription*>> added_;
};

}  // namespace

void fillIn(const SystemDescription& detected, SystemDescription* system) {
  if (system->cpus.empty()) {
    *system = detected;
    return;
  }
  Filler(system).fill(detected);
}

}  // namespace tutti
