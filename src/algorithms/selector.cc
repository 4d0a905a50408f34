#include "algorithms/selector.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace tutti {
namespace {

std::string describe(Obstacle obstacle, std::string_view algorithm, const SelectorInput& input) {
  switch (obstacle) {
    case Obstacle::none:
      return {};
    case Obstacle::unknown:
      return fmt::format("{} does not exist on CPUs", algorithm);
    case Obstacle::forbidden:
      return fmt::format("{} is not allowed for {}", algorithm, name(input.collective));
    case Obstacle::protocol:
      return fmt::format("the protocol is not on CPUs, or not allowed for {}", name(input.collective));
    case Obstacle::collective:
      return fmt::format("{} does not implement {} on {} ranks", algorithm, name(input.collective),
                         input.ranks);
    case Obstacle::size:
      return fmt::format("{} is not for {} bytes", algorithm, input.bytes);
    case Obstacle::root:
      return fmt::format("{} is not for root {}", algorithm, input.root);
    case Obstacle::severalHosts:
      return fmt::format(
          "{} needs several hosts, and one of them with several ranks that share memory; there are {} hosts "
          "and {} ranks",
          algorithm, input.hosts, input.ranks);
    case Obstacle::oneHost:
      return fmt::format("{} needs all ranks on one host with shared memory, and there are {} hosts",
                         algorithm, input.hosts);
    case Obstacle::mappedBuffers:
      return fmt::format("{} needs buffers that all ranks can map (ncclMemAlloc, ncclCommRegister){}",
                         algorithm,
                         input.collective == Collective::allToAll ? ", and no rank may call in place" : "");
  }
  return {};
}

/// The most channels that the algorithm may have: each rail of a channel is a connection.
int32_t mostChannels(const Candidate& candidate, const SelectorInput& input) {
  const int32_t rails = candidate.medium == Medium::hosts ? std::max(1, input.rails) : 1;
  return std::max(1, input.maxChannels / rails);
}

bool sharesMemory(const SelectorInput& input) { return input.allMapped || input.ranks == 1; }

}  // namespace

Obstacle obstacleOf(const Candidate& candidate, const SelectorInput& input) {
  if (!candidate.implements(input.collective, input.ranks)) return Obstacle::collective;
  if (input.bytes < candidate.minBytes || input.bytes > candidate.maxBytes) return Obstacle::size;
  if (candidate.onlyRoot >= 0 && hasRoot(input.collective) && candidate.onlyRoot != input.root)
    return Obstacle::root;
  if (input.ranks == 1) return Obstacle::none;
  if (candidate.medium == Medium::hosts)
    return input.hosts > 1 && input.hosts < input.ranks ? Obstacle::none : Obstacle::severalHosts;
  if (candidate.medium != Medium::messages && !input.allMapped) return Obstacle::oneHost;
  if (candidate.medium == Medium::userBuffers && !input.zeroCopyUsable) return Obstacle::mappedBuffers;
  return Obstacle::none;
}

double predictedSeconds(const Candidate& candidate, const SelectorInput& input, const MachineCosts& costs,
                        int32_t channels, int32_t* blocks) {
  const CostParameters& main = sharesMemory(input) ? costs.shared : costs.network;
  CostQuery query{.algorithm = candidate.name,
                  .collective = input.collective,
                  .ranks = input.ranks,
                  .bytes = input.bytes,
                  .hosts = input.hosts,
                  .channels = channels};
  if (candidate.price) return candidate.price(query, main);
  if (pipelinesBlocks(candidate.name, input.collective)) query.blocks = bestBlocks(query, main);
  if (blocks != nullptr) *blocks = query.blocks;
  if (sharesMemory(input) || input.hosts == input.ranks) return predictSeconds(query, main);
  const int32_t rails = candidate.medium == Medium::hosts ? std::max(1, input.rails) : 1;
  TwoLevelCosts both{costs.shared, forChannels(costs.network, channels)};
  both.between.beta = forChannels(costs.network, channels * rails).beta;
  return predictSeconds(query, both);
}

std::vector<int32_t> channelCounts(const Candidate& candidate, const SelectorInput& input) {
  const int32_t most = mostChannels(candidate, input);
  std::vector<int32_t> counts;
  for (int32_t count = 1; count < most; count *= 2) counts.push_back(count);
  counts.push_back(most);
  return counts;
}

/// How a candidate would run a call.
struct Selector::Offer {
  double seconds = std::numeric_limits<double>::infinity();
  int32_t channels = 1;
  int32_t blocks = 0;
};

Selector::Selector(std::shared_ptr<const CandidateSet> candidates, SelectorSettings settings,
                   AlgorithmFilter algorithms, ProtocolFilter protocols)
    : candidates_(std::move(candidates)),
      settings_(std::move(settings)),
      algorithms_(std::move(algorithms)),
      protocols_(std::move(protocols)) {
  for (const Candidate& candidate : *candidates_) {
    uint32_t& bits = allowed_.emplace_back(0);
    for (size_t i = 0; i < protocol_.size(); ++i) {
      const auto collective = static_cast<Collective>(i);
      const bool allowed = candidate.forAllCalls() ? algorithms_.allows(collective, candidate.name)
                                                   : algorithms_.demands(collective, candidate.name);
      if (allowed) bits |= uint32_t{1} << i;
    }
  }
  for (size_t i = 0; i < protocol_.size(); ++i)
    for (const Protocol protocol : protocolsHere())
      if (!protocol_[i] && protocols_.allows(static_cast<Collective>(i), name(protocol)))
        protocol_[i] = protocol;
}

Result<Selector> Selector::create(std::shared_ptr<const CandidateSet> candidates, SelectorSettings settings) {
  TUTTI_ASSIGN(AlgorithmFilter algorithms,
               AlgorithmFilter::parse(settings.algo, candidates->namesOfOthers(), settings.algoName));
  TUTTI_ASSIGN(ProtocolFilter protocols, ProtocolFilter::parse(settings.proto, settings.protoName));
  Selector made(std::move(candidates), std::move(settings), std::move(algorithms), std::move(protocols));
  TUTTI_TRY(made.resolveEntries());
  return made;
}

Status Selector::resolveEntries() {
  if (settings_.tuning == nullptr) return Status::ok();
  for (const TuningEntry& entry : settings_.tuning->entries()) {
    const Candidate* candidate = candidates_->find(entry.algorithm);
    if (candidate == nullptr && !isNameOfNccl(entry.algorithm))
      return invalidUsage("{}:{}: \"{}\" is no algorithm; tutti-info lists them", settings_.tuning->path(),
                          entry.line, entry.algorithm);
    const size_t index = candidate == nullptr ? 0 : static_cast<size_t>(candidate - &*candidates_->begin());
    entries_[static_cast<size_t>(entry.collective)].push_back({&entry, candidate, index});
  }
  return Status::ok();
}

MachineCosts Selector::costs(const SelectorInput& input) const {
  MachineCosts costs{sharedMemoryCosts(), tcpCosts(input.linkBandwidth)};
  if (settings_.tuning != nullptr) {
    costs.shared = settings_.tuning->apply(costs.shared, CostMedium::shared);
    costs.network = settings_.tuning->apply(costs.network, CostMedium::network);
  }
  if (input.crowded) costs = {crowded(costs.shared), crowded(costs.network)};
  if (input.sliceBytes > 0) costs.shared.sliceBytes = costs.network.sliceBytes = input.sliceBytes;
  return costs;
}

/// On `channels` channels, or, when that is 0, on as many as are fastest. More channels must bring something:
/// they cost memory.
Selector::Offer Selector::bestOffer(const Candidate& candidate, const SelectorInput& input,
                                    const MachineCosts& costs, int32_t channels) const {
  constexpr double kWorthwhile = 0.98;
  const int32_t most = mostChannels(candidate, input);
  Offer best;
  if (channels > 0 || sharesMemory(input)) {
    best.channels = std::clamp(channels, 1, most);
    best.seconds = predictedSeconds(candidate, input, costs, best.channels, &best.blocks);
    return best;
  }
  for (int32_t count = 1;; count = std::min(2 * count, most)) {
    Offer offer{.channels = count};
    offer.seconds = predictedSeconds(candidate, input, costs, count, &offer.blocks);
    if (count == 1 || offer.seconds < kWorthwhile * best.seconds) best = offer;
    if (count == most) return best;
  }
}

Status Selector::nothingLeft(const SelectorInput& input) const {
  if (!protocol_[static_cast<size_t>(input.collective)])
    return invalidUsage("{} leaves no protocol for {}: there is only simple on CPUs", protocols_.describe(),
                        name(input.collective));
  std::string reasons;
  for (size_t i = 0; i < candidates_->size(); ++i) {
    const Candidate& candidate = (*candidates_)[i];
    if (allows(i, input.collective))
      reasons += "; " + describe(tutti::obstacleOf(candidate, input), candidate.name, input);
  }
  return invalidUsage("{} leaves no algorithm for {} on {} ranks{}", algorithms_.describe(),
                      name(input.collective), input.ranks,
                      reasons.empty() ? "; none of those named exists here" : reasons);
}

void Selector::chooseByPrice(const SelectorInput& input, const MachineCosts& costs, Choice* best) const {
  int possible = 0;
  for (size_t i = 0; i < candidates_->size(); ++i) {
    const Candidate& candidate = (*candidates_)[i];
    if (!allows(i, input.collective) || tutti::obstacleOf(candidate, input) != Obstacle::none) continue;
    ++possible;
    const Offer offer = bestOffer(candidate, input, costs, settings_.channels);
    const bool isFirst = best->algorithm == nullptr;
    const bool samePlace = isFirst || candidate.preferred == best->algorithm->preferred;
    if (isFirst || (samePlace ? offer.seconds < best->predictedSeconds : candidate.preferred)) {
      best->runnerUp = best->algorithm;
      best->runnerUpSeconds = best->predictedSeconds;
      best->algorithm = &candidate;
      best->predictedSeconds = offer.seconds;
      best->channels = offer.channels;
      best->blocks = offer.blocks;
    } else if (best->runnerUp == nullptr || offer.seconds < best->runnerUpSeconds) {
      best->runnerUp = &candidate;
      best->runnerUpSeconds = offer.seconds;
    }
  }
  if (best->algorithm == nullptr) return;
  best->reason = best->algorithm->preferred ? Choice::Reason::algorithmFile : Choice::Reason::prediction;
  if (possible == 1 && !algorithms_.empty()) best->reason = Choice::Reason::demand;
}

Obstacle Selector::obstacleOf(const Entry& entry, const SelectorInput& input) const {
  if (entry.candidate == nullptr) return Obstacle::unknown;
  if (!allows(entry.index, input.collective)) return Obstacle::forbidden;
  const auto& allowed = protocol_[static_cast<size_t>(input.collective)];
  if (entry.entry->protocol && entry.entry->protocol != allowed) return Obstacle::protocol;
  return tutti::obstacleOf(*entry.candidate, input);
}

bool Selector::chooseByFile(const SelectorInput& input, const MachineCosts& costs, Choice* best) const {
  for (const Entry& one : entries_[static_cast<size_t>(input.collective)]) {
    const TuningEntry& entry = *one.entry;
    if (!entry.matches(input.collective, input.bytes, input.ranks, input.hosts, input.zeroCopyUsable))
      continue;
    if (const Obstacle obstacle = obstacleOf(one, input); obstacle != Obstacle::none) {
      if (best->skippedLine != 0) continue;
      best->skippedLine = entry.line;
      best->skippedFor = obstacle;
      continue;
    }
    const int32_t channels = settings_.channels > 0 ? settings_.channels : entry.channels.value_or(0);
    const Offer offer = bestOffer(*one.candidate, input, costs, channels);
    if (one.candidate != best->algorithm) {
      best->runnerUp = best->algorithm;
      best->runnerUpSeconds = best->predictedSeconds;
    }
    best->algorithm = one.candidate;
    best->channels = offer.channels;
    best->blocks = offer.blocks;
    best->predictedSeconds = offer.seconds;
    best->reason = Choice::Reason::tuningFile;
    best->line = entry.line;
    return true;
  }
  return false;
}

Result<Choice> Selector::choose(const SelectorInput& input) const {
  const std::optional<Protocol> protocol = protocol_[static_cast<size_t>(input.collective)];
  if (!protocol) return nothingLeft(input);
  const MachineCosts costs = this->costs(input);
  Choice best;
  best.protocol = *protocol;
  chooseByPrice(input, costs, &best);
  if (best.algorithm == nullptr) return nothingLeft(input);
  chooseByFile(input, costs, &best);
  return best;
}

std::string Selector::reasonText(const Choice& choice) const {
  switch (choice.reason) {
    case Choice::Reason::demand:
      return algorithms_.describe();
    case Choice::Reason::tuningFile:
      return fmt::format("{}:{}", settings_.tuning->path(), choice.line);
    case Choice::Reason::algorithmFile:
      return "algorithm from a file";
    default:
      return "prediction";
  }
}

std::string Selector::skippedText(const Choice& choice, const SelectorInput& input) const {
  if (choice.skippedLine == 0) return {};
  for (const Entry& one : entries_[static_cast<size_t>(input.collective)])
    if (one.entry->line == choice.skippedLine)
      return fmt::format("{}:{} is not followed: {}", settings_.tuning->path(), choice.skippedLine,
                         describe(choice.skippedFor, one.entry->algorithm, input));
  return {};
}

Result<Choice> choose(const SelectorInput& input, std::string_view ncclAlgo) {
  SelectorSettings settings;
  settings.algo = ncclAlgo;
  TUTTI_ASSIGN(const Selector selector, Selector::create(CandidateSet::sharedShipped(), std::move(settings)));
  return selector.choose(input);
}

}  // namespace tutti
