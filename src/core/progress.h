// What a rank's running thread leaves behind for those who ask where it stands.
#pragma once

#include <time.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "core/position.h"

namespace tutti {

/// Written by the one thread that runs the communicator's operations at a time, read by the service thread.
/// The writer's side is a few plain stores an operation (no lock, no fence, no clock but the kernel's coarse
/// one at the end): an 8-byte AllReduce must not become slower. Only when somebody has asked (want()), and
/// the operation waits, it takes the trouble to write down the details.
///
///   running thread                          service thread
///   begin  words, between two numbers  -->  read(): the words, when the number is even and the same after
///   moved  moves += 1                  -->  has it moved since I looked last?
///   waits  wanted? publish waits       <--  want(): and rings the bell, so that a sleeper looks
///   end    words: none
class Progress {
 public:
  struct Snapshot {
    CallName call;            // kind none: idle
    uint64_t collective = 0;  // number of the one that runs or ran last
    uint32_t messages = 0;
    uint64_t collectivesCalled = 0;
    uint64_t messagesCalled = 0;
    uint64_t movement = 0;  // differs when anything moved
    uint64_t idleSinceMs = 0;
    bool running() const { return call.kind != CallName::Kind::none; }
  };

  /// Counts calls, under the caller's lock. Gives the number of the first of these collectives (1, 2, ...).
  uint64_t called(uint64_t collectives, uint64_t messages) {
    const uint64_t before = collectivesCalled_.load(std::memory_order_relaxed);
    collectivesCalled_.store(before + collectives, std::memory_order_relaxed);
    if (messages != 0)
      messagesCalled_.store(messagesCalled_.load(std::memory_order_relaxed) + messages,
                            std::memory_order_relaxed);
    return before + 1;
  }

  /// A collective begins (`number`), or the messages of a group (`messages` of them; the call is the first).
  void begin(const Operation& operation, uint64_t number, uint32_t messages) {
    const CallName call = CallName::of(operation);
    write({static_cast<uint64_t>(call.kind) | static_cast<uint64_t>(call.collective) << 8 |
               static_cast<uint64_t>(call.type) << 16 | static_cast<uint64_t>(call.op) << 24 |
               static_cast<uint64_t>(static_cast<uint32_t>(call.root)) << 32,
           call.count, messages});
    if (messages == 0) number_.store(number, std::memory_order_relaxed);
  }
  void moved() { moves_.store(moves_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
  void end() {
    write({0, 0, 0});
    idleSince_.store(coarseMs(), std::memory_order_relaxed);
  }

  bool wanted() const { return wanted_.load(std::memory_order_relaxed); }
  /// What the running operation waits for now. Allocates: only when wanted.
  void publish(std::vector<WaitFor> waits) {
    const uint64_t at = movement();
    const std::lock_guard lock(mutex_);
    waits_ = std::move(waits);
    waitsAt_ = at;
    wanted_.store(false, std::memory_order_relaxed);
  }

  // For the service thread.
  void want() { wanted_.store(true, std::memory_order_relaxed); }
  Snapshot read() const;
  /// What was published last, if nothing has moved since.
  std::vector<WaitFor> waits() const;

  /// Milliseconds of the monotonic clock, some milliseconds late, for a few nanoseconds.
  static uint64_t coarseMs() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1000000;
  }

 private:
  /// The words are released one by one, so a reader that sees one of them also sees the odd number before it.
  void write(const std::array<uint64_t, 3>& words) {
    const uint64_t number = sequence_.load(std::memory_order_relaxed);
    sequence_.store(number + 1, std::memory_order_relaxed);
    for (size_t i = 0; i < words.size(); ++i) words_[i].store(words[i], std::memory_order_release);
    sequence_.store(number + 2, std::memory_order_release);
  }
  uint64_t movement() const {
    return sequence_.load(std::memory_order_relaxed) + moves_.load(std::memory_order_relaxed);
  }

  // Not over-aligned: objects that are made and freed with each communicator would fragment glibc's heap.
  std::atomic<uint64_t> sequence_{0};
  std::atomic<uint64_t> words_[3]{};
  std::atomic<uint64_t> moves_{0};
  std::atomic<uint64_t> number_{0};
  std::atomic<uint64_t> idleSince_{coarseMs()};
  std::atomic<bool> wanted_{false};
  std::atomic<uint64_t> collectivesCalled_{0};
  std::atomic<uint64_t> messagesCalled_{0};

  mutable std::mutex mutex_;  // guards what follows; never taken but for an answer
  std::vector<WaitFor> waits_;
  uint64_t waitsAt_ = 0;
};

}  // namespace tutti
