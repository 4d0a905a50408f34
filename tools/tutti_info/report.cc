#include "tutti_info/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tutti::info {
namespace {

std::string line(std::string_view label, std::string_view value) {
  return fmt::format("{:<13} {}\n", label, value);
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string use(const Interface& one) {
  if (one.bootstrap && one.data) return "bootstrap and data";
  if (one.bootstrap) return "bootstrap";
  return one.data ? "data" : "not used";
}

/// Bytes that are no UTF-8 (of settings) must not make JSON impossible.
std::string dump(const nlohmann::ordered_json& value) {
  return value.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string asText(const Report& report, bool allSettings) {
  std::string text = line("Tutti", report.tuttiVersion + ", API of NCCL " + report.ncclVersion);
  text += line("build", report.build);
  text += line("library", report.library.path.empty() ? "none: " + report.library.why : report.library.path);
  text += "\n" + line("host", report.machine.hostName);
  text += line("host id", report.machine.hostId);
  text += line("processors", std::to_string(report.machine.processors));
  text +=
      line("SIMD", fmt::format("{} (of {})", report.machine.simdTarget, joined(report.machine.simdTargets)));
  text += line("runtime", fmt::format("{}, {} devices", report.machine.runtime, report.machine.devices));
  text += "\nInterfaces\n";
  for (const Interface& one : report.machine.interfaces)
    text += fmt::format("  {:<12} {:<40} {}\n", one.name, one.address, use(one));
  text += "\nTransports\n";
  for (const Transport& one : report.machine.transports)
    text += fmt::format("  {:<14} {:<4} {}\n", one.name, one.available ? "yes" : "no", one.note);
  text += allSettings ? "\nSettings\n" : "\nSettings that differ from their defaults (--all shows all)\n";
  size_t shown = 0;
  for (const Setting& one : report.settings) {
    if (!allSettings && !one.isSet) continue;
    ++shown;
    text += fmt::format("  {}={}  ({})\n", one.name, one.value, one.source);
  }
  if (shown == 0) text += "  none\n";
  if (!report.warnings.empty()) text += "\nWarnings\n";
  for (const std::string& warning : report.warnings) text += "  " + warning + "\n";
  return text;
}

std::string asJson(const Report& report) {
  nlohmann::ordered_json out;
  out["tuttiVersion"] = report.tuttiVersion;
  out["ncclVersion"] = report.ncclVersion;
  out["build"] = report.build;
  out["library"] = {{"path", report.library.path},
                    {"error", report.library.why},
                    {"version", report.library.version},
                    {"isTutti", report.library.isOurs}};
  const Machine& machine = report.machine;
  out["machine"] = {{"hostName", machine.hostName},       {"hostId", machine.hostId},
                    {"processors", machine.processors},   {"simdTarget", machine.simdTarget},
                    {"simdTargets", machine.simdTargets}, {"runtime", machine.runtime},
                    {"devices", machine.devices}};
  auto& interfaces = out["machine"]["interfaces"] = nlohmann::ordered_json::array();
  for (const Interface& one : machine.interfaces)
    interfaces.push_back(
        {{"name", one.name}, {"address", one.address}, {"bootstrap", one.bootstrap}, {"data", one.data}});
  auto& transports = out["machine"]["transports"] = nlohmann::ordered_json::array();
  for (const Transport& one : machine.transports)
    transports.push_back({{"name", one.name}, {"available", one.available}, {"note", one.note}});
  auto& settings = out["settings"] = nlohmann::ordered_json::array();
  for (const Setting& one : report.settings)
    settings.push_back({{"name", one.name},
                        {"value", one.value},
                        {"default", one.standard},
                        {"source", one.source},
                        {"isSet", one.isSet},
                        {"help", one.help}});
  out["warnings"] = report.warnings;
  return dump(out);
}

}  // namespace tutti::info
