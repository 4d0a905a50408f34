// tutti-topo: the hardware of this machine, or of a topology file, as Tutti understands it.
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/params.h"
#include "drawing/png.h"
#include "topology/detect.h"
#include "topology/device_place.h"
#include "topology/explain.h"
#include "topology/fill.h"
#include "topology/graph_xml.h"
#include "topology/plan_report.h"
#include "topology/report.h"
#include "topology/search.h"
#include "topology/system_xml.h"
#include "tutti_topo/job.h"
#include "tutti_topo/picture.h"

namespace {

constexpr const char* kUsage =
    "usage: tutti-topo [FILE [--fill]] [--root FOLDER] [--graph FILE]\n"
    "                  [--xml | --graph-xml | --explain A B | --svg FILE | --png FILE] [--alone]\n"
    "\n"
    "Shows the tree of CPUs, PCI switches, GPUs and network ports with the bandwidth of each link, the "
    "matrix of\n"
    "paths between them as nvidia-smi topo -m does, and the rings and trees that the host's ranks form, with "
    "what\n"
    "limits them. Without FILE: of this machine, from /sys.\n"
    "  FILE            a topology file (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE)\n"
    "  --root FOLDER   of the machine whose /sys and /proc/cpuinfo were copied into FOLDER\n"
    "  --fill          takes what FILE leaves open from the machine\n"
    "  --graph FILE    rings and trees from a graph file (NCCL_GRAPH_FILE) instead of the search\n"
    "Instead of all that:\n"
    "  --xml           prints a topology file\n"
    "  --graph-xml     prints a graph file, with the rings and trees found\n"
    "  --explain A B   why two devices (GPU0, mlx5_0, NET3, CPU1, a PCI address) have the path, the "
    "bandwidth and\n"
    "                  the transport that they have, and which variable would change that\n"
    "  --svg FILE, --png FILE\n"
    "                  draws the machine with its rings\n"
    "  --alone         --graph-xml and pictures: of a job on this host alone, not on several\n"
    "Obeys NCCL_CROSS_NIC, NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS, NCCL_PXN_DISABLE, NCCL_NVB_DISABLE,\n"
    "NCCL_P2P_DISABLE, NCCL_P2P_LEVEL and NCCL_NET_GDR_LEVEL, as a job would.\n"
    "Exit status: 0, 1 when a file cannot be used, 2 for wrong use.\n";

struct Options {
  std::string file;
  std::string root = "/";
  bool xml = false;
  bool graphXml = false;
  bool alone = false;
  std::string graphFile, svgFile, pngFile;
  std::string explainA, explainB;
  bool fill = false;
  bool help = false;
  bool version = false;
  std::string misuse;
};

Options parse(int argc, char** argv) {
  Options options;
  bool rootGiven = false;
  // What takes a value.
  const std::map<std::string_view, std::string*> files = {
      {"--graph", &options.graphFile}, {"--svg", &options.svgFile}, {"--png", &options.pngFile}};
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--xml") {
      options.xml = true;
    } else if (argument == "--graph-xml") {
      options.graphXml = true;
    } else if (argument == "--alone") {
      options.alone = true;
    } else if (const auto file = files.find(argument); file != files.end()) {
      if (i + 1 < argc) *file->second = argv[++i];
      if (file->second->empty()) options.misuse = std::string(argument) + " needs a file";
    } else if (argument == "--explain") {
      if (i + 2 >= argc) {
        options.misuse = "--explain needs two devices";
        break;
      }
      options.explainA = argv[++i];
      options.explainB = argv[++i];
    } else if (argument == "--fill") {
      options.fill = true;
    } else if (argument == "--help" || argument == "-h") {
      options.help = true;
    } else if (argument == "--version") {
      options.version = true;
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
  const bool draws = !options.svgFile.empty() || !options.pngFile.empty();
  if (options.xml + options.graphXml + draws + !options.explainA.empty() > 1)
    options.misuse = "only one of --xml, --graph-xml, --explain and a picture at a time";
  return options;
}

tutti::Status writeFile(const std::string& path, const std::string& text) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "wbe"), std::fclose);
  if (file == nullptr) return tutti::systemError(errno, "open {}", path);
  if (std::fwrite(text.data(), 1, text.size(), file.get()) != text.size() || std::fflush(file.get()) != 0)
    return tutti::systemError(errno, "write {}", path);
  return tutti::Status::ok();
}

/// What is asked for instead of the report; nothing where the report is.
tutti::Result<std::optional<std::string>> special(const Options& options, const tutti::Graph& graph) {
  TUTTI_ASSIGN(const tutti::topo::Job job, tutti::topo::jobOfEnvironment());
  if (!options.explainA.empty()) {
    TUTTI_ASSIGN(const tutti::NodeId a, tutti::findNode(graph, options.explainA));
    TUTTI_ASSIGN(const tutti::NodeId b, tutti::findNode(graph, options.explainB));
    return std::optional(explainText(graph, a, b, job.paths, job.levels));
  }
  if (!options.graphXml && options.svgFile.empty() && options.pngFile.empty())
    return std::optional<std::string>();
  const tutti::Paths paths(graph, job.paths);
  const bool acrossHosts = !options.alone && !graph.all(tutti::NodeType::net).empty();
  TUTTI_ASSIGN(const auto host, tutti::topo::planOf(graph, paths, job, acrossHosts, options.graphFile));
  if (options.graphXml) return std::optional(graphXmlText(describePlan(graph, host.request, host.plan)));
  const std::string title =
      (options.file.empty() ? "This machine" : options.file.substr(options.file.rfind('/') + 1)) +
      (acrossHosts ? ", as one of several hosts" : ", alone");
  const std::string svg = tutti::topo::pictureSvg(graph, paths, host.request, host.plan, title);
  if (!options.svgFile.empty()) TUTTI_TRY(writeFile(options.svgFile, svg));
  if (!options.pngFile.empty()) TUTTI_TRY(tutti::drawing::writePng(svg, options.pngFile));
  return std::optional(std::string());
}

/// The first host's rings and trees: alone, and with ports as one of several hosts.
tutti::Result<std::string> planTexts(const Options& options, const tutti::Graph& graph) {
  TUTTI_ASSIGN(const tutti::topo::Job job, tutti::topo::jobOfEnvironment());
  const tutti::Paths paths(graph, job.paths);
  std::string text;
  for (const std::string& variable : job.set) text += (text.empty() ? "\nWith " : ", ") + variable;
  if (!text.empty()) text += "\n";
  for (const bool acrossHosts : {false, true}) {
    if (acrossHosts && graph.all(tutti::NodeType::net).empty()) break;
    TUTTI_ASSIGN(const auto host, tutti::topo::planOf(graph, paths, job, acrossHosts, options.graphFile));
    text += acrossHosts ? "\nAs one of several hosts\n" : "\nThis host alone\n";
    text += planText(graph, host.request.members, host.plan);
  }
  return text;
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
    if (struct stat info{}; ::stat(options.root.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
      return tutti::invalidUsage("--root {}: no such folder", options.root);
    found = options.root == "/" ? tutti::detectSystem("/", tutti::MachineLibraries::forProgram())
                                : tutti::detectSystem(options.root);
    tutti::fillIn(found.system, &system);
  }
  if (options.xml) return systemXmlText(system);
  TUTTI_ASSIGN(const tutti::Graph graph, tutti::Graph::build(system));
  if (graph.nodes().empty()) return tutti::invalidUsage("{}: no CPU and no device in it", options.file);
  TUTTI_ASSIGN(std::optional<std::string> instead, special(options, graph));
  if (instead) return std::move(*instead);
  // PXN is what a job may decide on; the matrix shows the hardware.
  std::string text = treeText(graph) + "\n" + matrixText(graph, tutti::Paths(graph, {.pxn = false}));
  TUTTI_ASSIGN(const std::string plans, planTexts(options, graph));
  text += plans;
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
  if (options.version) {
    std::printf("tutti-topo %s\n", tutti::tuttiVersion());
    return 0;
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
