#include "topology/detect.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "topology/cpu_mask.h"
#include "topology/merge.h"
#include "topology/sysfs.h"

namespace tutti {
namespace {

constexpr const char* kNodeFolder = "/sys/devices/system/node";
constexpr const char* kPciFolder = "/sys/bus/pci/devices";
constexpr const char* kNetFolder = "/sys/class/net";
constexpr const char* kIbFolder = "/sys/class/infiniband";

std::string joinTexts(const std::vector<std::string>& texts, const char* between) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : between) + text;
  return all;
}

/// The PCI addresses in a path below /sys/devices, from the root complex on.
std::vector<std::pair<BusId, std::string>> pciChain(const std::string& path) {
  std::vector<std::pair<BusId, std::string>> chain;
  for (size_t begin = 1; begin < path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (const auto busId = parseBusId(std::string_view(path).substr(begin, end - begin)))
      chain.emplace_back(*busId, path.substr(0, end));
    begin = end + 1;
  }
  return chain;
}

class Detector {
 public:
  explicit Detector(const std::string& root) : sysfs_(root) {}

  Detection detect() {
    detectCpus();
    detectProcessor();
    result_.cpus = readCpuLayout(sysfs_);
    detectNets();
    detectPci();
    for (auto& [cpu, path] : virtualNics_) result_.system.cpus[cpu].nics.push_back(nicOf(path));
    return std::move(result_);
  }
  bool numaAssumed() const { return numaAssumed_; }

 private:
  /// A PCI device on the way to the tree: children are added in any order.
  struct Device {
    std::string path;  // below /sys/devices
    std::set<BusId> children;
  };

  void assume(std::string text) { result_.assumptions.push_back(std::move(text)); }

  void detectCpus() {
    for (const std::string& name : sysfs_.names(kNodeFolder).value_or(std::vector<std::string>{})) {
      int32_t id = 0;
      if (!name.starts_with("node")) continue;
      const auto [end, code] = std::from_chars(name.data() + 4, name.data() + name.size(), id);
      if (code != std::errc() || end != name.data() + name.size()) continue;
      const std::string folder = fmt::format("{}/{}", kNodeFolder, name);
      auto cpus = parseCpuMask(sysfs_.text(folder + "/cpumap").value_or(""));
      if (!cpus) cpus = parseCpuList(sysfs_.text(folder + "/cpulist").value_or(""));
      if (!cpus || cpus->empty()) continue;  // memory without CPUs
      CpuDescription& cpu = result_.system.cpus.emplace_back();
      cpu.numaId = id;
      cpu.affinity = cpuMaskText(*cpus);
    }
    std::ranges::sort(result_.system.cpus, {}, &CpuDescription::numaId);
    if (!result_.system.cpus.empty()) return;
    numaAssumed_ = true;
    assume(fmt::format("{} shows no NUMA node: one is assumed", kNodeFolder));
    CpuDescription& cpu = result_.system.cpus.emplace_back();
    cpu.numaId = 0;
    const auto online = parseCpuList(sysfs_.text("/sys/devices/system/cpu/online").value_or(""));
    if (online && !online->empty()) cpu.affinity = cpuMaskText(*online);
  }

  /// The value of the first "name : value" line of /proc/cpuinfo.
  static std::string fieldOf(std::string_view cpuinfo, std::string_view name) {
    for (size_t begin = 0; begin < cpuinfo.size();) {
      const size_t end = std::min(cpuinfo.find('\n', begin), cpuinfo.size());
      const std::string_view line = cpuinfo.substr(begin, end - begin);
      begin = end + 1;
      const size_t colon = line.find(':');
      if (colon == std::string_view::npos) continue;
      const std::string_view key = line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
      if (colon == 0 || key != name) continue;
      const size_t value = line.find_first_not_of(" \t", colon + 1);
      return value == std::string_view::npos ? "" : std::string(line.substr(value));
    }
    return "";
  }
  static std::optional<int32_t> numberOf(const std::string& text) {
    int32_t value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc() || value < 0) return std::nullopt;
    return value;
  }

  void detectProcessor() {
    const std::string cpuinfo = sysfs_.text("/proc/cpuinfo").value_or("");
    CpuDescription found;
    found.vendor = fieldOf(cpuinfo, "vendor_id");
    if (!found.vendor.empty()) {
      found.arch = "x86_64";
      found.family = numberOf(fieldOf(cpuinfo, "cpu family"));
      found.model = numberOf(fieldOf(cpuinfo, "model"));
    } else if (!fieldOf(cpuinfo, "CPU implementer").empty()) {
      found.arch = "arm64";
      found.vendor = "ARM";
    } else if (fieldOf(cpuinfo, "cpu").starts_with("POWER")) {
      found.arch = "ppc64";
    } else {
      assume("/proc/cpuinfo names no processor: constants for unknown ones are used");
    }
    for (CpuDescription& cpu : result_.system.cpus) {
      cpu.arch = found.arch;
      cpu.vendor = found.vendor;
      cpu.family = found.family;
      cpu.model = found.model;
    }
  }

  /// The card of a network device: by PCI address, or, for a device that is none of PCI's (Hyper-V, Xen),
  /// below a CPU. Devices without hardware (lo, bridges) have none.
  void placeNet(const std::string& folder, const std::string& name) {
    const std::string path = fmt::format("{}/{}", folder, name);
    const auto device = sysfs_.resolve(path + "/device");
    if (!device) return;
    const auto chain = pciChain(*device);
    if (chain.empty()) {
      virtualNics_.emplace_back(cpuOf(sysfs_.number(path + "/device/numa_node").value_or(-1)), path);
      return;
    }
    // A card's RDMA device and its Ethernet interface are the same ports.
    std::vector<std::string>& nets = netsOf_[chain.back().first];
    if (folder == kNetFolder && !nets.empty() && nets.front().starts_with(kIbFolder)) return;
    nets.push_back(path);
  }

  void detectNets() {
    for (const char* folder : {kIbFolder, kNetFolder})
      for (const std::string& name : sysfs_.names(folder).value_or(std::vector<std::string>{}))
        placeNet(folder, name);
  }

  NicDescription nicOf(const std::string& path) {
    NicDescription nic;
    const std::string name = path.substr(path.rfind('/') + 1);
    if (path.starts_with(kIbFolder)) {
      addIbPorts(path, name, &nic);
    } else if (sysfs_.text(path + "/operstate").value_or("") != "down") {
      NetDescription& net = nic.nets.emplace_back();
      net.name = name;
      net.dev = nextNet_++;
      const int64_t speed = sysfs_.number(path + "/speed").value_or(-1);
      if (speed > 0 && speed <= INT32_MAX) net.speed = static_cast<int32_t>(speed);
    }
    return nic;
  }

  void addIbPorts(const std::string& path, const std::string& name, NicDescription* nic) {
    for (const std::string& port : sysfs_.names(path + "/ports").value_or(std::vector<std::string>{})) {
      const std::string folder = fmt::format("{}/ports/{}", path, port);
      if (sysfs_.text(folder + "/state").value_or("").find("ACTIVE") == std::string::npos) continue;
      NetDescription& net = nic->nets.emplace_back();
      net.name = name;
      net.dev = nextNet_++;
      net.port = numberOf(port);
      const std::string rate = sysfs_.text(folder + "/rate").value_or("");  // "200 Gb/sec (4X HDR)"
      double gigabits = 0;
      const auto [end, code] = std::from_chars(rate.data(), rate.data() + rate.size(), gigabits);
      if (code == std::errc() && std::string_view(end).starts_with(" Gb/sec") && gigabits > 0 &&
          gigabits < 1e6)
        net.speed = static_cast<int32_t>(std::lround(gigabits * 1000));
      std::string guid = sysfs_.text(path + "/sys_image_guid").value_or("");  // "0c42:a103:0012:3456"
      std::erase(guid, ':');
      uint64_t value = 0;
      if (std::from_chars(guid.data(), guid.data() + guid.size(), value, 16).ec == std::errc())
        net.guid = value;
    }
  }

  /// The index of a NUMA node's CPU; for one that does not exist, of the first.
  size_t cpuOf(int64_t node) {
    for (size_t i = 0; i < result_.system.cpus.size(); ++i)
      if (*result_.system.cpus[i].numaId == node) return i;
    return 0;
  }

  bool isWanted(const std::string& path, BusId busId) const {
    if (netsOf_.contains(busId)) return true;
    // Only what decides: hosts have hundreds of devices.
    const PciKind kind = pciKind(static_cast<int32_t>(sysfs_.number(path + "/class").value_or(-1)),
                                 static_cast<int32_t>(sysfs_.number(path + "/vendor").value_or(-1)));
    // A virtual function that nobody has brought up is no card.
    return kind == PciKind::gpu || (kind == PciKind::nic && !sysfs_.exists(path + "/physfn"));
  }

  void detectPci() {
    const auto names = sysfs_.names(kPciFolder);
    if (!names) {
      assume(fmt::format("{} cannot be read: no GPU and no network card is seen", kPciFolder));
      return;
    }
    std::map<size_t, std::set<BusId>> tops;  // by CPU
    int lost = 0;
    for (const std::string& name : *names) {
      const auto path = sysfs_.resolve(fmt::format("{}/{}", kPciFolder, name));
      if (!path) continue;
      const auto chain = pciChain(*path);
      if (chain.empty() || !isWanted(*path, chain.back().first)) continue;
      // A switch is two bridges, one inside the other: the one towards the CPU stands for it. The bridge
      // below the root complex is no switch.
      size_t at = chain.size() - 1;
      devices_[chain[at].first].path = chain[at].second;
      for (; at >= 2; at -= 2) {
        devices_[chain[at - 2].first].path = chain[at - 2].second;
        devices_[chain[at - 2].first].children.insert(chain[at].first);
      }
      tops[numaOf(chain[at].second, *path, &lost)].insert(chain[at].first);
    }
    if (lost > 0)
      assume(fmt::format("the NUMA node of {} PCI devices is not known: taken as {}", lost,
                         *result_.system.cpus[0].numaId));
    for (const auto& [cpu, busIds] : tops)
      for (const BusId busId : busIds)
        if (placed_.insert(busId).second) result_.system.cpus[cpu].pci.push_back(assemble(busId));
  }

  /// Says the device of `path`, else of its topmost switch. Counts those that say nothing, if that matters.
  size_t numaOf(const std::string& top, const std::string& path, int* lost) {
    if (result_.system.cpus.size() == 1) return 0;
    // All below one switch go where the switch is: a tree has one place.
    for (const std::string& where : {top, path}) {
      const int64_t node = sysfs_.number(where + "/numa_node").value_or(-1);
      for (size_t i = 0; i < result_.system.cpus.size(); ++i)
        if (*result_.system.cpus[i].numaId == node) return i;
    }
    ++*lost;
    return 0;
  }

  PciDescription describe(BusId busId, const std::string& path) {
    PciDescription pci;
    pci.busId = busId;
    const auto field = [&](const char* name, int64_t most) -> std::optional<int32_t> {
      const auto value = sysfs_.number(fmt::format("{}/{}", path, name));
      if (!value || *value < 0 || *value > most) return std::nullopt;
      return static_cast<int32_t>(*value);
    };
    pci.classCode = field("class", 0xffffff);
    pci.vendor = field("vendor", 0xffff);
    pci.device = field("device", 0xffff);
    pci.subsystemVendor = field("subsystem_vendor", 0xffff);
    pci.subsystemDevice = field("subsystem_device", 0xffff);
    // A link is as fast as the slower one of its ends; "max" because links at rest slow down.
    const std::string port = path.substr(0, path.rfind('/'));
    for (const std::string& end : {path, port}) {
      const std::string speed = sysfs_.text(end + "/max_link_speed").value_or("");
      const auto width = sysfs_.number(end + "/max_link_width");
      const PciBandwidth link = pciBandwidth(speed, 1);
      if (!link.speedAssumed &&
          (pci.linkSpeed.empty() || link.gigabytes < pciBandwidth(pci.linkSpeed, 1).gigabytes))
        pci.linkSpeed = speed;
      if (width && *width > 0 && *width <= 32 && (!pci.linkWidth || *width < *pci.linkWidth))
        pci.linkWidth = static_cast<int32_t>(*width);
    }
    return pci;
  }

  PciDescription assemble(BusId busId) {
    const Device& device = devices_[busId];
    PciDescription pci = describe(busId, device.path);
    for (const std::string& net : netsOf_[busId]) {
      NicDescription nic = nicOf(net);
      if (nic.nets.empty()) continue;
      if (pci.nics.empty()) pci.nics.emplace_back();
      std::ranges::move(nic.nets, std::back_inserter(pci.nics[0].nets));
    }
    for (const BusId child : device.children)
      if (placed_.insert(child).second) pci.children.push_back(assemble(child));
    return pci;
  }

  Sysfs sysfs_;
  Detection result_;
  std::map<BusId, Device> devices_;
  std::set<BusId> placed_;                            // each device once, whatever a made-up tree says
  std::map<BusId, std::vector<std::string>> netsOf_;  // paths below /sys/class
  std::vector<std::pair<size_t, std::string>> virtualNics_;
  int32_t nextNet_ = 0;
  bool numaAssumed_ = false;
};

/// Asks the libraries that have something to say.
class LibraryAsker {
 public:
  LibraryAsker(const Sysfs& sysfs, const MachineLibraries& libraries, Detection* found)
      : sysfs_(sysfs), libraries_(libraries), found_(*found) {}

  void ask(bool numaAssumed) {
    if (libraries_.hwloc && (numaAssumed || found_.cpus.groups.empty())) askHwloc(numaAssumed);
    if ((libraries_.nvml || libraries_.cuda) && mayHaveGpu()) askGpus();
    if (libraries_.verbs && mayHaveRdma()) askVerbs();
  }

 private:
  void assume(std::string text) { found_.assumptions.push_back(std::move(text)); }

  static bool hasGpu(const std::vector<PciDescription>& devices) {
    return std::ranges::any_of(devices, [](const PciDescription& pci) {
      return (pci.kind() == PciKind::gpu && pci.vendor == kPciVendorNvidia) || hasGpu(pci.children);
    });
  }
  bool mayHaveGpu() const {
    return std::ranges::any_of(found_.system.cpus, [](const auto& cpu) { return hasGpu(cpu.pci); }) ||
           sysfs_.exists("/dev/nvidiactl");
  }
  bool mayHaveRdma() const { return sysfs_.names(kIbFolder) || sysfs_.exists("/dev/infiniband"); }

  void askHwloc(bool numaAssumed) {
    const auto api = libraries_.hwloc();
    const auto facts = api.isOk() ? readHwloc(*api) : Result<HwlocFacts>(api.status());
    if (facts.isOk()) {
      mergeHwloc(*facts, numaAssumed, &found_.system, &found_.cpus);
    } else {
      assume(fmt::format("cores and caches are not known: /sys does not show them, and {}",
                         facts.status().message()));
    }
  }

  void askGpus() {
    std::string missing = "not asked";
    if (libraries_.nvml) {
      const auto nvml = libraries_.nvml();
      if (nvml.isOk()) {
        found_.gpus = readNvml(*nvml, &found_.assumptions);
      } else {
        missing = nvml.status().message();
      }
    }
    if (found_.gpus.empty())
      assume(fmt::format("NVLinks of the GPUs are not known, as NVML does not tell them ({})", missing));
    mergeGpus(found_.gpus, &found_.system, &found_.assumptions);
    if (!libraries_.cuda) return;
    // A second source: nothing is said where it is missing.
    const auto cuda = libraries_.cuda();
    if (cuda.isOk())
      mergeGpus(readCudaDriver(*cuda, &found_.assumptions), &found_.system, &found_.assumptions);
  }

  void askVerbs() {
    const auto verbs = libraries_.verbs();
    if (!verbs.isOk()) {
      assume(fmt::format("RDMA ports are as /sys shows them: {}", verbs.status().message()));
      return;
    }
    found_.ports = readVerbs(*verbs, &found_.assumptions);
    mergePorts(found_.ports, &found_.system, &found_.assumptions);
  }

  const Sysfs sysfs_;
  const MachineLibraries& libraries_;
  Detection& found_;
};

}  // namespace

MachineLibraries MachineLibraries::forLibrary() {
  MachineLibraries libraries;
  libraries.verbs = [] { return openVerbs(); };
  libraries.nvml = [] { return openNvml(); };
  libraries.cuda = [] { return openCudaDriver(DynamicLibrary::If::loaded); };
  return libraries;
}

MachineLibraries MachineLibraries::forProgram() {
  MachineLibraries libraries = forLibrary();
  libraries.hwloc = [] { return openHwloc(); };
  libraries.cuda = [] { return openCudaDriver(DynamicLibrary::If::present); };
  return libraries;
}

Detection detectSystem(const std::string& root) { return detectSystem(root, MachineLibraries()); }

Detection detectSystem(const std::string& root, const MachineLibraries& libraries) {
  Detector detector(root);
  Detection found = detector.detect();
  LibraryAsker(Sysfs(root), libraries, &found).ask(detector.numaAssumed());
  if (!found.assumptions.empty())
    logInfo(Subsystem::init, "Topology: {}", joinTexts(found.assumptions, "; "));
  return found;
}

}  // namespace tutti
