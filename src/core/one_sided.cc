#include "core/one_sided.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/log.h"
#include "base/params.h"
#include "base/wire.h"
#include "core/communicator.h"
#include "device/device_world.h"
#include "device/host_table.h"

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kMessageTag = 0x6f6e652d73696465;  // "one-side"
constexpr size_t kMessageBytes = 256 * 1024;          // of data in one message
constexpr size_t kMostQueued = 4 * 1024 * 1024;       // bytes on the way to one peer
constexpr size_t kInlineBytes = 64 * 1024;            // copied by the thread that calls
constexpr auto kSpin = std::chrono::microseconds(50);
constexpr uint32_t kSleepMicros = 10'000;  // between looks at the fault state; a signal wakes at once

enum class MessageKind : uint8_t { put = 1, signal = 2 };

std::string_view bytesOf(const BufferDescriptor& descriptor) {
  return {reinterpret_cast<const char*>(&descriptor), sizeof descriptor};
}

}  // namespace

OneSided::OneSided(Communicator& communicator)
    : communicator_(communicator),
      messages_(static_cast<size_t>(communicator.ranks()) * kSignals),
      awaited_(messages_.size()),
      peers_(static_cast<size_t>(communicator.ranks())) {
  communicator_.control().handle(kMessageTag,
                                 [this](int peer, std::string_view bytes) { onMessage(peer, bytes); });
}

OneSided::~OneSided() {
  if (mapped_ == nullptr) return;
  if (auto runtime = hostTable(); runtime.isOk()) (*runtime)->memoryFree(mapped_);
}

Status OneSided::allocateSignals() {
  if (mapped_ != nullptr || world() == World::gpus) return Status::ok();  // there: collectives only
  TUTTI_ASSIGN(const tuttiHostRuntime_v1* runtime, hostTable());
  void* memory = nullptr;
  const size_t bytes = messages_.size() * sizeof(std::atomic<uint64_t>);
  if (const int error = runtime->memoryAllocate(communicator_.device(), bytes, &memory); error != 0)
    return systemError(error, "allocate {} bytes for signals", bytes);
  mapped_ = static_cast<std::atomic<uint64_t>*>(memory);  // zeroed by the runtime
  return Status::ok();
}

/// Every rank's window and signals, as its peers can reach them.
Result<std::vector<std::string>> OneSided::exchangeWindow(const void* buffer, size_t bytes) {
  Endpoint& endpoint = communicator_.endpoint();
  const size_t signalBytes = messages_.size() * sizeof(std::atomic<uint64_t>);
  WireWriter mine;
  mine.u64(registered_ + 1).u64(bytes).raw(bytesOf(endpoint.describe(buffer, bytes)));
  mine.raw(bytesOf(endpoint.describe(mapped_, signalBytes)));
  return communicator_.exchange(mine.bytes(), Deadline::after(std::chrono::seconds(params().initTimeout())));
}

/// Where the peer's memory is here, or null.
std::shared_ptr<void> OneSided::map(int peer, const BufferDescriptor& buffer, std::byte*& address) {
  address = nullptr;
  Endpoint& endpoint = communicator_.endpoint();
  const bool reachable =
      endpoint.mapped(peer) && buffer.address != 0 && (endpoint.sameProcess(peer) || buffer.fileId != 0);
  if (!reachable) return nullptr;
  auto mapping = endpoint.mapForGood(peer, buffer, Deadline::after(std::chrono::seconds(30)));
  if (!mapping.isOk()) {
    logInfo(Subsystem::reg, "rank {}: memory of rank {} is reached by messages: {}", communicator_.rank(),
            peer, mapping.status().message());
    return nullptr;
  }
  address = mapping->address;
  return std::move(mapping->keep);
}

Status OneSided::connectPeer(int peer, std::string_view description, Window& window) {
  WireReader in(description);
  const uint64_t id = in.u64();
  Window::Peer& other = window.peers[static_cast<size_t>(peer)];
  other.bytes = in.u64();
  BufferDescriptor memory, signals;
  for (BufferDescriptor* descriptor : {&memory, &signals}) {
    const std::string_view raw = in.raw(sizeof(BufferDescriptor));
    if (in.ok()) std::memcpy(descriptor, raw.data(), sizeof *descriptor);
  }
  if (!in.finished() || id != window.id)
    return invalidUsage("rank {} is not in ncclCommWindowRegister, but in another call on this communicator",
                        peer);
  other.mapping = map(peer, memory, other.address);
  PeerSignals& theirs = peers_[static_cast<size_t>(peer)];
  if (theirs.counters == nullptr) {
    std::byte* address = nullptr;
    theirs.mapping = map(peer, signals, address);
    theirs.counters = reinterpret_cast<std::atomic<uint64_t>*>(address);
  }
  return Status::ok();
}

bool OneSided::isSymmetric(const void* memory, size_t bytes) {
  const auto first = reinterpret_cast<uintptr_t>(memory);
  const std::lock_guard lock(windowsMutex_);
  return std::ranges::any_of(windows_, [&](const auto& entry) {
    const Window& window = *entry.second;
    const auto base = reinterpret_cast<uintptr_t>(window.base);
    return window.symmetric && first >= base && bytes <= window.bytes && first - base <= window.bytes - bytes;
  });
}

Status OneSided::registerWindow(void* buffer, size_t bytes, bool symmetric, ncclWindow_t* window) {
  const std::lock_guard lock(setup_);
  TUTTI_TRY(allocateSignals());
  auto made = std::make_shared<Window>();
  made->id = registered_ + 1;
  made->base = buffer;
  made->bytes = bytes;
  made->symmetric = symmetric;
  made->peers.resize(static_cast<size_t>(communicator_.ranks()));
  {
    // Before the others know of it: they may write at once.
    const std::lock_guard windows(windowsMutex_);
    windows_[made->id] = made;
  }
  auto all = exchangeWindow(buffer, bytes);
  Status status = all.status();
  for (int peer = 0; status.isOk() && peer < communicator_.ranks(); ++peer)
    status = connectPeer(peer, (*all)[static_cast<size_t>(peer)], *made);
  ++registered_;
  if (status.isOk()) {
    *window = made->handle();
    return status;
  }
  const std::lock_guard windows(windowsMutex_);
  windows_.erase(made->id);
  return status;
}

Status OneSided::deregisterWindow(ncclWindow_t window) {
  const std::lock_guard lock(windowsMutex_);
  for (auto known = windows_.begin(); known != windows_.end(); ++known) {
    if (known->second->handle() != window) continue;
    windows_.erase(known);
    return Status::ok();
  }
  return invalidArgument("{} is not a window of this communicator, or was deregistered before",
                         static_cast<const void*>(window));
}

Result<std::shared_ptr<Window>> OneSided::find(ncclWindow_t window) {
  const std::lock_guard lock(windowsMutex_);
  for (const auto& [id, known] : windows_)
    if (known->handle() == window) return known;
  return invalidArgument("{} is not a window of this communicator, or was deregistered",
                         static_cast<const void*>(window));
}

Status OneSided::checkPut(const OneSidedCall& call) const {
  const uint64_t room = call.window->peers[static_cast<size_t>(call.peer)].bytes;
  if (call.offset <= room && call.bytes <= room - call.offset) return Status::ok();
  return invalidArgument("{} bytes at offset {} do not fit the window of rank {}, which has {} bytes",
                         call.bytes, call.offset, call.peer, room);
}

uint64_t OneSided::arrived(int peer, int index) const {
  const size_t at = slot(peer, index);
  const uint64_t byMemory = mapped_ != nullptr ? mapped_[at].load(std::memory_order_acquire) : 0;
  return byMemory + messages_[at].load(std::memory_order_acquire);
}

bool OneSided::tryExecute(const OneSidedCall& call, Status* status) {
  if (call.kind == OneSidedCall::Kind::wait) {
    // As many signals as it takes at once, or none: other streams may wait for the same ones.
    std::atomic<uint64_t>& awaited = awaited_[slot(call.peer, call.signal)];
    uint64_t before = awaited.load(std::memory_order_relaxed);
    do {
      if (arrived(call.peer, call.signal) < before + call.count) return false;
    } while (!awaited.compare_exchange_weak(before, before + call.count, std::memory_order_relaxed));
    *status = communicator_.error();
    return true;
  }
  const PeerSignals& peer = peers_[static_cast<size_t>(call.peer)];
  if (peer.counters == nullptr || peer.byMessage.load(std::memory_order_relaxed)) return false;
  if (call.kind == OneSidedCall::Kind::put &&
      (call.bytes > kInlineBytes || call.window->peers[static_cast<size_t>(call.peer)].address == nullptr)) {
    return false;
  }
  *status = execute(call);
  return true;
}

Status OneSided::execute(const OneSidedCall& call) {
  TUTTI_TRY(communicator_.error());
  switch (call.kind) {
    case OneSidedCall::Kind::put:
      TUTTI_TRY(put(call));
      return signal(call.peer, call.signal);
    case OneSidedCall::Kind::signal:
      return signal(call.peer, call.signal);
    case OneSidedCall::Kind::wait:
      break;
  }
  return await(call);
}

Status OneSided::put(const OneSidedCall& call) {
  if (call.bytes == 0) return Status::ok();
  std::byte* const base = call.window->peers[static_cast<size_t>(call.peer)].address;
  if (base == nullptr) return putByMessage(call);
  std::memcpy(base + call.offset, call.source, call.bytes);
  return Status::ok();
}

Status OneSided::putByMessage(const OneSidedCall& call) {
  peers_[static_cast<size_t>(call.peer)].byMessage.store(true, std::memory_order_relaxed);
  const char* source = static_cast<const char*>(call.source);
  for (size_t done = 0; done < call.bytes;) {
    const size_t now = std::min(kMessageBytes, call.bytes - done);
    WireWriter message;
    message.u8(static_cast<uint8_t>(MessageKind::put)).u64(call.window->id).u64(call.offset + done);
    message.raw(std::string_view(source + done, now));
    TUTTI_TRY(sendMessage(call.peer, message.bytes()));
    done += now;
  }
  return Status::ok();
}

Status OneSided::signal(int peer, int index) {
  PeerSignals& theirs = peers_[static_cast<size_t>(peer)];
  if (theirs.counters != nullptr && !theirs.byMessage.load(std::memory_order_relaxed)) {
    theirs.counters[slot(communicator_.rank(), index)].fetch_add(1, std::memory_order_release);
    communicator_.endpoint().bell(peer)->ring();
    return Status::ok();
  }
  WireWriter message;
  message.u8(static_cast<uint8_t>(MessageKind::signal)).u64(static_cast<uint64_t>(index)).u64(0);
  return sendMessage(peer, message.bytes());
}

/// Waits while too much is on its way, so that a slow peer does not fill our memory.
Status OneSided::sendMessage(int peer, std::string_view bytes) {
  Control& control = communicator_.control();
  if (peer == communicator_.rank()) {
    onMessage(peer, bytes);
    return Status::ok();
  }
  while (control.queuedBytes(peer) > kMostQueued) {
    TUTTI_TRY(communicator_.error());
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return control.send(peer, kMessageTag, bytes,
                      Deadline::after(std::chrono::seconds(params().initTimeout())));
}

Status OneSided::await(const OneSidedCall& call) {
  const size_t at = slot(call.peer, call.signal);
  const uint64_t target = awaited_[at].fetch_add(call.count, std::memory_order_relaxed) + call.count;
  const auto spinEnd = Clock::now() + kSpin;
  while (arrived(call.peer, call.signal) < target && Clock::now() < spinEnd) std::this_thread::yield();
  if (arrived(call.peer, call.signal) >= target) return Status::ok();
  const Monitor::OutsideWait outside(
      communicator_.monitor(),
      {.kind = CallName::Kind::waitSignal, .root = call.peer, .count = static_cast<uint64_t>(call.signal)},
      {.peer = call.peer, .what = WaitFor::What::signal});
  Doorbell& bell = *communicator_.endpoint().bell(communicator_.rank());
  while (arrived(call.peer, call.signal) < target) {
    TUTTI_TRY(communicator_.error());
    const uint32_t ticket = bell.prepare();
    if (arrived(call.peer, call.signal) < target) bell.sleep(ticket, kSleepMicros);
    bell.finish();
  }
  return Status::ok();
}

/// On the service thread: a peer's put or signal.
void OneSided::onMessage(int peer, std::string_view bytes) {
  WireReader in(bytes);
  const auto kind = static_cast<MessageKind>(in.u8());
  const uint64_t first = in.u64();
  const uint64_t offset = in.u64();
  const std::string_view data = in.raw(in.left());
  if (kind == MessageKind::signal && in.ok() && first < kSignals) {
    messages_[slot(peer, static_cast<int>(first))].fetch_add(1, std::memory_order_release);
    communicator_.endpoint().bell(communicator_.rank())->ring();
    return;
  }
  std::shared_ptr<Window> window;
  {
    const std::lock_guard lock(windowsMutex_);
    if (const auto known = windows_.find(first); known != windows_.end()) window = known->second;
  }
  if (kind != MessageKind::put || window == nullptr || offset > window->bytes ||
      data.size() > window->bytes - offset) {
    communicator_.fail(
        remoteError("rank {} wrote {} bytes at offset {} of a window that is not there any more", peer,
                    data.size(), offset));
    return;
  }
  std::memcpy(static_cast<std::byte*>(window->base) + offset, data.data(), data.size());
}

}  // namespace tutti
