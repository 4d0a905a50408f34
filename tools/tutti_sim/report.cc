#include "tutti_sim/report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "drawing/chart.h"

namespace tutti::simtool {
namespace {

std::string limitText(const sim::Outcome& outcome) {
  if (outcome.limit == "latency")
    return fmt::format("latency (busiest link {:.0f} %)", 100 * outcome.limitShare);
  return fmt::format("{} ({:.0f} %)", outcome.limit, 100 * outcome.limitShare);
}

std::string algorithmText(const Row& row) {
  return row.blocks > 0 ? fmt::format("{} ({} blocks)", row.algorithm, row.blocks) : row.algorithm;
}

/// Left-aligned columns, right-aligned where numbers are.
std::string columns(const std::vector<std::vector<std::string>>& lines, const std::vector<bool>& right) {
  std::vector<size_t> width(right.size());
  for (const auto& line : lines)
    for (size_t c = 0; c < line.size(); ++c) width[c] = std::max(width[c], line[c].size());
  std::string text;
  for (const auto& line : lines) {
    std::string row;
    for (size_t c = 0; c < line.size(); ++c) {
      const bool last = c + 1 == line.size();
      row += right[c] ? fmt::format("{:>{}}", line[c], width[c])
             : last   ? line[c]
                      : fmt::format("{:<{}}", line[c], width[c]);
      if (!last) row += "  ";
    }
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + "\n";
  }
  return text;
}

}  // namespace

std::string timeText(double seconds) {
  static constexpr std::array<const char*, 4> kUnits = {"ns", "us", "ms", "s"};
  double value = seconds * 1e9;
  size_t unit = 0;
  for (; unit + 1 < kUnits.size() && value >= 999.5; ++unit) value /= 1000;
  return fmt::format("{:.{}f} {}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, kUnits[unit]);
}

std::string sizeText(double bytes) { return drawing::axisText(bytes, drawing::Unit::bytes); }

std::string table(const Study& study, const Options& options, const std::vector<Row>& rows) {
  std::string text;
  for (size_t first = 0; first < rows.size();) {
    size_t end = first;
    while (end < rows.size() && rows[end].ranks == rows[first].ranks) ++end;
    text += fmt::format("{}{}, {}\n", first == 0 ? "" : "\n", name(options.collective),
                        study.describe(rows[first].ranks));
    const bool gpus = study.gpus();
    std::vector<std::vector<std::string>> lines = {{"bytes", "algorithm"}};
    std::vector<bool> right = {true, false};
    if (gpus) {
      lines[0].push_back("proto");
      right.push_back(false);
    }
    for (const char* title : {"channels", "time", "algbw GB/s", "busbw GB/s"}) {
      lines[0].push_back(title);
      right.push_back(true);
    }
    lines[0].push_back("limited by");
    right.push_back(false);
    for (size_t i = first; i < end; ++i) {
      const Row& row = rows[i];
      std::vector<std::string> line = {sizeText(row.bytes), algorithmText(row)};
      if (gpus) line.push_back(row.protocol);
      line.push_back(std::to_string(row.outcome.channels));
      line.push_back((row.outcome.approximate ? "~" : "") + timeText(row.outcome.seconds));
      line.push_back(fmt::format("{:.3f}", row.algorithmBandwidth() / 1e9));
      line.push_back(fmt::format("{:.3f}", row.busBandwidth(options.collective) / 1e9));
      line.push_back(limitText(row.outcome));
      lines.push_back(std::move(line));
    }
    text += columns(lines, right);
    first = end;
  }
  for (const std::string& reason : study.leftOut()) text += fmt::format("left out: {}\n", reason);
  return text;
}

std::string jsonText(const Options& options, const std::vector<Row>& rows) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    nlohmann::ordered_json one;
    one["collective"] = name(options.collective);
    one["ranks"] = row.ranks;
    one["hosts"] = row.hosts;
    one["bytes"] = row.bytes;
    one["algorithm"] = row.algorithm;
    if (!row.protocol.empty()) one["protocol"] = row.protocol;
    if (row.blocks > 0) one["blocks"] = row.blocks;
    one["channels"] = row.outcome.channels;
    one["slices"] = row.outcome.slices;
    one["seconds"] = row.outcome.seconds;
    one["algbw"] = row.algorithmBandwidth();
    one["busbw"] = row.busBandwidth(options.collective);
    one["limit"] = row.outcome.limit;
    one["busiestLinkShare"] = row.outcome.limitShare;
    one["engine"] = sim::name(row.outcome.engine);
    one["approximate"] = row.outcome.approximate;
    all.push_back(std::move(one));
  }
  return all.dump(1) + "\n";
}

std::string plotSvg(const Study& study, const Options& options, const std::vector<Row>& rows) {
  std::vector<std::string> names;
  std::set<double> sizes;
  std::set<int32_t> counts;
  for (const Row& row : rows) {
    if (std::ranges::find(names, row.algorithm) == names.end()) names.push_back(row.algorithm);
    sizes.insert(row.bytes);
    counts.insert(row.ranks);
  }
  std::vector<drawing::Panel> panels;
  const auto add = [&](bool againstSize, bool time) {
    drawing::Panel panel;
    // Against one, the other stands at its largest.
    const double bytes = *sizes.rbegin();
    const int32_t ranks = *counts.rbegin();
    panel.title = fmt::format("{}, {}", time ? "Time" : "Bus bandwidth",
                              againstSize ? fmt::format("{} ranks", ranks) : sizeText(bytes) + "B");
    panel.x = againstSize ? drawing::Axis{"bytes", drawing::Unit::bytes}
                          : drawing::Axis{"ranks", drawing::Unit::count};
    panel.y = time ? drawing::Axis{"time", drawing::Unit::seconds}
                   : drawing::Axis{"bus bandwidth", drawing::Unit::bytesPerSecond};
    for (const std::string& name : names) {
      drawing::Curve& curve = panel.curves.emplace_back();
      curve.name = name;
      for (const Row& row : rows) {
        if (row.algorithm != name || (againstSize ? row.ranks != ranks : row.bytes != bytes)) continue;
        const double y = time ? row.outcome.seconds : row.busBandwidth(options.collective);
        const double x = againstSize ? row.bytes : row.ranks;
        if (x > 0 && y > 0) curve.points.emplace_back(x, y);
      }
    }
    panels.push_back(std::move(panel));
  };
  for (const bool againstSize : {true, false})
    if (againstSize ? sizes.size() > 1 || counts.size() == 1 : counts.size() > 1)
      for (const bool time : {true, false}) add(againstSize, time);
  return chartSvg(fmt::format("{}: what tutti-sim predicts", name(options.collective)),
                  {study.describe(*counts.rbegin())}, panels);
}

namespace {

struct Placement {
  const char* name;
  const char* what;
  std::vector<int32_t> places;
};

std::vector<Placement> placements(int32_t ranks, int32_t hosts) {
  const int32_t perHost = sim::ceilDiv(ranks, hosts);
  std::vector<Placement> all(4);
  all[0] = {"by host", "ranks 0, 1, 2, ... fill a host, then the next", {}};
  all[1] = {"round robin", "rank r is on host r mod hosts", {}};
  all[2] = {"in pairs", "ranks 0 and 1 on a host, 2 and 3 on the next, ...", {}};
  all[3] = {"by host, hosts apart", "as by host, with neighbouring hosts below different switches", {}};
  std::vector<int32_t> filled(static_cast<size_t>(hosts));
  std::vector<int32_t> filledInPairs(static_cast<size_t>(hosts));
  const int32_t stride = std::max(1, static_cast<int32_t>(std::sqrt(hosts)));
  std::vector<int32_t> apart;
  for (int32_t first = 0; first < stride; ++first)
    for (int32_t host = first; host < hosts; host += stride) apart.push_back(host);
  const auto put = [&](int32_t host, std::vector<int32_t>* taken) {
    while ((*taken)[static_cast<size_t>(host)] >= perHost) host = (host + 1) % hosts;
    return host * perHost + (*taken)[static_cast<size_t>(host)]++;
  };
  for (int32_t rank = 0; rank < ranks; ++rank) {
    all[0].places.push_back(rank);
    all[1].places.push_back(put(rank % hosts, &filled));
    all[2].places.push_back(put(rank / 2 % hosts, &filledInPairs));
    all[3].places.push_back(apart[static_cast<size_t>(rank / perHost)] * perHost + rank % perHost);
  }
  return all;
}

}  // namespace

Result<std::string> placementText(Study& study, const Options& options) {
  const int32_t ranks = options.ranks.back();
  const double bytes = options.bytes.back();
  const int32_t hosts = study.hostsFor(ranks);
  if (hosts < 2) return invalidUsage("--place compares ways to put ranks on several hosts, and there is one");
  TUTTI_ASSIGN(const std::vector<std::string> names, study.algorithmsFor(ranks));
  std::string text =
      fmt::format("{} of {} bytes, {}\n", name(options.collective), sizeText(bytes), study.describe(ranks));
  text += "Algorithms take the ranks in the order of their numbers, but for the last line:\n";
  std::vector<std::vector<std::string>> lines = {{"placement"}};
  std::vector<bool> right = {false};
  std::vector<double> best, worst;
  std::vector<std::string> shown;
  const sim::Protocol protocol = study.gpus() ? options.protocols.front() : sim::Protocol::simple;
  const auto measure = [&](const std::string& title, const std::vector<int32_t>& places,
                           bool inRankOrder) -> Status {
    std::vector<std::string>& line = lines.emplace_back(1, title);
    for (const std::string& algorithm : shown) {
      TUTTI_ASSIGN(const sim::Cluster cluster, study.build(ranks, protocol, algorithm == "tree", places));
      sim::Job job = study.job(algorithm, bytes, protocol);
      job.inRankOrder = inRankOrder;
      TUTTI_ASSIGN(const sim::Outcome outcome, simulate(cluster, job));
      line.push_back(timeText(outcome.seconds));
    }
    return Status::ok();
  };
  for (const std::string& algorithm : names) {
    TUTTI_ASSIGN(const sim::Cluster* const cluster, study.cluster(ranks, protocol, algorithm == "tree"));
    sim::Job job = study.job(algorithm, bytes, protocol);
    const auto outcome = simulate(*cluster, job);
    if (!outcome.isOk() && !options.algorithms.empty()) return outcome.status();
    if (!outcome.isOk()) continue;
    shown.push_back(algorithm);
    lines[0].push_back(algorithm);
    right.push_back(true);
  }
  const std::vector<Placement> ways = placements(ranks, hosts);
  for (const Placement& way : ways) TUTTI_TRY(measure(way.name, way.places, true));
  TUTTI_TRY(measure("round robin, visited by host", ways[1].places, false));
  text += columns(lines, right);
  for (const Placement& way : ways) text += fmt::format("{}: {}.\n", way.name, way.what);
  text += "visited by host: what communicators do with any placement; it costs nothing.\n";
  TUTTI_ASSIGN(const sim::Cluster* const cluster, study.cluster(ranks, protocol, false));
  for (int32_t ring = 0; ring < std::min(2, cluster->rings()); ++ring) {
    std::vector<int32_t> order = cluster->ringOrder(ring);
    const bool cut = order.size() > 32;
    if (cut) order.resize(32);
    text += fmt::format("ring {} of {}, ranks by host: {}{}\n", ring, cluster->rings(), fmt::join(order, " "),
                        cut ? " ..." : "");
  }
  return text;
}

}  // namespace tutti::simtool
