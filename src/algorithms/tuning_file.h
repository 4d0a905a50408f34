// Tuning files (TUTTI_TUNING_FILE): measured cost parameters, and choices that measurements fix.
//
//   # Lines of `@medium.parameter = value` and of
//   # function,minbytes,maxbytes,algorithm,protocol,channels,hosts,ranks[,operations[,mapped]]
//   @shared.alpha = 4.2e-07
//   allreduce,0,4096,oneshot,simple,1,1,4
//   allreduce,4097,-1,ring,simple,4,-1,-1
//
// docs/selection.md explains every field. The first eight fields are those of the file of NCCL's example
// tuner.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/algorithm_filter.h"
#include "algorithms/cost_model.h"
#include "base/status.h"

namespace tutti {

constexpr size_t kTuningFileMaxBytes = size_t{4} << 20;
constexpr size_t kTuningFileMaxEntries = 16384;
constexpr size_t kTuningFileMaxName = 128;

/// What ranks share: the memory of a host, or a network.
enum class CostMedium : uint8_t { shared, network };
inline constexpr std::array kCostMedia = {CostMedium::shared, CostMedium::network};
/// "shared", "network".
const char* name(CostMedium medium);

/// A number of CostParameters that can be measured, as files spell it.
struct CostParameterName {
  const char* name;
  double CostParameters::*value;
  bool perByte;  // seconds for each byte, else for each message
  bool mayBeZero;
};
std::span<const CostParameterName> costParameterNames();

/// "Calls of this kind and size run so." -1 in the file is an empty optional, or the largest number, here.
struct TuningEntry {
  int line = 0;
  Collective collective = Collective::allReduce;
  size_t minBytes = 0;
  size_t maxBytes = std::numeric_limits<size_t>::max();  // inclusive
  std::string algorithm;                                 // in lower case; may not exist here
  std::optional<Protocol> protocol;
  std::optional<int32_t> channels;
  std::optional<int32_t> hosts;
  std::optional<int32_t> ranks;
  std::optional<int32_t> operations;  // calls that NCCL would join to one: here each is one
  std::optional<bool> mapped;         // all ranks' user buffers can be used in place

  bool matches(Collective call, size_t bytes, int32_t callRanks, int32_t callHosts, bool zeroCopy) const {
    return call == collective && bytes >= minBytes && bytes <= maxBytes &&
           ranks.value_or(callRanks) == callRanks && hosts.value_or(callHosts) == callHosts &&
           operations.value_or(1) == 1 && mapped.value_or(zeroCopy) == zeroCopy;
  }
  bool operator==(const TuningEntry& other) const;  // but for the line
};

class TuningFile {
 public:
  /// An error names `path`:line, what stands there and what is expected. Names of algorithms are not looked
  /// up: see Selector::create().
  static Result<TuningFile> parse(std::string_view text, std::string_view path);

  /// `costs` with what was measured in the place of what was assumed.
  CostParameters apply(CostParameters costs, CostMedium medium) const;
  /// As text that parse() reads, and that says exactly the same.
  std::string text() const;

  void set(CostMedium medium, const CostParameterName& parameter, double value);
  void add(TuningEntry entry) { entries_.push_back(std::move(entry)); }
  const std::vector<TuningEntry>& entries() const { return entries_; }
  const std::string& path() const { return path_; }
  bool operator==(const TuningFile& other) const {
    return entries_ == other.entries_ && parameters_ == other.parameters_;
  }

 private:
  friend class TuningReader;
  struct Parameter {
    CostMedium medium = CostMedium::shared;
    size_t index = 0;  // in costParameterNames()
    double value = 0;
    bool operator==(const Parameter&) const = default;
  };
  std::string path_;
  std::vector<Parameter> parameters_;
  std::vector<TuningEntry> entries_;
};

/// A tuning file as a rank found it: what ranks compare at init, and parse when they agree.
struct TuningSource {
  std::string path;  // empty: there is none
  std::string text;
  Status status;  // why it could not be read

  static TuningSource read(const std::string& path);
  /// For the comparison: the same for the same content, wherever the file lies.
  std::string digest() const;
  /// Null where there is no file.
  Result<std::shared_ptr<const TuningFile>> load() const;
};

}  // namespace tutti
