#include "topology/fusion.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace tutti {
namespace {

/// Every device of a list, and what is below it.
template <typename List, typename Visit>
void forDevices(List& devices, const Visit& visit) {
  for (auto& device : devices) {
    visit(device);
    forDevices(device.children, visit);
  }
}

class Fuser {
 public:
  void add(const SystemDescription& view) {
    for (const CpuDescription& cpu : view.cpus) {
      const size_t index = cpuLike(cpu);
      fillCpu(cpu, &fused_.system.cpus[index]);
      for (const PciDescription& device : cpu.pci) mergeDevice(device, index, std::nullopt);
      for (const NicDescription& nic : cpu.nics)
        mergeNic(nic, &fused_.system.cpus[index].nics, fmt::format("NUMA node {}", cpu.numaId.value_or(0)));
    }
  }

  FusedSystem take() {
    sort();
    renumber();
    for (const auto& [note, count] : notes_)
      fused_.notes.push_back(count == 1 ? note : fmt::format("{} ({} times)", note, count));
    return std::move(fused_);
  }

 private:
  template <typename T>
  void fill(const std::string& whose, const char* what, const std::optional<T>& from, std::optional<T>* to) {
    if (!*to)
      *to = from;
    else if (from && *from != **to)
      ++notes_[fmt::format("{}: {} is {} for one rank and {} for another: taken as {}", whose, what, **to,
                           *from, **to)];
  }
  void fill(const std::string& whose, const char* what, const std::string& from, std::string* to) {
    if (to->empty())
      *to = from;
    else if (!from.empty() && from != *to)
      ++notes_[fmt::format("{}: {} is \"{}\" for one rank and \"{}\" for another: taken as \"{}\"", whose,
                           what, *to, from, *to)];
  }

  /// The index of the NUMA node with that number.
  size_t cpuLike(const CpuDescription& cpu) {
    std::vector<CpuDescription>& all = fused_.system.cpus;
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i].numaId == cpu.numaId && all[i].hostHash == cpu.hostHash) return i;
    CpuDescription& own = all.emplace_back();
    own.numaId = cpu.numaId;
    own.hostHash = cpu.hostHash;
    return all.size() - 1;
  }

  void fillCpu(const CpuDescription& from, CpuDescription* to) {
    const std::string whose = fmt::format("NUMA node {}", to->numaId.value_or(0));
    fill(whose, "affinity", from.affinity, &to->affinity);
    fill(whose, "arch", from.arch, &to->arch);
    fill(whose, "vendor", from.vendor, &to->vendor);
    fill(whose, "familyid", from.family, &to->family);
    fill(whose, "modelid", from.model, &to->model);
  }

  static PciDescription* findIn(std::vector<PciDescription>& devices, BusId busId) {
    for (PciDescription& device : devices) {
      if (device.busId == busId) return &device;
      if (PciDescription* below = findIn(device.children, busId)) return below;
    }
    return nullptr;
  }
  PciDescription* find(BusId busId) {
    for (CpuDescription& cpu : fused_.system.cpus)
      if (PciDescription* device = findIn(cpu.pci, busId)) return device;
    return nullptr;
  }
  /// Takes a device with all that is below it out of a list.
  static std::optional<PciDescription> detach(std::vector<PciDescription>& devices, BusId busId) {
    for (size_t i = 0; i < devices.size(); ++i) {
      if (devices[i].busId == busId) {
        PciDescription device = std::move(devices[i]);
        devices.erase(devices.begin() + static_cast<ptrdiff_t>(i));
        return device;
      }
      if (auto below = detach(devices[i].children, busId)) return below;
    }
    return std::nullopt;
  }

  /// `above`: the device that the view has above it, if any; else `cpu` is (an index: vectors move).
  void mergeDevice(const PciDescription& from, size_t cpu, std::optional<BusId> above) {
    if (find(from.busId) == nullptr) {
      // What it has below it may be known: that moves there.
      PciDescription made;
      made.busId = from.busId;
      for (const PciDescription& child : from.children)
        for (CpuDescription& own : fused_.system.cpus)
          if (auto known = detach(own.pci, child.busId)) made.children.push_back(std::move(*known));
      // Where views contradict each other, `above` may just have moved below `made`.
      PciDescription* place = above ? find(*above) : nullptr;
      (place != nullptr ? place->children : fused_.system.cpus[cpu].pci).push_back(std::move(made));
    }
    fillDevice(from, find(from.busId));
    for (const PciDescription& child : from.children) mergeDevice(child, cpu, from.busId);
  }

  void fillDevice(const PciDescription& from, PciDescription* to) {
    const std::string whose = to->busId.text();
    fill(whose, "class", from.classCode, &to->classCode);
    fill(whose, "vendor", from.vendor, &to->vendor);
    fill(whose, "device", from.device, &to->device);
    fill(whose, "subsystem_vendor", from.subsystemVendor, &to->subsystemVendor);
    fill(whose, "subsystem_device", from.subsystemDevice, &to->subsystemDevice);
    fill(whose, "link_speed", from.linkSpeed, &to->linkSpeed);
    fill(whose, "link_width", from.linkWidth, &to->linkWidth);
    if (from.gpu) fillGpu(whose, *from.gpu, to->gpu ? &*to->gpu : &to->gpu.emplace());
    for (const NicDescription& nic : from.nics) mergeNic(nic, &to->nics, whose);
  }

  void fillGpu(const std::string& whose, const GpuDescription& from, GpuDescription* to) {
    if (!to->dev) to->dev = from.dev;  // each container has numbers of its own
    fill(whose, "sm", from.sm, &to->sm);
    if (to->rank.value_or(-1) < 0) to->rank = from.rank;  // a rank knows its own GPU's
    fill(whose, "gdr", from.gdr, &to->gdr);
    for (const NvlinkDescription& link : from.nvlinks) {
      const auto known = std::ranges::find(to->nvlinks, link.target, &NvlinkDescription::target);
      if (known == to->nvlinks.end()) {
        to->nvlinks.push_back(link);
        continue;
      }
      fill(whose, "NVLink count", link.count, &known->count);
      fill(whose, "NVLink tclass", link.targetClass, &known->targetClass);
    }
    if (to->c2c.empty()) to->c2c = from.c2c;
  }

  void mergeNic(const NicDescription& from, std::vector<NicDescription>* nics, const std::string& whose) {
    if (nics->empty()) nics->emplace_back();
    for (const NetDescription& net : from.nets) {
      NetDescription* own = nullptr;
      for (NicDescription& nic : *nics)
        for (NetDescription& known : nic.nets)
          if (known.name == net.name && known.port.value_or(1) == net.port.value_or(1)) own = &known;
      if (own == nullptr) {
        nics->front().nets.push_back(net);
        continue;
      }
      const std::string port = net.name.empty() ? whose : net.name;
      fill(port, "speed", net.speed, &own->speed);
      fill(port, "port", net.port, &own->port);
      fill(port, "latency", net.latency, &own->latency);
      fill(port, "guid", net.guid, &own->guid);
      fill(port, "maxconn", net.maxConnections, &own->maxConnections);
      fill(port, "gdr", net.gdr, &own->gdr);
      fill(port, "coll", net.coll, &own->coll);
    }
  }

  void sort() {
    std::ranges::stable_sort(fused_.system.cpus, {}, [](const CpuDescription& cpu) {
      return std::pair(cpu.hostHash.value_or(0), cpu.numaId.value_or(-1));
    });
    const auto sortNics = [](std::vector<NicDescription>& nics) {
      for (NicDescription& nic : nics)
        std::ranges::stable_sort(nic.nets, {}, [](const NetDescription& net) {
          return std::tuple(net.dev.value_or(INT32_MAX), net.name, net.port.value_or(1));
        });
    };
    for (CpuDescription& cpu : fused_.system.cpus) {
      std::ranges::stable_sort(cpu.pci, {}, &PciDescription::busId);
      sortNics(cpu.nics);
      forDevices(cpu.pci, [&](PciDescription& device) {
        std::ranges::stable_sort(device.children, {}, &PciDescription::busId);
        if (device.gpu) std::ranges::stable_sort(device.gpu->nvlinks, {}, &NvlinkDescription::target);
        sortNics(device.nics);
      });
    }
  }

  void renumber() {
    std::vector<std::tuple<uint64_t, BusId, std::optional<int32_t>*>> gpus;
    std::vector<std::tuple<uint64_t, BusId, std::optional<int32_t>*>> nets;
    for (CpuDescription& cpu : fused_.system.cpus) {
      const uint64_t host = cpu.hostHash.value_or(0);
      const auto addNets = [&](std::vector<NicDescription>& nics, BusId busId) {
        for (NicDescription& nic : nics)
          for (NetDescription& net : nic.nets) nets.emplace_back(host, busId, &net.dev);
      };
      addNets(cpu.nics, {UINT32_MAX, 0, 0, 0});  // those that are not on PCI: last
      forDevices(cpu.pci, [&](PciDescription& device) {
        if (device.gpu) gpus.emplace_back(host, device.busId, &device.gpu->dev);
        addNets(device.nics, device.busId);
      });
    }
    renumber(gpus, "GPUs");
    renumber(nets, "network ports");
  }

  void renumber(std::vector<std::tuple<uint64_t, BusId, std::optional<int32_t>*>>& all, const char* what) {
    std::set<std::pair<uint64_t, int32_t>> seen;
    bool isTwice = false;
    for (const auto& [host, busId, number] : all) isTwice |= *number && !seen.emplace(host, **number).second;
    if (!isTwice) return;
    ++notes_[fmt::format("ranks number their {} differently: numbered by address", what)];
    std::ranges::stable_sort(all, {},
                             [](const auto& one) { return std::pair(std::get<0>(one), std::get<1>(one)); });
    std::map<uint64_t, int32_t> next;
    for (const auto& [host, busId, number] : all) *number = next[host]++;
  }

  FusedSystem fused_;
  std::map<std::string, int> notes_;
};

}  // namespace

FusedSystem fuseSystems(const std::vector<SystemDescription>& views) {
  Fuser fuser;
  for (const SystemDescription& view : views) fuser.add(view);
  return fuser.take();
}

std::vector<NodeId> membersOfRanks(const Graph& graph, const std::vector<int32_t>& ranks) {
  std::vector<NodeId> members;
  for (const int32_t rank : ranks) {
    const auto isIt = [rank](const Node& node) { return node.type == NodeType::gpu && node.rank == rank; };
    const auto node = std::ranges::find_if(graph.nodes(), isIt);
    members.push_back(node == graph.nodes().end() ? kNoNode
                                                  : static_cast<NodeId>(node - graph.nodes().begin()));
  }
  return members;
}

}  // namespace tutti
