#include "topology/cpu_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

#include "topology/cpu_mask.h"

namespace tutti {
namespace {

constexpr const char* kCpuFolder = "/sys/devices/system/cpu";

/// "32768K", "1M".
uint64_t bytesOf(const std::string& text) {
  uint64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || value > (uint64_t{1} << 30)) return 0;
  const char unit = end == text.data() + text.size() ? ' ' : *end;
  return unit == 'K' ? value << 10 : unit == 'M' ? value << 20 : unit == 'G' ? value << 30 : value;
}

class Reader {
 public:
  explicit Reader(const Sysfs& sysfs) : sysfs_(sysfs) {}

  CpuLayout read() {
    CpuLayout layout;
    const auto online = parseCpuList(sysfs_.text(fmt::format("{}/online", kCpuFolder)).value_or(""));
    if (!online) return layout;
    for (const int32_t cpu : *online) left_.insert(cpu);
    while (!left_.empty()) {
      const int32_t first = *left_.begin();
      CoreGroup group = readGroup(first);
      if (group.cores.empty()) return {};
      layout.groups.push_back(std::move(group));
    }
    return layout;
  }

 private:
  std::string file(int32_t cpu, const std::string& name) const {
    return fmt::format("{}/cpu{}/{}", kCpuFolder, cpu, name);
  }

  /// A list of CPUs that `cpu` is in; nothing for anything else.
  std::optional<std::vector<int32_t>> listOf(int32_t cpu, const std::string& name) const {
    auto cpus = parseCpuList(sysfs_.text(file(cpu, name)).value_or(""));
    if (!cpus || !std::ranges::binary_search(*cpus, cpu)) return std::nullopt;
    return cpus;
  }

  CoreGroup readGroup(int32_t first) {
    CoreGroup group;
    const int64_t package = sysfs_.number(file(first, "topology/physical_package_id")).value_or(-1);
    if (package >= 0 && package <= INT32_MAX) group.package = static_cast<int32_t>(package);
    auto cpus = listOf(first, "topology/core_siblings_list");  // of the package, where there is no L3
    for (int index = 0; index < 8; ++index) {
      const std::string cache = fmt::format("cache/index{}/", index);
      const auto level = sysfs_.number(file(first, cache + "level"));
      if (!level) break;
      if (*level < 2 || *level > 3) continue;
      (*level == 2 ? group.l2Bytes : group.l3Bytes) =
          bytesOf(sysfs_.text(file(first, cache + "size")).value_or(""));
      if (*level != 3) continue;
      if (auto sharing = listOf(first, cache + "shared_cpu_list")) cpus = std::move(sharing);
    }
    if (!cpus) return {};
    for (const int32_t cpu : *cpus) addCore(cpu, group);
    return group;
  }

  /// The core of a CPU, unless it has been added with another of its CPUs.
  void addCore(int32_t cpu, CoreGroup& group) {
    if (!left_.contains(cpu)) return;
    std::vector<int32_t>& core = group.cores.emplace_back();
    for (const int32_t sibling : listOf(cpu, "topology/thread_siblings_list").value_or(std::vector{cpu}))
      if (left_.erase(sibling) != 0) core.push_back(sibling);
  }

  const Sysfs& sysfs_;
  std::set<int32_t> left_;  // CPUs that are in no group yet
};

}  // namespace

size_t CpuLayout::cores() const {
  size_t count = 0;
  for (const CoreGroup& group : groups) count += group.cores.size();
  return count;
}

size_t CpuLayout::packages() const {
  std::set<int32_t> known;
  for (const CoreGroup& group : groups)
    if (group.package >= 0) known.insert(group.package);
  return known.size();
}

CpuLayout readCpuLayout(const Sysfs& sysfs) { return Reader(sysfs).read(); }

}  // namespace tutti
