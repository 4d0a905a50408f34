#include "algorithms/selector.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace tutti {
namespace {

enum class Obstacle : uint8_t { none, collective, size, severalHosts, oneHost, mappedBuffers };

/// What keeps the algorithm from running the call.
Obstacle obstacleOf(const Candidate& candidate, const SelectorInput& input) {
  if (!candidate.implements(input.collective, input.ranks)) return Obstacle::collective;
  if (input.bytes < candidate.minBytes || input.bytes > candidate.maxBytes) return Obstacle::size;
  if (input.ranks == 1) return Obstacle::none;
  if (candidate.medium == Medium::hosts)
    return input.hosts > 1 && input.hosts < input.ranks ? Obstacle::none : Obstacle::severalHosts;
  if (candidate.medium != Medium::messages && !input.allMapped) return Obstacle::oneHost;
  if (candidate.medium == Medium::userBuffers && !input.zeroCopyUsable) return Obstacle::mappedBuffers;
  return Obstacle::none;
}

std::string describe(Obstacle obstacle, const Candidate& candidate, const SelectorInput& input) {
  switch (obstacle) {
    case Obstacle::collective:
      return fmt::format("{} does not implement {} on {} ranks", candidate.name, name(input.collective),
                         input.ranks);
    case Obstacle::size:
      return fmt::format("{} is for {} to {} bytes", candidate.name, candidate.minBytes, candidate.maxBytes);
    case Obstacle::severalHosts:
      return fmt::format(
          "{} needs several hosts, and one of them with several ranks that share memory; there are {} hosts "
          "and {} "
          "ranks",
          candidate.name, input.hosts, input.ranks);
    case Obstacle::oneHost:
      return fmt::format("{} needs all ranks on one host with shared memory, and there are {} hosts",
                         candidate.name, input.hosts);
    case Obstacle::mappedBuffers:
      return fmt::format("{} needs buffers that all ranks can map (ncclMemAlloc, ncclCommRegister){}",
                         candidate.name,
                         input.collective == Collective::allToAll ? ", and no rank may call in place" : "");
    default:
      return {};
  }
}

CostParameters costsOf(const SelectorInput& input) {
  return input.allMapped || input.ranks == 1 ? sharedMemoryCosts() : tcpCosts(input.linkBandwidth);
}

int32_t channelsFor(const Candidate& candidate, const SelectorInput& input) {
  if (input.allMapped) return 1;
  const int32_t rails = candidate.medium == Medium::hosts ? std::max(1, input.rails) : 1;
  const auto most = static_cast<size_t>(std::max(1, input.maxChannels / rails));
  return static_cast<int32_t>(
      std::clamp<size_t>(input.bytes / kBytesPerChannel / static_cast<size_t>(rails), 1, most));
}

}  // namespace

/// How a candidate would run a call.
struct Selector::Offer {
  double seconds = std::numeric_limits<double>::infinity();
  int32_t channels = 1;
  int32_t blocks = 0;
};

Selector::Selector(CandidateSet candidates, AlgorithmFilter algorithms, ProtocolFilter protocols)
    : candidates_(std::move(candidates)),
      algorithms_(std::move(algorithms)),
      protocols_(std::move(protocols)) {
  for (const Candidate& candidate : candidates_) {
    uint32_t& bits = allowed_.emplace_back(0);
    for (int i = 0; i < static_cast<int>(protocol_.size()); ++i)
      if (algorithms_.allows(static_cast<Collective>(i), candidate.name)) bits |= uint32_t{1} << i;
  }
  for (size_t i = 0; i < protocol_.size(); ++i)
    for (const Protocol protocol : protocolsHere())
      if (!protocol_[i] && protocols_.allows(static_cast<Collective>(i), name(protocol)))
        protocol_[i] = protocol;
}

Result<Selector> Selector::create(CandidateSet candidates, const SelectorSettings& settings) {
  TUTTI_ASSIGN(AlgorithmFilter algorithms, AlgorithmFilter::parse(settings.algo, candidates.namesOfOthers()));
  TUTTI_ASSIGN(ProtocolFilter protocols, ProtocolFilter::parse(settings.proto));
  return Selector(std::move(candidates), std::move(algorithms), std::move(protocols));
}

Selector::Offer Selector::bestOffer(const Candidate& candidate, const SelectorInput& input,
                                    const CostParameters& costs) const {
  Offer offer;
  offer.channels = channelsFor(candidate, input);
  offer.seconds =
      candidate.seconds({candidate.name, input.collective, input.ranks, input.bytes, input.hosts}, costs);
  return offer;
}

Status Selector::nothingLeft(const SelectorInput& input) const {
  if (!protocol_[static_cast<size_t>(input.collective)])
    return invalidUsage("{} leaves no protocol for {}: there is only simple on CPUs", protocols_.describe(),
                        name(input.collective));
  std::string reasons;
  for (size_t i = 0; i < candidates_.size(); ++i)
    if (allows(i, input.collective))
      reasons += "; " + describe(obstacleOf(candidates_[i], input), candidates_[i], input);
  return invalidUsage("{} leaves no algorithm for {} on {} ranks{}", algorithms_.describe(),
                      name(input.collective), input.ranks,
                      reasons.empty() ? "; none of those named exists here" : reasons);
}

Result<Choice> Selector::choose(const SelectorInput& input) const {
  const std::optional<Protocol> protocol = protocol_[static_cast<size_t>(input.collective)];
  if (!protocol) return nothingLeft(input);
  const CostParameters costs = costsOf(input);
  Choice best;
  best.protocol = *protocol;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const Candidate& candidate = candidates_[i];
    if (!allows(i, input.collective) || obstacleOf(candidate, input) != Obstacle::none) continue;
    const Offer offer = bestOffer(candidate, input, costs);
    const bool preferred = candidate.preferred && (best.algorithm == nullptr || !best.algorithm->preferred);
    const bool outranked = best.algorithm != nullptr && best.algorithm->preferred && !candidate.preferred;
    const bool better =
        best.algorithm == nullptr || preferred || (!outranked && offer.seconds < best.predictedSeconds);
    if (!better) {
      if (best.runnerUp != nullptr && offer.seconds >= best.runnerUpSeconds) continue;
      best.runnerUp = &candidate;
      best.runnerUpSeconds = offer.seconds;
      continue;
    }
    best.runnerUp = best.algorithm;
    best.runnerUpSeconds = best.predictedSeconds;
    best.algorithm = &candidate;
    best.predictedSeconds = offer.seconds;
    best.channels = offer.channels;
    best.blocks = offer.blocks;
    best.reason = candidate.preferred ? Choice::Reason::algorithmFile : Choice::Reason::prediction;
  }
  if (best.algorithm == nullptr) return nothingLeft(input);
  return best;
}

Result<Choice> choose(const SelectorInput& input, std::string_view ncclAlgo) {
  // Choices point into it.
  static const auto& kShipped = *new CandidateSet(CandidateSet::shipped());
  TUTTI_ASSIGN(const Selector selector,
               Selector::create(CandidateSet::shipped(), {.algo = std::string(ncclAlgo), .proto = ""}));
  TUTTI_ASSIGN(Choice choice, selector.choose(input));
  choice.algorithm = kShipped.find(choice.algorithm->name);
  if (choice.runnerUp != nullptr) choice.runnerUp = kShipped.find(choice.runnerUp->name);
  return choice;
}

}  // namespace tutti
