// NCCL_ALGO and NCCL_PROTO: which algorithms and protocols the user lets collectives use.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/schedule.h"
#include "base/status.h"

namespace tutti {

/// How data and their arrival travel: in slots with a counter (simple), or with a flag beside each 4 (ll) or
/// each 120 bytes (ll128). CPUs have the first only; the others belong to kernels.
enum class Protocol : uint8_t { simple, ll, ll128 };
/// "simple", "ll", "ll128".
const char* name(Protocol protocol);
std::optional<Protocol> findProtocol(std::string_view name);
/// Those that the executor has: CPUs `simple`, kernels all three, of which ll128 needs links that keep
/// 128-byte stores whole.
std::span<const Protocol> protocolsOfCpus();
std::span<const Protocol> protocolsOfKernels(bool wholeLines);

/// The collective that NCCL_ALGO, tuning files and tutti/tutti.h call by that name, in any case: allreduce,
/// allgather, reducescatter, broadcast, reduce, alltoall, gather, scatter.
std::optional<Collective> findFunction(std::string_view name);
/// That name.
std::string_view functionName(Collective collective);
/// The eight names, for messages.
std::string knownFunctions();

/// The names that NCCL_ALGO and tuning files may have, for messages: shipped algorithms, `more`, and NCCL's.
std::string knownAlgorithms(std::span<const std::string> more);

/// What NCCL_ALGO and NCCL_PROTO have in common. The form is `[list][;function:list...]`, where a list is
/// comma-separated names, with ^ in front to mean all others. For functions that NCCL makes of messages
/// (alltoall, gather, scatter) the general list does not count, since NCCL has no choice there. Names are
/// known ones, in any case. A function's own list replaces the general one. Empty: everything is allowed.
class ChoiceFilter {
 public:
  /// A name also stands for those that continue it after a slash: hierarchical for hierarchical/ring/ring.
  bool allows(Collective collective, std::string_view name) const;
  /// True where the list that counts for the collective has the name, and does not exclude it.
  bool demands(Collective collective, std::string_view name) const;
  /// "NCCL_ALGO=ring"; what errors begin with.
  std::string describe() const { return variable_ + text_; }
  bool empty() const { return !hasGeneral_ && own_.empty(); }

 protected:
  struct Words {
    std::string_view variable;                    // "NCCL_ALGO="
    std::string_view noun;                        // "algorithm"
    std::function<bool(std::string_view)> known;  // of a word in lower case
    std::function<std::string()> all;             // for the message about an unknown one
  };
  Status read(std::string_view text, const Words& words);

 private:
  struct List {
    bool inverted = false;
    std::set<std::string, std::less<>> names;
    bool has(std::string_view name) const;
  };
  static Result<List> parseList(std::string_view text, const Words& words);

  /// The list that counts for the collective; null: none does.
  const List* listFor(Collective collective) const;

  std::string variable_;
  std::string text_;
  bool hasGeneral_ = false;
  List general_;
  std::map<Collective, List> own_;
};

/// NCCL_ALGO. Names are NCCL's and our own, and `more` (algorithms from files).
class AlgorithmFilter : public ChoiceFilter {
 public:
  /// Errors (invalidUsage) name the token that is unknown and what is known.
  /// `variable`: what errors call the text.
  static Result<AlgorithmFilter> parse(std::string_view text, std::span<const std::string> more = {},
                                       std::string_view variable = "NCCL_ALGO=");
};

/// NCCL_PROTO.
class ProtocolFilter : public ChoiceFilter {
 public:
  static Result<ProtocolFilter> parse(std::string_view text, std::string_view variable = "NCCL_PROTO=");
};

/// True for a word that names an algorithm of NCCL, which may not exist here: a setting made for NCCL is no
/// typo.
bool isNameOfNccl(std::string_view name);

}  // namespace tutti
