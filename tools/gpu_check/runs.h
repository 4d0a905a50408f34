// What `run` of scripts/gpu-check left in its folder: one folder for each program that it started.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace tutti::gpu_check {

using Json = nlohmann::ordered_json;

/// Lines "name=value" of a file, in their order. Empty when it cannot be read.
class Facts {
 public:
  static Facts read(const std::string& path);

  /// Empty when there is none of that name.
  std::string text(const std::string& name) const;
  double number(const std::string& name) const;
  Json json() const;

 private:
  std::vector<std::pair<std::string, std::string>> lines_;
};

enum class Verdict {
  right,
  wrong,    // wrong results, a wrong status, a crash
  noEnd,    // it was killed when its time was over
  refused,  // the library said that it has no such thing, and may
  skipped,  // was not started
};

/// "right", "wrong", "did not end", ...
const char* name(Verdict verdict);

struct Run {
  std::string step;  // suite, table, nccl, sanitizer
  std::string title;
  std::string command;
  int ranks = 0;
  double seconds = 0;
  Verdict verdict = Verdict::skipped;
  std::string why;                   // one line: of anything that is not right
  std::string output;                // the end of it
  std::vector<std::string> leftOut;  // notes of types and operators that the library does not have
  Json perf;                         // what a perf program wrote with -J, or null
};

/// All runs, in the order in which they were made.
std::vector<Run> readRuns(const std::string& folder);

/// The JSON in that file, or null.
Json readJson(const std::string& path);

/// A file's text; its last `most` bytes where it is longer. Empty when it cannot be read.
std::string readText(const std::string& path, size_t most);

}  // namespace tutti::gpu_check
