#include "transport/host_group.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/params.h"
#include "base/random.h"
#include "base/wire.h"

namespace tutti {
namespace {

/// Named segments are reserved in full when they are made (a full /dev/shm would be SIGBUS later), so only a
/// segment that is small in virtual size has this way.
constexpr size_t kMaxNamedBytes = size_t{1} << 30;
/// Passing a descriptor is local and answered by the peer's service thread: it takes long only when it fails.
constexpr std::chrono::seconds kPassLimit{15};

/// What a rank tells in step 1.
struct Offer {
  uint64_t key = 0;  // random: names the segments that this rank makes
  bool shmDisabled = false;
  bool p2pDisabled = false;
  MemoryServiceAddress memory;
  bool segment = false;  // its memory service has the host's segment

  std::string encode() const {
    WireWriter writer;
    writer.u64(key).u8(shmDisabled ? 1 : 0).u8(p2pDisabled ? 1 : 0).u8(segment ? 1 : 0).u64(memory.service);
    if (memory.service != 0) writer.raw(memory.socket.encode());
    return std::move(writer).bytes();
  }
  static Result<Offer> decode(std::string_view bytes) {
    WireReader reader(bytes);
    Offer offer;
    offer.key = reader.u64();
    offer.shmDisabled = reader.u8() != 0;
    offer.p2pDisabled = reader.u8() != 0;
    offer.segment = reader.u8() != 0;
    offer.memory.service = reader.u64();
    if (offer.memory.service != 0) {
      std::string_view rest = reader.raw(reader.left());
      offer.memory.socket = SocketAddress::decode(rest);
      if (!rest.empty() || !offer.memory.socket.isValid()) return internalError("malformed address");
    }
    if (!reader.finished()) return internalError("malformed offer of {} bytes", bytes.size());
    return offer;
  }
};

/// How a step ended for a rank, as told to all.
enum class Outcome : uint8_t { good, unmapped, fatal };
struct Report {
  Outcome outcome = Outcome::good;
  std::string text;  // the reason; in step 3 of a lowest rank: the segment's name
};

/// What a segment is for: added to the lowest rank's key, so that segments of one group are not taken for
/// each other.
enum class Purpose : uint64_t { file, named, process, apart };

class Joiner {
 public:
  Joiner(const std::vector<PeerInfo>& peers, int rank, const EndpointOptions& options, const Secret& secret,
         OobChannel& oob, const FaultState* faults, Deadline deadline)
      : peers_(peers),
        rank_(rank),
        options_(options),
        secret_(secret),
        oob_(oob),
        faults_(faults),
        deadline_(deadline) {}

  Result<HostGroup> run() {
    TUTTI_TRY(exchangeOffers());
    chooseGroups();
    TUTTI_ASSIGN(auto reports, exchangeReports(attach(), "map the host's shared memory"));
    if (std::any_of(reports.begin(), reports.end(), [](const auto& r) { return r.outcome != Outcome::good; }))
      TUTTI_TRY(fallBack(reports));
    HostGroup group;
    group.ranks = members();
    group.all = groups();
    placeMemory(group.ranks);
    group.segment = std::move(segment_);
    group.needsMessages = group.ranks.size() != peers_.size();
    group.directBuffers = !p2pDisabled_;
    if (memory_ && !named_ && spansProcesses()) {
      memory_->withdrawSegment();
      group.memory = std::move(memory_);
      for (const auto& offer : offers_) group.memoryAddresses.push_back(offer.memory);
    }
    return group;
  }

 private:
  /// Of this rank's part of the segment, which nobody has touched yet: that is only done after the barrier at
  /// the end of init.
  void placeMemory(const std::vector<int>& ranks) {
    if (options_.memoryNode < 0 || !segment_) return;
    const auto local = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
    segment_->placeRank(static_cast<int>(local), options_.memoryNode);
  }
  const PeerInfo& peer(int rank) const { return peers_[static_cast<size_t>(rank)]; }
  /// Lowest rank of this rank's group.
  int lowest() const { return lowest_[static_cast<size_t>(rank_)]; }
  const Offer& offerOf(int rank) const { return offers_[static_cast<size_t>(rank)]; }
  /// Random number that names a segment made for this rank's group.
  uint64_t key(Purpose purpose) const { return offerOf(lowest()).key + static_cast<uint64_t>(purpose); }

  std::vector<int> members() const {
    std::vector<int> ranks;
    for (const auto& other : peers_)
      if (lowest_[static_cast<size_t>(other.rank)] == lowest()) ranks.push_back(other.rank);
    return ranks;
  }
  std::vector<std::vector<int>> groups() const {
    std::map<int, std::vector<int>> byLowest;
    for (const auto& other : peers_) byLowest[lowest_[static_cast<size_t>(other.rank)]].push_back(other.rank);
    std::vector<std::vector<int>> all;
    for (auto& [first, ranks] : byLowest) all.push_back(std::move(ranks));
    return all;
  }
  bool spansProcesses() const {
    const auto ranks = members();
    return std::any_of(ranks.begin(), ranks.end(),
                       [&](int other) { return peer(other).processToken != peer(rank_).processToken; });
  }
  Result<HostSegmentLayout> layout() const {
    return HostSegmentLayout::make(
        {static_cast<int>(members().size()), options_.channels, options_.slotBytes, options_.scratchBytes});
  }

  /// Ranks with equal names become one group.
  void groupBy(const std::function<std::string(const PeerInfo&)>& name) {
    std::map<std::string, int> first;
    lowest_.clear();
    for (const auto& other : peers_)
      lowest_.push_back(first.try_emplace(name(other), other.rank).first->second);
  }
  static std::string hostName(const PeerInfo& info) { return "host " + info.hostId; }
  static std::string processName(const PeerInfo& info) {
    return fmt::format("process {} {}", info.processToken, info.hostId);
  }

  Status exchangeOffers() {
    Offer mine;
    TUTTI_TRY(randomBytes(&mine.key, sizeof(mine.key)));
    mine.shmDisabled = params().shmDisable();
    mine.p2pDisabled =
        params().p2pDisable() || (!params().p2pLevel.isAuto() && params().p2pLevel.level() == 0);
    groupBy(hostName);
    if (!mine.shmDisabled && spansProcesses()) {
      // Trouble here is not fatal: the named segment and sockets are left.
      Status status = offerSegment(mine);
      if (!status.isOk()) logInfo(Subsystem::shm, "rank {}: {}", rank_, status.message());
    }
    TUTTI_ASSIGN(const auto texts, oob_.allGather(mine.encode(), deadline_)
                                       .withContext("rank {}: exchange offers of shared memory", rank_));
    for (size_t i = 0; i < texts.size(); ++i) {
      TUTTI_ASSIGN(Offer offer, Offer::decode(texts[i]).withContext("rank {}: offer of rank {}", rank_, i));
      shmDisabled_ = shmDisabled_ || offer.shmDisabled;
      p2pDisabled_ = p2pDisabled_ || offer.p2pDisabled;
      offers_.push_back(std::move(offer));
    }
    return Status::ok();
  }

  Status offerSegment(Offer& mine) {
    TUTTI_ASSIGN(memory_, MemoryService::start(secret_));
    mine.memory = memory_->address();
    if (lowest() != rank_) return Status::ok();
    TUTTI_ASSIGN(const auto shape, layout());
    TUTTI_ASSIGN(auto file, MemoryFile::create("tutti-host-segment", shape.bytes()));
    TUTTI_ASSIGN(segment_, HostSegment::inFile(shape, std::move(file)));
    TUTTI_TRY(memory_->offerSegment(segment_->file().fd(), shape.bytes()));
    segment_->file().closeDescriptor();
    mine.segment = true;
    // Ranks of this process find the segment by this key.
    return shareInProcess(mine.key + static_cast<uint64_t>(Purpose::file),
                          [&]() -> Result<std::shared_ptr<HostSegment>> { return segment_; })
        .status();
  }

  void chooseGroups() {
    if (shmDisabled_ && p2pDisabled_) {
      groupBy([](const PeerInfo& info) { return fmt::format("rank {}", info.rank); });
    } else if (shmDisabled_) {
      groupBy(processName);
    }
    if (shmDisabled_) segment_.reset();
  }

  /// Step 2 for this rank.
  Report attach() {
    if (!spansProcesses()) return attachInProcess(Purpose::process);
    if (segment_) return {};
    const Offer& offer = offerOf(lowest());
    if (!offer.segment)
      return {Outcome::unmapped, fmt::format("rank {} could not offer a memory file", lowest())};
    auto shared = shareInProcess(key(Purpose::file), [&]() -> Result<std::shared_ptr<HostSegment>> {
      TUTTI_ASSIGN(const auto shape, layout());
      TUTTI_ASSIGN(auto file, fetchMemoryFile(peer(lowest()), offer.memory, secret_, 0, shape.bytes(),
                                              std::min(deadline_, Deadline::after(kPassLimit)), faults_));
      file.closeDescriptor();
      return HostSegment::inFile(shape, std::move(file));
    });
    return take(std::move(shared), Outcome::unmapped);
  }

  Report attachInProcess(Purpose purpose) {
    auto shared = shareInProcess(key(purpose), [&]() -> Result<std::shared_ptr<HostSegment>> {
      TUTTI_ASSIGN(const auto shape, layout());
      return HostSegment::anonymous(shape);
    });
    return take(std::move(shared), Outcome::fatal);
  }

  Report take(Result<std::shared_ptr<HostSegment>> shared, Outcome otherwise) {
    if (!shared.isOk()) return {otherwise, shared.status().message()};
    segment_ = std::move(shared).value();
    return {};
  }

  Result<std::vector<Report>> exchangeReports(const Report& mine, const char* what) {
    const std::string bytes = WireWriter().u8(static_cast<uint8_t>(mine.outcome)).string(mine.text).bytes();
    TUTTI_ASSIGN(const auto texts, oob_.allGather(bytes, deadline_).withContext("rank {}: {}", rank_, what));
    std::vector<Report> reports;
    for (size_t i = 0; i < texts.size(); ++i) {
      WireReader reader(texts[i]);
      Report report;
      report.outcome = static_cast<Outcome>(reader.u8());
      report.text = reader.string();
      if (!reader.finished()) return internalError("rank {}: malformed report of rank {}", rank_, i);
      if (report.outcome == Outcome::fatal)
        return Status(ncclSystemError, fmt::format("rank {} (host {}): {}: {}", i,
                                                   peer(static_cast<int>(i)).hostName, what, report.text));
      reports.push_back(std::move(report));
    }
    return reports;
  }

  /// Step 3.
  Status fallBack(const std::vector<Report>& first) {
    const bool affected = failedGroups(first).count(lowest()) != 0;
    if (affected) {
      logInfo(Subsystem::shm, "rank {}: memory files cannot be passed on host {} ({}): trying /dev/shm",
              rank_, peer(rank_).hostName, reasonIn(first));
      segment_.reset();
    }
    TUTTI_ASSIGN(const auto names,
                 exchangeReports(affected ? makeNamed() : Report{}, "make a named segment"));
    const Report opened = affected ? openNamed(names[static_cast<size_t>(lowest())]) : Report{};
    TUTTI_ASSIGN(const auto second, exchangeReports(opened, "open the named segment"));
    if (segment_ && lowest() == rank_)
      segment_->file().unlink();  // others of this process hold the same object
    // Groups where it failed for any rank fall apart into processes; the others keep what they have.
    const auto broken = failedGroups(second);
    const bool apart = broken.count(lowest()) != 0;
    named_ = affected && !apart;
    const std::vector<int> before = lowest_;
    groupBy([&](const PeerInfo& info) {
      const int group = before[static_cast<size_t>(info.rank)];
      return broken.count(group) != 0 ? processName(info) : fmt::format("group {}", group);
    });
    Report last;
    if (apart) {
      logInfo(Subsystem::shm, "rank {}: no memory shared with other processes of host {} ({}): using sockets",
              rank_, peer(rank_).hostName, opened.text.empty() ? "another rank failed" : opened.text);
      segment_.reset();
      last = attachInProcess(Purpose::apart);
    }
    return exchangeReports(last, "make memory for the ranks of this process").status();
  }

  /// Lowest ranks of the groups in which a rank has none of the group's memory.
  std::set<int> failedGroups(const std::vector<Report>& reports) const {
    std::set<int> groups;
    for (size_t i = 0; i < reports.size(); ++i)
      if (reports[i].outcome != Outcome::good) groups.insert(lowest_[i]);
    return groups;
  }
  /// Why it failed in this rank's group, of the first rank that says so.
  std::string reasonIn(const std::vector<Report>& reports) const {
    for (const int rank : members())
      if (const Report& report = reports[static_cast<size_t>(rank)]; report.outcome != Outcome::good)
        return fmt::format("rank {}: {}", rank, report.text);
    return {};
  }

  /// The lowest rank's part: a report that carries the name, or the reason why there is none.
  Report makeNamed() {
    if (lowest() != rank_) return {};
    const auto make = [&]() -> Status {
      TUTTI_ASSIGN(const auto shape, layout());
      if (shape.bytes() > kMaxNamedBytes)
        return invalidUsage("a named segment of {} MiB is more than we reserve in /dev/shm",
                            shape.bytes() >> 20);
      TUTTI_ASSIGN(auto file, MemoryFile::createNamed(shape.bytes()));
      TUTTI_ASSIGN(segment_, HostSegment::inFile(shape, std::move(file)));
      segment_->setTag(key(Purpose::named));
      return shareInProcess(key(Purpose::named),
                            [&]() -> Result<std::shared_ptr<HostSegment>> { return segment_; })
          .status();
    };
    if (Status status = make(); !status.isOk()) return {Outcome::unmapped, status.message()};
    return {Outcome::good, segment_->file().name()};
  }

  Report openNamed(const Report& made) {
    if (made.outcome != Outcome::good) return made;
    if (segment_) return {};
    auto shared = shareInProcess(key(Purpose::named), [&]() -> Result<std::shared_ptr<HostSegment>> {
      TUTTI_ASSIGN(const auto shape, layout());
      TUTTI_ASSIGN(auto file, MemoryFile::openNamed(made.text, shape.bytes()));
      TUTTI_ASSIGN(auto segment, HostSegment::inFile(shape, std::move(file)));
      if (segment->tag() != key(Purpose::named))
        return internalError("/dev/shm{} is another segment of that name", made.text);
      return segment;
    });
    return take(std::move(shared), Outcome::unmapped);
  }

  const std::vector<PeerInfo>& peers_;
  const int rank_;
  const EndpointOptions& options_;
  const Secret& secret_;
  OobChannel& oob_;
  const FaultState* faults_;
  const Deadline deadline_;

  std::vector<Offer> offers_;
  std::vector<int> lowest_;  // by rank: the lowest rank of its group
  std::shared_ptr<HostSegment> segment_;
  std::unique_ptr<MemoryService> memory_;
  bool shmDisabled_ = false;
  bool p2pDisabled_ = false;
  bool named_ = false;
};

}  // namespace

Result<HostGroup> joinHostGroup(const std::vector<PeerInfo>& peers, int rank, const EndpointOptions& options,
                                const Secret& secret, OobChannel& oob, const FaultState* faults,
                                Deadline deadline) {
  return Joiner(peers, rank, options, secret, oob, faults, deadline).run();
}

}  // namespace tutti
