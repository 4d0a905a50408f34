#include "topology/hwloc_library.h"

#include <algorithm>
#include <cerrno>

#include "topology/dynamic_library.h"

namespace tutti {
namespace {

constexpr unsigned kMajorVersion = 2;
constexpr unsigned long kIncludeDisallowed = 1;  // HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED
constexpr unsigned long kBlacklist = 1;          // HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST

class HwlocReader {
 public:
  explicit HwlocReader(const HwlocApi& hwloc) : hwloc_(hwloc) {}
  ~HwlocReader() {
    if (topology_ != nullptr) hwloc_.destroy(topology_);
  }
  HwlocReader(const HwlocReader&) = delete;
  HwlocReader& operator=(const HwlocReader&) = delete;

  Result<HwlocFacts> read() {
    if (const unsigned version = hwloc_.version() >> 16; version != kMajorVersion)
      return Status(ncclSystemError,
                    fmt::format("hwloc has version {}, version {} is needed", version, kMajorVersion));
    if (hwloc_.init(&topology_) != 0) {
      topology_ = nullptr;
      return systemError(errno, "hwloc does not start");
    }
    // They start drivers in the process that we are part of.
    if (hwloc_.setComponents != nullptr)
      for (const char* part : {"opencl", "cuda", "nvml", "rsmi", "levelzero", "gl", "pci"})
        hwloc_.setComponents(topology_, kBlacklist, part);
    hwloc_.setFlags(topology_, kIncludeDisallowed);
    if (hwloc_.load(topology_) != 0) return systemError(errno, "hwloc cannot find out about this machine");
    HwlocFacts facts;
    readLayout(facts.cpus);
    for (const HwlocObject* node : all(kHwlocNumaNode)) {
      std::vector<int32_t> cpus = cpusOf(node);
      if (!cpus.empty()) facts.numaNodes.push_back({static_cast<int32_t>(node->osIndex), std::move(cpus)});
    }
    std::ranges::sort(facts.numaNodes, {}, &HwlocFacts::NumaNode::id);
    return facts;
  }

 private:
  std::vector<HwlocObject*> all(int type) const {
    std::vector<HwlocObject*> objects;
    const int depth = hwloc_.typeDepth(topology_, type);
    // NUMA nodes have a depth of their own, below -2; -1 and -2: none, or at several depths.
    if (depth == -1 || depth == -2) return objects;
    for (unsigned i = 0; i < hwloc_.countAtDepth(topology_, depth); ++i)
      if (HwlocObject* object = hwloc_.objectAtDepth(topology_, depth, i)) objects.push_back(object);
    return objects;
  }

  std::vector<int32_t> cpusOf(const HwlocObject* object) const {
    std::vector<int32_t> cpus;
    if (object->cpuset == nullptr) return cpus;
    for (int cpu = hwloc_.nextInBitmap(object->cpuset, -1); cpu >= 0 && cpus.size() < 65536;
         cpu = hwloc_.nextInBitmap(object->cpuset, cpu))
      cpus.push_back(cpu);
    return cpus;
  }

  static uint64_t cacheBytes(const HwlocObject* cache) {
    return cache->attributes != nullptr ? *static_cast<const uint64_t*>(cache->attributes) : 0;
  }

  void readLayout(CpuLayout& layout) const {
    const std::vector<HwlocObject*> caches = all(kHwlocL3);
    const auto cores = all(kHwlocCore), l2 = all(kHwlocL2);
    for (const HwlocObject* top : caches.empty() ? all(kHwlocPackage) : caches) {
      const std::vector<int32_t> cpus = cpusOf(top);
      CoreGroup group;
      if (!caches.empty()) group.l3Bytes = cacheBytes(top);
      for (const HwlocObject* above = top; above != nullptr; above = above->parent)
        if (above->type == kHwlocPackage) group.package = static_cast<int32_t>(above->osIndex);
      const auto isInside = [&](const std::vector<int32_t>& some) {
        return !some.empty() && std::ranges::binary_search(cpus, some.front());
      };
      for (const HwlocObject* core : cores)
        if (auto some = cpusOf(core); isInside(some)) group.cores.push_back(std::move(some));
      for (const HwlocObject* cache : l2)
        if (group.l2Bytes == 0 && isInside(cpusOf(cache))) group.l2Bytes = cacheBytes(cache);
      std::ranges::sort(group.cores);
      if (!group.cores.empty()) layout.groups.push_back(std::move(group));
    }
    std::ranges::sort(layout.groups, {}, [](const CoreGroup& group) { return group.cores.front().front(); });
  }

  const HwlocApi& hwloc_;
  HwlocApi::Topology topology_ = nullptr;
};

}  // namespace

Result<HwlocApi> openHwloc(const std::string& file) {
  TUTTI_ASSIGN(const DynamicLibrary library, DynamicLibrary::open(file));
  HwlocApi hwloc;
  TUTTI_TRY(library.require("hwloc_get_api_version", &hwloc.version));
  TUTTI_TRY(library.require("hwloc_topology_init", &hwloc.init));
  TUTTI_TRY(library.require("hwloc_topology_destroy", &hwloc.destroy));
  TUTTI_TRY(library.require("hwloc_topology_set_flags", &hwloc.setFlags));
  TUTTI_TRY(library.require("hwloc_topology_load", &hwloc.load));
  TUTTI_TRY(library.require("hwloc_get_type_depth", &hwloc.typeDepth));
  TUTTI_TRY(library.require("hwloc_get_nbobjs_by_depth", &hwloc.countAtDepth));
  TUTTI_TRY(library.require("hwloc_get_obj_by_depth", &hwloc.objectAtDepth));
  TUTTI_TRY(library.require("hwloc_bitmap_next", &hwloc.nextInBitmap));
  library.take("hwloc_topology_set_components", &hwloc.setComponents);
  return hwloc;
}

Result<HwlocFacts> readHwloc(const HwlocApi& hwloc) { return HwlocReader(hwloc).read(); }

}  // namespace tutti
