#include "gpu_check/runs.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

namespace tutti::gpu_check {
namespace {

constexpr size_t kMostOutput = 4000;

/// The last line that says anything; perf programs and the library end with what went wrong.
std::string lastLine(const std::string& text) {
  std::istringstream lines(text);
  std::string last;
  for (std::string line; std::getline(lines, line);)
    if (line.find_first_not_of(" \t\r#") != std::string::npos) last = line;
  return last.substr(0, 400);
}

/// The line of that text where something is said to be wrong, or the last one.
std::string reasonIn(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    for (const char* sign :
         {"_perf: ", "gpu-abort: ", "gpu-baseline: ", "error while loading", "symbol lookup error"})
      if (line.find(sign) != std::string::npos) return line.substr(0, 400);
  return lastLine(text);
}

std::vector<std::string> leftOutIn(const std::string& text) {
  std::istringstream lines(text);
  std::vector<std::string> found;
  for (std::string line; std::getline(lines, line);)
    if (line.find(": left out, ") != std::string::npos) found.push_back(line.substr(2));
  return found;
}

/// True when the program wrote results and all of them are right.
bool hasRightResults(const Json& perf) {
  return perf.is_object() && perf.contains("results") && perf["out_of_bounds"].value("okay", false) &&
         perf["errors"].empty();
}

void judge(Run& run, const Facts& facts, const std::string& text) {
  const std::string status = facts.text("status");
  run.why = facts.text("why");
  if (status == "skipped") {
    run.verdict = Verdict::skipped;
  } else if (status == "timeout" || status == "stuck") {
    run.verdict = Verdict::noEnd;
    run.why = "not done after " + facts.text("limit") + " s" +
              (status == "stuck" ? ", and could not be killed" : "") + ": " + lastLine(text);
  } else if (status == "2" && facts.text("may_refuse") == "1") {
    run.verdict = Verdict::refused;
    run.why = reasonIn(text);
  } else if (status != "0") {
    run.verdict = Verdict::wrong;
    run.why = "status " + status + ": " + reasonIn(text);
  } else if (facts.text("perf") == "1" && !hasRightResults(run.perf)) {
    run.verdict = Verdict::wrong;
    run.why = "status 0, but no right results were written";
  } else {
    run.verdict = Verdict::right;
  }
}

Run readRun(const std::filesystem::path& folder) {
  const Facts facts = Facts::read(folder / "run.txt");
  Run run;
  run.step = facts.text("step");
  run.title = facts.text("title");
  run.command = facts.text("command");
  run.ranks = static_cast<int>(facts.number("ranks"));
  run.seconds = facts.number("seconds");
  run.perf = readJson(folder / "perf.json");
  const std::string text = readText(folder / "output.txt", size_t{1} << 20);
  judge(run, facts, text);
  run.leftOut = leftOutIn(text);
  run.output = text.size() > kMostOutput ? text.substr(text.size() - kMostOutput) : text;
  return run;
}

}  // namespace

Facts Facts::read(const std::string& path) {
  Facts facts;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (const size_t equals = line.find('='); equals != std::string::npos)
      facts.lines_.emplace_back(line.substr(0, equals), line.substr(equals + 1));
  return facts;
}

std::string Facts::text(const std::string& name) const {
  const auto found =
      std::find_if(lines_.begin(), lines_.end(), [&](const auto& line) { return line.first == name; });
  return found == lines_.end() ? std::string() : found->second;
}

double Facts::number(const std::string& name) const { return std::strtod(text(name).c_str(), nullptr); }

Json Facts::json() const {
  Json json = Json::object();
  for (const auto& [name, value] : lines_) json[name] = value;
  return json;
}

const char* name(Verdict verdict) {
  switch (verdict) {
    case Verdict::right:
      return "right";
    case Verdict::wrong:
      return "wrong";
    case Verdict::noEnd:
      return "did not end";
    case Verdict::refused:
      return "not there";
    default:
      return "skipped";
  }
}

std::vector<Run> readRuns(const std::string& folder) {
  std::error_code error;  // a folder that is not there is one without runs
  std::vector<std::filesystem::path> folders(std::filesystem::directory_iterator(folder, error),
                                             std::filesystem::directory_iterator());
  std::sort(folders.begin(), folders.end());
  std::vector<Run> runs;
  runs.reserve(folders.size());
  for (const auto& one : folders) runs.push_back(readRun(one));
  return runs;
}

std::string readText(const std::string& path, size_t most) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return text.size() > most ? text.substr(text.size() - most) : text;
}

Json readJson(const std::string& path) {
  Json json = Json::parse(readText(path, ~size_t{0}), nullptr, false);
  return json.is_discarded() ? Json(nullptr) : json;
}

}  // namespace tutti::gpu_check
