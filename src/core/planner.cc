#include "core/planner.h"

#include <algorithm>

#include "algorithms/registry.h"
#include "algorithms/send_recv.h"
#include "base/datatype.h"
#include "base/log.h"
#include "base/params.h"

namespace tutti {
namespace {

// Until the cost model chooses: sizes (bytes of a block) at which another algorithm takes over.
constexpr size_t kZeroCopyFrom = 16 * 1024;
constexpr size_t kOneShotUpTo = 64 * 1024;
constexpr size_t kDoublingUpTo = 64 * 1024;
constexpr size_t kLongestSlice = size_t{1} << 40;

}  // namespace

Planner::Planner(const Endpoint& endpoint, int hosts) : endpoint_(endpoint), hosts_(hosts) {}

bool Planner::allMapped() const {
  return endpoint_.localRanks().size() == static_cast<size_t>(endpoint_.ranks());
}

bool Planner::wantsZeroCopy(const Operation& operation) const {
  if (endpoint_.ranks() == 1 || !allMapped()) return false;
  if (operation.reduction.ownScalar) return false;  // a rank cannot scale what it reads from its peers
  return operation.count * sizeOf(operation.type) >= kZeroCopyFrom;
}

Result<std::shared_ptr<const Schedule>> Planner::schedule(const std::string& algorithm, Collective collective,
                                                          int root) {
  auto& cached = schedules_[Key(algorithm, collective, root)];
  if (cached == nullptr) {
    ScheduleRequest request;
    request.collective = collective;
    request.ranks = endpoint_.ranks();
    request.rank = endpoint_.rank();
    request.root = root;
    TUTTI_ASSIGN(Schedule made, generate(algorithm, request));
    cached = std::make_shared<const Schedule>(std::move(made));
  }
  return cached;
}

std::string Planner::algorithmFor(const Operation& operation, bool zeroCopy) const {
  const size_t bytes = operation.count * sizeOf(operation.type);
  if (endpoint_.ranks() == 1) return "ring";
  if (zeroCopy) return "direct";
  if (allMapped())
    return operation.collective == Collective::allReduce && bytes > kOneShotUpTo ? "twoshot" : "oneshot";
  if (operation.collective == Collective::allReduce && bytes <= kDoublingUpTo) return "doubling";
  return "ring";
}

size_t Planner::sliceBytesFor(const Schedule& schedule) const {
  const EndpointOptions& options = endpoint_.options();
  return std::min(kLongestSlice, schedule.maxSliceBytes(options.slotBytes, options.scratchBytes));
}

Result<Plan> Planner::plan(const Operation& operation, bool zeroCopy) {
  const std::string algorithm = algorithmFor(operation, zeroCopy);
  Plan plan;
  TUTTI_ASSIGN(plan.schedule, schedule(algorithm, operation.collective, operation.root));
  plan.sliceBytes = sliceBytesFor(*plan.schedule);
  plan.channels = allMapped() ? 1 : endpoint_.options().channels;
  logTrace(Subsystem::tuning, "{} of {} x {}: algorithm {}, {} channel(s), slices of {} bytes",
           name(operation.collective), operation.count, nameOf(operation.type), algorithm, plan.channels,
           plan.sliceBytes);
  return plan;
}

Result<Plan> Planner::planMessage(const Operation& message) {
  const int self = endpoint_.rank();
  const bool sends = message.kind == Operation::Kind::send;
  auto& cached = schedules_[Key(sends ? "send" : "recv", Collective::sendRecv, message.root)];
  if (cached == nullptr) {
    const int from = sends ? self : message.root;
    const int to = sends ? message.root : self;
    cached = std::make_shared<const Schedule>(sendRecv(endpoint_.ranks(), self, from, to));
  }
  Plan plan;
  plan.schedule = cached;
  plan.sliceBytes = sliceBytesFor(*cached);
  return plan;
}

}  // namespace tutti
