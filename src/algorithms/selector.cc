#include "algorithms/selector.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tutti {
namespace {

// Names of NCCL that we do not have: known words, so that a setting made for NCCL is not called a typo.
constexpr std::array<std::string_view, 4> kNamesOfNccl = {"collnetdirect", "collnetchain", "nvls",
                                                          "nvlstree"};

constexpr std::array<std::pair<std::string_view, Collective>, 8> kFunctions = {{
    {"broadcast", Collective::broadcast},
    {"reduce", Collective::reduce},
    {"allgather", Collective::allGather},
    {"reducescatter", Collective::reduceScatter},
    {"allreduce", Collective::allReduce},
    {"alltoall", Collective::allToAll},
    {"gather", Collective::gather},
    {"scatter", Collective::scatter},
}};

/// Collectives that NCCL makes of point-to-point messages, for which it has no choice of algorithms: a list
/// without a function ("NCCL_ALGO=Ring") is not meant for them.
bool needsOwnList(Collective collective) {
  return collective == Collective::allToAll || collective == Collective::gather ||
         collective == Collective::scatter;
}

std::string lowerTrimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  std::string result(text.substr(first, text.find_last_not_of(" \t") - first + 1));
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return result;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  for (size_t from = 0; from <= text.size();) {
    const size_t end = std::min(text.find(separator, from), text.size());
    pieces.push_back(text.substr(from, end - from));
    from = end + 1;
  }
  return pieces;
}

std::string knownNames() {
  std::string names;
  for (const Algorithm& algorithm : algorithms())
    names += (names.empty() ? "" : ", ") + std::string(algorithm.name);
  for (const std::string_view name : kNamesOfNccl) names += ", " + std::string(name);
  return names;
}

/// Why the algorithm cannot run the call; empty when it can.
std::string whyNot(const Algorithm& algorithm, const SelectorInput& input) {
  if (!algorithm.implements(input.collective, input.ranks))
    return fmt::format("{} does not implement {} on {} ranks", algorithm.name, name(input.collective),
                       input.ranks);
  if (input.ranks == 1) return {};
  if (algorithm.medium == Medium::hosts) {
    if (input.hosts > 1 && input.hosts < input.ranks) return {};
    return fmt::format(
        "{} needs several hosts, and one of them with several ranks that share memory; there are "
        "{} hosts and {} ranks",
        algorithm.name, input.hosts, input.ranks);
  }
  if (algorithm.medium != Medium::messages && !input.allMapped)
    return fmt::format("{} needs all ranks on one host with shared memory, and there are {} hosts",
                       algorithm.name, input.hosts);
  if (algorithm.medium == Medium::userBuffers && !input.zeroCopyUsable)
    return fmt::format("{} needs buffers that all ranks can map (ncclMemAlloc, ncclCommRegister){}",
                       algorithm.name,
                       input.collective == Collective::allToAll ? ", and no rank may call in place" : "");
  return {};
}

}  // namespace

Result<AlgorithmFilter::List> AlgorithmFilter::parseList(std::string_view text) {
  List list;
  std::string names = lowerTrimmed(text);
  if (!names.empty() && names[0] == '^') {
    list.inverted = true;
    names.erase(0, 1);
  }
  for (const std::string_view piece : split(names, ',')) {
    const std::string word = lowerTrimmed(piece);
    if (word.empty()) return invalidUsage("an algorithm's name is missing in \"{}\"", text);
    if (findAlgorithm(word) == nullptr && std::ranges::find(kNamesOfNccl, word) == kNamesOfNccl.end())
      return invalidUsage("\"{}\" is no algorithm; known are {}", word, knownNames());
    list.names.insert(word);
  }
  return list;
}

Result<AlgorithmFilter> AlgorithmFilter::parse(std::string_view text) {
  AlgorithmFilter filter;
  filter.text_ = text;
  for (const std::string_view piece : split(text, ';')) {
    if (lowerTrimmed(piece).empty()) continue;
    const size_t colon = piece.find(':');
    auto list = parseList(colon == std::string_view::npos ? piece : piece.substr(colon + 1));
    if (!list.isOk()) return list.status().withContext("NCCL_ALGO={}", text);
    if (colon == std::string_view::npos) {
      if (filter.hasGeneral_)
        return invalidUsage("NCCL_ALGO={}: two lists without a function; write function:list", text);
      filter.hasGeneral_ = true;
      filter.general_ = std::move(list).value();
      continue;
    }
    const std::string function = lowerTrimmed(piece.substr(0, colon));
    const auto known = std::ranges::find(kFunctions, std::string_view(function),
                                         &std::pair<std::string_view, Collective>::first);
    if (known == kFunctions.end())
      return invalidUsage(
          "NCCL_ALGO={}: \"{}\" is no function; known are broadcast, reduce, allgather, reducescatter, "
          "allreduce, alltoall, gather, scatter",
          text, function);
    filter.own_[known->second] = std::move(list).value();
  }
  return filter;
}

bool AlgorithmFilter::allows(Collective collective, std::string_view algorithm) const {
  const auto own = own_.find(collective);
  if (own == own_.end() && (!hasGeneral_ || needsOwnList(collective))) return true;
  const List& list = own == own_.end() ? general_ : own->second;
  return list.names.contains(std::string(algorithm)) != list.inverted;
}

Result<Choice> choose(const SelectorInput& input, const AlgorithmFilter& filter) {
  const CostParameters costs =
      input.allMapped || input.ranks == 1 ? sharedMemoryCosts() : tcpCosts(input.linkBandwidth);
  Choice best;
  std::string reasons;
  for (const Algorithm& algorithm : algorithms()) {
    if (!filter.allows(input.collective, algorithm.name)) continue;
    if (const std::string reason = whyNot(algorithm, input); !reason.empty()) {
      reasons += "; " + reason;
      continue;
    }
    const double seconds =
        predictSeconds({algorithm.name, input.collective, input.ranks, input.bytes, input.hosts}, costs);
    if (best.algorithm != nullptr && seconds >= best.predictedSeconds) continue;
    best.algorithm = &algorithm;
    best.predictedSeconds = seconds;
  }
  if (best.algorithm == nullptr)
    return invalidUsage("NCCL_ALGO={} leaves no algorithm for {} on {} ranks{}", filter.text(),
                        name(input.collective), input.ranks,
                        reasons.empty() ? "; none of those named exists here" : reasons);
  if (!input.allMapped) {
    const int32_t rails = best.algorithm->medium == Medium::hosts ? std::max(1, input.rails) : 1;
    const auto most = static_cast<size_t>(std::max(1, input.maxChannels / rails));
    best.channels = static_cast<int32_t>(
        std::clamp<size_t>(input.bytes / kBytesPerChannel / static_cast<size_t>(rails), 1, most));
  }
  return best;
}

Result<Choice> choose(const SelectorInput& input, std::string_view ncclAlgo) {
  TUTTI_ASSIGN(const AlgorithmFilter filter, AlgorithmFilter::parse(ncclAlgo));
  return choose(input, filter);
}

}  // namespace tutti
