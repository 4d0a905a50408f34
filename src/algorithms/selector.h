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
#include "algorithms/tuning_file.h"
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
  /// More ranks share a host than it has processors: whoever waits must let others run.
  bool crowded = false;
  int32_t root = 0;       // of collectives that have one; -1: any
  size_t sliceBytes = 0;  // most that one message carries; 0: not known
  /// Algorithms whose schedules for this collective need larger messages or more scratch than there are. May
  /// be null.
  const std::vector<const Candidate*>* tooLarge = nullptr;
};

/// What the machine costs: a job on one host pays the one, a job with one rank on each host the other, and
/// any other job both.
struct MachineCosts {
  CostParameters shared;
  CostParameters network;
};

/// `costs` as they are for the call: where ranks share processors, and with the communicator's slices.
MachineCosts costsFor(MachineCosts costs, const SelectorInput& input);

/// What keeps an algorithm from running a call.
enum class Obstacle : uint8_t {
  none,
  unknown,        // there is no algorithm of that name here
  forbidden,      // the user does not allow it
  protocol,       // not on this machine, or not allowed
  collective,     // not with this number of ranks
  size,           // outside the sizes that it is for
  root,           // not for that root
  severalHosts,   // not several hosts, or none with several ranks
  oneHost,        // not all ranks share memory
  mappedBuffers,  // not all ranks can map all buffers
  memory,         // needs larger messages, or more scratch (SelectorInput::tooLarge)
};

struct Choice {
  /// Why it was chosen.
  enum class Reason : uint8_t {
    prediction,     // the least predicted time
    demand,         // the user's settings leave only this algorithm
    tuningFile,     // an entry of the tuning file: `line`
    algorithmFile,  // an algorithm from a file, whose size range fits
  };
  const Candidate* algorithm = nullptr;
  Protocol protocol = Protocol::simple;
  int32_t channels = 1;
  int32_t blocks = 0;  // ScheduleRequest::blocks
  double predictedSeconds = 0;
  Reason reason = Reason::prediction;
  int32_t line = 0;
  /// The best of the other algorithms, by prediction; null where there is none.
  const Candidate* runnerUp = nullptr;
  double runnerUpSeconds = 0;
  /// The first entry of the tuning file that fits the call but cannot run it; 0: there is none.
  int32_t skippedLine = 0;
  Obstacle skippedFor = Obstacle::none;
};

/// What the user says about the choice.
struct SelectorSettings {
  std::string algo;      // as NCCL_ALGO
  std::string proto;     // as NCCL_PROTO
  int32_t channels = 0;  // 0: as predicted
  /// What errors call the two.
  std::string_view algoName = "NCCL_ALGO=";
  std::string_view protoName = "NCCL_PROTO=";
  std::shared_ptr<const TuningFile> tuning;  // may be null
  /// Calls are run by kernels; none: by CPU threads.
  std::optional<KernelMachine> kernels;
};

/// Chooses for one communicator. Immutable, so usable by several threads at once. Choosing costs some
/// microseconds and allocates nothing, unless it fails.
class Selector {
 public:
  /// An error (invalidUsage) names what is wrong in the settings, or "TUTTI_TUNING_FILE: " and the line of
  /// the tuning file that names an algorithm that nobody knows.
  static Result<Selector> create(std::shared_ptr<const CandidateSet> candidates, SelectorSettings settings);

  /// What the tuning file says of the call, where it can be; else the allowed algorithm with the least
  /// predicted time. Where the user's settings leave none that can run this call, the error (invalidUsage)
  /// says so and why: there is no silent fallback.
  Result<Choice> choose(const SelectorInput& input) const;
  /// True when the user limits the choice, so that it may fail.
  bool isLimited() const { return !algorithms_.empty() || !protocols_.empty(); }
  /// Parameters of the cost model, measured where the tuning file has them.
  MachineCosts costs(const SelectorInput& input) const;
  const std::shared_ptr<const CandidateSet>& candidates() const { return candidates_; }
  const SelectorSettings& settings() const { return settings_; }

  /// "prediction", "NCCL_ALGO=ring", "tuning.csv:12".
  std::string reasonText(const Choice& choice) const;
  /// Why the entry `choice.skippedLine` was not followed: "tuning.csv:3: direct needs ...".
  std::string skippedText(const Choice& choice, const SelectorInput& input) const;
  /// The entries of the tuning file that fit no call, or can run none, whatever the communicator:
  /// "tuning.csv:3 can never be followed: ...", in the order of the file.
  std::vector<std::string> neverFollowed() const;

 private:
  struct Offer;
  struct Entry {
    const TuningEntry* entry;
    const Candidate* candidate;  // null: none of that name here
    size_t index;                // of the candidate
  };
  Selector(std::shared_ptr<const CandidateSet> candidates, SelectorSettings settings,
           AlgorithmFilter algorithms, ProtocolFilter protocols);
  Status resolveEntries();
  /// Empty where there may be calls for it.
  std::string whyNever(const Entry& one) const;
  bool allows(size_t candidate, Collective collective) const {
    return (allowed_[candidate] >> static_cast<int>(collective) & 1) != 0;
  }
  Obstacle obstacleOf(const Entry& entry, const SelectorInput& input) const;
  using Protocols = std::vector<Protocol>;
  /// Of a collective: those that exist here and the user allows.
  const Protocols& protocols(const SelectorInput& input) const {
    return protocol_[static_cast<size_t>(input.collective)];
  }
  Offer bestOffer(const Candidate& candidate, const SelectorInput& input, const MachineCosts& costs,
                  int32_t channels, std::optional<Protocol> protocol = {}) const;
  Offer cpuOffer(const Candidate& candidate, const SelectorInput& input, const MachineCosts& costs,
                 int32_t channels) const;
  Offer kernelOffer(const Candidate& candidate, const SelectorInput& input, Protocol protocol,
                    int32_t channels) const;
  std::string_view here() const { return settings_.kernels ? "on GPUs here" : "on CPUs"; }
  std::span<const Protocol> existingProtocols() const {
    return settings_.kernels ? protocolsOfKernels(settings_.kernels->wholeLines) : protocolsOfCpus();
  }
  std::string describe(Obstacle obstacle, std::string_view algorithm, const SelectorInput& input) const;
  static void take(const Offer& offer, Choice* choice);
  void chooseByPrice(const SelectorInput& input, const MachineCosts& costs, Choice* best) const;
  bool chooseByFile(const SelectorInput& input, const MachineCosts& costs, Choice* best) const;
  Status nothingLeft(const SelectorInput& input) const;

  std::shared_ptr<const CandidateSet> candidates_;
  SelectorSettings settings_;
  AlgorithmFilter algorithms_;
  ProtocolFilter protocols_;
  std::vector<uint32_t> allowed_;              // by candidate, a bit for each collective
  std::array<Protocols, 9> protocol_;          // by collective; none: the settings leave none
  std::array<std::vector<Entry>, 9> entries_;  // by collective, in the file's order
};

/// What keeps the algorithm from running the call, whatever the user says.
Obstacle obstacleOf(const Candidate& candidate, const SelectorInput& input);
/// Seconds that a candidate would take on that many channels; in `blocks`, ScheduleRequest::blocks for this.
/// Infinity where there is no closed form.
double predictedSeconds(const Candidate& candidate, const SelectorInput& input, const MachineCosts& costs,
                        int32_t channels, int32_t* blocks = nullptr);
/// The numbers of channels that a candidate may have, ascending: 1, 2, 4, ... and the most.
std::vector<int32_t> channelCounts(const Candidate& candidate, const SelectorInput& input);

/// Among the shipped algorithms, with NCCL_ALGO as it stands in the environment. For tools and tests: it
/// makes a selector.
Result<Choice> choose(const SelectorInput& input, std::string_view ncclAlgo);

}  // namespace tutti
