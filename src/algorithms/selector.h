// Which algorithm runs a call.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/cost_model.h"
#include "algorithms/registry.h"
#include "base/status.h"

namespace tutti {

/// NCCL_ALGO, parsed: which algorithms may be used for which collective. The form is
/// `[list][;function:list...]`, where a list is comma-separated names, with ^ in front to mean all others;
/// function is one of broadcast, reduce, allgather, reducescatter, allreduce, and (ours) alltoall, gather,
/// scatter, for which the general list does not count. Names are NCCL's and our own, in any case. A
/// function's own list replaces the general one. Empty: everything is allowed.
class AlgorithmFilter {
 public:
  /// Errors (invalidUsage) name the token that is unknown and what is known.
  static Result<AlgorithmFilter> parse(std::string_view text);

  bool allows(Collective collective, std::string_view algorithm) const;
  const std::string& text() const { return text_; }

 private:
  struct List {
    bool inverted = false;
    std::set<std::string> names;
  };
  static Result<List> parseList(std::string_view text);

  std::string text_;
  bool hasGeneral_ = false;
  List general_;
  std::map<Collective, List> own_;
};

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
  const Algorithm* algorithm = nullptr;
  int32_t channels = 1;
  double predictedSeconds = 0;
};

/// The allowed algorithm with the least predicted time. Where the user's NCCL_ALGO leaves none that can run
/// this call, the error (invalidUsage) says so and why: there is no silent fallback.
Result<Choice> choose(const SelectorInput& input, const AlgorithmFilter& filter);
/// The same with NCCL_ALGO as it stands in the environment.
Result<Choice> choose(const SelectorInput& input, std::string_view ncclAlgo);

/// Channels for a call of `bytes`: one inside a host, else one for each kBytesPerChannel up to the most.
/// Where a channel has several rails, each of them counts: what keeps a link busy are connections.
constexpr size_t kBytesPerChannel = 512 * 1024;

}  // namespace tutti
