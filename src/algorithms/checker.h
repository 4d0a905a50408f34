// Proves schedules right before they run.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "algorithms/schedule.h"
#include "algorithms/symbolic/machine.h"
#include "base/status.h"

namespace tutti {

struct CheckOptions {
  /// Slots of every FIFO. What is proved with few holds with more.
  int32_t fifoSlots = 8;
  /// Slices of every call. Three prove any number (docs/schedule.md, "Why three slices are enough").
  int32_t slices = 3;
  /// Halves of the scratch: 2. With 1, slice runs do not alternate, which the checker must not accept.
  int32_t scratchHalves = 2;
  /// Input and output are the same memory (for AllGather and its like: overlap as NCCL defines it).
  bool inPlace = false;
  /// All ranks reduce in the same order, so that results are bitwise equal.
  bool requireIdenticalResults = true;
};

/// What a proof found, for one channel. n = the whole vector: the block where the collective has one, all
/// blocks else.
struct Certificate {
  std::string algorithm;
  Collective collective = Collective::allReduce;
  int32_t ranks = 1;
  int32_t rounds = 0;          // longest chain of messages and signals of a slice
  double sent = 0;             // n that the busiest rank sends in messages
  double sentBound = 0;        // what any algorithm must make some rank send
  double peerTraffic = 0;      // n that the busiest rank loads from and stores to other ranks' memory
  double memoryTraffic = 0;    // n loaded and stored by all ranks, FIFO slots included
  int32_t reductionDepth = 0;  // additions on the longest path
  std::string reductionOrder;  // of the first output segment, e.g. "(0 + 1) + (2 + 3)"

  /// One line.
  std::string toText() const;
};

/// Volume that any algorithm must make some rank send, in n.
double sentBound(Collective collective, int32_t ranks);

/// Proves a sequence of calls, each given by the schedules of all ranks, that are issued one after the other
/// on every rank:
///   result     every output segment is what the collective defines, from the original input, finalized once;
///   matching   messages and flags pair up within their call and slice, with equal segments and sizes;
///   progress   no interleaving gets stuck, with that many FIFO slots;
///   order      no two conflicting accesses to a user's buffer or scratch, also of different calls and by
///   peers,
///              are unordered; no peer uses a user's buffers before the call began or after it returned;
///   limits     segments exist; scratch, flags, teams, ports and maxCount are as declared; a stream has one
///   lane.
/// Gives the certificate of the first call. A failure (ncclInternalError) names call, schedule, rank, lane,
/// slice, step and segment. Takes O(steps) time for schedules of one lane that share no memory, else O(steps
/// x lanes).
Result<Certificate> check(std::span<const ScheduleSet* const> calls, const CheckOptions& options = {});

/// Proves a schedule for use: two consecutive calls out of place, and in place where the collective allows
/// that.
Result<Certificate> prove(const ScheduleSet& schedules, CheckOptions options = {});

}  // namespace tutti
