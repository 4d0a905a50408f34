// The message queue that every connection shows to its users: a ring of slots with two counters.
//
// In a mapped connection the ring lies in memory that both ranks see, and the two ends below work on it
// directly. In a message connection each end has a ring in local memory, and a pump moves full slots between
// ring and network:
//
//   mapped    sender lane -> [ring in shared memory] -> receiver lane
//   message   sender lane -> [local ring] -> pump ~~ network ~~ pump -> [local ring] -> receiver lane
//
// so executors (and later kernels) know one kind of queue.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/doorbell.h"

namespace tutti {

constexpr uint32_t kFifoSlots = 8;

/// Shared state of a ring; lies in zeroed memory, followed elsewhere by its slots: kFifoSlots of them, or a
/// smaller power of two where a message connection has a ring at each end. `tail` counts published slots and
/// is written by the sender only, `head` counts released ones and is written by the receiver only. Both only
/// grow, for the life of the communicator.
struct FifoControl {
  alignas(64) std::atomic<uint64_t> tail;
  std::atomic<uint32_t>
      bytes[kFifoSlots];  // of the message in each slot; same line as tail: one transfer for both
  alignas(64) std::atomic<uint64_t> head;
};
static_assert(sizeof(FifoControl) == 128);

/// The sending end. Used by one thread at a time.
class FifoSender {
 public:
  FifoSender() = default;
  FifoSender(FifoControl* control, std::byte* slots, size_t slotBytes, Doorbell* receiverBell,
             uint32_t depth = kFifoSlots)
      : control_(control),
        slots_(slots),
        slotBytes_(slotBytes),
        receiverBell_(receiverBell),
        depth_(depth),
        tail_(control->tail.load(std::memory_order_relaxed)) {}

  bool connected() const { return control_ != nullptr; }
  size_t slotBytes() const { return slotBytes_; }

  /// The next free slot (slotBytes long, 64-byte aligned), or null when the receiver has not released it yet.
  /// Asking again without publish() gives the same slot.
  std::byte* tryAcquire() {
    if (tail_ - headSeen_ >= depth_) {
      // acquire: the receiver's reads of the slot happened before it released it
      headSeen_ = control_->head.load(std::memory_order_acquire);
      if (tail_ - headSeen_ >= depth_) return nullptr;
    }
    return slots_ + (tail_ & (depth_ - 1)) * slotBytes_;
  }

  /// Hands the acquired slot, holding `bytes` bytes, to the receiver and wakes it.
  void publish(uint32_t bytes) {
    control_->bytes[tail_ % kFifoSlots].store(bytes, std::memory_order_relaxed);
    control_->tail.store(++tail_, std::memory_order_release);  // release: slot and size are written before
    receiverBell_->ring();
  }

  uint64_t published() const { return tail_; }

 private:
  FifoControl* control_ = nullptr;
  std::byte* slots_ = nullptr;
  size_t slotBytes_ = 0;
  Doorbell* receiverBell_ = nullptr;
  uint64_t depth_ = kFifoSlots;
  uint64_t tail_ = 0;
  uint64_t headSeen_ = 0;
};

/// The receiving end. Used by one thread at a time.
class FifoReceiver {
 public:
  FifoReceiver() = default;
  FifoReceiver(FifoControl* control, const std::byte* slots, size_t slotBytes, Doorbell* senderBell,
               uint32_t depth = kFifoSlots)
      : control_(control),
        slots_(slots),
        slotBytes_(slotBytes),
        senderBell_(senderBell),
        depth_(depth),
        head_(control->head.load(std::memory_order_relaxed)) {}

  bool connected() const { return control_ != nullptr; }

  /// The oldest unreleased message and its size, or null when none has arrived.
  const std::byte* tryPeek(uint32_t* bytes) {
    if (tailSeen_ == head_ || tailSeen_ < head_) {
      tailSeen_ = control_->tail.load(std::memory_order_acquire);  // acquire: pairs with publish()
      if (tailSeen_ == head_) return nullptr;
    }
    *bytes = control_->bytes[head_ % kFifoSlots].load(std::memory_order_relaxed);
    return slots_ + (head_ & (depth_ - 1)) * slotBytes_;
  }

  /// Gives the peeked slot back to the sender and wakes it.
  void release() {
    control_->head.store(++head_, std::memory_order_release);  // release: our reads of the slot are done
    senderBell_->ring();
  }

  uint64_t released() const { return head_; }

 private:
  FifoControl* control_ = nullptr;
  const std::byte* slots_ = nullptr;
  size_t slotBytes_ = 0;
  Doorbell* senderBell_ = nullptr;
  uint64_t depth_ = kFifoSlots;
  uint64_t head_ = 0;
  uint64_t tailSeen_ = 0;
};

}  // namespace tutti
