#include <fmt/format.h>

#include "topology/system_xml.h"

namespace tutti {
namespace {

/// Writes elements one a line, two spaces deeper for each level, as NCCL's dumps have them.
class Writer {
 public:
  std::string take() { return std::move(text_); }

  void open(const char* name) {
    text_ += fmt::format("{:{}}<{}", "", 2 * depth_, name);
    names_.push_back(name);
    ++depth_;
  }
  void attribute(const char* name, std::string_view value) {
    text_ += fmt::format(" {}=\"", name);
    for (const char c : value) escape(c);
    text_ += '"';
  }
  void optionalText(const char* name, const std::string& value) {
    if (!value.empty()) attribute(name, value);
  }
  template <typename T>
  void optionalNumber(const char* name, const std::optional<T>& value, fmt::format_string<const T&> format) {
    if (value) attribute(name, fmt::format(format, *value));
  }
  /// After the attributes: what `children` writes stands inside the element.
  template <typename Children>
  void close(bool hasChildren, const Children& children) {
    const char* name = names_.back();
    text_ += hasChildren ? ">\n" : "/>\n";
    if (hasChildren) children();
    --depth_;
    names_.pop_back();
    if (hasChildren) text_ += fmt::format("{:{}}</{}>\n", "", 2 * depth_, name);
  }
  void close() {
    close(false, [] {});
  }

 private:
  void escape(char c) {
    if (c == '&')
      text_ += "&amp;";
    else if (c == '<')
      text_ += "&lt;";
    else if (c == '>')
      text_ += "&gt;";
    else if (c == '"')
      text_ += "&quot;";
    else if (static_cast<unsigned char>(c) < 0x20)
      text_ += fmt::format("&#{};", static_cast<int>(c));
    else
      text_ += c;
  }

  std::string text_;
  std::vector<const char*> names_;
  int depth_ = 0;
};

void write(Writer& out, const NicDescription& nic) {
  out.open("nic");
  out.close(!nic.nets.empty(), [&] {
    for (const NetDescription& net : nic.nets) {
      out.open("net");
      out.optionalText("name", net.name);
      out.optionalNumber("dev", net.dev, "{}");
      out.optionalNumber("speed", net.speed, "{}");
      out.optionalNumber("port", net.port, "{}");
      out.optionalNumber("latency", net.latency, "{:.6f}");
      out.optionalNumber("guid", net.guid, "0x{:x}");
      out.optionalNumber("maxconn", net.maxConnections, "{}");
      out.optionalNumber("gdr", net.gdr, "{}");
      out.optionalNumber("coll", net.coll, "{}");
      out.close();
    }
  });
}

void write(Writer& out, const GpuDescription& gpu) {
  out.open("gpu");
  out.optionalNumber("dev", gpu.dev, "{}");
  out.optionalNumber("sm", gpu.sm, "{}");
  out.optionalNumber("rank", gpu.rank, "{}");
  out.optionalNumber("gdr", gpu.gdr, "{}");
  out.close(!gpu.nvlinks.empty() || !gpu.c2c.empty(), [&] {
    for (const NvlinkDescription& link : gpu.nvlinks) {
      out.open("nvlink");
      out.attribute("target", link.target.text());
      out.optionalNumber("count", link.count, "{}");
      out.optionalNumber("tclass", link.targetClass, "0x{:06x}");
      out.close();
    }
    for (const C2cDescription& link : gpu.c2c) {
      out.open("c2c");
      out.optionalNumber("bw", link.bandwidth, "{}");
      out.optionalNumber("count", link.count, "{}");
      out.close();
    }
  });
}

void write(Writer& out, const PciDescription& pci) {
  out.open("pci");
  out.attribute("busid", pci.busId.text());
  out.optionalNumber("class", pci.classCode, "0x{:06x}");
  out.optionalNumber("vendor", pci.vendor, "0x{:04x}");
  out.optionalNumber("device", pci.device, "0x{:04x}");
  out.optionalNumber("subsystem_vendor", pci.subsystemVendor, "0x{:04x}");
  out.optionalNumber("subsystem_device", pci.subsystemDevice, "0x{:04x}");
  out.optionalText("link_speed", pci.linkSpeed);
  out.optionalNumber("link_width", pci.linkWidth, "{}");
  out.close(!pci.children.empty() || pci.gpu || !pci.nics.empty(), [&] {
    if (pci.gpu) write(out, *pci.gpu);
    for (const NicDescription& nic : pci.nics) write(out, nic);
    for (const PciDescription& child : pci.children) write(out, child);
  });
}

void write(Writer& out, const CpuDescription& cpu) {
  out.open("cpu");
  out.optionalNumber("numaid", cpu.numaId, "{}");
  out.optionalNumber("host_hash", cpu.hostHash, "0x{:x}");
  out.optionalText("affinity", cpu.affinity);
  out.optionalText("arch", cpu.arch);
  out.optionalText("vendor", cpu.vendor);
  out.optionalNumber("familyid", cpu.family, "{}");
  out.optionalNumber("modelid", cpu.model, "{}");
  out.close(!cpu.pci.empty() || !cpu.nics.empty(), [&] {
    for (const PciDescription& pci : cpu.pci) write(out, pci);
    for (const NicDescription& nic : cpu.nics) write(out, nic);
  });
}

}  // namespace

std::string systemXmlText(const SystemDescription& system) {
  Writer out;
  out.open("system");
  out.attribute("version", "1");
  out.close(!system.cpus.empty(), [&] {
    for (const CpuDescription& cpu : system.cpus) write(out, cpu);
  });
  return out.take();
}

}  // namespace tutti
