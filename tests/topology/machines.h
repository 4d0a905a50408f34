// Topology files of machines that are made up, as text.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

namespace tutti::test {

/// NVLinks between two of a machine's GPUs, each way.
struct Nvlinks {
  int from;
  int to;
  int count;
};

/// PCI address of GPU `gpu`: its own bus.
inline std::string gpuAddress(int gpu) { return fmt::format("0000:{:02x}:00.0", 16 + gpu); }

inline std::string gpuText(int gpu, int sm, const std::string& nvlinks, const char* width = "16") {
  return fmt::format(
      R"(<pci busid="{}" class="0x030200" link_speed="16 GT/s" link_width="{}"><gpu dev="{}" sm="{}" gdr="1">{}</gpu></pci>
)",
      gpuAddress(gpu), width, gpu, sm, nvlinks);
}
inline std::string nicText(int nic, const std::string& nets) {
  return fmt::format(
      R"(<pci busid="0000:{:02x}:00.0" class="0x020000" link_speed="32 GT/s" link_width="16"><nic>{}</nic></pci>
)",
      128 + nic, nets);
}
inline std::string netText(int net, int gigabits) {
  return fmt::format(R"(<net name="mlx5_{0}" dev="{0}" speed="{1}" gdr="1"/>)", net, gigabits * 1000);
}

/// GPUs with NVLinks between each other, on one socket per half; 24 GB/s of PCI each, 22 GB/s between
/// sockets.
inline std::string nvlinkMachine(int gpus, int sm, const std::vector<Nvlinks>& links, int sockets = 2,
                                 const std::string& nics0 = "", const std::string& nics1 = "") {
  std::string text = "<system version=\"1\">\n";
  for (int socket = 0; socket < sockets; ++socket) {
    text +=
        fmt::format("<cpu numaid=\"{}\" arch=\"x86_64\" vendor=\"GenuineIntel\" modelid=\"143\">\n", socket);
    for (int gpu = socket * gpus / sockets; gpu < (socket + 1) * gpus / sockets; ++gpu) {
      std::string nvlinks;
      for (const Nvlinks& link : links) {
        if (link.from != gpu && link.to != gpu) continue;
        nvlinks += fmt::format(R"(<nvlink target="{}" count="{}" tclass="0x030200"/>)",
                               gpuAddress(link.from == gpu ? link.to : link.from), link.count);
      }
      text += gpuText(gpu, sm, nvlinks);
    }
    text += (socket == 0 ? nics0 : nics1) + "</cpu>\n";
  }
  return text + "</system>\n";
}

/// GPUs that all have `links` NVLinks to the NVSwitches, but `dead` of them fewer for GPU `broken`.
inline std::string nvswitchMachine(int gpus, int sm, int links, int broken = -1, int dead = 0) {
  std::string text = "<system version=\"1\">\n";
  for (int socket = 0; socket < 2; ++socket) {
    text +=
        fmt::format("<cpu numaid=\"{}\" arch=\"x86_64\" vendor=\"GenuineIntel\" modelid=\"143\">\n", socket);
    for (int gpu = socket * gpus / 2; gpu < (socket + 1) * gpus / 2; ++gpu) {
      const int count = links - (gpu == broken ? dead : 0);
      text += gpuText(
          gpu, sm,
          count == 0 ? ""
                     : fmt::format(R"(<nvlink target="0000:f0:00.0" count="{}" tclass="0x068000"/>)", count));
    }
    text += "</cpu>\n";
  }
  return text + "</system>\n";
}

/// Two sockets, two switches each, two GPUs a switch; Gen4 x16 everywhere, no NVLink.
inline std::string pcieMachine(const std::string& nics0 = "", const std::string& nics1 = "") {
  std::string text = "<system version=\"1\">\n";
  for (int socket = 0; socket < 2; ++socket) {
    text +=
        fmt::format("<cpu numaid=\"{}\" arch=\"x86_64\" vendor=\"GenuineIntel\" modelid=\"143\">\n", socket);
    for (int sw = 2 * socket; sw < 2 * socket + 2; ++sw)
      text += fmt::format(
                  R"(<pci busid="0000:{:02x}:00.0" class="0x060400" link_speed="16 GT/s" link_width="16">)",
                  1 + sw) +
              gpuText(2 * sw, 80, "") + gpuText(2 * sw + 1, 80, "") + "</pci>\n";
    text += (socket == 0 ? nics0 : nics1) + "</cpu>\n";
  }
  return text + "</system>\n";
}

/// As a DGX A100: eight GPUs on NVSwitches, and four switches with two GPUs and two ports of 200 Gbit/s each.
inline std::string sharedSwitchMachine() {
  std::string text = "<system version=\"1\">\n";
  for (int socket = 0; socket < 2; ++socket) {
    text += fmt::format("<cpu numaid=\"{}\" arch=\"x86_64\" vendor=\"AuthenticAMD\">\n", socket);
    for (int sw = 2 * socket; sw < 2 * socket + 2; ++sw) {
      text += fmt::format(
          R"(<pci busid="0000:{:02x}:00.0" class="0x060400" link_speed="16 GT/s" link_width="16">)", 1 + sw);
      for (int side = 0; side < 2; ++side)
        text +=
            gpuText(2 * sw + side, 80, R"(<nvlink target="0000:f0:00.0" count="12" tclass="0x068000"/>)") +
            nicText(2 * sw + side, netText(2 * sw + side, 200));
      text += "</pci>\n";
    }
    text += "</cpu>\n";
  }
  return text + "</system>\n";
}

/// The eight V100s of a DGX-1: a cube whose faces have diagonals, six NVLinks a GPU.
inline std::vector<Nvlinks> cubeMesh() {
  return {{0, 1, 1}, {0, 2, 1}, {0, 3, 2}, {0, 4, 2}, {1, 2, 2}, {1, 3, 1}, {1, 5, 2}, {2, 3, 2},
          {2, 6, 1}, {3, 7, 1}, {4, 5, 1}, {4, 6, 1}, {4, 7, 2}, {5, 6, 2}, {5, 7, 1}, {6, 7, 2}};
}

/// One NVLink domain of that many GPUs, as a GB200 rack is: two GPUs and two ports a NUMA node.
inline std::string rackDomain(int gpus) {
  std::string text = "<system>";
  for (int g = 0; g < gpus; ++g) {
    if (g % 2 == 0) text += fmt::format("<cpu numaid=\"{}\" arch=\"arm64\">", g / 2);
    text += fmt::format(
        "<pci busid=\"{0:x}:1:0.0\" class=\"0x060400\" link_speed=\"32 GT/s\" link_width=\"16\"><pci "
        "busid=\"{0:x}:2:0.0\" link_speed=\"32 GT/s\" link_width=\"16\"><gpu dev=\"{0}\" "
        "sm=\"100\" "
        "gdr=\"1\"><nvlink target=\"0:0.0\" count=\"18\" tclass=\"0x068000\"/></gpu></pci>"
        "<pci busid=\"{0:x}:3:0.0\" link_speed=\"64 GT/s\" link_width=\"16\"><nic><net dev=\"{0}\" "
        "speed=\"400000\" gdr=\"1\"/></nic></pci></pci>",
        g);
    if (g % 2 == 1) text += "</cpu>";
  }
  return text + "</system>";
}

}  // namespace tutti::test
