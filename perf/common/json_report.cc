#include "common/json_report.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>

#include <nlohmann/json.hpp>

namespace tutti::perf {
namespace {

using Json = nlohmann::ordered_json;

Json measurementJson(const Options& options, const std::optional<Measurement>& measurement) {
  if (!measurement) return nullptr;
  Json json;
  json[options.cpuTime ? "cpu_time" : "time"] = measurement->seconds * 1e6;
  json["alg_bw"] = measurement->algBytes / 1e9;
  json["bus_bw"] = measurement->busBytes / 1e9;
  json["nwrong"] = measurement->wrong ? Json(*measurement->wrong) : Json(nullptr);
  if (measurement->runBy) {
    const RunBy& by = *measurement->runBy;
    if (by.algorithm.empty())
      json["algorithm"] = nullptr;
    else
      json["algorithm"] = by.algorithm;
    json["protocol"] = by.protocol;
    json["channels"] = by.channels;
    json["predicted"] = by.predictedSeconds * 1e6;
  }
  if (measurement->iterationSummary) {
    const Summary& s = *measurement->iterationSummary;
    Json times = Json::array();
    for (const double seconds : measurement->iterationSeconds) times.push_back(seconds * 1e6);
    json["per_iter"] = {{"actual_iterations", measurement->iterationSeconds.size()},
                        {"skipped_iterations", options.perIterationSkip},
                        {"min_us", s.min * 1e6},
                        {"avg_us", s.mean * 1e6},
                        {"max_us", s.max * 1e6},
                        {"p50_us", s.p50 * 1e6},
                        {"p95_us", s.p95 * 1e6},
                        {"p99_us", s.p99 * 1e6},
                        {"stdev_us", s.deviation * 1e6},
                        {"cv_pct", s.mean > 0 ? 100 * s.deviation / s.mean : 0},
                        {"times_us", std::move(times)}};
  }
  return json;
}

Json configJson(const Options& options) {
  return {{"nthreads", options.threads},
          {"ngpus", options.devicesPerThread},
          {"minimum_bytes", options.minBytes},
          {"maximum_bytes", options.maxBytes},
          {"step_bytes", options.stepBytes},
          {"step_factor", options.stepFactor},
          {"warmup_iters", options.warmup},
          {"iterations", options.iterations},
          {"aggregated_iterations", options.aggregated},
          {"validation", options.check},
          {"graph", options.graphLaunches},
          {"blocking_collectives", options.blocking != Blocking::never},
          {"parallel_init", options.parallelInit},
          {"per_iter_timing", options.perIteration},
          {"per_iter_skip", options.perIterationSkip}};
}

Json environmentJson() {
  Json json = Json::object();
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = text.substr(0, equals);
    if (name.starts_with("NCCL_") || name.starts_with("TUTTI_"))
      json[std::string(name)] = std::string(text.substr(equals + 1));
  }
  return json;
}

Json rankJson(const RankInfo& info) {
  return {{"rank", info.rank},
          {"group", info.group},
          {"pid", info.pid},
          {"hostname", info.host},
          {"device", info.device},
          {"device_hex", info.pci},
          {"device_info", info.deviceName}};
}

Json rowJson(const Options& options, const Row& row) {
  return {{"size", row.bytes},
          {"count", row.count},
          {"type", row.type},
          {"redop", row.op},
          {"root", std::to_string(row.root)},
          {"out_of_place", measurementJson(options, row.outOfPlace)},
          {"in_place", measurementJson(options, row.inPlace)}};
}

Outcome writeTo(const std::string& path, const std::string& text) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "we"), &std::fclose);
  if (!file) return Outcome::failure("open " + path + " for writing: " + std::strerror(errno));
  const bool written = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
  if (!written || std::fflush(file.get()) != 0)
    return Outcome::failure("write " + path + ": " + std::strerror(errno));
  return Outcome::ok();
}

}  // namespace

std::string jsonText(const Options& options, const RunRecord& record) {
  Json json;
  json["version"] = 1;
  json["experiment_name"] = record.program;
  json["start_time"] = record.startTime;
  json["end_time"] = record.endTime;
  json["args"] = options.commandLine;
  json["env"] = environmentJson();
  json["nccl_version"] = record.libraryVersion;
  json["config"] = configJson(options);
  json["devices"] = Json::array();
  for (const RankInfo& info : record.ranks) json["devices"].push_back(rankJson(info));
  json["results"] = Json::array();
  for (const Row& row : record.rows) json["results"].push_back(rowJson(options, row));
  const Totals& totals = record.totals;
  json["out_of_bounds"] = {{"count", totals.wrong}, {"okay", totals.wrong == 0}};
  json["average_bus_bandwidth"] = {
      {"bandwidth", totals.averageBusBytes / 1e9},
      {"okay", totals.requiredBusBytes ? Json(totals.fastEnough()) : Json("unchecked")}};
  json["errors"] = record.errors;
  // Bytes that are not UTF-8 (environment) are replaced, not thrown at.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Outcome prepareFile(const std::string& path) { return writeTo(path, ""); }
Outcome writeFile(const std::string& path, const std::string& text) { return writeTo(path, text); }

}  // namespace tutti::perf
