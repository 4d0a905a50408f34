#include "hostrt/topology_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <pugixml.hpp>
#include <set>
#include <tuple>

namespace tutti::hostrt {
namespace {

constexpr size_t kMostBytes = size_t{16} << 20;  // as libnccl.so.2 takes
constexpr int kMostDepth = 64;

std::optional<unsigned> numberOf(std::string_view text) {
  const bool isHex = text.starts_with("0x") || text.starts_with("0X");
  if (isHex) text.remove_prefix(2);
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, isHex ? 16 : 10);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// "0000:0f:00.0", "0f:00.0".
bool parseBusId(std::string_view text, FileGpu* gpu) {
  const auto take = [&](size_t digits, char behind, uint32_t* value) {
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + std::min(digits, text.size()), *value, 16);
    if (error != std::errc()) return false;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (behind == 0) return text.empty();
    if (!text.starts_with(behind)) return false;
    text.remove_prefix(1);
    return true;
  };
  if (std::ranges::count(text, ':') == 2 && !take(8, ':', &gpu->domain)) return false;
  return take(2, ':', &gpu->bus) && take(2, '.', &gpu->device) && take(1, 0, &gpu->function) &&
         gpu->device < 32 && gpu->function < 8;
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// A 3D controller, or a display adapter of those who make GPUs: what a skeleton's GPU is known by.
bool isGpuByClass(const pugi::xml_node& pci) {
  const auto classCode = numberOf(pci.attribute("class").value());
  const auto vendor = numberOf(pci.attribute("vendor").value());
  constexpr unsigned kDisplay = 0x03, k3d = 0x0302, kNvidia = 0x10de, kAmd = 0x1002;
  return classCode && *classCode >> 16 == kDisplay &&
         (*classCode >> 8 == k3d || vendor == kNvidia || vendor == kAmd);
}

class Reader {
 public:
  Reader(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  FileGpus read() {
    FileGpus result;
    pugi::xml_document document;
    if (text_.size() > kMostBytes) return failed(fmt::format("{}: more than {} bytes", name_, kMostBytes));
    const auto parsed = document.load_buffer(text_.data(), text_.size());
    if (!parsed)
      return failed(fmt::format("{}:{}: not XML: {}", name_, line(parsed.offset), parsed.description()));
    const pugi::xml_node system = document.document_element();
    if (std::strcmp(system.name(), "system") != 0)
      return failed(
          fmt::format("{}:{}: the outermost element must be <system>", name_, line(system.offset_debug())));
    const std::string host = system.child("cpu").attribute("host_hash").value();
    for (const pugi::xml_node cpu : system.children("cpu"))
      if (host == cpu.attribute("host_hash").value()) readBelow(cpu, 0);
    if (!error_.empty()) return failed(error_);
    if (gpus_.empty()) return failed(fmt::format("{}: it has no GPU", name_));
    numberTheRest();
    std::ranges::stable_sort(gpus_, {}, &FileGpu::number);
    result.gpus = std::move(gpus_);
    return result;
  }

 private:
  static FileGpus failed(std::string why) { return {{}, std::move(why)}; }

  long line(ptrdiff_t offset) const {
    const auto end = std::clamp<ptrdiff_t>(offset, 0, static_cast<ptrdiff_t>(text_.size()));
    return 1 + std::count(text_.begin(), text_.begin() + end, '\n');
  }
  void complain(const pugi::xml_node& at, const std::string& what) {
    if (error_.empty())
      error_ = fmt::format("{}:{}: <{}>: {}", name_, line(at.offset_debug()), at.name(), what);
  }

  void readBelow(const pugi::xml_node& parent, int depth) {
    if (depth > kMostDepth) return complain(parent, "too many elements inside each other");
    for (const pugi::xml_node pci : parent.children("pci")) {
      if (pci.child("gpu") || isGpuByClass(pci)) readGpu(pci);
      readBelow(pci, depth + 1);
    }
  }

  void readGpu(const pugi::xml_node& pci) {
    FileGpu gpu;
    if (!parseBusId(pci.attribute("busid").value(), &gpu))
      return complain(pci, fmt::format("attribute busid=\"{}\" is no PCI address such as 0000:0f:00.0",
                                       pci.attribute("busid").value()));
    const pugi::xml_node node = pci.child("gpu");
    for (const auto& [attribute, value, most] :
         {std::tuple("dev", &gpu.number, 1u << 20), std::tuple("sm", &gpu.sm, 1000u)}) {
      const std::string_view given = node.attribute(attribute).value();
      if (given.empty() || given == "-1") continue;
      const auto number = numberOf(given);
      if (!number || *number > most)
        return complain(node,
                        fmt::format("attribute {}=\"{}\" is no number up to {}", attribute, given, most));
      *value = static_cast<int>(*number);
    }
    for (const pugi::xml_node link : node.children("nvlink"))
      gpu.nvlinks.push_back(lower(link.attribute("target").value()));
    if (std::ranges::any_of(gpus_, [&](const FileGpu& other) { return other.busId() == gpu.busId(); }))
      return complain(pci, fmt::format("a second device {}", gpu.busId()));
    gpus_.push_back(std::move(gpu));
  }

  void numberTheRest() {
    std::set<int> taken;
    for (const FileGpu& gpu : gpus_) taken.insert(gpu.number);
    int next = 0;
    for (FileGpu& gpu : gpus_) {
      if (gpu.number >= 0) continue;
      while (taken.contains(next)) ++next;
      gpu.number = next++;
    }
  }

  std::string_view text_;
  const std::string& name_;
  std::vector<FileGpu> gpus_;
  std::string error_;
};

}  // namespace

std::string FileGpu::busId() const {
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", domain, bus, device, function);
}

FileGpus parseTopologyFile(std::string_view text, const std::string& name) {
  return Reader(text, name).read();
}

FileGpus readTopologyFile(const std::string& path) {
  const auto failed = [&](int error) {
    return FileGpus{{}, fmt::format("{}: {}", path, ::strerrordesc_np(error))};
  };
  // A pipe without a writer must not stop the program's first CUDA call.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return failed(errno);
  std::string text;
  char buffer[65536];
  ssize_t got = 0;
  while (text.size() <= kMostBytes && (got = ::read(fd, buffer, sizeof buffer)) > 0)
    text.append(buffer, static_cast<size_t>(got));
  const int error = errno;
  ::close(fd);
  return got < 0 ? failed(error) : parseTopologyFile(text, path);
}

bool areLinkedByNvlink(const FileGpu& a, const FileGpu& b) {
  const auto has = [](const FileGpu& gpu, const std::string& target) {
    return std::ranges::find(gpu.nvlinks, target) != gpu.nvlinks.end();
  };
  return has(a, b.busId()) || has(b, a.busId()) ||
         std::ranges::any_of(a.nvlinks, [&](const std::string& target) { return has(b, target); });
}

std::string nameOf(const FileGpu& gpu) {
  struct Known {
    int sm;
    const char* name;
  };
  constexpr Known kKnown[] = {{60, "P100"}, {61, "P40"}, {70, "V100"}, {75, "T4"},    {80, "A100"},
                              {86, "A10"},  {89, "L40"}, {90, "H100"}, {100, "B200"}, {103, "B300"}};
  for (const auto& [sm, name] : kKnown)
    if (sm == gpu.sm) return fmt::format("Tutti virtual {}", name);
  return gpu.sm > 0 ? fmt::format("Tutti virtual GPU sm_{}", gpu.sm) : "Tutti virtual GPU";
}

}  // namespace tutti::hostrt
