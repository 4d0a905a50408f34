#include "executor/cuda/flatten.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "algorithms/segment_table.h"
#include "executor/step_rules.h"

namespace tutti {
namespace {

static_assert(device::kPorts == kMaxPorts, "every port of a schedule has a place in the kernels' tables");
static_assert(device::kFlags == kMaxFlags, "every flag of a schedule has a place in the kernels' memory");
// Without padding the bytes of a program are a function of the schedule alone.
static_assert(std::has_unique_object_representations_v<device::Program> &&
              std::has_unique_object_representations_v<device::Lane> &&
              std::has_unique_object_representations_v<device::Block> &&
              std::has_unique_object_representations_v<device::Step> &&
              std::has_unique_object_representations_v<device::Link>);

constexpr size_t kArrayAlign = 16;

device::Affine flat(const Affine& affine) { return {affine.base, affine.stride, affine.modulus}; }

size_t aligned(size_t bytes) { return (bytes + kArrayAlign - 1) / kArrayAlign * kArrayAlign; }

/// Offsets of the arrays behind the head; `bytes` grows as they are placed.
template <typename T>
uint32_t place(const std::vector<T>& array, size_t* bytes) {
  const size_t at = *bytes;
  *bytes = aligned(at + array.size() * sizeof(T));
  return static_cast<uint32_t>(at);
}

template <typename T>
void store(const std::vector<T>& array, uint32_t at, std::vector<std::byte>* bytes) {
  if (!array.empty()) std::memcpy(bytes->data() + at, array.data(), array.size() * sizeof(T));
}

}  // namespace

FlatProgram::FlatProgram(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}

const device::Program& FlatProgram::head() const {
  return *static_cast<const device::Program*>(static_cast<const void*>(bytes_.data()));
}

/// Fills the arrays; the first failure ends the work.
class Flattener {
 public:
  explicit Flattener(const Schedule& schedule) : schedule_(schedule) {}

  Result<FlatProgram> run() {
    TUTTI_TRY(checkHead().withContext("schedule {}", schedule_.name));
    for (size_t lane = 0; lane < schedule_.lanes.size(); ++lane)
      TUTTI_TRY(addLane(lane).withContext("schedule {} lane {}", schedule_.name, lane));
    return assemble();
  }

 private:
  Status checkHead() {
    if (schedule_.ranks < 1 || schedule_.rank < 0 || schedule_.rank >= schedule_.ranks)
      return internalError("rank {} of {}", schedule_.rank, schedule_.ranks);
    if (schedule_.root < 0 || schedule_.root >= schedule_.ranks)
      return internalError("root {} of {} ranks", schedule_.root, schedule_.ranks);
    if (schedule_.parts < 1 || schedule_.parts > std::numeric_limits<int32_t>::max() / schedule_.blocks())
      return internalError("{} parts a block", schedule_.parts);
    if (schedule_.maxCount < 0 || schedule_.scratchSegments < 0)
      return internalError("{} segments a message and {} of scratch", schedule_.maxCount,
                           schedule_.scratchSegments);
    for (size_t team = 0; team < schedule_.teams.size(); ++team) {
      for (const int32_t rank : schedule_.teams[team])
        TUTTI_TRY(checkRank(rank).withContext("team {}", team));
    }
    return Status::ok();
  }

  Status addLane(size_t number) {
    device::Lane lane;
    lane.firstBlock = static_cast<uint32_t>(blocks_.size());
    lane.firstLink = static_cast<uint32_t>(links_.size());
    lane_ = static_cast<uint32_t>(number);
    linkOf_.clear();
    uint32_t stepNumber = 0;
    for (const Block& block : schedule_.lanes[number].blocks) {
      if (block.iterations <= 0 || block.steps.empty()) {
        stepNumber += static_cast<uint32_t>(block.steps.size());
        continue;
      }
      blocks_.push_back({static_cast<uint32_t>(steps_.size()), static_cast<uint32_t>(block.steps.size()),
                         block.iterations});
      for (const Step& step : block.steps) {
        ++stepNumber;
        TUTTI_TRY(addStep(step, block.iterations, stepNumber)
                      .withContext("step {} {}", stepNumber, name(step.kind)));
      }
    }
    lane.blockCount = static_cast<uint32_t>(blocks_.size()) - lane.firstBlock;
    lane.linkCount = static_cast<uint32_t>(links_.size()) - lane.firstLink;
    if (lane.blockCount != 0) lanes_.push_back(lane);
    return Status::ok();
  }

  Status addStep(const Step& step, int32_t iterations, uint32_t number) {
    if (reduces(step.kind) && !isReduction(schedule_.collective))
      return internalError("{} reduces nothing, but the schedule does", name(schedule_.collective));
    device::Step out;
    out.kind = static_cast<device::StepKind>(step.kind);
    out.number = number;
    if (onlyOrders(step.kind)) {
      TUTTI_TRY(addFlags(step, iterations, &out));
    } else {
      TUTTI_TRY(addOperands(step, iterations, &out));
      TUTTI_TRY(addSize(step, iterations, &out));
      TUTTI_TRY(addMessages(step, iterations, &out));
      TUTTI_TRY(addTeams(step, &out));
      notePeerBuffers(out.source);
      notePeerBuffers(out.destination);
    }
    steps_.push_back(out);
    return Status::ok();
  }

  Status addOperands(const Step& step, int32_t iterations, device::Step* out) {
    out->scaled = static_cast<device::ScaledSources>(scaledSources(step));
    out->receives = receives(step.kind) ? 1 : 0;
    out->sends = sends(step.kind) ? 1 : 0;
    out->hasSource = readsSource(step.kind) ? 1 : 0;
    out->hasDestination = writesDestination(step.kind) ? 1 : 0;
    out->messageFirst = step.messageFirst ? 1 : 0;
    out->finalize = step.finalize ? 1 : 0;
    out->pieces = movedSegments(step);
    if (out->hasSource != 0) {
      if (step.src.count != out->pieces)
        return internalError("moves {} segments from {}", out->pieces, step.src.count);
      TUTTI_TRY(addLocation(step.src, iterations, &out->source).withContext("source"));
    }
    if (out->hasDestination != 0)
      TUTTI_TRY(addLocation(step.dst, iterations, &out->destination).withContext("destination"));
    return Status::ok();
  }

  Status addSize(const Step& step, int32_t iterations, device::Step* out) {
    const SizeSegments size = sizeSegments(step);
    if (size.first != Affine(kNoSegment)) {
      device::Location location;
      TUTTI_TRY(
          addLocation({Buffer::input, size.first, out->pieces, kSelf, size.pattern}, iterations, &location)
              .withContext("size"));
      out->size = location.segments;
      return Status::ok();
    }
    if (step.kind != StepKind::recvSend) return internalError("nothing tells how much it moves");
    out->sizeKnown = 0;
    head_.hasUnknownSizes = 1;
    return Status::ok();
  }

  Status addLocation(const Location& location, int32_t iterations, device::Location* out) {
    const bool inScratch = location.buffer == Buffer::scratch;
    const int32_t segments = inScratch ? schedule_.scratchSegments : schedule_.segments();
    if (location.pattern.run < 1) return internalError("runs of {} segments", location.pattern.run);
    if (location.count < 1 || location.count > segments)
      return internalError("{} segments of {}", location.count, segments);
    out->buffer = static_cast<device::BufferKind>(location.buffer);
    out->segments = {flat(location.segment), location.pattern.run, location.pattern.stride, segments};
    const bool own = location.rank == Affine(kSelf) ||
                     (location.rank.stride == 0 && location.rank.at(0) == schedule_.rank);
    for (int32_t i = 0; i < iterations; ++i) {
      const int32_t segment = location.segment.at(i);
      if (segment < 0 || segment >= segments)
        return internalError("{} segments from {} on, there are {}", location.count, segment, segments);
      if (!own) TUTTI_TRY(checkRank(location.rank.at(i)));
    }
    if (!own) {
      out->ofPeer = 1;
      out->rank = flat(location.rank);
    }
    return Status::ok();
  }

  Status checkRank(int32_t rank) const {
    if (rank < 0 || rank >= schedule_.ranks) return internalError("rank {} of {}", rank, schedule_.ranks);
    return Status::ok();
  }

  void notePeerBuffers(const device::Location& location) {
    if (location.ofPeer != 0 && location.buffer != device::BufferKind::scratch) head_.usesPeerBuffers = 1;
  }

  // ---- messages

  Status addMessages(const Step& step, int32_t iterations, device::Step* out) {
    if (out->receives == 0 && out->sends == 0) return Status::ok();
    if (out->pieces > schedule_.maxCount)
      return internalError("a message of {} segments, the schedule has {} at most", out->pieces,
                           schedule_.maxCount);
    head_.sendsMessages = 1;
    if (out->receives != 0) {
      out->receiveLink = static_cast<uint32_t>(linkNumbers_.size());
      out->receiveVaries = step.peerFrom.stride != 0 ? 1 : 0;
      TUTTI_TRY(addLinks(step.peerFrom, step.portFrom, false, out->receiveVaries != 0 ? iterations : 1));
    }
    if (out->sends != 0) {
      out->sendLink = static_cast<uint32_t>(linkNumbers_.size());
      out->sendVaries = step.peerTo.stride != 0 ? 1 : 0;
      TUTTI_TRY(addLinks(step.peerTo, step.portTo, true, out->sendVaries != 0 ? iterations : 1));
    }
    return Status::ok();
  }

  Status addLinks(const Affine& peer, int port, bool sends, int32_t iterations) {
    if (port < 0 || port >= kMaxPorts) return internalError("port {}: there are {}", port, kMaxPorts);
    for (int32_t i = 0; i < iterations; ++i) {
      TUTTI_ASSIGN(const uint16_t number, linkNumber(peer.at(i), port, sends));
      linkNumbers_.push_back(number);
    }
    return Status::ok();
  }

  Result<uint16_t> linkNumber(int32_t peer, int port, bool sends) {
    TUTTI_TRY(checkRank(peer).withContext("peer"));
    if (peer == schedule_.rank) return internalError("a message from rank {} to itself", peer);
    const auto key = std::tuple(peer, port, sends);
    const auto known = linkOf_.find(key);
    if (known != linkOf_.end()) return known->second;
    const auto [owner, isNew] = laneOfLink_.emplace(key, lane_);
    if (!isNew)
      return internalError("messages {} rank {} port {} are lane {}'s", sends ? "to" : "from", peer, port,
                           owner->second);
    if (linkOf_.size() == device::kMostLinks)
      return internalError("more than {} connections in one lane", device::kMostLinks);
    const auto number = static_cast<uint16_t>(linkOf_.size());
    links_.push_back({peer, static_cast<uint16_t>(port), static_cast<uint8_t>(sends ? 1 : 0), 0});
    linkOf_.emplace(key, number);
    return number;
  }

  // ---- teams and flags

  Result<const std::vector<int32_t>*> team(int number) const {
    if (number < 0 || static_cast<size_t>(number) >= schedule_.teams.size())
      return internalError("team {} of {}", number, schedule_.teams.size());
    const auto& members = schedule_.teams[static_cast<size_t>(number)];
    if (members.empty()) return internalError("team {} is empty", number);
    return &members;
  }

  Status addTeams(const Step& step, device::Step* out) {
    if (step.team >= 0) {
      if (out->hasSource == 0) return internalError("nothing to sum over team {}", step.team);
      if (out->receives != 0 && !step.messageFirst)
        return internalError("a message comes before the members of a team");
      TUTTI_ASSIGN(const auto* members, memoryTeam(step.team));
      out->sourceTeam = addRanks(*members, &out->sourceTeamCount);
      out->source.ofPeer = 1;
    } else if (step.kind == StepKind::reduceTeam) {
      return internalError("team {} of {}", step.team, schedule_.teams.size());
    }
    if (step.dstTeam >= 0) {
      if (out->hasDestination == 0) return internalError("nothing to store for team {}", step.dstTeam);
      TUTTI_ASSIGN(const auto* members, memoryTeam(step.dstTeam));
      out->destinationTeam = addRanks(*members, &out->destinationTeamCount);
      out->destination.ofPeer = 1;
    }
    return Status::ok();
  }

  /// A team whose memory a step uses: the kernel keeps an address for each member.
  Result<const std::vector<int32_t>*> memoryTeam(int number) const {
    TUTTI_ASSIGN(const auto* members, team(number));
    if (members->size() > device::kMostMembers)
      return internalError("team {} has {} ranks, kernels know {} at most", number, members->size(),
                           device::kMostMembers);
    return members;
  }

  uint32_t addRanks(const std::vector<int32_t>& members, uint32_t* count) {
    const auto at = static_cast<uint32_t>(ranks_.size());
    ranks_.insert(ranks_.end(), members.begin(), members.end());
    *count = static_cast<uint32_t>(members.size());
    return at;
  }

  Status addFlags(const Step& step, int32_t iterations, device::Step* out) {
    if (step.flag < 0 || step.flag >= kMaxFlags)
      return internalError("flag {}: there are {}", step.flag, kMaxFlags);
    const bool raises = step.kind == StepKind::signal;
    out->flag = static_cast<uint16_t>(step.flag);
    std::vector<int32_t> peers;
    if (step.team >= 0) {
      TUTTI_ASSIGN(const auto* members, team(step.team));
      for (const int32_t rank : *members)
        if (rank != schedule_.rank) peers.push_back(rank);
    } else {
      const Affine& peer = raises ? step.peerTo : step.peerFrom;
      out->flagVaries = peer.stride != 0 ? 1 : 0;
      for (int32_t i = 0; i < (out->flagVaries != 0 ? iterations : 1); ++i) peers.push_back(peer.at(i));
    }
    // Threads look after one of a team each.
    if (std::ranges::any_of(peers, [&](int32_t peer) { return std::ranges::count(peers, peer) > 1; }) &&
        out->flagVaries == 0)
      return internalError("team {} has a rank twice", step.team);
    for (const int32_t peer : peers) {
      TUTTI_TRY(checkRank(peer).withContext("peer"));
      // Its counters are advanced without atomic operations.
      const auto [owner, isNew] = laneOfFlag_.emplace(std::tuple(peer, step.flag, raises), lane_);
      if (!isNew && owner->second != lane_)
        return internalError("lane {} {} flag {} of rank {} too", owner->second,
                             raises ? "raises" : "waits for", step.flag, peer);
    }
    out->sourceTeam = addRanks(peers, &out->sourceTeamCount);
    return Status::ok();
  }

  // ---- the whole

  Result<FlatProgram> assemble() {
    head_.laneCount = static_cast<uint32_t>(lanes_.size());
    head_.stepCount = static_cast<uint32_t>(steps_.size());
    head_.rank = schedule_.rank;
    head_.ranks = schedule_.ranks;
    head_.root = schedule_.root;
    head_.parts = schedule_.parts;
    head_.blocksOfData = schedule_.blocks();
    head_.scratchSegments = schedule_.scratchSegments;
    head_.inputHoldsAll = holdsAllBlocks(schedule_.collective, Buffer::input) ? 1 : 0;
    head_.outputHoldsAll = holdsAllBlocks(schedule_.collective, Buffer::output) ? 1 : 0;
    head_.sharedScratch = schedule_.sharedScratch ? 1 : 0;
    head_.usesScratch = schedule_.scratchSegments > 0 ? 1 : 0;
    // Also where no step of this rank shows it: its peers need its addresses.
    if (schedule_.needsMappedUserBuffers()) head_.usesPeerBuffers = 1;
    size_t bytes = aligned(sizeof(device::Program));
    head_.lanesAt = place(lanes_, &bytes);
    head_.blocksAt = place(blocks_, &bytes);
    head_.stepsAt = place(steps_, &bytes);
    head_.linksAt = place(links_, &bytes);
    head_.linkNumbersAt = place(linkNumbers_, &bytes);
    head_.ranksAt = place(ranks_, &bytes);
    if (bytes > std::numeric_limits<uint32_t>::max())
      return internalError("schedule {} has {} bytes as a program", schedule_.name, bytes);
    head_.bytes = bytes;
    std::vector<std::byte> memory(bytes);
    std::memcpy(memory.data(), &head_, sizeof(head_));
    store(lanes_, head_.lanesAt, &memory);
    store(blocks_, head_.blocksAt, &memory);
    store(steps_, head_.stepsAt, &memory);
    store(links_, head_.linksAt, &memory);
    store(linkNumbers_, head_.linkNumbersAt, &memory);
    store(ranks_, head_.ranksAt, &memory);
    return FlatProgram(std::move(memory));
  }

  using LinkKey = std::tuple<int32_t, int, bool>;      // peer, port, sends
  using FlagKey = std::tuple<int32_t, int16_t, bool>;  // peer, flag, raises

  const Schedule& schedule_;
  device::Program head_;
  std::vector<device::Lane> lanes_;
  std::vector<device::Block> blocks_;
  std::vector<device::Step> steps_;
  std::vector<device::Link> links_;
  std::vector<uint16_t> linkNumbers_;
  std::vector<int32_t> ranks_;
  uint32_t lane_ = 0;
  std::map<LinkKey, uint16_t> linkOf_;  // of the lane
  std::map<LinkKey, uint32_t> laneOfLink_;
  std::map<FlagKey, uint32_t> laneOfFlag_;
};

Result<FlatProgram> flatten(const Schedule& schedule) { return Flattener(schedule).run(); }

}  // namespace tutti
