// Which algorithm runs a call, by which protocol, on how many channels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/algorithm_filter.h"
#include "algorithms/candidates.h"
#include "algorithms/cost_model.h"
#include "base/status.h"

namespace tutti {

/// What the choice depends on. All of it must be the same on all ranks.
struct SelectorInput {
  Collective collective = Collective::allReduce;
  int32_t ranks = 1;
  size_t bytes = 0;             // the whole vector (see CostQuery)
  bool allMapped = false;       // all ranks share memory (one host)
  int32_t hosts = 1;            // groups of ranks that share memory
  int32_t rails = 1;            // rings that hierarchical algorithms make on each channel
  bool zeroCopyUsable = false;  // all ranks' user buffers of this call can be used directly
  int32_t maxChannels = 1;
  double linkBandwidth = 0;  // bytes/s between hosts; 0: not known
};

struct Choice {
  /// Why it was chosen.
  enum class Reason : uint8_t {
    prediction,    // the least predicted time
    algorithmFile  // an algorithm from a file, whose size range fits
  };
  const Candidate* algorithm = nullptr;
  Protocol protocol = Protocol::simple;
  int32_t channels = 1;
  int32_t blocks = 0;  // ScheduleRequest::blocks
  double predictedSeconds = 0;
  Reason reason = Reason::prediction;
  /// The best of the other algorithms, by prediction; null where there is none.
  const Candidate* runnerUp = nullptr;
  double runnerUpSeconds = 0;
};

/// What the user says about the choice.
struct SelectorSettings {
  std::string algo;   // NCCL_ALGO
  std::string proto;  // NCCL_PROTO
};

/// Chooses for one communicator. Immutable, so usable by several threads at once. Choosing costs some
/// microseconds and allocates nothing, unless it fails.
class Selector {
 public:
  /// An error (invalidUsage) names what is wrong in the settings.
  static Result<Selector> create(CandidateSet candidates, const SelectorSettings& settings);

  /// The allowed algorithm with the least predicted time. Where the user's settings leave none that can run
  /// this call, the error (invalidUsage) says so and why: there is no silent fallback.
  Result<Choice> choose(const SelectorInput& input) const;
  /// True when the user limits the choice, so that it may fail.
  bool isLimited() const { return !algorithms_.empty() || !protocols_.empty(); }
  const CandidateSet& candidates() const { return candidates_; }

 private:
  struct Offer;
  Selector(CandidateSet candidates, AlgorithmFilter algorithms, ProtocolFilter protocols);
  bool allows(size_t candidate, Collective collective) const {
    return (allowed_[candidate] >> static_cast<int>(collective) & 1) != 0;
  }
  Offer bestOffer(const Candidate& candidate, const SelectorInput& input, const CostParameters& costs) const;
  Status nothingLeft(const SelectorInput& input) const;

  CandidateSet candidates_;
  AlgorithmFilter algorithms_;
  ProtocolFilter protocols_;
  std::vector<uint32_t> allowed_;                    // by candidate, a bit for each collective
  std::array<std::optional<Protocol>, 9> protocol_;  // by collective; none: NCCL_PROTO leaves none
};

/// Among the shipped algorithms, with NCCL_ALGO as it stands in the environment. For tools: it makes a
/// selector.
Result<Choice> choose(const SelectorInput& input, std::string_view ncclAlgo);

/// Channels for a call of `bytes`: one inside a host, else one for each kBytesPerChannel up to the most.
/// Where a channel has several rails, each of them counts: what keeps a link busy are connections.
constexpr size_t kBytesPerChannel = 512 * 1024;

}  // namespace tutti
