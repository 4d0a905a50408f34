// Moves slots between local FIFO rings and the network: what stands between an executor's FIFO end and a
// message connection (see fifo.h).
//
//   SendLane     executor --publish--> [ring] --isend--> NetConnection     a slot is released when sent
//   ReceiveLane  executor <--release-- [ring] <--irecv-- NetConnection     a slot is published when filled
//
// All free (or full) slots are offered to the connection at once. Each end has kLocalSlots of the kFifoSlots
// that schedules count on; the network holds more. Fewer slots stay in the caches: with all of them at each
// end the memory of a rank's rings was written round and round through main memory, at a cost of 3 to 4 % of
// the bandwidth. A lane's ring exists before its connection: the executor may fill (or wait on) it meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "transport/fifo.h"
#include "transport/net.h"

namespace tutti {

constexpr uint32_t kLocalSlots = kFifoSlots / 2;
static_assert((kLocalSlots & (kLocalSlots - 1)) == 0 && 2 * kLocalSlots >= kFifoSlots);

/// A ring of kLocalSlots slots in memory of this process. Pages exist once touched.
class LocalRing {
 public:
  static Result<LocalRing> make(size_t slotBytes);
  LocalRing(LocalRing&& other) noexcept;
  LocalRing& operator=(LocalRing&&) = delete;
  ~LocalRing();

  FifoControl* control() const { return reinterpret_cast<FifoControl*>(base_); }
  std::byte* slots() const { return base_ + sizeof(FifoControl); }
  std::byte* slot(uint64_t number) const { return slots() + number % kLocalSlots * slotBytes_; }
  size_t slotBytes() const { return slotBytes_; }

 private:
  LocalRing(std::byte* base, size_t bytes, size_t slotBytes)
      : base_(base), bytes_(bytes), slotBytes_(slotBytes) {}
  std::byte* base_;
  size_t bytes_;
  size_t slotBytes_;
};

/// Which connection a lane serves, from this rank's point of view.
struct LaneId {
  int peer = 0;
  int channel = 0;
  int port = 0;
  bool sends = false;
};

/// One ring and its connection. The executor's end of the ring may be used by one thread and everything here
/// by another at the same time; calls here must be serialized.
class NetLane {
 public:
  virtual ~NetLane();
  NetLane(const NetLane&) = delete;
  NetLane& operator=(const NetLane&) = delete;

  const LaneId& id() const { return id_; }
  bool connected() const { return connection_ != nullptr; }
  NetConnection* connection() const { return connection_.get(); }
  /// Takes the connection; on failure it stays with the caller. `guard` is kept for the owner: what it
  /// registered for the connection's descriptor.
  Status connect(std::unique_ptr<NetConnection>& connection, uint64_t guard);
  uint64_t guard() const { return guard_; }
  /// Moves what can be moved without blocking, and sets *moved when anything was. A failure is final and is
  /// returned once.
  Status pump(bool* moved);
  bool failed() const { return failed_; }
  /// True while messages of the executor wait to be sent.
  virtual bool pending() const = 0;

 protected:
  NetLane(LaneId id, LocalRing ring, Doorbell* userBell)
      : id_(id), ring_(std::move(ring)), userBell_(userBell) {}
  virtual Status move(bool* moved) = 0;

  LaneId id_;
  LocalRing ring_;
  Doorbell* userBell_;  // of the rank whose executor works on the other end of the ring
  Doorbell noBell_;     // the executor's end rings this one; nobody sleeps on it
  std::unique_ptr<NetConnection> connection_;
  uint64_t guard_ = 0;
  NetMemory memory_;
  uint64_t posted_ = 0;  // slots given to the connection
  uint64_t done_ = 0;    // slots that it is done with
  bool failed_ = false;
};

class SendLane final : public NetLane {
 public:
  SendLane(LaneId id, LocalRing ring, Doorbell* userBell);
  FifoSender* user() { return &user_; }
  bool pending() const override;

 private:
  Status move(bool* moved) override;
  FifoSender user_;
};

class ReceiveLane final : public NetLane {
 public:
  ReceiveLane(LaneId id, LocalRing ring, Doorbell* userBell);
  FifoReceiver* user() { return &user_; }
  bool pending() const override { return false; }

 private:
  Status move(bool* moved) override;
  FifoReceiver user_;
  Status held_;  // an error that waits until the executor has taken what came before it
};

}  // namespace tutti
