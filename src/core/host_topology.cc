#include "core/host_topology.h"

#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "base/affinity.h"
#include "base/hmac.h"
#include "base/identity.h"
#include "base/log.h"
#include "base/output_file.h"
#include "base/params.h"
#include "device/device_world.h"
#include "device/host_table.h"
#include "topology/cpu_mask.h"
#include "topology/detect.h"
#include "topology/fill.h"
#include "topology/system_xml.h"

namespace tutti {
namespace {

/// Where virtual machines describe the hardware below them (NVIDIA's topology daemon).
constexpr const char* kDefaultFile = "/var/run/nvidia-topologyd/virtualTopology.xml";

bool exists(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0;
}

/// The file that describes this host; empty: none does.
std::string topologyFile() {
  const std::string chosen = params().topoFile();
  if (chosen.empty()) return exists(kDefaultFile) ? kDefaultFile : "";
  if (exists(chosen) || errno != ENOENT) return chosen;
  logWarn("NCCL_TOPO_FILE: {} does not exist: the topology is detected without it", chosen);
  return "";
}

/// `found`, with what the file says in front.
Result<SystemDescription> describe(const std::string& file, const Detection& found) {
  SystemDescription system;
  if (!file.empty()) {
    auto read = readSystemXml(file);
    if (read.isOk()) {
      system = std::move(*read);
    } else if (!params().topoFile().empty()) {
      return read.status().withContext("NCCL_TOPO_FILE");
    } else {  // nobody chose it
      logWarn("{}; the topology is detected without it", read.status().message());
    }
  }
  fillIn(found.system, &system);
  // Where nobody says which CPUs there are, there are those that this process may use.
  if (system.cpus.size() == 1 && system.cpus[0].affinity.empty())
    system.cpus[0].affinity = cpuMaskText(threadCpus());
  return system;
}

Result<std::shared_ptr<const HostTopology>> find(const std::string& file) {
  const Detection found = detectSystem();
  TUTTI_ASSIGN(SystemDescription system, describe(file, found));
  TUTTI_ASSIGN(Graph graph, Graph::build(system));
  auto host = std::make_shared<HostTopology>();
  host->severalNodes = numaNodesWithCpus(system) > 1;
  logInfo(Subsystem::init,
          "topology of this host ({}): {} NUMA node(s), {} core(s), {} GPU(s), {} network port(s)",
          file.empty() ? "/sys" : file, system.cpus.size(), found.cpus.cores(),
          graph.all(NodeType::gpu).size(), graph.all(NodeType::net).size());
  for (const std::string& text : graph.assumptions()) logInfo(Subsystem::graph, "topology: {}", text);
  const Digest digest = sha256(systemXmlText(system));
  std::memcpy(&host->digest, digest.data(), sizeof host->digest);
  host->system = std::move(system);
  host->cpus = found.cpus;
  host->graph = std::move(graph);
  return std::shared_ptr<const HostTopology>(std::move(host));
}

/// One process's. A forked child takes another: a thread that is not there any more may hold this lock.
struct Known {
  Known(uint64_t token, const Known* forkedFrom) : process(token), parent(forkedFrom) {}
  const uint64_t process;
  const Known* const parent;  // never freed, and here so that leak checkers still see it
  std::mutex mutex;
  std::string file;
  std::shared_ptr<const HostTopology> host;
};

Known& known(uint64_t process) {
  static std::atomic<Known*> current{nullptr};
  Known* found = current.load(std::memory_order_acquire);
  while (found == nullptr || found->process != process) {
    auto made = std::make_unique<Known>(process, found);
    if (current.compare_exchange_strong(found, made.get(), std::memory_order_acq_rel)) found = made.release();
  }
  return *found;
}

}  // namespace

Result<std::shared_ptr<const HostTopology>> hostTopology() {
  TUTTI_ASSIGN(const uint64_t process, processToken());
  Known& one = known(process);
  // Other ranks of this process wait here for the first one instead of doing the same.
  const std::lock_guard lock(one.mutex);
  const std::string wanted = params().topoFile();
  if (one.host != nullptr && one.file == wanted) return one.host;
  TUTTI_ASSIGN(one.host, find(topologyFile()));
  one.file = wanted;
  return one.host;
}

const Paths& HostTopology::paths() const {
  std::call_once(pathsMade_, [&] {
    paths_.emplace(graph, PathOptions{.throughGpu = !params().nvbDisable(), .pxn = !params().pxnDisable()});
  });
  return *paths_;
}

std::optional<BusId> gpuOf(const HostTopology& host, int device) {
  const auto driver = kernelDriver();
  if (!driver.isOk() || *driver == nullptr) return std::nullopt;
  const auto facts = (*driver)->facts(device);
  if (!facts.isOk()) return std::nullopt;
  const auto busId = parseBusId(facts->busId);
  return busId && host.graph.gpuAt(*busId) != kNoNode ? busId : std::nullopt;
}

DevicePlace devicePlace(const HostTopology& host, int device) {
  if (const auto gpu = gpuOf(host, device)) return placeOfGpu(host.graph, host.cpus, host.graph.gpuAt(*gpu));
  const auto runtime = hostTable();
  int slot = device, slots = device + 1;
  if (!runtime.isOk() || (*runtime)->deviceSlot(device, &slot, &slots) != 0) return {};
  return placeOfDevice(host.system, host.cpus, slot, slots);
}

RankBinding bindingOf(const HostTopology& host, const DevicePlace& place) {
  RankBinding binding;
  if (!host.severalNodes || place.nodeCpus.empty()) return binding;
  binding.memoryNode = place.numaNode;
  binding.cpus = params().ignoreCpuAffinity() ? place.nodeCpus : commonCpus(threadCpus(), place.nodeCpus);
  // The launcher has put this process elsewhere, and knows better: its memory goes there, too.
  if (binding.cpus.empty()) binding.memoryNode = -1;
  return binding;
}

void dumpTopology(int rank) {
  const std::string path = params().topoDumpFile();
  if (path.empty() || rank != params().topoDumpFileRank()) return;
  const Status status = [&]() -> Status {
    TUTTI_ASSIGN(const SystemDescription system,
                 describe(topologyFile(), detectSystem("/", MachineLibraries::forLibrary())));
    return replaceFile(path, systemXmlText(system));
  }();
  if (status.isOk()) {
    logInfo(Subsystem::init, "rank {}: topology written to {}", rank, path);
  } else {
    logWarn("NCCL_TOPO_DUMP_FILE: {}", status.message());
  }
}

}  // namespace tutti
