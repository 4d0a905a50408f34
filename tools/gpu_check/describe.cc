// Markdown of a report.
#include <cstdarg>
#include <cstdio>
#include <map>
#include <set>

#include "gpu_check/report.h"

namespace tutti::gpu_check {
namespace {

__attribute__((format(printf, 1, 2))) std::string print(const char* format, ...) {
  char text[512];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

std::string sizeText(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB"};
  int unit = 0;
  for (; bytes >= 1024 && unit < 3; ++unit) bytes /= 1024;
  return print("%.4g %s", bytes, kUnits[unit]);
}

/// Three digits or more, without an exponent.
std::string number(double value) { return print("%.*f", value < 10 ? 2 : value < 100 ? 1 : 0, value); }

std::string number(const Json& value) { return value.is_number() ? number(value.get<double>()) : "-"; }

std::string oneLine(std::string text) {
  for (char& letter : text)
    if (letter == '\n' || letter == '|') letter = ' ';
  return text;
}

std::string machineText(const Json& report) {
  const Json& machine = report["machine"];
  const Json& measured = report["baseline"]["measured"];
  std::string text =
      "# GPU check\n\n" + std::string(report.value("right", false) ? "Everything that ran was right."
                                                                   : "**Something was wrong.**");
  text += " Commit " + report["made_by"].value("commit", "?") + ", " + machine.value("started", "?") + ", " +
          machine.value("seconds", "?") + " s.\n\n";
  for (const Json& problem : report["problems"]) text += "- " + oneLine(problem.get<std::string>()) + "\n";
  if (!report["problems"].empty()) text += "\n";
  text += "## Machine\n\n";
  for (const auto& [key, value] : machine.items())
    if (key != "nvidia_smi") text += "- " + key + ": " + oneLine(value.get<std::string>()) + "\n";
  if (!measured.is_object()) return text + "\n";
  for (const Json& device : measured["devices"])
    text +=
        print("- device %d: %s, compute capability %s, %d multiprocessors, %s\n", device.value("device", 0),
              device.value("name", "").c_str(), device.value("compute_capability", "").c_str(),
              device.value("multiprocessors", 0), sizeText(device.value("memory_bytes", 0.0)).c_str());
  return text + "\n";
}

std::string baselineText(const Json& measured) {
  if (!measured.is_object() || !measured.contains("copies")) return "";
  std::string text =
      "## Floor and ceiling\n\nAn empty kernel: " + number(measured["launch_us"]) + " us in a row, " +
      number(measured["launch_and_wait_us"]) +
      " us with waiting for it.\n\n| copy inside a device | cudaMemcpyAsync us | GB/s | kernel us | GB/s |\n"
      "| ---: | ---: | ---: | ---: | ---: |\n";
  for (const Json& row : measured["copies"])
    text += "| " + sizeText(row.value("bytes", 0.0)) + " | " + number(row["memcpy_us"]) + " | " +
            number(row["memcpy_gbps"]) + " | " + number(row["kernel_us"]) + " | " +
            number(row["kernel_gbps"]) + " |\n";
  for (const Json& row : measured["peer_copies"])
    text += print("\nTo device %d (%s): %s GB/s.\n", row.value("peer", 0),
                  row.value("direct", false) ? "direct" : "staged", number(row["gbps"]).c_str());
  return text + "\n";
}

std::string countsText(const Json& counts) {
  std::string text;
  for (const auto& [verdict, count] : counts.items())
    if (count != 0) text += (text.empty() ? "" : ", ") + std::to_string(count.get<int>()) + " " + verdict;
  return text.empty() ? "nothing ran" : text;
}

/// What did not go as it should; of those that have one reason, the first stands for all.
std::string stepText(const Json& report, const char* step, const char* title) {
  const Json& part = report[step];
  std::string text = std::string("## ") + title + "\n\n" + countsText(part["counts"]) + ".\n\n";
  std::map<std::string, int> reasons;
  for (const Json& run : part["runs"]) {
    if (run["verdict"] == name(Verdict::right)) continue;
    const std::string why = run["verdict"].get<std::string>() + ": " + run.value("why", "");
    if (++reasons[why] == 1 || run["verdict"] != name(Verdict::skipped))
      text += print("- %s, %d rank(s): ", run.value("title", "").c_str(), run.value("ranks", 0)) +
              oneLine(why) + "\n";
  }
  std::set<std::string> leftOut;
  for (const Json& run : part["runs"])
    if (run.contains("left_out"))
      for (const Json& note : run["left_out"]) leftOut.insert(note.get<std::string>());
  for (const std::string& note : leftOut) text += "- " + oneLine(note) + "\n";
  return text + "\n";
}

std::string cellText(const Json& row) {
  const Json& place = row["out_of_place"];
  if (!place.is_object()) return "-";
  std::string text = number(place["us"]) + " (" + number(place["algbw_gbps"]) + ")";
  const double time = place.value("us", 0.0);
  if (row["bound_us"].is_number() && time > 0)
    text += print(" %.0f %%", 100 * row.value("bound_us", 0.0) / time);
  if (row["nccl_us"].is_number()) text += ", NCCL " + number(row["nccl_us"]);
  return text;
}

std::string collectiveText(const std::string& collective, const Json& rows) {
  std::set<int> ranks;
  std::map<double, std::map<int, const Json*>> cells;  // by bytes and ranks
  for (const Json& row : rows) {
    if (row["collective"] != collective) continue;
    ranks.insert(row.value("ranks", 0));
    cells[row.value("bytes", 0.0)][row.value("ranks", 0)] = &row;
  }
  std::string text = "### " + collective + "\n\n| size | copy us |";
  for (const int count : ranks) text += print(" %d rank(s) |", count);
  text += "\n| ---: | ---: |";
  for (size_t i = 0; i < ranks.size(); ++i) text += " ---: |";
  for (const auto& [bytes, byRanks] : cells) {
    text += "\n| " + sizeText(bytes) + " | " + number((*byRanks.begin()->second)["copy_us"]) + " |";
    for (const int count : ranks) {
      const auto found = byRanks.find(count);
      text += " " + (found == byRanks.end() ? std::string("-") : cellText(*found->second)) + " |";
    }
  }
  return text + "\n\n";
}

std::string tableText(const Json& report) {
  const Json& rows = report["table"]["rows"];
  std::string text = stepText(report, "table", "Table") +
                     "Each cell: us (size / time in GB/s), out of place. The percentage is of the bound: the "
                     "launch of an empty kernel, and the "
                     "least that ranks on one device must read and write at the best rate of a copy.\n\n";
  std::set<std::string> seen;
  for (const Json& row : rows)
    if (const std::string collective = row.value("collective", ""); seen.insert(collective).second)
      text += collectiveText(collective, rows);
  return text;
}

}  // namespace

std::string describe(const Json& report) {
  return machineText(report) + baselineText(report["baseline"]["measured"]) +
         stepText(report, "suite", "Suite") + tableText(report) + stepText(report, "nccl", "NCCL") +
         stepText(report, "sanitizer", "compute-sanitizer");
}

}  // namespace tutti::gpu_check
