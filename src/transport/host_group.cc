#include "transport/host_group.h"

#include <algorithm>
#include <map>
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

class Joiner {
 public:
  Joiner(const std::vector<PeerInfo>& peers, int rank, const EndpointOptions& options, const Secret& secret,
         OobChannel& oob, const FaultState* faults, Deadline deadline)
      : peers_(peers), rank_(rank), options_(options), secret_(secret), oob_(oob), faults_(faults),
        deadline_(deadline) {}

  Result<HostGroup> run() {
    TUTTI_TRY(exchangeOffers());
    chooseGroups();
    TUTTI_ASSIGN(auto reports, exchangeReports(attach(), "map the host's shared memory"));
    if (std::any_of(reports.begin(), reports.end(), [](const auto& r) { return r.outcome != Outcome::good; }))
      TUTTI_TRY(fallBack(reports));
    HostGroup group;
    group.ranks = members(rank_);
    group.segment = std::move(segment_);
    group.needsMessages = group.ranks.size() != peers_.size();
    group.directBuffers = !p2pDisabled_;
    if (memory_ && !named_ && spansProcesses(rank_)) {
      memory_->withdrawSegment();
      group.memory = std::move(memory_);
      for (const auto& offer : offers_) group.memoryAddresses.push_back(offer.memory);
    }
    return group;
  }

 private:
  const PeerInfo& peer(int rank) const { return peers_[static_cast<size_t>(rank)]; }
  /// Ranks with the same group label as `rank`.
  std::vector<int> members(int rank) const {
    std::vector<int> ranks;
    for (const auto& other : peers_)
      if (label_[static_cast<size_t>(other.rank)] == label_[static_cast<size_t>(rank)]) ranks.push_back(other.rank);
    return ranks;
  }
  bool spansProcesses(int rank) const {
    const auto ranks = members(rank);
    return std::any_of(ranks.begin(), ranks.end(),
                       [&](int other) { return peer(other).processToken != peer(rank).processToken; });
  }
  Result<HostSegmentLayout> layout() const {
    return HostSegmentLayout::make({static_cast<int>(members(rank_).size()), options_.channels,
                                    options_.slotBytes, options_.scratchBytes});
  }

  void labelBy(const std::function<std::string(const PeerInfo&)>& name) {
    label_.clear();
    for (const auto& other : peers_) label_.push_back(name(other));
  }
  static std::string hostLabel(const PeerInfo& info) { return "host " + info.hostId; }
  static std::string processLabel(const PeerInfo& info) {
    return fmt::format("process {} {}", info.processToken, info.hostId);
  }

  Status exchangeOffers() {
    Offer mine;
    TUTTI_TRY(randomBytes(&mine.key, sizeof(mine.key)));
    mine.shmDisabled = params().shmDisable();
    mine.p2pDisabled = params().p2pDisable();
    labelBy(hostLabel);
    if (!mine.shmDisabled && spansProcesses(rank_)) {
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
    if (members(rank_).front() != rank_) return Status::ok();
    TUTTI_ASSIGN(const auto shape, layout());
    TUTTI_ASSIGN(auto file, MemoryFile::create("tutti-host-segment", shape.bytes()));
    TUTTI_ASSIGN(segment_, HostSegment::inFile(shape, std::move(file)));
    TUTTI_TRY(memory_->offerSegment(segment_->file().fd(), shape.bytes()));
    segment_->file().closeDescriptor();
    mine.segment = true;
    // Ranks of this process find the segment by this key.
    return shareInProcess(mine.key, [&]() -> Result<std::shared_ptr<HostSegment>> { return segment_; }).status();
  }

  void chooseGroups() {
    if (shmDisabled_ && p2pDisabled_) {
      labelBy([](const PeerInfo& info) { return fmt::format("rank {}", info.rank); });
    } else if (shmDisabled_) {
      labelBy(processLabel);
    }
    if (shmDisabled_) segment_.reset();
  }

  /// Step 2 for this rank.
  Report attach() {
    const auto ranks = members(rank_);
    const Offer& lowest = offers_[static_cast<size_t>(ranks.front())];
    if (!spansProcesses(rank_)) return attachInProcess(lowest.key);
    if (segment_) return {};
    if (!lowest.segment)
      return {Outcome::unmapped, fmt::format("rank {} could not make a memory file", ranks.front())};
    auto shared = shareInProcess(lowest.key, [&]() -> Result<std::shared_ptr<HostSegment>> {
      TUTTI_ASSIGN(const auto shape, layout());
      TUTTI_ASSIGN(auto file, fetchMemoryFile(peer(ranks.front()), lowest.memory, secret_, 0, shape.bytes(),
                                              std::min(deadline_, Deadline::after(kPassLimit)), faults_));
      file.closeDescriptor();
      return HostSegment::inFile(shape, std::move(file));
    });
    return take(std::move(shared), Outcome::unmapped);
  }

  /// Also used when a host falls apart: `key` must be one that was not used for another segment.
  Report attachInProcess(uint64_t key) {
    auto shared = shareInProcess(key, [&]() -> Result<std::shared_ptr<HostSegment>> {
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
        return Status(ncclSystemError, fmt::format("rank {} (host {}): {}: {}", i, peer(static_cast<int>(i)).hostName,
                                                   what, report.text));
      reports.push_back(std::move(report));
    }
    return reports;
  }

  /// Step 3.
  Status fallBack(const std::vector<Report>& first) {
    const bool affected = anyUnmapped(first, members(rank_));
    if (affected)
      logInfo(Subsystem::shm, "rank {}: memory files cannot be passed on host {} ({}): trying /dev/shm", rank_,
              peer(rank_).hostName, firstReason(first, members(rank_)));
    if (affected) segment_.reset();
    TUTTI_ASSIGN(const auto names, exchangeReports(affected ? makeNamed() : Report{}, "make a named segment"));
    Report opened;
    if (affected) opened = openNamed(names[static_cast<size_t>(members(rank_).front())]);
    TUTTI_ASSIGN(const auto second, exchangeReports(opened, "open the named segment"));
    if (segment_) segment_->file().unlink();
    // Hosts where it failed for any rank fall apart into processes; the others keep what they have.
    std::vector<std::string> labels = label_;
    for (const auto& other : peers_)
      if (anyUnmapped(second, members(other.rank))) labels[static_cast<size_t>(other.rank)] = processLabel(other);
    const bool apart = anyUnmapped(second, members(rank_));
    label_ = std::move(labels);
    named_ = affected && !apart;
    Report last;
    if (apart) {
      logInfo(Subsystem::shm, "rank {}: no shared memory with other processes on host {} ({}): using sockets", rank_,
              peer(rank_).hostName, opened.text);
      segment_.reset();
      last = attachInProcess(offers_[static_cast<size_t>(members(rank_).front())].key + 2);
    }
    return exchangeReports(last, "make memory for the ranks of this process").status();
  }

  static bool anyUnmapped(const std::vector<Report>& reports, const std::vector<int>& ranks) {
    return std::any_of(ranks.begin(), ranks.end(), [&](int rank) {
      return reports[static_cast<size_t>(rank)].outcome != Outcome::good;
    });
  }
  static std::string firstReason(const std::vector<Report>& reports, const std::vector<int>& ranks) {
    for (const int rank : ranks)
      if (reports[static_cast<size_t>(rank)].outcome != Outcome::good)
        return fmt::format("rank {}: {}", rank, reports[static_cast<size_t>(rank)].text);
    return {};
  }

  /// The lowest rank's part: a report that carries the name, or the reason why there is none.
  Report makeNamed() {
    if (members(rank_).front() != rank_) return {};
    const auto make = [&]() -> Status {
      TUTTI_ASSIGN(const auto shape, layout());
      if (shape.bytes() > kMaxNamedBytes)
        return invalidUsage("a named segment of {} MiB is more than we reserve in /dev/shm", shape.bytes() >> 20);
      TUTTI_ASSIGN(auto file, MemoryFile::createNamed(shape.bytes()));
      TUTTI_ASSIGN(segment_, HostSegment::inFile(shape, std::move(file)));
      const uint64_t key = offers_[static_cast<size_t>(rank_)].key + 1;
      segment_->setTag(key);
      return shareInProcess(key, [&]() -> Result<std::shared_ptr<HostSegment>> { return segment_; }).status();
    };
    if (Status status = make(); !status.isOk()) return {Outcome::unmapped, status.message()};
    return {Outcome::good, segment_->file().name()};
  }

  Report openNamed(const Report& lowest) {
    if (lowest.outcome != Outcome::good) return lowest;
    if (segment_) return {};
    const uint64_t key = offers_[static_cast<size_t>(members(rank_).front())].key + 1;
    auto shared = shareInProcess(key, [&]() -> Result<std::shared_ptr<HostSegment>> {
      TUTTI_ASSIGN(const auto shape, layout());
      TUTTI_ASSIGN(auto file, MemoryFile::openNamed(lowest.text, shape.bytes()));
      TUTTI_ASSIGN(auto segment, HostSegment::inFile(shape, std::move(file)));
      if (segment->tag() != key) return internalError("/dev/shm{} is another segment of that name", lowest.text);
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
  std::vector<std::string> label_;  // by rank; equal labels: one group
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
