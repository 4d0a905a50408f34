// From an operation to the schedule that runs it: selection, generation, caching.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "algorithms/schedule.h"
#include "base/status.h"
#include "core/operation.h"
#include "transport/endpoint.h"

namespace tutti {

/// What to run for one operation. The same on all ranks, but for the schedule's own rank.
struct Plan {
  std::shared_ptr<const Schedule> schedule;
  int channels = 1;
  size_t sliceBytes = 0;
};

/// One communicator's planner. Used by one thread at a time (the one that runs the task).
class Planner {
 public:
  Planner(const Endpoint& endpoint, int hosts);

  /// True when the operation should run in place on the users' buffers, provided that all ranks' buffers can
  /// be mapped: worth a negotiation. Depends only on what all ranks know.
  bool wantsZeroCopy(const Operation& operation) const;
  Result<Plan> plan(const Operation& operation, bool zeroCopy);
  /// The plan of a send, a receive or a message to oneself.
  Result<Plan> planMessage(const Operation& message);

 private:
  using Key = std::tuple<std::string, Collective, int>;  // algorithm, collective, root or peer code
  Result<std::shared_ptr<const Schedule>> schedule(const std::string& algorithm, Collective collective,
                                                   int root);
  std::string algorithmFor(const Operation& operation, bool zeroCopy) const;
  size_t sliceBytesFor(const Schedule& schedule) const;
  bool allMapped() const;

  const Endpoint& endpoint_;
  const int hosts_;
  std::map<Key, std::shared_ptr<const Schedule>> schedules_;
};

}  // namespace tutti
