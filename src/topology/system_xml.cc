#include "topology/system_xml.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "base/xml_element.h"
#include "topology/cpu_mask.h"

namespace tutti {
namespace {

constexpr std::array kIdentifying = {"busid", "numaid", "target", "name", "dev"};
constexpr int32_t kMost = std::numeric_limits<int32_t>::max();

class Reader {
 public:
  explicit Reader(const XmlSource& source) : source_(&source) {}

  Status readSystem(const XmlElement& element, SystemDescription* system) {
    int32_t version = 1;
    if (element.has("version")) TUTTI_TRY(element.number<int32_t>("version", 0, kMost, &version));
    if (version != 1) return element.error("attribute version=\"{}\": only version 1 is known", version);
    return forChildren(element, [&](const XmlElement& child) {
      return child.name() == "cpu" ? readCpu(child, &system->cpus.emplace_back()) : Status::ok();
    });
  }

 private:
  /// Calls `read` for every child element; it skips those that it does not know.
  template <typename Read>
  Status forChildren(const XmlElement& element, const Read& read) {
    if (++depth_ > kSystemXmlMaxDepth)
      return element.error("more than {} elements inside each other", kSystemXmlMaxDepth);
    for (const pugi::xml_node node : element.node().children()) {
      const XmlElement child(node, *source_);
      if (node.type() != pugi::node_element) return element.error("text where only elements belong");
      if (++elements_ > kSystemXmlMaxElements)
        return child.error("more than {} elements", kSystemXmlMaxElements);
      TUTTI_TRY(read(child));
    }
    --depth_;
    return Status::ok();
  }

  template <typename Integer>
  static Status optionalNumber(const XmlElement& element, const char* attribute, Integer low, Integer high,
                               std::optional<Integer>* value) {
    if (!element.has(attribute)) return Status::ok();
    Integer parsed = 0;
    TUTTI_TRY(element.numberOrHex<Integer>(attribute, low, high, &parsed));
    *value = parsed;
    return Status::ok();
  }
  static void optionalText(const XmlElement& element, const char* attribute, std::string* value) {
    if (const auto text = element.string(attribute); text.isOk()) *value = *text;
  }
  static Result<BusId> busId(const XmlElement& element, const char* attribute) {
    TUTTI_ASSIGN(const std::string_view text, element.string(attribute));
    const auto parsed = parseBusId(text);
    if (!parsed)
      return element.error("attribute {}=\"{}\" is no PCI address such as 0000:0f:00.0", attribute,
                           XmlElement::shorten(text));
    return *parsed;
  }

  Status readCpu(const XmlElement& element, CpuDescription* cpu) {
    TUTTI_TRY(optionalNumber<int32_t>(element, "numaid", -1, kMost, &cpu->numaId));
    TUTTI_TRY(optionalNumber<uint64_t>(element, "host_hash", 0, UINT64_MAX, &cpu->hostHash));
    optionalText(element, "affinity", &cpu->affinity);
    if (!cpu->affinity.empty() && !parseCpuMask(cpu->affinity))
      return element.error("attribute affinity=\"{}\" is no CPU mask such as ffff,ffffffff",
                           XmlElement::shorten(cpu->affinity));
    optionalText(element, "arch", &cpu->arch);
    optionalText(element, "vendor", &cpu->vendor);
    TUTTI_TRY(optionalNumber<int32_t>(element, "familyid", 0, kMost, &cpu->family));
    TUTTI_TRY(optionalNumber<int32_t>(element, "modelid", 0, kMost, &cpu->model));
    return forChildren(element, [&](const XmlElement& child) {
      if (child.name() == "pci") return readPci(child, cpu->hostHash, &cpu->pci.emplace_back());
      if (child.name() == "nic") return readNic(child, &cpu->nics.emplace_back());
      return Status::ok();
    });
  }

  Status readPci(const XmlElement& element, std::optional<uint64_t> host, PciDescription* pci) {
    TUTTI_ASSIGN(pci->busId, busId(element, "busid"));
    const auto [before, isFirst] = lineOf_.emplace(std::pair(host, pci->busId), element.line());
    if (!isFirst) return element.error("this device stands at line {} already", before->second);
    TUTTI_TRY(optionalNumber<int32_t>(element, "class", 0, 0xffffff, &pci->classCode));
    TUTTI_TRY(optionalNumber<int32_t>(element, "vendor", 0, 0xffff, &pci->vendor));
    TUTTI_TRY(optionalNumber<int32_t>(element, "device", 0, 0xffff, &pci->device));
    TUTTI_TRY(optionalNumber<int32_t>(element, "subsystem_vendor", 0, 0xffff, &pci->subsystemVendor));
    TUTTI_TRY(optionalNumber<int32_t>(element, "subsystem_device", 0, 0xffff, &pci->subsystemDevice));
    optionalText(element, "link_speed", &pci->linkSpeed);
    TUTTI_TRY(optionalNumber<int32_t>(element, "link_width", 0, 255, &pci->linkWidth));
    return forChildren(element, [&](const XmlElement& child) {
      if (child.name() == "pci") return readPci(child, host, &pci->children.emplace_back());
      if (child.name() == "nic") return readNic(child, &pci->nics.emplace_back());
      if (child.name() != "gpu") return Status::ok();
      if (pci->gpu) return child.error("a second <gpu> in one device");
      return readGpu(child, &pci->gpu.emplace());
    });
  }

  Status readGpu(const XmlElement& element, GpuDescription* gpu) {
    TUTTI_TRY(optionalNumber<int32_t>(element, "dev", -1, kMost, &gpu->dev));
    TUTTI_TRY(optionalNumber<int32_t>(element, "sm", 0, 1000, &gpu->sm));
    TUTTI_TRY(optionalNumber<int32_t>(element, "rank", -1, kMost, &gpu->rank));
    TUTTI_TRY(optionalNumber<int32_t>(element, "gdr", 0, 1, &gpu->gdr));
    return forChildren(element, [&](const XmlElement& child) {
      if (child.name() == "nvlink") return readNvlink(child, &gpu->nvlinks.emplace_back());
      if (child.name() == "c2c") return readC2c(child, &gpu->c2c.emplace_back());
      return Status::ok();
    });
  }

  static Status readNvlink(const XmlElement& element, NvlinkDescription* link) {
    TUTTI_ASSIGN(link->target, busId(element, "target"));
    TUTTI_TRY(optionalNumber<int32_t>(element, "count", 0, 1024, &link->count));
    return optionalNumber<int32_t>(element, "tclass", 0, 0xffffff, &link->targetClass);
  }

  static Status readC2c(const XmlElement& element, C2cDescription* link) {
    TUTTI_TRY(optionalNumber<int32_t>(element, "bw", 0, kMost, &link->bandwidth));
    return optionalNumber<int32_t>(element, "count", 0, 1024, &link->count);
  }

  Status readNic(const XmlElement& element, NicDescription* nic) {
    return forChildren(element, [&](const XmlElement& child) {
      return child.name() == "net" ? readNet(child, &nic->nets.emplace_back()) : Status::ok();
    });
  }

  static Status readNet(const XmlElement& element, NetDescription* net) {
    optionalText(element, "name", &net->name);
    TUTTI_TRY(optionalNumber<int32_t>(element, "dev", -1, kMost, &net->dev));
    TUTTI_TRY(optionalNumber<int32_t>(element, "speed", -1, kMost, &net->speed));
    TUTTI_TRY(optionalNumber<int32_t>(element, "port", -1, kMost, &net->port));
    TUTTI_TRY(optionalNumber<uint64_t>(element, "guid", 0, UINT64_MAX, &net->guid));
    TUTTI_TRY(optionalNumber<int32_t>(element, "maxconn", 0, kMost, &net->maxConnections));
    TUTTI_TRY(optionalNumber<int32_t>(element, "gdr", 0, 1, &net->gdr));
    TUTTI_TRY(optionalNumber<int32_t>(element, "coll", 0, 1, &net->coll));
    if (!element.has("latency")) return Status::ok();
    TUTTI_ASSIGN(const std::string_view text, element.string("latency"));
    double latency = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), latency);
    if (code != std::errc() || end != text.data() + text.size() || !std::isfinite(latency) || latency < 0 ||
        latency > 1e9)
      return element.error("attribute latency=\"{}\" is no time in microseconds", XmlElement::shorten(text));
    // Files have six digits: what is kept is what a dump would say.
    net->latency = std::round(latency * 1e6) / 1e6;
    return Status::ok();
  }

  const XmlSource* source_;
  int depth_ = 0;
  int elements_ = 0;
  std::map<std::pair<std::optional<uint64_t>, BusId>, int32_t> lineOf_;
};

}  // namespace

Result<SystemDescription> parseSystemXml(std::string_view text, std::string_view fileName) {
  XmlDocument document;
  TUTTI_ASSIGN(const XmlElement element,
               document.load(text, fileName, "system", kSystemXmlMaxBytes, kIdentifying));
  SystemDescription system;
  TUTTI_TRY(Reader(document.source()).readSystem(element, &system));
  return system;
}

Result<SystemDescription> readSystemXml(const std::string& path) {
  TUTTI_ASSIGN(const std::string text, readXmlFile("topology file", path, kSystemXmlMaxBytes));
  return parseSystemXml(text, path);
}

}  // namespace tutti
