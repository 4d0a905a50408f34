#include "transport/p2p/device_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace tutti {

// ---- memory of connections
// ------------------------------------------------------------------------------------

/// Zeroed memory of one device (or pinned memory) for parts of connections, which all live as long as the
/// group. Taken from the driver in large chunks: its allocations are slow, and may wait for kernels.
class DeviceGroup::Arena {
 public:
  /// `device` -1: pinned memory.
  Arena(Driver& driver, int device) : driver_(driver), device_(device) {}
  ~Arena() {
    for (const Chunk& chunk : chunks_)
      (device_ < 0 ? driver_.freeHost(chunk.base) : driver_.free(device_, chunk.base)).ignore();
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  Result<std::byte*> take(size_t bytes) {
    const size_t reserved = device::SegmentLayout::roundUp(bytes, kAlignment);
    for (Chunk& chunk : chunks_)
      if (chunk.bytes - chunk.used >= reserved) return chunk.take(reserved);
    const size_t chunkBytes = std::max(kChunkBytes, device::SegmentLayout::roundUp(reserved, kPageBytes));
    TUTTI_ASSIGN(std::byte * base,
                 device_ < 0 ? driver_.allocateHost(chunkBytes) : driver_.allocate(device_, chunkBytes));
    chunks_.push_back({base, chunkBytes, 0});
    return chunks_.back().take(reserved);
  }

 private:
  static constexpr size_t kChunkBytes = size_t{16} << 20;
  static constexpr size_t kPageBytes = size_t{2} << 20;  // what drivers round up to anyway
  static constexpr size_t kAlignment = 512;              // no two parts share a line or a sector
  struct Chunk {
    std::byte* base;
    size_t bytes;
    size_t used;
    std::byte* take(size_t count) { return base + std::exchange(used, used + count); }
  };

  Driver& driver_;
  const int device_;
  std::vector<Chunk> chunks_;
};

struct DeviceGroup::State {
  using Key = std::tuple<int, int, uint32_t, uint32_t>;  // src, dst, channel, port
  /// A call that some ranks have enqueued and others have not.
  struct Call {
    uint64_t digest;
    std::string text;
    int rank;  // that came first
    int reached;
  };
  bool compares = true;  // guarded by callMutex
  /// Texts of calls beyond so many are not kept: a rank may be far ahead.
  static constexpr size_t kMostTexts = 4096;

  std::mutex connectionMutex;   // guards arenas and connections
  std::map<int, Arena> arenas;  // by device
  std::map<Key, Connection> connections;

  std::mutex callMutex;                      // guards what follows
  std::unordered_map<uint64_t, Call> calls;  // by number
  std::vector<uint64_t> latest;              // by rank: number of its last call

  Arena& arena(Driver& driver, int device) {
    return arenas.try_emplace(device, driver, device).first->second;
  }
};

// ---- the meeting of a group's ranks
// --------------------------------------------------------------------------------

struct DeviceGroup::Meeting {
  std::mutex mutex;
  std::condition_variable changed;
  DeviceGroupOptions options;  // of the first to come
  std::vector<int> devices;    // by rank; -1: not there yet
  int present = 0;
  bool building = false;  // all are there, and the last to come makes the group
  Status error;
  std::shared_ptr<DeviceGroup> group;

  /// The meeting of a key, made by whoever comes first. It leaves the table once it has an outcome, and lives
  /// until the last rank has seen that.
  static std::shared_ptr<Meeting> of(uint64_t key, int ranks);
  static void forget(uint64_t key, const Meeting* meeting);

  /// The rank sits down. An error is everybody's.
  Status enter(int rank, int ranks, int device, const DeviceGroupOptions& wanted);
  void fail(Status why) {
    if (error.isOk()) error = std::move(why);
    changed.notify_all();
  }
  std::string missing() const;

  static std::mutex& tableMutex() {
    static auto* one = new std::mutex;
    return *one;
  }
  static std::map<uint64_t, std::shared_ptr<Meeting>>& table() {
    static auto* all = new std::map<uint64_t, std::shared_ptr<Meeting>>;
    return *all;
  }
};

std::shared_ptr<DeviceGroup::Meeting> DeviceGroup::Meeting::of(uint64_t key, int ranks) {
  const std::lock_guard lock(tableMutex());
  std::shared_ptr<Meeting>& meeting = table()[key];
  if (!meeting) {
    meeting = std::make_shared<Meeting>();
    meeting->devices.assign(static_cast<size_t>(ranks), -1);
  }
  return meeting;
}

void DeviceGroup::Meeting::forget(uint64_t key, const Meeting* meeting) {
  const std::lock_guard lock(tableMutex());
  const auto found = table().find(key);
  if (found != table().end() && found->second.get() == meeting) table().erase(found);
}

Status DeviceGroup::Meeting::enter(int rank, int ranks, int device, const DeviceGroupOptions& wanted) {
  if (!error.isOk()) return error;
  const auto count = static_cast<int>(devices.size());
  if (ranks != count || rank < 0 || rank >= count)
    return internalError("rank {} of {} joins a group of {}", rank, ranks, count);
  if (devices[static_cast<size_t>(rank)] >= 0) return internalError("rank {} joins its group twice", rank);
  const auto shape = [](const DeviceGroupOptions& o) {
    return std::tuple(o.layout.ranks, o.layout.channels, o.layout.scratchHalfBytes, o.slotBytes,
                      o.linesOfSlotLL, o.linesOfSlotLL128);
  };
  if (present == 0) options = wanted;
  if (shape(options) != shape(wanted))
    return internalError("rank {} joins its group with other sizes of segments or slots", rank);
  devices[static_cast<size_t>(rank)] = device;
  ++present;
  return Status::ok();
}

std::string DeviceGroup::Meeting::missing() const {
  std::string text;
  for (size_t rank = 0; rank < devices.size(); ++rank)
    if (devices[rank] < 0) text += fmt::format("{}{}", text.empty() ? "" : ", ", rank);
  return text;
}

Result<std::shared_ptr<DeviceGroup>> DeviceGroup::join(Driver& driver, uint64_t key, int rank, int ranks,
                                                       int device, const DeviceGroupOptions& options,
                                                       const FaultState* faults, Deadline deadline) {
  if (ranks < 1) return internalError("a group of {} ranks", ranks);
  const std::shared_ptr<Meeting> meeting = Meeting::of(key, ranks);
  std::unique_lock lock(meeting->mutex);
  const Status entered = meeting->enter(rank, ranks, device, options);
  if (!entered.isOk()) {
    meeting->fail(entered);
    Meeting::forget(key, meeting.get());
    return entered;
  }
  if (meeting->present == ranks) {
    // The others wait; drivers are slow, so not under the lock, which a rank that gives up wants.
    meeting->building = true;
    const std::vector<int> devices = meeting->devices;
    lock.unlock();
    auto built = build(driver, devices, options);
    lock.lock();
    if (built.isOk())
      meeting->group = *built;
    else
      meeting->fail(built.status());
    meeting->changed.notify_all();
    Meeting::forget(key, meeting.get());
    return built;
  }
  constexpr std::chrono::milliseconds kFaultPoll(10);
  while (!meeting->group && meeting->error.isOk()) {
    if (!meeting->building) {
      Status why;
      if (faults != nullptr && faults->stopped())
        why = faults->error();
      else if (deadline.passed())
        why = Status(kTimeoutResult, fmt::format("rank {}: waited for ranks of this process to make their "
                                                 "communicator; missing: {}",
                                                 rank, meeting->missing()));
      if (!why.isOk()) {
        meeting->fail(why);
        Meeting::forget(key, meeting.get());
        return why;
      }
    }
    meeting->changed.wait_for(lock, kFaultPoll);
  }
  if (!meeting->group) return meeting->error;
  return meeting->group;
}

// ---- the group
// -----------------------------------------------------------------------------------------------------

namespace {

/// Why the ranks cannot reach each other's memory; empty when they can, and then they may from here on.
Result<std::string> obstacle(Driver& driver, const std::vector<int>& devices,
                             const DeviceGroupOptions& options) {
  const auto ranks = static_cast<int>(devices.size());
  for (int rank = 0; rank < ranks; ++rank)
    for (int peer = 0; peer < ranks; ++peer) {
      if (rank == peer) continue;
      const int device = devices[static_cast<size_t>(rank)], other = devices[static_cast<size_t>(peer)];
      std::string why;
      if (options.mayReach && !options.mayReach(rank, peer, &why))
        return fmt::format("rank {} (device {}) and rank {} (device {}): {}", rank, device, peer, other, why);
      TUTTI_ASSIGN(const bool reaches, driver.canAccessPeer(device, other));
      if (!reaches)
        return fmt::format("rank {} (device {}) and rank {} (device {}): no access between the devices", rank,
                           device, peer, other);
    }
  const std::set<int> distinct(devices.begin(), devices.end());
  for (const int device : distinct)
    for (const int other : distinct) {
      if (device == other) continue;
      // A device has a limited number of peers, for instance.
      if (const Status enabled = driver.enablePeerAccess(device, other); !enabled.isOk())
        return enabled.message();
    }
  return std::string();
}

}  // namespace

Result<std::shared_ptr<DeviceGroup>> DeviceGroup::build(Driver& driver, const std::vector<int>& devices,
                                                        const DeviceGroupOptions& options) {
  std::shared_ptr<DeviceGroup> group(new DeviceGroup);
  group->driver_ = &driver;
  group->options_ = options;
  group->options_.mayReach = nullptr;  // answers for the rank that makes the group, which may go before it
  group->state_ = std::make_unique<State>();
  group->state_->latest.resize(devices.size());
  TUTTI_ASSIGN(group->stagedWhy_, obstacle(driver, devices, options));
  group->staged_ = !group->stagedWhy_.empty();
  for (size_t rank = 0; rank < devices.size(); ++rank) {
    const size_t bytes = options.layout.bytes();
    TUTTI_ASSIGN(std::byte * segment,
                 (group->staged_ ? driver.allocateHost(bytes) : driver.allocate(devices[rank], bytes))
                     .withContext("the segment of rank {}", rank));
    group->members_.push_back({devices[rank], segment});
  }
  return group;
}

DeviceGroup::~DeviceGroup() {
  for (const Member& member : members_)
    (staged_ ? driver_->freeHost(member.segment) : driver_->free(member.device, member.segment)).ignore();
}

int DeviceGroup::ranksOn(int device) const {
  return static_cast<int>(
      std::ranges::count_if(members_, [&](const Member& member) { return member.device == device; }));
}

std::string DeviceGroup::transportName(int src, int dst) const {
  return fmt::format("P2P/{} (device {} -> {})", staged_ ? "staged" : "direct", device(src), device(dst));
}

Result<DeviceGroup::Connection> DeviceGroup::connect(int src, int dst, uint32_t channel, uint32_t port) {
  if (src < 0 || src >= ranks() || dst < 0 || dst >= ranks())
    return internalError("connection {} -> {} in a group of {} ranks", src, dst, ranks());
  const std::lock_guard lock(state_->connectionMutex);
  const State::Key key(src, dst, channel, port);
  if (const auto found = state_->connections.find(key); found != state_->connections.end())
    return found->second;

  const auto context = [&](Result<std::byte*> taken) {
    return std::move(taken).withContext("connection of rank {} to rank {}, channel {}, port {}", src, dst,
                                        channel, port);
  };
  constexpr int kPinned = -1;
  Arena& ofSender = state_->arena(*driver_, staged_ ? kPinned : device(src));
  Arena& ofReceiver = state_->arena(*driver_, staged_ ? kPinned : device(dst));
  const size_t slotBytes = device::kFifoDepth * options_.slotBytes;
  const size_t bytesLL = size_t{device::kFifoDepth} * options_.linesOfSlotLL * sizeof(device::LineLL);
  const size_t bytesLL128 =
      size_t{device::kFifoDepth} * options_.linesOfSlotLL128 * sizeof(device::LineLL128);
  TUTTI_ASSIGN(std::byte * slots, context(ofReceiver.take(slotBytes)));
  TUTTI_ASSIGN(std::byte * linesLL, context(ofReceiver.take(bytesLL)));
  TUTTI_ASSIGN(std::byte * linesLL128, context(ofReceiver.take(bytesLL128)));
  TUTTI_ASSIGN(std::byte * tail, context(ofReceiver.take(sizeof(device::MessageTail))));
  TUTTI_ASSIGN(std::byte * head, context(ofSender.take(sizeof(uint64_t))));
  // What one side alone uses is on its device also where the rest is in the host's memory.
  TUTTI_ASSIGN(std::byte * sent, context(state_->arena(*driver_, device(src)).take(sizeof(uint64_t))));
  TUTTI_ASSIGN(std::byte * received, context(state_->arena(*driver_, device(dst)).take(sizeof(uint64_t))));

  Connection made;
  made.sender.slots = slots;
  made.sender.linesLL = reinterpret_cast<device::LineLL*>(linesLL);
  made.sender.linesLL128 = reinterpret_cast<device::LineLL128*>(linesLL128);
  made.sender.tail = reinterpret_cast<device::MessageTail*>(tail);
  made.sender.head = reinterpret_cast<const uint64_t*>(head);
  made.sender.sent = reinterpret_cast<uint64_t*>(sent);
  made.receiver.slots = made.sender.slots;
  made.receiver.linesLL = made.sender.linesLL;
  made.receiver.linesLL128 = made.sender.linesLL128;
  made.receiver.tail = made.sender.tail;
  made.receiver.head = reinterpret_cast<uint64_t*>(head);
  made.receiver.received = reinterpret_cast<uint64_t*>(received);
  return state_->connections.emplace(key, made).first->second;
}

void DeviceGroup::stopComparing() {
  const std::lock_guard lock(state_->callMutex);
  state_->compares = false;
  state_->calls.clear();
}

Status DeviceGroup::compareCall(int rank, uint64_t number, uint64_t digest, const std::string& text) {
  const std::lock_guard lock(state_->callMutex);
  if (!state_->compares) return Status::ok();
  uint64_t& latest = state_->latest[static_cast<size_t>(rank)];
  const bool isNew = number > latest;
  auto found = state_->calls.find(number);
  if (found == state_->calls.end()) {
    if (!isNew || ranks() == 1) return Status::ok();
    latest = number;
    State::Call first{digest, {}, rank, 1};
    if (state_->calls.size() < State::kMostTexts) first.text = text;
    state_->calls.emplace(number, std::move(first));
    return Status::ok();
  }
  State::Call& call = found->second;
  if (call.digest != digest)
    return invalidUsage("calls do not match: call {} of rank {} is {}, that of rank {} is {}", number, rank,
                        text, call.rank, call.text.empty() ? "another one (it came long before)" : call.text);
  if (!isNew) return Status::ok();
  latest = number;
  if (++call.reached == ranks()) state_->calls.erase(found);
  return Status::ok();
}

}  // namespace tutti
