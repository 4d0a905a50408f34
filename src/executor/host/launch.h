// What the host executor is asked to run: one schedule over one call's buffers.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "algorithms/schedule.h"
#include "algorithms/segment_table.h"
#include "executor/host/reduction.h"

namespace tutti {

/// One schedule over one call's buffers on one channel. The schedule is shared; buffers and the arrays of
/// peer addresses belong to the caller and live until the run is done. Cheap to fill anew for each call.
///
/// peerInput / peerOutput: per rank, the address of that rank's user buffer as mapped here (own entry too).
/// Empty unless the schedule uses them (Schedule::needsMappedUserBuffers).
struct Launch {
  std::shared_ptr<const Schedule> schedule;
  CallShape shape;
  ReductionSpec reduction;  // of reducing collectives; ignored for others
  const void* input = nullptr;
  void* output = nullptr;
  std::span<std::byte* const> peerInput;
  std::span<std::byte* const> peerOutput;
  int channel = 0;
};

}  // namespace tutti
