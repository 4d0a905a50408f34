// Which step of which lane is ordered before which: vector clocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "algorithms/schedule.h"

namespace tutti {

/// One access: lane `lane` (numbered over all ranks) at its time `tick`.
struct Epoch {
  int32_t lane = -1;
  uint32_t tick = 0;
  const Step* step = nullptr;
  bool happened() const { return lane >= 0; }
};

/// clock[lane] is the last tick of that lane that is ordered before the clock's owner.
using Clock = std::vector<uint32_t>;

/// The clocks of all lanes. Only program order, messages, flags and the joins between calls order steps; a
/// free FIFO slot does not, so that what is proved holds for FIFOs of any depth.
class HappensBefore {
 public:
  /// Disabled, it answers that everything is ordered, at no cost.
  HappensBefore(size_t lanes, bool enabled);

  bool enabled() const { return enabled_; }
  size_t lanes() const { return clocks_.size(); }
  void tick(size_t lane) {
    if (enabled_) ++clocks_[lane][lane];
  }
  Epoch now(size_t lane, const Step* step) const {
    return {static_cast<int32_t>(lane), enabled_ ? clocks_[lane][lane] : 0, step};
  }
  uint32_t time(size_t lane) const { return enabled_ ? clocks_[lane][lane] : 0; }
  /// The lane's past, to travel with a message or a flag. Null when disabled.
  std::shared_ptr<const Clock> release(size_t lane) const;
  void acquire(size_t lane, const std::shared_ptr<const Clock>& clock);
  bool ordered(const Epoch& before, size_t lane) const {
    return !enabled_ || clocks_[lane][static_cast<size_t>(before.lane)] >= before.tick;
  }
  bool seen(size_t lane, size_t other, uint32_t tick) const {
    return !enabled_ || clocks_[lane][other] >= tick;
  }
  /// All lanes of a rank wait for each other.
  void join(size_t firstLane, size_t count);

 private:
  bool enabled_;
  std::vector<Clock> clocks_;
};

/// The accesses to one piece of memory that later ones must be ordered after.
class AccessLog {
 public:
  /// Notes an access by `now`'s lane; gives an earlier access that conflicts and is not ordered before it.
  std::optional<Epoch> read(const HappensBefore& order, const Epoch& now);
  std::optional<Epoch> write(const HappensBefore& order, const Epoch& now);
  bool lastWasWrite() const { return reads_.empty(); }

 private:
  Epoch write_;
  std::vector<Epoch> reads_;  // since the last write, the last one of each lane
};

}  // namespace tutti
