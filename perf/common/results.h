// The numbers of a run, before they become text or JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/statistics.h"

namespace tutti::perf {

/// What the library ran.
struct RunBy {
  std::string algorithm;  // empty: no algorithm of the library (messages)
  std::string protocol;
  int channels = 0;
  double predictedSeconds = 0;
};

/// One size, out of place or in place.
struct Measurement {
  double seconds = 0;   // of one operation
  double algBytes = 0;  // bytes/s
  double busBytes = 0;
  std::optional<uint64_t> wrong;            // empty: not checked
  std::vector<double> iterationSeconds;     // -I: slowest rank of each iteration
  std::optional<Summary> iterationSummary;  // -I
  std::optional<RunBy> runBy;               // --show-algo
};

struct Row {
  size_t bytes = 0;
  size_t count = 0;
  std::string type;
  std::string op;
  int root = -1;
  std::optional<Measurement> outOfPlace;
  std::optional<Measurement> inPlace;
};

/// One rank of the run.
struct RankInfo {
  int rank = 0;
  int group = 0;
  int pid = 0;
  int device = 0;
  char host[64] = {};
  char pci[32] = {};
  char deviceName[128] = {};
};

struct Totals {
  uint64_t wrong = 0;
  double averageBusBytes = 0;
  std::optional<double> requiredBusBytes;  // NCCL_TESTS_MIN_BW
  /// As nccl-tests: a tenth below the required bandwidth is still accepted.
  bool fastEnough() const { return !requiredBusBytes || averageBusBytes >= 0.9 * *requiredBusBytes; }
  bool passed() const { return wrong == 0 && fastEnough(); }
};

}  // namespace tutti::perf
