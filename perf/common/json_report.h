// The same results as JSON (-J), with nccl-tests' keys.
#pragma once

#include <string>
#include <vector>

#include "common/options.h"
#include "common/outcome.h"
#include "common/results.h"

namespace tutti::perf {

struct RunRecord {
  std::string program;
  std::string startTime;
  std::string endTime;
  int libraryVersion = 0;
  std::vector<RankInfo> ranks;
  std::vector<Row> rows;
  Totals totals;
  std::vector<std::string> errors;
};

/// The whole document.
std::string jsonText(const Options& options, const RunRecord& record);

/// Creates the file, or empties it. Called before the run, so that a wrong path costs nothing.
Outcome prepareFile(const std::string& path);
Outcome writeFile(const std::string& path, const std::string& text);

}  // namespace tutti::perf
