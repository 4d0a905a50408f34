#include "tutti_sim/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/text.h"

namespace tutti::simtool {
namespace {

constexpr double kMostBytes = 1e16;
constexpr int32_t kMostRanks = 1 << 20;
constexpr size_t kMostValues = 256;

/// A number with a unit letter behind it, which stands for a power of `step`.
Result<double> withUnit(std::string_view text, double step) {
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  if (code != std::errc() || !std::isfinite(value) || value < 0)
    return invalidUsage("\"{}\" is no number", text);
  if (unit.empty()) return value;
  const size_t power = std::string_view("kmgt").find(static_cast<char>(unit[0] | 0x20));
  if (power == std::string_view::npos || unit.size() > 1)
    return invalidUsage("\"{}\": a number is followed by K, M, G or T, or by nothing", text);
  return value * std::pow(step, static_cast<double>(power + 1));
}

/// "a", "a,b", "from:to", "from:to:factor".
template <typename Parse>
Result<std::vector<double>> values(const std::string& text, const Parse& parse) {
  std::vector<double> all;
  for (const std::string_view piece : splitAt(text, ',')) {
    const std::vector<std::string_view> range = splitAt(piece, ':');
    if (range.size() > 3) return invalidUsage("\"{}\" is no range from:to:factor", piece);
    TUTTI_ASSIGN(const double first, parse(range[0]));
    if (range.size() == 1) {
      all.push_back(first);
      continue;
    }
    TUTTI_ASSIGN(const double last, parse(range[1]));
    double factor = 2;
    if (range.size() == 3) {
      TUTTI_ASSIGN(factor, withUnit(range[2], 1024));
    }
    if (!(factor > 1)) return invalidUsage("\"{}\": the factor must be above 1", piece);
    if (first > last || first <= 0)
      return invalidUsage("\"{}\" must go from a positive number to a larger one", piece);
    for (double value = first; value <= last * (1 + 1e-9) && all.size() <= kMostValues; value *= factor)
      all.push_back(std::floor(value + 0.5));
  }
  if (all.size() > kMostValues) return invalidUsage("\"{}\" has more than {} values", text, kMostValues);
  return all;
}

template <typename Value, size_t Count>
Result<Value> oneOf(const std::array<std::pair<std::string_view, Value>, Count>& known,
                    const std::string& text) {
  std::string names;
  for (const auto& [name, value] : known) {
    if (name == lower(text)) return value;
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return invalidUsage("\"{}\" is none of {}", text, names);
}

constexpr std::array<std::pair<std::string_view, Collective>, 8> kCollectiveNames = {
    {{"allreduce", Collective::allReduce},
     {"allgather", Collective::allGather},
     {"reducescatter", Collective::reduceScatter},
     {"broadcast", Collective::broadcast},
     {"reduce", Collective::reduce},
     {"alltoall", Collective::allToAll},
     {"gather", Collective::gather},
     {"scatter", Collective::scatter}}};
constexpr std::array<std::pair<std::string_view, sim::NetworkKind>, 4> kClusters = {
    {{"host", sim::NetworkKind::none},
     {"fat-tree", sim::NetworkKind::fatTree},
     {"rail", sim::NetworkKind::rail},
     {"dragonfly", sim::NetworkKind::dragonfly}}};
constexpr std::array<std::pair<std::string_view, sim::Wire>, 3> kWires = {
    {{"ib", sim::Wire::infiniBand}, {"roce", sim::Wire::roce}, {"tcp", sim::Wire::tcp}}};
constexpr std::array<std::pair<std::string_view, int>, 4> kProtocols = {
    {{"simple", 0}, {"ll128", 1}, {"ll", 2}, {"auto", 3}}};
constexpr std::array<std::pair<std::string_view, sim::Engine>, 4> kEngines = {
    {{"auto", sim::Engine::automatic},
     {"events", sim::Engine::events},
     {"rounds", sim::Engine::rounds},
     {"symmetric", sim::Engine::symmetric}}};

/// The options as text; empty: not given.
struct Texts {
  std::string coll, ranks, bytes, algo, cluster, nic, wire, proto, slot, engine, verify;
};

Status readLists(const Texts& texts, Options* options) {
  if (!texts.bytes.empty()) {
    auto sizes = parseSizes(texts.bytes);
    if (!sizes.isOk()) return sizes.status().withContext("--bytes");
    options->bytes = std::move(sizes).value();
  }
  if (!texts.ranks.empty()) {
    auto counts = values(texts.ranks, [](std::string_view one) { return withUnit(one, 1024); });
    if (!counts.isOk()) return counts.status().withContext("--ranks");
    options->ranks.clear();
    for (const double count : *counts) {
      if (count < 1 || count > kMostRanks || count != std::floor(count))
        return invalidUsage("--ranks {}: {} is not a whole number in 1 .. {}", texts.ranks, count,
                            kMostRanks);
      options->ranks.push_back(static_cast<int32_t>(count));
    }
  }
  if (!texts.algo.empty() && lower(texts.algo) != "all")
    for (const std::string_view name : splitAt(texts.algo, ',')) {
      if (name.empty()) return invalidUsage("--algo {}: an algorithm's name is missing", texts.algo);
      options->algorithms.push_back(lower(name));
    }
  return Status::ok();
}

template <typename Value, size_t Count>
Status read(const char* option, const std::string& text,
            const std::array<std::pair<std::string_view, Value>, Count>& known, Value* value) {
  if (text.empty()) return Status::ok();
  auto found = oneOf(known, text);
  if (!found.isOk()) return found.status().withContext("{}", option);
  *value = *found;
  return Status::ok();
}

Status readNames(const Texts& texts, Options* options) {
  TUTTI_TRY(read("--coll", texts.coll, kCollectiveNames, &options->collective));
  TUTTI_TRY(read("--cluster", texts.cluster, kClusters, &options->network.kind));
  options->networkGiven = !texts.cluster.empty();
  TUTTI_TRY(read("--wire", texts.wire, kWires, &options->wire));
  TUTTI_TRY(read("--engine", texts.engine, kEngines, &options->engine));
  int protocol = 3;
  TUTTI_TRY(read("--proto", texts.proto, kProtocols, &protocol));
  for (int i = 0; i < 3; ++i)
    if (protocol == 3 || protocol == i) options->protocols.push_back(static_cast<sim::Protocol>(i));
  if (!texts.nic.empty()) {
    auto speed = parseSpeed(texts.nic);
    if (!speed.isOk()) return speed.status().withContext("--nic");
    options->portBytesPerSecond = *speed;
  }
  if (!texts.slot.empty()) {
    auto slot = withUnit(texts.slot, 1024);
    if (!slot.isOk()) return slot.status().withContext("--slot");
    if (*slot < 64) return invalidUsage("--slot {}: at least 64 bytes are needed", texts.slot);
    options->slotBytes = *slot;
  }
  return Status::ok();
}

Status checkTogether(const Options& options) {
  for (const int32_t ranks : options.ranks) {
    if (options.hosts > ranks)
      return invalidUsage("--hosts {}: there are only {} ranks", options.hosts, ranks);
    if (options.root >= ranks)
      return invalidUsage("--root {}: the ranks are 0 .. {}", options.root, ranks - 1);
  }
  if (options.hosts > 0 && options.perHost > 0)
    return invalidUsage("--hosts and --per-host say the same: give one");
  if (options.hosts > 1 && options.networkGiven && options.network.kind == sim::NetworkKind::none)
    return invalidUsage("--cluster host is one host, and --hosts says {}", options.hosts);
  if (options.show && *options.show >= options.ranks[0])
    return invalidUsage("--show {}: the ranks are 0 .. {}", *options.show, options.ranks[0] - 1);
  if (options.show && options.algorithms.size() != 1)
    return invalidUsage("--show needs --algo with one name");
  const int special = (options.show ? 1 : 0) + (options.place ? 1 : 0) + (options.verify ? 1 : 0) +
                      (options.plotFile.empty() ? 0 : 1) + (options.checkFile.empty() ? 0 : 1);
  if (special > 1) return invalidUsage("only one of --show, --place, --plot, --check and --verify at a time");
  const bool drawable = options.plotFile.ends_with(".svg") || options.plotFile.ends_with(".png");
  if (!options.plotFile.empty() && !drawable)
    return invalidUsage("--plot {}: the name must end with .svg or .png", options.plotFile);
  return Status::ok();
}

}  // namespace

Result<std::vector<double>> parseSizes(const std::string& text) {
  TUTTI_ASSIGN(std::vector<double> sizes,
               values(text, [](std::string_view one) { return withUnit(one, 1024); }));
  for (const double size : sizes)
    if (size < 0 || size > kMostBytes)
      return invalidUsage("\"{}\": {} bytes are not in 0 .. 1e16", text, size);
  return sizes;
}

Result<double> parseSpeed(const std::string& text) {
  TUTTI_ASSIGN(const double bits, withUnit(text, 1000));
  if (bits < 1e6 || bits > 1e14) return invalidUsage("\"{}\" bits a second are not in 1M .. 100T", text);
  return bits / 8;
}

Result<Options> parseOptions(int argc, const char* const* argv, std::string* message) {
  Options options;
  Texts texts;
  CLI::App app{
      "tutti-sim: what collectives take on clusters that need not exist, and proofs of the algorithms.\n"
      "Ranges are FROM:TO or FROM:TO:FACTOR, lists A,B,C. Manual: docs/simulation.md.",
      "tutti-sim"};
  bool version = false;
  int32_t show = -1;
  double oversubscription = 1;
  const auto number = [](int low, int high) { return CLI::Range(low, high); };
  app.add_option("--coll", texts.coll,
                 "allreduce, allgather, reducescatter, broadcast, reduce, alltoall, gather, scatter");
  CLI::Option* const ranks = app.add_option("--ranks,-n", texts.ranks, "ranks, a range or list; default 8");
  app.add_option("--bytes,-b", texts.bytes,
                 "bytes of the whole vector (all blocks), a range or list; default 1M");
  app.add_option("--algo,-a", texts.algo, "all, or a list of names");
  app.add_option("--root", options.root, "root of rooted collectives")->check(number(0, kMostRanks));
  CLI::Option* const hosts = app.add_option("--hosts", options.hosts, "hosts, with as many ranks each");
  hosts->check(number(1, kMostRanks));
  app.add_option("--per-host", options.perHost,
                 "ranks on a host, instead of --hosts; default 8, or all GPUs of --topo")
      ->check(number(1, 1024));
  app.add_option("--cluster", texts.cluster,
                 "host, fat-tree, rail, dragonfly; default: host for one, fat-tree for several");
  app.add_option("--topo", options.topoFile,
                 "hosts are as this topology file says (NCCL_TOPO_FILE); else no GPUs");
  app.add_option("--nic", texts.nic,
                 "speed of a port in bits/s, e.g. 400G; default: the topology file's, or 10G");
  app.add_option("--nics", options.ports, "ports of a host; default: the topology file's, or 1")
      ->check(number(1, 254));
  app.add_option("--wire", texts.wire,
                 "ib, roce, tcp: what headers take of the speed; hosts without GPUs: tcp");
  app.add_option("--oversubscription", oversubscription,
                 "of leaf switches, or of links between dragonfly groups");
  app.add_option("--switch-ports", options.network.switchPorts, "ports of a switch; default 64");
  app.add_option("--proto", texts.proto, "GPUs: simple, ll128, ll, or auto (the best; default)");
  app.add_option("--channels", options.channels, "channels; default: as many as the host's rings")
      ->check(number(1, 64));
  app.add_option("--blocks", options.blocks, "blocks of pipelines; default: the cost model's choice")
      ->check(number(1, 4096));
  app.add_option("--slot", texts.slot, "bytes that one message carries at most");
  app.add_option("--engine", texts.engine, "auto, events, rounds, symmetric");
  app.add_flag("--best", options.best, "only the best algorithm for each size");
  app.add_flag("--json", options.json, "JSON instead of tables");
  app.add_flag("--place", options.place, "compares ways to put the ranks on the hosts");
  CLI::Option* const shown = app.add_option(
      "--show", show,
      "prints this rank's schedule (needs --algo NAME); with --json all ranks', as an algorithm file");
  shown->check(number(0, kMostRanks));
  app.add_option("--plot", options.plotFile, "draws curves into FILE.svg or FILE.png");
  bool verifyAll = false;
  app.add_flag("--verify-all", verifyAll,
               "proves all algorithms, collectives, roots, for 1 .. --max-ranks ranks");
  app.add_option("--verify", options.verifyAlgorithm, "the same for one algorithm");
  app.add_option("--check", options.checkFile,
                 "proves the algorithm in this file (JSON or MSCCL's XML; for any number of ranks: for "
                 "--ranks, --root)");
  app.add_option("--max-ranks", options.maxRanks, "for --verify and --verify-all; default 16")
      ->check(number(1, 4096));
  app.add_option("--symmetric-ranks", options.symmetricRanks,
                 "also proves so many ranks where one stands for all")
      ->check(number(2, 1 << 16));
  app.add_flag("--version", version, "prints the version");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    *message = app.help();
    options.exit = true;
    return options;
  } catch (const CLI::ParseError& error) {
    return invalidUsage("{}", error.what());
  }
  if (version) {
    *message = fmt::format("tutti-sim {}\n", tuttiVersion());
    options.exit = true;
    return options;
  }
  if (shown->count() > 0) options.show = show;
  options.ranksGiven = ranks->count() > 0;
  if (!(oversubscription >= 1 && oversubscription <= 1000))
    return invalidUsage("--oversubscription {} is not in 1 .. 1000", oversubscription);
  options.network.oversubscription = oversubscription;
  options.verify = verifyAll || !options.verifyAlgorithm.empty();
  options.verifyAlgorithm = lower(options.verifyAlgorithm);
  TUTTI_TRY(readLists(texts, &options));
  TUTTI_TRY(readNames(texts, &options));
  TUTTI_TRY(checkTogether(options));
  return options;
}

}  // namespace tutti::simtool
