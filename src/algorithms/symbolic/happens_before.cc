#include "algorithms/symbolic/happens_before.h"

#include <algorithm>

namespace tutti {
namespace {

void raise(Clock& clock, const Clock& other) {
  for (size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

}  // namespace

HappensBefore::HappensBefore(size_t lanes, bool enabled) : enabled_(enabled) {
  if (!enabled_) return;
  clocks_.assign(lanes, Clock(lanes, 0));
  for (size_t lane = 0; lane < lanes; ++lane) clocks_[lane][lane] = 1;
}

std::shared_ptr<const Clock> HappensBefore::release(size_t lane) const {
  return enabled_ ? std::make_shared<const Clock>(clocks_[lane]) : nullptr;
}

void HappensBefore::acquire(size_t lane, const std::shared_ptr<const Clock>& clock) {
  if (clock != nullptr) raise(clocks_[lane], *clock);
}

void HappensBefore::join(size_t firstLane, size_t count) {
  if (!enabled_ || count == 0) return;
  for (size_t i = 0; i < count; ++i) tick(firstLane + i);
  Clock joined = clocks_[firstLane];
  for (size_t i = 1; i < count; ++i) raise(joined, clocks_[firstLane + i]);
  for (size_t i = 0; i < count; ++i) {
    clocks_[firstLane + i] = joined;
    tick(firstLane + i);
  }
}

std::optional<Epoch> AccessLog::read(const HappensBefore& order, const Epoch& now) {
  if (!order.enabled()) return std::nullopt;
  for (Epoch& earlier : reads_) {
    if (earlier.lane != now.lane) continue;
    earlier = now;
    return std::nullopt;  // the write was checked then
  }
  reads_.push_back(now);
  if (write_.happened() && !order.ordered(write_, static_cast<size_t>(now.lane))) return write_;
  return std::nullopt;
}

std::optional<Epoch> AccessLog::write(const HappensBefore& order, const Epoch& now) {
  if (!order.enabled()) return std::nullopt;
  std::optional<Epoch> conflict;
  const auto lane = static_cast<size_t>(now.lane);
  if (write_.happened() && !order.ordered(write_, lane)) conflict = write_;
  for (const Epoch& earlier : reads_)
    if (!order.ordered(earlier, lane)) conflict = earlier;
  write_ = now;
  reads_.clear();
  return conflict;
}

}  // namespace tutti
