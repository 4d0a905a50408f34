// Points in time after which a wait gives up.
#pragma once

#include <algorithm>
#include <chrono>

namespace tutti {

/// A moment on the monotonic clock, or never. Passed by value down every call that may block, so that one
/// limit covers a whole operation however many waits it has.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline never() { return Deadline(Clock::time_point::max()); }
  static Deadline at(Clock::time_point moment) { return Deadline(moment); }
  static Deadline after(Clock::duration duration) { return Deadline(Clock::now() + duration); }

  bool isNever() const { return at_ == Clock::time_point::max(); }
  bool passed() const { return !isNever() && Clock::now() >= at_; }
  Clock::time_point at() const { return at_; }

  bool operator<(const Deadline& other) const { return at_ < other.at_; }

  /// Milliseconds left for poll(2): at least 0, at most cap.
  int pollTimeoutMs(int cap) const {
    if (isNever()) return cap;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now()).count();
    return static_cast<int>(std::clamp<long long>(left, 0, cap));
  }

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

}  // namespace tutti
