// The report of a GPU check: all that was found in one JSON, and the same for people.
#pragma once

#include <string>

#include "gpu_check/runs.h"

namespace tutti::gpu_check {

/// Of the folder that `run` filled: machine.txt, version.txt, baseline.json, runs/. `seconds`: what all took.
Json makeReport(const std::string& folder);

/// True when nothing was wrong and something was measured.
bool isRight(const Json& report);

/// Bytes that a collective on ranks which share one device must read and write there at least: every buffer
/// that holds data once. `bytes` as the perf programs mean it. 0 for names that are not in the table.
double leastTraffic(const std::string& collective, int ranks, double bytes);

/// Markdown.
std::string describe(const Json& report);

}  // namespace tutti::gpu_check
