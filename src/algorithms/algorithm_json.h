// Algorithms as JSON: the schedule IR in a form that people write. docs/algorithm-files.md describes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/checker.h"
#include "base/json.h"

namespace tutti {

/// Largest file, and largest numbers in it, that are accepted.
constexpr size_t kAlgorithmJsonMaxBytes = size_t{4} << 20;
constexpr int32_t kAlgorithmJsonMaxRanks = 1024;
constexpr int32_t kAlgorithmJsonMaxSegments = 65536;  // of a buffer
constexpr int32_t kAlgorithmJsonMaxLanes = 64;        // of a rank
constexpr int32_t kAlgorithmJsonMaxRepeat = 1 << 20;

/// What a file says of its algorithm as a whole.
struct AlgorithmHead {
  std::string name;
  Collective collective = Collective::allReduce;
  std::vector<int32_t> ranks;   // that it is for, ascending; empty: any number
  std::optional<int32_t> root;  // none: any (of collectives that have one)
  std::optional<bool> inPlace;  // what the file promises; none: what can be proved
  std::optional<bool> outOfPlace;
  uint64_t minBytes = 0;
  uint64_t maxBytes = UINT64_MAX;

  bool isFor(int32_t count) const;
};

/// A parsed file, from which the schedules for a number of ranks and a root are made. Copies share the
/// document; thread-safe.
class JsonAlgorithm {
 public:
  /// Parses the text of a file; `file` is for messages only. Errors (invalidUsage) name file, line, path and
  /// reason. Handles any bytes; uses no more memory than a small multiple of the text's size.
  static Result<JsonAlgorithm> parse(std::string_view text, std::string_view file);

  const AlgorithmHead& head() const { return head_; }
  const std::string& file() const { return document_.file(); }
  /// The schedules of all ranks, not proved yet. `root` counts for collectives that have one. Errors
  /// (invalidUsage) name file, line, path and reason; they come before memory is used in proportion to a
  /// number in the file (see checkProofSize()).
  Result<ScheduleSet> schedules(int32_t ranks, int32_t root) const;

 private:
  explicit JsonAlgorithm(JsonDocument document) : document_(std::move(document)) {}
  Status parseHead();

  JsonDocument document_;
  AlgorithmHead head_;
};

/// The schedules of all ranks as JSON that reads back as the same schedules. One program for all ranks where
/// their numbers are the rank plus, or minus, a constant, else one a rank.
std::string toJson(const ScheduleSet& schedules, uint64_t minBytes = 0, uint64_t maxBytes = UINT64_MAX);

}  // namespace tutti
