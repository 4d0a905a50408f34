#include "core/progress.h"

#include <chrono>
#include <thread>

namespace tutti {

Progress::Snapshot Progress::read() const {
  Snapshot snapshot;
  std::array<uint64_t, 3> words{};
  // The writer is done in nanoseconds, unless it was preempted in between: then it needs a core, which a
  // reader that spins may well hold. A writer that a debugger stopped there is not waited for: after a second
  // of naps the words are taken as they are.
  constexpr int kSpins = 1000;
  constexpr int kNaps = 1000;
  for (int attempt = 0; attempt < kSpins + kNaps; ++attempt) {
    if (attempt >= kSpins) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const uint64_t before = sequence_.load(std::memory_order_acquire);
    for (size_t i = 0; i < words.size(); ++i) words[i] = words_[i].load(std::memory_order_acquire);
    if ((before & 1) == 0 && sequence_.load(std::memory_order_relaxed) == before) break;
  }
  WireWriter bytes;
  bytes.u64(words[0]).u64(words[1]).u64(0);
  const std::string text = std::move(bytes).bytes();
  WireReader in(text);
  snapshot.call = CallName::decode(in);
  snapshot.messages = static_cast<uint32_t>(words[2]);
  snapshot.collective = number_.load(std::memory_order_relaxed);
  snapshot.collectivesCalled = collectivesCalled_.load(std::memory_order_relaxed);
  snapshot.messagesCalled = messagesCalled_.load(std::memory_order_relaxed);
  snapshot.movement = movement();
  snapshot.idleSinceMs = idleSince_.load(std::memory_order_relaxed);
  return snapshot;
}

std::vector<WaitFor> Progress::waits() const {
  const std::lock_guard lock(mutex_);
  return waitsAt_ == movement() ? waits_ : std::vector<WaitFor>{};
}

}  // namespace tutti
