#include "gpu_check/report.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace tutti::gpu_check {
namespace {

Json runJson(const Run& run) {
  Json json = {
      {"title", run.title}, {"ranks", run.ranks}, {"verdict", name(run.verdict)}, {"seconds", run.seconds}};
  if (run.perf.is_object() && run.perf.contains("results")) {
    json["rows"] = run.perf["results"].size();
    json["wrong_elements"] = run.perf["out_of_bounds"].value("count", 0);
  }
  if (!run.why.empty()) json["why"] = run.why;
  if (!run.leftOut.empty()) json["left_out"] = run.leftOut;
  json["command"] = run.command;
  if (run.verdict == Verdict::wrong || run.verdict == Verdict::noEnd) json["output"] = run.output;
  return json;
}

/// All runs of a step, with how many of each verdict there are.
Json stepJson(const std::vector<Run>& runs, const std::string& step) {
  Json counts = Json::object();
  for (const Verdict verdict :
       {Verdict::right, Verdict::wrong, Verdict::noEnd, Verdict::refused, Verdict::skipped})
    counts[name(verdict)] = 0;
  Json list = Json::array();
  for (const Run& run : runs) {
    if (run.step != step) continue;
    counts[name(run.verdict)] = counts[name(run.verdict)].get<int>() + 1;
    list.push_back(runJson(run));
  }
  return {{"counts", std::move(counts)}, {"runs", std::move(list)}};
}

/// The best rate of copies inside a device, in bytes/s; 0 when there is none.
double bestCopy(const Json& baseline) {
  double best = 0;
  if (baseline.is_object() && baseline.contains("copies"))
    for (const Json& row : baseline["copies"])
      best = std::max({best, row.value("memcpy_gbps", 0.0), row.value("kernel_gbps", 0.0)});
  return best * 1e9;
}

/// The faster of the two ways to copy that many bytes; null when it was not measured.
Json copyTime(const Json& baseline, double bytes) {
  if (baseline.is_object() && baseline.contains("copies"))
    for (const Json& row : baseline["copies"])
      if (row.value("bytes", 0.0) == bytes)
        return std::min(row.value("memcpy_us", 1e9), row.value("kernel_us", 1e9));
  return nullptr;
}

/// Nothing on a device is done in less, us: an empty kernel, or the smallest copy.
double leastLaunch(const Json& baseline) {
  const double launch = baseline.value("launch_us", 0.0);
  const Json copy = baseline.contains("copies") && !baseline["copies"].empty()
                        ? copyTime(baseline, baseline["copies"][0].value("bytes", 0.0))
                        : Json(nullptr);
  return copy.is_number() ? std::min(launch, copy.get<double>()) : launch;
}

size_t devicesOf(const Json& perf) {
  std::set<int> devices;
  for (const Json& rank : perf["devices"]) devices.insert(rank.value("device", 0));
  return devices.size();
}

using Key = std::tuple<std::string, int, double>;  // collective, ranks, bytes

/// Times of NCCL, by what was measured.
std::map<Key, double> ncclTimes(const std::vector<Run>& runs) {
  std::map<Key, double> times;
  for (const Run& run : runs) {
    if (run.step != "nccl" || run.verdict != Verdict::right) continue;
    for (const Json& row : run.perf["results"])
      if (row["out_of_place"].is_object())
        times[{run.title, run.ranks, row.value("size", 0.0)}] = row["out_of_place"].value("time", 0.0);
  }
  return times;
}

/// As ncclGetVersion says it; null when NCCL did not run.
Json ncclVersion(const std::vector<Run>& runs) {
  for (const Run& run : runs)
    if (run.step == "nccl" && run.perf.is_object() && run.perf.contains("nccl_version"))
      return run.perf["nccl_version"];
  return nullptr;
}

Json placeJson(const Json& measured) {
  if (!measured.is_object()) return nullptr;
  Json json = {{"us", measured["time"]},
               {"algbw_gbps", measured["alg_bw"]},
               {"busbw_gbps", measured["bus_bw"]},
               {"wrong_elements", measured["nwrong"]}};
  for (const char* key : {"algorithm", "protocol", "channels"})
    if (measured.contains(key)) json[key] = measured[key];
  return json;
}

Json tableRow(const Run& run, const Json& row, const Json& baseline) {
  const double bytes = row.value("size", 0.0);
  const size_t devices = devicesOf(run.perf);
  Json json = {{"collective", run.title},
               {"ranks", run.ranks},
               {"devices", devices},
               {"bytes", row["size"]},
               {"type", row["type"]},
               {"out_of_place", placeJson(row["out_of_place"])},
               {"in_place", placeJson(row["in_place"])},
               {"copy_us", copyTime(baseline, bytes)}};
  const double rate = bestCopy(baseline);
  const double traffic = leastTraffic(run.title, run.ranks, bytes);
  const bool bounded = devices == 1 && rate > 0 && traffic > 0;
  // A copy reads and writes each byte.
  json["bound_us"] = bounded ? Json(leastLaunch(baseline) + traffic / 2 / rate * 1e6) : Json(nullptr);
  return json;
}

Json tableJson(const std::vector<Run>& runs, const Json& baseline) {
  const std::map<Key, double> nccl = ncclTimes(runs);
  Json rows = Json::array();
  for (const Run& run : runs) {
    if (run.step != "table" || !run.perf.is_object() || !run.perf.contains("results")) continue;
    for (const Json& row : run.perf["results"]) {
      const double bytes = row.value("size", 0.0);
      if (bytes == 0) continue;  // fewer elements than ranks
      Json json = tableRow(run, row, baseline);
      const auto found = nccl.find({run.title, run.ranks, bytes});
      json["nccl_us"] = found == nccl.end() ? Json(nullptr) : Json(found->second);
      rows.push_back(std::move(json));
    }
  }
  return rows;
}

void addProblems(const Json& report, const char* step, bool also, Json& problems) {
  for (const Json& run : report[step]["runs"])
    if (run["verdict"] == name(Verdict::wrong) || (also && run["verdict"] == name(Verdict::noEnd)))
      problems.push_back(std::string(step) + ": " + run.value("title", "") + ", " +
                         std::to_string(run.value("ranks", 0)) + " rank(s): " + run.value("why", ""));
}

Json problemsOf(const Json& report) {
  Json problems = Json::array();
  if (const std::string stopped = report["machine"].value("stopped", ""); !stopped.empty())
    problems.push_back(stopped);
  for (const char* step : {"baseline", "suite", "table"}) addProblems(report, step, true, problems);
  // Tools that stop one rank's kernel while another's waits for it make programs slow, or end never.
  addProblems(report, "sanitizer", false, problems);
  if (report["suite"]["counts"][name(Verdict::right)] == 0 && report["table"].contains("rows") &&
      report["table"]["rows"].empty())
    problems.push_back("nothing was measured");
  return problems;
}

}  // namespace

double leastTraffic(const std::string& collective, int ranks, double bytes) {
  const double all = ranks * bytes;
  if (collective == "all_reduce" || collective == "alltoall") return all + all;
  if (collective == "all_gather" || collective == "reduce_scatter" || collective == "broadcast")
    return all + bytes;
  return 0;
}

Json makeReport(const std::string& folder) {
  const std::vector<Run> runs = readRuns(folder + "/runs");
  Json report;
  report["format"] = 1;
  report["made_by"] = Facts::read(folder + "/version.txt").json();
  report["machine"] = Facts::read(folder + "/machine.txt").json();
  report["machine"]["nvidia_smi"] = readText(folder + "/nvidia-smi.txt", 20000);
  const Json measured = readJson(folder + "/baseline.json");
  report["baseline"] = stepJson(runs, "baseline");
  report["baseline"]["measured"] = measured;
  report["suite"] = stepJson(runs, "suite");
  report["table"] = stepJson(runs, "table");
  report["table"]["rows"] = tableJson(runs, measured);
  report["nccl"] = stepJson(runs, "nccl");
  report["nccl"]["version"] = ncclVersion(runs);
  report["sanitizer"] = stepJson(runs, "sanitizer");
  report["problems"] = problemsOf(report);
  report["right"] = report["problems"].empty();
  return report;
}

bool isRight(const Json& report) { return report.value("right", false); }

}  // namespace tutti::gpu_check
