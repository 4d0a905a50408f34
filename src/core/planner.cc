#include "core/planner.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "algorithms/hierarchical.h"
#include "algorithms/segment_table.h"
#include "algorithms/send_recv.h"
#include "base/datatype.h"
#include "base/fnv.h"
#include "base/log.h"
#include "base/params.h"
#include "base/text.h"

namespace tutti {
namespace {

// Where nothing limits a slice (everything happens in the users' buffers), a call is one slice.
constexpr size_t kLongestSlice = size_t{1} << 40;

size_t vectorBytes(const Operation& operation, int ranks) {
  if (operation.blocks != nullptr) return operation.blocks->total() * sizeOf(operation.type);
  const size_t block = operation.count * sizeOf(operation.type);
  const bool manyBlocks = holdsAllBlocks(operation.collective, Buffer::input) ||
                          holdsAllBlocks(operation.collective, Buffer::output);
  return manyBlocks ? block * static_cast<size_t>(ranks) : block;
}

/// Hosts, and the ranks of each, as the layout passes them.
std::vector<std::vector<int32_t>> inOrder(std::vector<std::vector<int32_t>> hosts, const Layout& layout) {
  const auto position = [&](int32_t rank) { return layout.positionOf(rank); };
  for (std::vector<int32_t>& ranks : hosts) std::ranges::sort(ranks, {}, position);
  std::ranges::sort(hosts, {}, [&](const std::vector<int32_t>& ranks) { return position(ranks.front()); });
  return hosts;
}

/// Whether this rank's call is in place, as NCCL defines it; none where the call does not have both buffers
/// here, so that it makes no difference.
std::optional<bool> isInPlace(const Operation& operation, int rank) {
  if (operation.input == nullptr || operation.output == nullptr) return std::nullopt;
  const bool inputHasAll = holdsAllBlocks(operation.collective, Buffer::input);
  const bool outputHasAll = holdsAllBlocks(operation.collective, Buffer::output);
  const size_t elements = operation.blocks != nullptr ? operation.blocks->offsets[static_cast<size_t>(rank)]
                                                      : static_cast<size_t>(rank) * operation.count;
  const size_t own = elements * sizeOf(operation.type);
  const auto input = reinterpret_cast<uintptr_t>(operation.input) + (inputHasAll && !outputHasAll ? own : 0);
  const auto output =
      reinterpret_cast<uintptr_t>(operation.output) + (outputHasAll && !inputHasAll ? own : 0);
  return input == output;
}

/// 0 for nothing.
uint64_t digestOf(const std::string& algo, const std::string& proto, int channels) {
  if (algo.empty() && proto.empty() && channels == 0) return 0;
  return fnv1a(fmt::format("{};{};{}", lower(algo), lower(proto), channels));
}

/// Once for a file and process, by one rank: all have the same file.
void warnOfEntries(const Selector& selector, int rank) {
  constexpr size_t kMostLines = 5;
  if (rank != 0) return;
  const std::vector<std::string> texts = selector.neverFollowed();
  if (texts.empty()) return;
  static std::mutex& mutex = *new std::mutex;
  static std::string& last = *new std::string;
  const std::lock_guard lock(mutex);
  if (std::string all = fmt::format("{}", fmt::join(texts, "\n")); std::exchange(last, all) == all) return;
  for (size_t i = 0; i < std::min(kMostLines, texts.size()); ++i) logWarn("TUTTI_TUNING_FILE: {}", texts[i]);
  if (texts.size() > kMostLines)
    logWarn("TUTTI_TUNING_FILE: {} more entries can never be followed", texts.size() - kMostLines);
}

}  // namespace

std::vector<PeerBuffer> peerBuffersOf(const Schedule& schedule) {
  std::set<PeerBuffer> found;
  const auto add = [&](const Location& location, int32_t rank) {
    if (rank != kSelf && rank != schedule.rank && location.buffer != Buffer::scratch)
      found.insert({rank, location.buffer});
  };
  const auto addTeam = [&](const Location& location, int16_t team) {
    if (team < 0) return;
    for (const int32_t rank : schedule.teams[static_cast<size_t>(team)]) add(location, rank);
  };
  for (const Lane& lane : schedule.lanes) {
    for (const Block& block : lane.blocks) {
      for (const Step& step : block.steps) {
        if (onlyOrders(step.kind)) continue;
        for (int32_t i = 0; i < block.iterations; ++i) {
          add(step.src, step.src.rank.at(i));
          add(step.dst, step.dst.rank.at(i));
        }
        addTeam(step.src, step.team);
        addTeam(step.dst, step.dstTeam);
      }
    }
  }
  return {found.begin(), found.end()};
}

Result<std::unique_ptr<Planner>> Planner::create(const Endpoint& endpoint, const JobPlan& job,
                                                 const TuningSource& tuning,
                                                 std::shared_ptr<const CandidateSet> candidates,
                                                 const KernelPlanning* kernels) {
  SelectorSettings settings;
  if (kernels != nullptr) settings.kernels = kernels->machine;
  settings.algo = params().algo();
  settings.proto = params().proto();
  TUTTI_ASSIGN(settings.tuning, tuning.load().withContext("TUTTI_TUNING_FILE"));
  TUTTI_ASSIGN(Selector selector, Selector::create(std::move(candidates), std::move(settings)));
  warnOfEntries(selector, endpoint.rank());
  return std::unique_ptr<Planner>(
      new Planner(endpoint, job, std::move(selector), kernels != nullptr ? kernels->mostBlocks : 0));
}

Planner::Planner(const Endpoint& endpoint, const JobPlan& job, Selector selector, uint32_t mostBlocks)
    : endpoint_(endpoint),
      layout_(job.ring),
      hosts_(inOrder(endpoint.hosts(), layout_)),
      linkBandwidth_(job.linkBandwidth),
      crowded_(job.crowded),
      selector_(std::move(selector)),
      mostBlocks_(mostBlocks) {}

Status Planner::pin(const std::string& algo, const std::string& proto, int channels) {
  const int most = endpoint_.options().channels;
  if (channels < 0 || channels > most)
    return invalidArgument(
        "{} channels, but this communicator has {} (NCCL_MIN_NCHANNELS and NCCL_MAX_NCHANNELS decide); 0 is "
        "automatic",
        channels, most);
  SelectorSettings settings;
  settings.tuning = selector_.settings().tuning;
  settings.kernels = selector_.settings().kernels;
  settings.algo = algo.empty() ? params().algo() : algo;
  if (!algo.empty()) settings.algoName = "algo ";
  settings.proto = proto.empty() ? params().proto() : proto;
  if (!proto.empty()) settings.protoName = "proto ";
  settings.channels = channels;
  TUTTI_ASSIGN(Selector selector, Selector::create(selector_.candidates(), std::move(settings)));
  if (lastUsed_.algorithm != nullptr) lastReason_ = lastReason();
  selector_ = std::move(selector);
  pinned_ = digestOf(algo, proto, channels);
  for (std::atomic<uint64_t>& passed : passed_) passed.store(0, std::memory_order_relaxed);
  plans_.clear();  // schedules stay: they do not depend on why they are chosen
  return Status::ok();
}

SelectorInput Planner::inputFor(const Operation& operation, bool zeroCopy) const {
  SelectorInput input;
  input.collective = operation.collective;
  input.ranks = endpoint_.ranks();
  input.bytes = vectorBytes(operation, endpoint_.ranks());
  input.allMapped = allMapped();
  input.hosts = static_cast<int32_t>(hosts_.size());
  input.rails = railCount(hosts_);
  input.linkBandwidth = linkBandwidth_;
  input.crowded = crowded_;
  input.zeroCopyUsable = zeroCopy;
  input.maxChannels = endpoint_.options().channels;
  input.root = operation.root;
  input.sliceBytes = endpoint_.options().slotBytes;
  return input;
}

Result<Choice> Planner::choiceFor(const Operation& operation, bool zeroCopy) const {
  return selector_.choose(inputFor(operation, zeroCopy));
}

Status Planner::check(const Operation& operation) const {
  if (!selector_.isLimited() || endpoint_.ranks() == 1) return Status::ok();
  const uint64_t key = checkKey(operation);
  std::atomic<uint64_t>& passed = passed_[key % passed_.size()];
  if (passed.load(std::memory_order_relaxed) == key) return Status::ok();
  // What works in others' buffers cannot exchange blocks in place.
  const bool mayBeMapped =
      operation.collective != Collective::allToAll || !isInPlace(operation, endpoint_.rank()).value_or(false);
  if (const auto mapped = choiceFor(operation, mayBeMapped); mapped.isOk()) {
    TUTTI_TRY(checkKind(operation, *mapped->algorithm));
  } else {
    TUTTI_ASSIGN(const Choice plain, choiceFor(operation, false));
    TUTTI_TRY(checkKind(operation, *plain.algorithm));
  }
  passed.store(key, std::memory_order_relaxed);
  return Status::ok();
}

/// Names a kind of call for check(). Two kinds with one key would let the second pass, whose error then comes
/// when it runs.
uint64_t Planner::checkKey(const Operation& operation) const {
  const std::optional<bool> inPlace = isInPlace(operation, endpoint_.rank());
  uint64_t key = vectorBytes(operation, endpoint_.ranks());
  for (const auto part : {static_cast<uint64_t>(operation.collective), static_cast<uint64_t>(operation.root),
                          static_cast<uint64_t>(inPlace ? 1 + int{*inPlace} : 0)})
    key = (key ^ key >> 29) * 0x9e3779b97f4a7c15u + part;
  return key | 1;  // 0 is an empty place
}

Status Planner::checkKind(const Operation& operation, const Candidate& algorithm) const {
  if (algorithm.forAllCalls()) return Status::ok();
  const std::optional<bool> inPlace = isInPlace(operation, endpoint_.rank());
  if (!inPlace || (*inPlace ? algorithm.inPlace : algorithm.outOfPlace)) return Status::ok();
  return invalidUsage("{}: algorithm {} ({}) is proved for calls {} only, and this call of rank {} is {}",
                      name(operation.collective), algorithm.name, algorithm.file,
                      *inPlace ? "out of place" : "in place", endpoint_.rank(),
                      *inPlace ? "in place" : "out of place");
}

Result<double> Planner::predictSeconds(const Operation& operation) const {
  if (endpoint_.ranks() == 1) return 0.0;
  if (operation.kind == Operation::Kind::collective) {
    TUTTI_ASSIGN(const Choice choice, choiceFor(operation, allMapped()));
    return choice.predictedSeconds;
  }
  const MachineCosts machine = selector_.costs(inputFor(operation, false));
  const CostParameters& costs = endpoint_.mapped(operation.root) ? machine.shared : machine.network;
  return costs.alpha + costs.beta * static_cast<double>(operation.count * sizeOf(operation.type));
}

void Planner::noteUsed(const Plan& plan) {
  lastUsed_ = plan.choice;
  lastReason_.reset();
}

Result<bool> Planner::wantsZeroCopy(const Operation& operation) {
  if (endpoint_.localRanks().size() == 1) return false;
  if (operation.reduction.ownScalar) return false;  // a rank cannot scale what it reads from its peers
  TUTTI_ASSIGN(const Plan plan, this->plan(operation, true));
  return plan.schedule->needsMappedUserBuffers();
}

Result<Plan> Planner::plan(const Operation& operation, bool zeroCopy) {
  // Whether blocks differ changes where they lie, not what is done with them.
  const PlanKey key(operation.collective, operation.root, vectorBytes(operation, endpoint_.ranks()),
                    zeroCopy);
  if (const auto found = plans_.find(key); found != plans_.end()) {
    if (const Candidate* algorithm = found->second.choice.algorithm)
      TUTTI_TRY(checkKind(operation, *algorithm));
    return found->second;
  }
  if (plans_.size() >= kMostPlans) plans_.clear();  // a program that never calls twice alike
  TUTTI_ASSIGN(Plan made, makePlan(operation, zeroCopy));
  logChoice(operation, zeroCopy, made);
  return plans_.emplace(key, std::move(made)).first->second;
}

Result<Plan> Planner::makePlan(const Operation& operation, bool zeroCopy) {
  Plan plan;
  // Whether an algorithm fits is known when its schedule is there. It is the same on all ranks.
  std::vector<const Candidate*>& tooLarge = tooLarge_[operation.collective];
  SelectorInput input = inputFor(operation, zeroCopy);
  input.tooLarge = &tooLarge;
  for (;;) {
    TUTTI_ASSIGN(plan.choice, selector_.choose(input));
    TUTTI_TRY(checkKind(operation, *plan.choice.algorithm));
    TUTTI_ASSIGN(plan.schedule, schedule(plan.choice, operation.collective, operation.root, zeroCopy));
    plan.sliceBytes = sliceBytesFor(*plan.schedule);
    TUTTI_ASSIGN(plan.channels, channelsThatFit(plan.choice, operation, zeroCopy));
    if (plan.sliceBytes > 0 && plan.channels > 0) break;
    tooLarge.push_back(plan.choice.algorithm);
  }
  plan.choice.channels = plan.channels;
  plan.peerBuffers = peerBuffersOf(*plan.schedule);
  return plan;
}

/// A call is planned for mapped buffers and, when that needs none, or there are none, for others: where both
/// are the same, one line says so.
void Planner::logChoice(const Operation& operation, bool zeroCopy, const Plan& plan) const {
  if (!logEnabled(LogLevel::info, Subsystem::tuning)) return;
  const Choice& choice = plan.choice;
  const SelectorInput input = inputFor(operation, zeroCopy);
  if (const auto other = plans_.find(PlanKey(operation.collective, operation.root, input.bytes, !zeroCopy));
      other != plans_.end() && other->second.schedule == plan.schedule &&
      other->second.channels == plan.channels && other->second.choice.skippedLine == choice.skippedLine)
    return;
  if (choice.skippedLine != 0)
    logInfo(Subsystem::tuning, "{}: {} bytes: {}", name(operation.collective), input.bytes,
            selector_.skippedText(choice, input));
  std::string next;
  if (choice.runnerUp != nullptr)
    next = fmt::format("; {} {}, {:.2f} us",
                       choice.runnerUpSeconds < choice.predictedSeconds ? "by prediction" : "next",
                       choice.runnerUp->name, choice.runnerUpSeconds * 1e6);
  logInfo(Subsystem::tuning,
          "{}: {} bytes{}: algorithm {}, protocol {}, {} channel(s), predicted {:.2f} us ({}{})",
          name(operation.collective), input.bytes,
          plan.schedule->needsMappedUserBuffers() ? " in mapped buffers" : "", choice.algorithm->name,
          name(choice.protocol), choice.channels, choice.predictedSeconds * 1e6, selector_.reasonText(choice),
          next);
}

Result<std::shared_ptr<const Schedule>> Planner::schedule(const Choice& choice, Collective collective,
                                                          int root, bool zeroCopy) {
  const Candidate& algorithm = *choice.algorithm;
  // Only here do the two differ: other algorithms either need peers' user buffers or have no use for them.
  const bool mapped = zeroCopy && algorithm.medium == Medium::hosts;
  auto& cached = schedules_[ScheduleKey(algorithm.name, collective, root, mapped, choice.blocks)];
  if (cached == nullptr) {
    TUTTI_ASSIGN(Schedule made, algorithm.schedule(requestFor(choice, collective, root, mapped)));
    cached = std::make_shared<const Schedule>(std::move(made));
  }
  return cached;
}

ScheduleRequest Planner::requestFor(const Choice& choice, Collective collective, int root,
                                    bool mapped) const {
  ScheduleRequest request;
  request.collective = collective;
  request.ranks = endpoint_.ranks();
  request.rank = endpoint_.rank();
  request.root = root;
  request.layout = layout_;
  request.hosts = hosts_;
  request.mapped = mapped;
  request.blocks = choice.blocks;
  return request;
}

/// A kernel's blocks, a lane on a channel each, wait for each other, so all of them must run at once, on
/// every rank. 0: not even one channel does.
Result<int> Planner::channelsThatFit(const Choice& choice, const Operation& operation, bool zeroCopy) const {
  if (mostBlocks_ == 0) return choice.channels;
  size_t lanes = 1;
  ScheduleRequest request = requestFor(choice, operation.collective, operation.root,
                                       zeroCopy && choice.algorithm->medium == Medium::hosts);
  for (request.rank = 0; request.rank < request.ranks; ++request.rank) {
    TUTTI_ASSIGN(const Schedule schedule, choice.algorithm->schedule(request));
    lanes = std::max(lanes, schedule.lanes.size());
  }
  return static_cast<int>(std::min<size_t>(static_cast<size_t>(choice.channels), mostBlocks_ / lanes));
}

size_t Planner::sliceBytesFor(const Schedule& schedule) const {
  const EndpointOptions& options = endpoint_.options();
  return std::min(kLongestSlice, schedule.maxSliceBytes(options.slotBytes, options.scratchBytes));
}

Result<Plan> Planner::planMessage(const Operation& message) {
  const int self = endpoint_.rank();
  const int peer = message.kind == Operation::Kind::copy ? self : message.root;
  const bool sends = message.kind != Operation::Kind::recv;
  const bool part = message.partOfCollective;
  const std::string_view key = part ? (sends ? "send part" : "recv part") : sends ? "send" : "recv";
  auto& cached = schedules_[ScheduleKey(key, Collective::sendRecv, peer, false, 0)];
  if (cached == nullptr) {
    const int from = sends ? self : peer;
    const int to = sends ? peer : self;
    const int port = part ? kVariableCountPort : kPointToPointPort;
    cached = std::make_shared<const Schedule>(sendRecv(endpoint_.ranks(), self, from, to, port));
  }
  Plan plan;
  plan.schedule = cached;
  plan.sliceBytes = sliceBytesFor(*cached);
  return plan;
}

}  // namespace tutti
