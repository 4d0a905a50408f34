// tutti-topo: the hardware of this machine, or of a topology file, as Tutti understands it.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "base/params.h"
#include "topology/detect.h"
#include "topology/device_place.h"
#include "topology/fill.h"
#include "topology/report.h"
#include "topology/system_xml.h"

namespace {

constexpr const char* kUsage =
    "usage: tutti-topo [FILE [--fill]] [--root FOLDER] [--xml]\n"
    "\n"
    "Shows the tree of CPUs, PCI switches, GPUs and network ports with the bandwidth of each link, and the "
    "matrix of\n"
    "paths between them as nvidia-smi topo -m does. Without FILE: of this machine, from /sys.\n"
    "  FILE            a topology file (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE)\n"
    "  --root FOLDER   of the machine whose /sys and /proc/cpuinfo were copied into FOLDER\n"
    "  --fill          takes what FILE leaves open from the machine\n"
    "  --xml           prints a topology file instead\n"
    "Exit status: 0, 1 when the file cannot be used, 2 for wrong use.\n";

struct Options {
  std::string file;
  std::string root = "/";
  bool xml = false;
  bool fill = false;
  bool help = false;
  std::string misuse;
};

Options parse(int argc, char** argv) {
  Options options;
  bool rootGiven = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--xml") {
      options.xml = true;
    } else if (argument == "--fill") {
      options.fill = true;
    } else if (argument == "--help" || argument == "-h") {
      options.help = true;
    } else if (argument == "--root" && i + 1 < argc) {
      options.root = argv[++i];
      rootGiven = true;
    } else if (argument.empty() || argument.starts_with('-')) {
      options.misuse =
          argument == "--root" ? "--root needs a folder" : "unknown argument " + std::string(argument);
    } else if (options.file.empty()) {
      options.file = argument;
    } else {
      options.misuse = "one FILE at a time";
    }
  }
  if (rootGiven && !options.file.empty() && !options.fill) options.misuse = "--root with FILE needs --fill";
  if (options.fill && options.file.empty()) options.misuse = "--fill needs a FILE";
  return options;
}

/// Where the devices of the host runtime are, neighbours at the same place in one line.
std::string hostDevicesText(const tutti::Detection& found) {
  const auto devices = static_cast<int>(tutti::params().hostDevices());
  std::string text = "\nHost devices (TUTTI_HOST_DEVICES), which ranks without a GPU use:\n";
  for (int first = 0, end = 0; first < devices; first = end) {
    const tutti::DevicePlace place = placeOfDevice(found.system, found.cpus, first, devices);
    for (end = first + 1; end < devices && placeOfDevice(found.system, found.cpus, end, devices) == place;)
      ++end;
    text += first + 1 == end ? fmt::format("  {}: {}\n", first, place.text())
                             : fmt::format("  {}-{}: {}\n", first, end - 1, place.text());
  }
  return devices == 0 ? "" : text;
}

tutti::Result<std::string> report(const Options& options) {
  tutti::SystemDescription system;
  tutti::Detection found;
  if (!options.file.empty()) {
    TUTTI_ASSIGN(system, tutti::readSystemXml(options.file));
  }
  if (options.file.empty() || options.fill) {
    found = options.root == "/" ? tutti::detectSystem("/", tutti::MachineLibraries::forProgram())
                                : tutti::detectSystem(options.root);
    tutti::fillIn(found.system, &system);
  }
  if (options.xml) return systemXmlText(system);
  TUTTI_ASSIGN(const tutti::Graph graph, tutti::Graph::build(system));
  // PXN is what a job may decide on; the matrix shows the hardware.
  std::string text = treeText(graph) + "\n" + matrixText(graph, tutti::Paths(graph, {.pxn = false}));
  if (graph.all(tutti::NodeType::gpu).empty() && options.file.empty()) text += hostDevicesText(found);
  std::vector<std::string> assumptions = std::move(found.assumptions);
  assumptions.insert(assumptions.end(), graph.assumptions().begin(), graph.assumptions().end());
  if (!assumptions.empty()) text += "\nAssumed:\n";
  for (const std::string& one : assumptions) text += "  " + one + "\n";
  return text;
}

int run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  if (!options.misuse.empty()) {
    std::fprintf(stderr, "tutti-topo: %s\n%s", options.misuse.c_str(), kUsage);
    return 2;
  }
  const tutti::Result<std::string> text = options.help ? tutti::Result<std::string>(kUsage) : report(options);
  if (!text.isOk()) {
    std::fprintf(stderr, "tutti-topo: %s\n", text.status().message().c_str());
    return 1;
  }
  if (std::fwrite(text->data(), 1, text->size(), stdout) != text->size() || std::fflush(stdout) != 0) {
    std::fprintf(stderr, "tutti-topo: write: %s\n", std::strerror(errno));
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  // What hwloc cannot see is said below, in the report.
  ::setenv("HWLOC_HIDE_ERRORS", "2", 0);
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tutti-topo: %s\n", error.what());
    return 1;
  }
}
