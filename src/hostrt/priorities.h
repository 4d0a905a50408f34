#pragma once

namespace tutti::hostrt {

/// Priorities of streams: accepted and reported, without effect on the order in which the system runs
/// threads.
constexpr int kLeastPriority = 0;
constexpr int kGreatestPriority = -5;

}  // namespace tutti::hostrt
