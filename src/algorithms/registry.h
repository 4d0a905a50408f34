// The table of algorithms: what exists, what each can do and what it needs.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "algorithms/layout.h"
#include "base/status.h"

namespace tutti {

/// What an algorithm works through.
enum class Medium : uint8_t {
  messages,       // any connection
  sharedScratch,  // all ranks map each other's scratch (one host)
  userBuffers,    // all ranks map each other's user buffers (one host, registered memory)
  hosts,          // several hosts: messages between them, inside one what its ranks share
};

/// How the schedules of different ranks are related, so that one of them stands for all: rank r's is rank 0's
/// with every rank number, and every segment of a buffer that is cut for the ranks, replaced.
enum class Symmetry : uint8_t {
  none,
  shift,       // x -> x + r mod ranks
  exclusiveOr  // x -> x xor r; the number of ranks is a power of two
};

struct Algorithm {
  std::string_view name;     // as NCCL_ALGO and logs spell it, in lower case
  std::string_view summary;  // one line
  Medium medium = Medium::messages;
  std::vector<Collective> collectives;
  std::vector<Collective> onPowersOfTwo;  // those of them that it knows for 1, 2, 4, 8, ... ranks only
  Schedule (*generator)(const ScheduleRequest& request) = nullptr;
  std::string_view intra;  // what twoLevel() is made of; empty for all others
  std::string_view inter;
  /// Of the schedules for any root and the identity as layout: see checkSymmetry() for what is claimed.
  Symmetry (*symmetry)(Collective collective, int32_t ranks) = nullptr;  // null: none
  bool takesBlocks = false;                                              // ScheduleRequest::blocks counts

  bool implements(Collective collective, int32_t ranks) const;
  /// The schedule, of a request that is known to be right (see generate()).
  Schedule schedule(const ScheduleRequest& request) const;
  Symmetry symmetryOf(Collective collective, int32_t ranks) const {
    return symmetry == nullptr ? Symmetry::none : symmetry(collective, ranks);
  }
};

/// All shipped algorithms.
std::span<const Algorithm> algorithms();
/// Null when there is none of that name (case does not matter).
const Algorithm* findAlgorithm(std::string_view name);

/// Rank `request.rank`'s schedule of the named algorithm. Errors (invalidArgument) name what does not fit: an
/// unknown algorithm, a collective that it does not implement, numbers out of range, a layout that is no
/// permutation of the ranks.
Result<Schedule> generate(std::string_view algorithm, const ScheduleRequest& request);

/// The schedules of all ranks, for the checker and for tests.
Result<std::vector<Schedule>> generateAll(std::string_view algorithm, ScheduleRequest request);

}  // namespace tutti
