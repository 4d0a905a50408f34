// The order in which an algorithm visits the ranks, and what a generator is asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/schedule.h"

namespace tutti {

/// A permutation: which rank stands at which position of a ring, chain or tree. Neighbours on the same host
/// should be neighbours here, so that a ring enters and leaves every host once. Default: rank = position.
class Layout {
 public:
  Layout() = default;
  /// `order[position]` is the rank; must be a permutation of 0 .. size-1, else isPermutation() is false.
  explicit Layout(std::vector<int32_t> order);

  bool identity() const { return order_.empty(); }
  bool isPermutation() const { return valid_; }
  /// Number of ranks; 0 for the identity, which fits any number.
  size_t size() const { return order_.size(); }
  int32_t rankAt(int32_t position) const;
  int32_t positionOf(int32_t rank) const;

 private:
  std::vector<int32_t> order_;
  std::vector<int32_t> position_;
  bool valid_ = true;
};

/// What a generator turns into one rank's schedule. Generators are pure and trust their input: generate() in
/// registry.h checks it.
struct ScheduleRequest {
  Collective collective = Collective::allReduce;
  int32_t ranks = 1;
  int32_t rank = 0;
  int32_t root = 0;
  Layout layout;
  /// Ranks that share memory, host by host, in the order in which they should be visited; every rank is in
  /// one. Empty: not known, or of no interest to the algorithm.
  std::vector<std::vector<int32_t>> hosts;
  /// The ranks of this rank's host can use each other's user buffers in this call.
  bool mapped = false;
  /// Blocks that a pipeline cuts the vector into, or blocks that one message carries at most (pat); 0: the
  /// algorithm's own number. Of no interest to most.
  int32_t blocks = 0;
  /// Of what twoLevel() is made: names of algorithms inside hosts and between them.
  std::string_view intra;
  std::string_view inter;
};

/// The request's hosts; where it names none, each position is a host of its own.
std::vector<std::vector<int32_t>> hostsOf(const ScheduleRequest& request);
/// Which of the hosts the rank is on.
int32_t hostOf(const std::vector<std::vector<int32_t>>& hosts, int32_t rank);
/// Hosts with so many ranks each: 0, 1, ... in order.
std::vector<std::vector<int32_t>> consecutiveHosts(const std::vector<int32_t>& sizes);

/// A schedule with the request's numbers filled in and no lanes yet.
Schedule makeSchedule(const ScheduleRequest& request, std::string name, int32_t parts);

/// The schedule of any of our collectives for a communicator of one rank: a copy (none for an in-place call).
Schedule singleRank(const ScheduleRequest& request, std::string name);

/// (a mod n) in [0, n).
constexpr int32_t wrap(int32_t a, int32_t n) { return ((a % n) + n) % n; }

}  // namespace tutti
