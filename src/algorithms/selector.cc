#include "algorithms/selector.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/text.h"

namespace tutti {
namespace {

std::string textOf(Obstacle obstacle, std::string_view algorithm, const SelectorInput& input,
                   std::string_view here) {
  switch (obstacle) {
    case Obstacle::none:
      return {};
    case Obstacle::unknown:
      return fmt::format("{} does not exist {}", algorithm, here);
    case Obstacle::forbidden:
      return fmt::format("{} is not allowed for {}", algorithm, name(input.collective));
    case Obstacle::protocol:
      return fmt::format("{} does not have the protocol {}, or it is not allowed for {}", algorithm, here,
                         name(input.collective));
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
    case Obstacle::memory:
      return fmt::format(
          "{} on {} ranks does not fit the communicator's buffers: not even 64 bytes a segment "
          "(NCCL_BUFFSIZE makes them "
          "larger)",
          algorithm, input.ranks);
  }
  return {};
}

/// The most channels that the algorithm may have: each rail of a channel is a connection.
int32_t mostChannels(const Candidate& candidate, const SelectorInput& input) {
  const int32_t rails = candidate.medium == Medium::hosts ? std::max(1, input.rails) : 1;
  return std::max(1, input.maxChannels / rails);
}

/// ", did you mean ring? Known are ...".
std::string suggestion(std::string_view word, std::span<const std::string> others) {
  const std::string known = knownAlgorithms(others);
  // A name of three letters is not like one that differs in three.
  const size_t alike = std::min<size_t>(3, word.size() / 2);
  std::string_view best;
  size_t least = alike + 1;
  for (const std::string_view piece : splitAt(known, ',')) {
    const std::string_view name = piece.substr(piece.starts_with(' ') ? 1 : 0);
    const size_t distance = editDistance(word, name);
    if (distance >= least) continue;
    least = distance;
    best = name;
  }
  return (best.empty() ? "; known are " : fmt::format(", did you mean {}? Known are ", best)) + known;
}

bool sharesMemory(const SelectorInput& input) { return input.allMapped || input.ranks == 1; }

/// Where ranks work in each other's memory, flags order what they do: there are no messages that a protocol
/// could carry.
bool hasProtocol(const Candidate& candidate, Protocol protocol) {
  return protocol == Protocol::simple || candidate.medium == Medium::messages;
}

}  // namespace

std::string Selector::describe(Obstacle obstacle, std::string_view algorithm,
                               const SelectorInput& input) const {
  return textOf(obstacle, algorithm, input, here());
}

Obstacle obstacleOf(const Candidate& candidate, const SelectorInput& input) {
  if (input.tooLarge != nullptr && std::ranges::find(*input.tooLarge, &candidate) != input.tooLarge->end())
    return Obstacle::memory;
  if (!candidate.implements(input.collective, input.ranks)) return Obstacle::collective;
  if (input.bytes < candidate.minBytes || input.bytes > candidate.maxBytes) return Obstacle::size;
  if (candidate.onlyRoot >= 0 && hasRoot(input.collective) && input.root >= 0 &&
      candidate.onlyRoot != input.root)
    return Obstacle::root;
  if (input.ranks == 1) return Obstacle::none;
  if (candidate.medium == Medium::hosts)
    return input.hosts > 1 && input.hosts < input.ranks ? Obstacle::none : Obstacle::severalHosts;
  if (candidate.medium != Medium::messages && !input.allMapped) return Obstacle::oneHost;
  if (candidate.medium == Medium::userBuffers && !input.zeroCopyUsable) return Obstacle::mappedBuffers;
  return Obstacle::none;
}

MachineCosts costsFor(MachineCosts costs, const SelectorInput& input) {
  if (input.crowded) costs = {crowded(costs.shared), crowded(costs.network)};
  if (input.sliceBytes > 0) costs.shared.sliceBytes = costs.network.sliceBytes = input.sliceBytes;
  return costs;
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
  Protocol protocol = Protocol::simple;
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
    for (const Protocol protocol : existingProtocols())
      if (protocols_.allows(static_cast<Collective>(i), name(protocol))) protocol_[i].push_back(protocol);
}

Result<Selector> Selector::create(std::shared_ptr<const CandidateSet> candidates, SelectorSettings settings) {
  TUTTI_ASSIGN(AlgorithmFilter algorithms,
               AlgorithmFilter::parse(settings.algo, candidates->namesOfOthers(), settings.algoName));
  TUTTI_ASSIGN(ProtocolFilter protocols, ProtocolFilter::parse(settings.proto, settings.protoName));
  Selector made(std::move(candidates), std::move(settings), std::move(algorithms), std::move(protocols));
  TUTTI_TRY(made.resolveEntries().withContext("TUTTI_TUNING_FILE"));
  return made;
}

Status Selector::resolveEntries() {
  if (settings_.tuning == nullptr) return Status::ok();
  for (const TuningEntry& entry : settings_.tuning->entries()) {
    const Candidate* candidate = candidates_->find(entry.algorithm);
    if (candidate == nullptr && !isNameOfNccl(entry.algorithm))
      return invalidUsage("{}:{}: \"{}\" is no algorithm{}", settings_.tuning->path(), entry.line,
                          entry.algorithm, suggestion(entry.algorithm, candidates_->namesOfOthers()));
    const size_t index = candidate == nullptr ? 0 : static_cast<size_t>(candidate - &*candidates_->begin());
    entries_[static_cast<size_t>(entry.collective)].push_back({&entry, candidate, index});
  }
  return Status::ok();
}

std::string Selector::whyNever(const Entry& one) const {
  const TuningEntry& entry = *one.entry;
  if (one.candidate == nullptr) return fmt::format("{} does not exist {}", entry.algorithm, here());
  const Candidate& candidate = *one.candidate;
  const int32_t ranks = entry.ranks.value_or(std::numeric_limits<int32_t>::max());
  if (entry.protocol && std::ranges::find(existingProtocols(), *entry.protocol) == existingProtocols().end())
    return fmt::format("there is no protocol {} {}", name(*entry.protocol), here());
  if (entry.operations.value_or(1) != 1) return "no calls are joined here, so only operations 1 fits";
  if (entry.hosts.value_or(1) > ranks)
    return fmt::format("{} ranks are not on {} hosts", ranks, *entry.hosts);
  const bool implemented =
      entry.ranks ? candidate.implements(entry.collective, ranks)
                  : std::ranges::find(candidate.collectives, entry.collective) != candidate.collectives.end();
  if (!implemented)
    return fmt::format("{} does not implement {}{}", entry.algorithm, name(entry.collective),
                       entry.ranks ? fmt::format(" on {} ranks", ranks) : "");
  if (entry.maxBytes < candidate.minBytes || entry.minBytes > candidate.maxBytes)
    return fmt::format("{} is for {} to {} bytes", entry.algorithm, candidate.minBytes, candidate.maxBytes);
  if (ranks == 1) return {};
  if (candidate.medium == Medium::hosts)
    return entry.hosts == 1 || entry.hosts == entry.ranks.value_or(-1)
               ? fmt::format("{} needs several hosts, and one of them with several ranks", entry.algorithm)
               : "";
  if (candidate.medium != Medium::messages && entry.hosts.value_or(1) > 1)
    return fmt::format("{} needs all ranks on one host", entry.algorithm);
  if (candidate.medium == Medium::userBuffers && entry.mapped == false)
    return fmt::format("{} needs mapped buffers", entry.algorithm);
  return {};
}

std::vector<std::string> Selector::neverFollowed() const {
  std::vector<std::pair<int32_t, std::string>> lines;
  for (const std::vector<Entry>& entries : entries_)
    for (const Entry& one : entries)
      if (const std::string why = whyNever(one); !why.empty())
        lines.emplace_back(one.entry->line, fmt::format("{}:{} can never be followed: {}",
                                                        settings_.tuning->path(), one.entry->line, why));
  std::ranges::sort(lines);
  std::vector<std::string> texts;
  texts.reserve(lines.size());
  for (auto& [line, text] : lines) texts.push_back(std::move(text));
  return texts;
}

MachineCosts Selector::costs(const SelectorInput& input) const {
  MachineCosts costs{sharedMemoryCosts(), tcpCosts(input.linkBandwidth)};
  if (settings_.tuning != nullptr) {
    costs.shared = settings_.tuning->apply(costs.shared, CostMedium::shared);
    costs.network = settings_.tuning->apply(costs.network, CostMedium::network);
  }
  return costsFor(costs, input);
}

/// On `channels` channels, or, when that is 0, on as many as are fastest; by `protocol`, or the fastest of
/// those that are allowed.
Selector::Offer Selector::bestOffer(const Candidate& candidate, const SelectorInput& input,
                                    const MachineCosts& costs, int32_t channels,
                                    std::optional<Protocol> protocol) const {
  if (!settings_.kernels) return cpuOffer(candidate, input, costs, channels);
  std::optional<Offer> best;
  for (const Protocol one : protocols(input)) {
    if ((protocol && one != *protocol) || !hasProtocol(candidate, one)) continue;
    const Offer offer = kernelOffer(candidate, input, one, channels);
    if (!best || offer.seconds < best->seconds) best = offer;
  }
  return best ? *best : kernelOffer(candidate, input, Protocol::simple, channels);  // a rank alone
}

namespace {

// More channels must bring something: they cost memory.
constexpr double kWorthwhile = 0.98;

}  // namespace

Selector::Offer Selector::cpuOffer(const Candidate& candidate, const SelectorInput& input,
                                   const MachineCosts& costs, int32_t channels) const {
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

Selector::Offer Selector::kernelOffer(const Candidate& candidate, const SelectorInput& input,
                                      Protocol protocol, int32_t channels) const {
  const auto offerOf = [&](int32_t count) {
    Offer offer{.channels = count, .protocol = protocol};
    TwoLevelCosts costs = kernelCosts(*settings_.kernels, protocol, count);
    if (input.sliceBytes > 0)
      costs.inside.sliceBytes = costs.between.sliceBytes =
          std::min(costs.inside.sliceBytes, input.sliceBytes);
    CostQuery query{.algorithm = candidate.name,
                    .collective = input.collective,
                    .ranks = input.ranks,
                    .bytes = input.bytes,
                    .hosts = 1,
                    .channels = count};
    if (candidate.price) {
      offer.seconds = candidate.price(query, costs.inside);
      return offer;
    }
    if (pipelinesBlocks(candidate.name, input.collective))
      query.blocks = offer.blocks = bestBlocks(query, costs.inside);
    offer.seconds = predictSeconds(query, costs);
    return offer;
  };
  const int32_t most = std::max(1, input.maxChannels);
  if (channels > 0) return offerOf(std::clamp(channels, 1, most));
  Offer best = offerOf(1);
  for (int32_t count = 1; count != most;) {
    count = std::min(2 * count, most);
    if (const Offer offer = offerOf(count); offer.seconds < kWorthwhile * best.seconds) best = offer;
  }
  return best;
}

Status Selector::nothingLeft(const SelectorInput& input) const {
  if (protocols(input).empty()) {
    std::vector<std::string_view> all;
    for (const Protocol protocol : existingProtocols()) all.emplace_back(name(protocol));
    return invalidUsage("{} leaves no protocol for {}: there is only {} {}", protocols_.describe(),
                        name(input.collective), fmt::join(all, " and "), here());
  }
  std::string reasons;
  for (size_t i = 0; i < candidates_->size(); ++i) {
    const Candidate& candidate = (*candidates_)[i];
    if (!allows(i, input.collective)) continue;
    Obstacle obstacle = tutti::obstacleOf(candidate, input);
    if (obstacle == Obstacle::none) obstacle = Obstacle::protocol;
    reasons += "; " + describe(obstacle, candidate.name, input);
  }
  for (const CandidateSet::Elsewhere& one : candidates_->elsewhere())
    if (algorithms_.demands(input.collective, one.name)) reasons += fmt::format("; {} {}", one.name, one.why);
  return invalidUsage("{} leaves no algorithm for {} on {} ranks{}", algorithms_.describe(),
                      name(input.collective), input.ranks,
                      reasons.empty() ? "; none of those named exists here" : reasons);
}

void Selector::take(const Offer& offer, Choice* choice) {
  choice->predictedSeconds = offer.seconds;
  choice->channels = offer.channels;
  choice->blocks = offer.blocks;
  choice->protocol = offer.protocol;
}

void Selector::chooseByPrice(const SelectorInput& input, const MachineCosts& costs, Choice* best) const {
  int possible = 0;
  for (size_t i = 0; i < candidates_->size(); ++i) {
    const Candidate& candidate = (*candidates_)[i];
    // A rank alone copies, whatever it is called: settings that are meant for the others do not stop it.
    if (input.ranks > 1 && !allows(i, input.collective)) continue;
    if (tutti::obstacleOf(candidate, input) != Obstacle::none) continue;
    if (std::ranges::none_of(protocols(input), [&](Protocol one) { return hasProtocol(candidate, one); }) &&
        input.ranks > 1)
      continue;
    ++possible;
    const Offer offer = bestOffer(candidate, input, costs, settings_.channels);
    const bool isFirst = best->algorithm == nullptr;
    const bool samePlace = isFirst || candidate.preferred == best->algorithm->preferred;
    if (isFirst || (samePlace ? offer.seconds < best->predictedSeconds : candidate.preferred)) {
      best->runnerUp = best->algorithm;
      best->runnerUpSeconds = best->predictedSeconds;
      best->algorithm = &candidate;
      take(offer, best);
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
  const auto runs = [&](Protocol one) {
    return hasProtocol(*entry.candidate, one) && (!entry.entry->protocol || one == *entry.entry->protocol);
  };
  if (input.ranks > 1 && std::ranges::none_of(protocols(input), runs)) return Obstacle::protocol;
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
    const Offer offer = bestOffer(*one.candidate, input, costs, channels, entry.protocol);
    if (one.candidate != best->algorithm) {
      best->runnerUp = best->algorithm;
      best->runnerUpSeconds = best->predictedSeconds;
    }
    best->algorithm = one.candidate;
    take(offer, best);
    best->reason = Choice::Reason::tuningFile;
    best->line = entry.line;
    return true;
  }
  return false;
}

Result<Choice> Selector::choose(const SelectorInput& input) const {
  if (protocols(input).empty() && input.ranks > 1) return nothingLeft(input);
  const MachineCosts costs = this->costs(input);
  Choice best;
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
