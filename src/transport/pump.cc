#include "transport/pump.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

namespace tutti {

Result<LocalRing> LocalRing::make(size_t slotBytes) {
  const size_t bytes = sizeof(FifoControl) + kLocalSlots * slotBytes;
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return systemError(errno, "map {} bytes for a message queue", bytes);
  return LocalRing(static_cast<std::byte*>(base), bytes, slotBytes);
}

LocalRing::LocalRing(LocalRing&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), bytes_(other.bytes_), slotBytes_(other.slotBytes_) {}

LocalRing::~LocalRing() {
  if (base_ != nullptr) ::munmap(base_, bytes_);
}

NetLane::~NetLane() {
  if (connection_ && memory_.handle != nullptr) connection_->deregisterMemory(memory_);
}

Status NetLane::connect(std::unique_ptr<NetConnection>& connection, uint64_t guard) {
  TUTTI_ASSIGN(memory_, connection->registerMemory(ring_.slots(), kLocalSlots * ring_.slotBytes()));
  connection_ = std::move(connection);
  guard_ = guard;
  return Status::ok();
}

Status NetLane::pump(bool* moved) {
  if (!connection_ || failed_) return Status::ok();
  Status status = move(moved);
  if (!status.isOk()) failed_ = true;
  return status;
}

SendLane::SendLane(LaneId id, LocalRing ring, Doorbell* userBell)
    : NetLane(id, std::move(ring), userBell),
      user_(ring_.control(), ring_.slots(), ring_.slotBytes(), &noBell_, kLocalSlots) {}

bool SendLane::pending() const {
  // relaxed: asked by the thread that publishes, or after it has stopped
  return ring_.control()->tail.load(std::memory_order_relaxed) != done_;
}

Status SendLane::move(bool* moved) {
  FifoControl* control = ring_.control();
  const uint64_t tail = control->tail.load(std::memory_order_acquire);  // acquire: pairs with publish()
  while (posted_ < tail) {
    const uint32_t bytes = control->bytes[posted_ % kFifoSlots].load(std::memory_order_relaxed);
    if (!connection_->isend(ring_.slot(posted_), bytes, memory_)) break;
    ++posted_;
    *moved = true;
  }
  uint64_t done = done_;
  TUTTI_TRY(connection_->test(&done));
  if (done != done_) {
    done_ = done;
    control->head.store(done, std::memory_order_release);  // release: the slots have been read
    userBell_->ring();
    *moved = true;
  }
  if (connection_->peerLeft() && posted_ != done_)
    return remoteError("{} has left, but {} messages for it were not delivered", connection_->peerAddress(),
                       posted_ - done_);
  return Status::ok();
}

ReceiveLane::ReceiveLane(LaneId id, LocalRing ring, Doorbell* userBell)
    : NetLane(id, std::move(ring), userBell),
      user_(ring_.control(), ring_.slots(), ring_.slotBytes(), &noBell_, kLocalSlots) {}

Status ReceiveLane::move(bool* moved) {
  FifoControl* control = ring_.control();
  const uint64_t head = control->head.load(std::memory_order_acquire);  // acquire: pairs with release()
  if (!held_.isOk()) return head == done_ ? held_ : Status::ok();
  while (posted_ < head + kLocalSlots && connection_->irecv(ring_.slot(posted_), ring_.slotBytes(), memory_))
    ++posted_;
  uint64_t done = done_;
  held_ = connection_->test(&done);
  if (done != done_) {
    for (uint64_t i = done_; i != done; ++i)
      control->bytes[i % kFifoSlots].store(connection_->receivedBytes(i), std::memory_order_relaxed);
    done_ = done;
    control->tail.store(done, std::memory_order_release);  // release: slots and sizes are written before
    userBell_->ring();
    *moved = true;
  }
  // A peer that ends without destroying its communicator has still sent what is in the ring: it may be all
  // that the executor needs.
  return head == done_ ? held_ : Status::ok();
}

}  // namespace tutti
