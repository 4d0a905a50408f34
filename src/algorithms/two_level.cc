#include "algorithms/two_level.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "algorithms/hierarchical.h"
#include "algorithms/locations.h"
#include "algorithms/registry.h"

namespace tutti {
namespace {

using RankLists = std::vector<std::vector<int32_t>>;

/// Ports that every rail has for itself: tree uses two.
int32_t portsOf(std::string_view algorithm) { return algorithm == "tree" ? 2 : 1; }

int32_t indexOf(const std::vector<int32_t>& ranks, int32_t rank) {
  return static_cast<int32_t>(std::ranges::find(ranks, rank) - ranks.begin());
}

/// How the numbers of a phase's schedule become those of the whole. Segment s of the phase, of `parts` in
/// all, is the `factor` segments of the rail that begin at number s * factor; number t of rail j is segment t
/// * rails + j of the whole. So numbers that wrap in the phase wrap in the whole.
struct Frame {
  std::vector<int32_t> ranks;  // of the phase
  int32_t rail = 0;
  int32_t rails = 1;
  int32_t factor = 1;
  int32_t firstPort = 0;
  int32_t firstScratch = 0;
  Buffer inputIs = Buffer::input;  // what a phase takes for its input may be the result of the one before
  Buffer outputIs = Buffer::output;
  int32_t held = 0;        // where that lies when it is scratch
  bool finalizes = false;  // the phase ends the reduction
  bool copies = true;      // false: a later phase copies what this one would

  Affine segment(const Affine& a) const {
    const int32_t wide = factor * rails;
    return {a.base * wide + rail, a.stride * wide, a.modulus * wide};
  }
  Location location(Location place) const {
    if (place.buffer == Buffer::scratch) {
      place.segment = {firstScratch + place.segment.base * factor, place.segment.stride * factor, 0};
      place.count *= factor;
      return place;
    }
    place.buffer = place.buffer == Buffer::input ? inputIs : outputIs;
    if (place.buffer == Buffer::scratch) {
      place.segment = {held + place.segment.base * factor, place.segment.stride * factor, 0};
    } else {
      place.segment = segment(place.segment);
      place.pattern = {1, rails};
    }
    place.count *= factor;
    return place;
  }
  int32_t rank(const Affine& phaseRank) const { return ranks[static_cast<size_t>(phaseRank.base)]; }

  Step step(const Step& phase) const {
    Step whole = phase;
    if (const SizeSegments size = sizeSegments(phase); size.first != Affine(kNoSegment)) {
      whole.sizeAs = segment(size.first);
      whole.sizePattern = {1, rails};
    }
    whole.src = location(phase.src);
    whole.dst = location(phase.dst);
    if (receives(phase.kind)) whole.peerFrom = rank(phase.peerFrom);
    if (sends(phase.kind)) whole.peerTo = rank(phase.peerTo);
    whole.portFrom = static_cast<int16_t>(firstPort + phase.portFrom);
    whole.portTo = static_cast<int16_t>(firstPort + phase.portTo);
    whole.finalize = phase.finalize && finalizes;
    return whole;
  }

  /// The phase's lanes, one after the other.
  void append(const Schedule& phase, Lane& lane) const {
    for (const Lane& part : phase.lanes)
      for (const Block& block : part.blocks) {
        Block mapped;
        mapped.iterations = block.iterations;
        for (const Step& old : block.steps) {
          const Step now = step(old);
          const bool nothing = now.kind == StepKind::copy && (now.src == now.dst || !copies);
          if (!nothing) mapped.steps.push_back(now);
        }
        lane.blocks.push_back(std::move(mapped));
      }
    lane.once();
  }
};

/// Everything that is the same for all rails.
struct Job {
  const ScheduleRequest& request;
  RankLists hosts;
  int32_t host = 0;  // this rank's
  int32_t rails = 1;
  int32_t parts = 1;    // of a rail
  int32_t ports = 1;    // of a rail
  int32_t scratch = 0;  // of a rail, but for what it holds between phases
  bool mapped = false;
  std::string_view intra;

  explicit Job(const ScheduleRequest& asked)
      : request(asked), hosts(hostsOf(asked)), host(hostOf(hosts, asked.rank)) {
    intra = request.intra == "direct" ? "binomial" : request.intra;
    mapped = request.intra == "direct" && request.mapped && local().size() > 1;
    ports = std::max(portsOf(intra), portsOf(request.inter));
    rails = std::min(railCount(hosts), kVariableCountPort / ports);
    const int32_t interParts = phase(request.inter, request.collective, hostCount(), 0, 0, 0).parts;
    const int32_t intraParts = phase(intra, Collective::broadcast, 2, 0, 0, interParts).parts;
    parts = std::lcm(interParts, intraParts);
  }

  int32_t hostCount() const { return static_cast<int32_t>(hosts.size()); }
  const std::vector<int32_t>& local() const { return hosts[static_cast<size_t>(host)]; }
  bool rooted() const { return request.collective != Collective::allReduce; }
  int32_t workerOf(int32_t number, int32_t rail) const {
    const std::vector<int32_t>& ranks = hosts[static_cast<size_t>(number)];
    if (rooted() && hostOf(hosts, request.root) == number) return request.root;
    return ranks[static_cast<size_t>(rail) % ranks.size()];
  }
  std::vector<int32_t> workers(int32_t rail) const {
    std::vector<int32_t> found;
    for (int32_t h = 0; h < hostCount(); ++h) found.push_back(workerOf(h, rail));
    return found;
  }
  int32_t rootHost() const { return rooted() ? hostOf(hosts, request.root) : 0; }

  /// A phase's schedule; ranks are numbers within it.
  static Schedule phase(std::string_view algorithm, Collective collective, int32_t ranks, int32_t rank,
                        int32_t root, int32_t blocks) {
    ScheduleRequest asked;
    asked.collective = collective;
    asked.ranks = ranks;
    asked.rank = rank;
    asked.root = root;
    asked.blocks = blocks;
    return findAlgorithm(algorithm)->schedule(asked);
  }
};

/// Builds the lane of one rail.
class RailBuilder {
 public:
  RailBuilder(const Job& job, int32_t rail, Schedule& schedule)
      : job_(job),
        rail_(rail),
        schedule_(schedule),
        worker_(job.workerOf(job.host, rail)),
        works_(worker_ == job.request.rank),
        alone_(job.local().size() == 1),
        held_(heldIn()) {}

  void build() {
    const Collective collective = job_.request.collective;
    lane_ = &schedule_.lanes.emplace_back();
    if (job_.mapped && !works_) lane_->signal(worker_, readyFlag());
    if (job_.mapped && works_) lane_->waitTeam(kLocal, readyFlag());
    if (collective != Collective::broadcast && !alone_) reduceInside();
    if (works_ && job_.hostCount() > 1) between();
    if (collective != Collective::reduce && !alone_) broadcastInside();
    if (job_.mapped && works_) lane_->signalTeam(kLocal, doneFlag());
    if (job_.mapped && !works_) lane_->wait(worker_, doneFlag());
  }

  static constexpr int kLocal = 0;  // the team of the host's ranks

 private:
  int readyFlag() const { return 2 * rail_; }
  int doneFlag() const { return 2 * rail_ + 1; }
  bool endsHere() const { return job_.hostCount() == 1; }

  /// Where the worker keeps its host's sum: only the root of a Reduce has an output.
  Buffer heldIn() const {
    const bool noOutput =
        job_.request.collective == Collective::reduce && job_.request.rank != job_.request.root;
    return noOutput ? Buffer::scratch : Buffer::output;
  }
  int32_t heldAt() const { return job_.rails * job_.scratch + rail_ * job_.parts; }

  Frame frame(std::vector<int32_t> ranks, const Schedule& phase) {
    Frame made;
    made.ranks = std::move(ranks);
    made.rail = rail_;
    made.rails = job_.rails;
    made.factor = job_.parts / phase.parts;
    made.firstPort = rail_ * job_.ports;
    made.firstScratch = rail_ * job_.scratch;
    made.held = heldAt();
    return made;
  }
  /// All of the rail's segments.
  Location whole(Buffer buffer) const {
    if (buffer == Buffer::scratch) return at::scratch(heldAt(), job_.parts);
    return {buffer, rail_, job_.parts, kSelf, {1, job_.rails}};
  }

  Schedule insidePhase(Collective collective) const {
    const std::vector<int32_t>& local = job_.local();
    return Job::phase(job_.intra, collective, static_cast<int32_t>(local.size()),
                      indexOf(local, job_.request.rank), indexOf(local, worker_), job_.parts);
  }

  void reduceInside() {
    if (job_.mapped) {
      if (!works_) return;
      Step& step = lane_->reduceTeam(kLocal, whole(Buffer::input), whole(held_));
      step.finalize = endsHere();
      step.sizeAs = rail_;
      step.sizePattern = {1, job_.rails};
      return;
    }
    const Schedule phase = insidePhase(Collective::reduce);
    Frame made = frame(job_.local(), phase);
    made.outputIs = held_;
    made.finalizes = endsHere();
    made.append(phase, *lane_);
  }

  void between() {
    const Collective collective = job_.request.collective;
    const Schedule phase =
        Job::phase(job_.request.inter, collective, job_.hostCount(), job_.host, job_.rootHost(), job_.parts);
    Frame made = frame(job_.workers(rail_), phase);
    if (collective != Collective::broadcast && !alone_) made.inputIs = held_;
    made.finalizes = true;
    made.copies = collective != Collective::broadcast || alone_;
    made.append(phase, *lane_);
  }

  void broadcastInside() {
    // What the worker has is in its output, but for the root of a Broadcast.
    const bool fromInput =
        job_.request.collective == Collective::broadcast && job_.request.rank == job_.request.root;
    if (job_.mapped) {
      if (!works_) return;
      lane_->copy(whole(fromInput ? Buffer::input : Buffer::output), whole(Buffer::output)).dstTeam = kLocal;
      return;
    }
    const Schedule phase = insidePhase(Collective::broadcast);
    Frame made = frame(job_.local(), phase);
    if (!fromInput) made.inputIs = Buffer::output;
    made.append(phase, *lane_);
  }

  const Job& job_;
  int32_t rail_;
  Schedule& schedule_;
  int32_t worker_;
  bool works_;
  bool alone_;
  Buffer held_;
  Lane* lane_ = nullptr;
};

/// What the phases of any rank need at most, in segments of a rail: all ranks must say the same.
struct Needs {
  int32_t scratch = 0;
  int32_t message = 0;
};

Needs needsOf(const Job& job) {
  Needs most;
  const auto consider = [&](std::string_view algorithm, Collective collective, int32_t ranks) {
    const Schedule phase = Job::phase(algorithm, collective, ranks, 0, 0, job.parts);
    const int32_t factor = job.parts / phase.parts;
    most.scratch = std::max(most.scratch, phase.scratchSegments * factor);
    most.message = std::max(most.message, phase.maxCount * factor);
  };
  for (const std::vector<int32_t>& ranks : job.hosts)
    for (const Collective collective : {Collective::reduce, Collective::broadcast})
      if (ranks.size() > 1 && (!job.rooted() || collective == job.request.collective))
        consider(job.intra, collective, static_cast<int32_t>(ranks.size()));
  if (job.hostCount() > 1) consider(job.request.inter, job.request.collective, job.hostCount());
  return most;
}

}  // namespace

std::vector<std::string_view> intraAlgorithms() {
  return {"direct", "ring", "tree", "binomial", "circulant"};
}

std::vector<std::string_view> interAlgorithms(Collective collective) {
  if (collective == Collective::allReduce) return {"ring", "tree", "doubling", "rabenseifner", "circulant"};
  return {"ring", "tree", "binomial", "circulant"};
}

int32_t twoLevelRails(const ScheduleRequest& request) { return Job(request).rails; }

Schedule twoLevel(const ScheduleRequest& request) {
  const std::string name = "hierarchical/" + std::string(request.intra) + "/" + std::string(request.inter);
  if (request.ranks == 1) return singleRank(request, name);
  Job job(request);
  const Needs needs = needsOf(job);
  job.scratch = needs.scratch;
  Schedule schedule = makeSchedule(request, name, job.rails * job.parts);
  const bool holdsSums = request.collective == Collective::reduce;
  schedule.scratchSegments = job.rails * (job.scratch + (holdsSums ? job.parts : 0));
  schedule.maxCount = needs.message;
  schedule.sharedUserBuffers = job.mapped;
  if (job.mapped) {
    schedule.flags = static_cast<int16_t>(2 * job.rails);
    schedule.teams = {job.local()};
  }
  for (int32_t rail = 0; rail < job.rails; ++rail) RailBuilder(job, rail, schedule).build();
  return tidy(std::move(schedule));
}

}  // namespace tutti
