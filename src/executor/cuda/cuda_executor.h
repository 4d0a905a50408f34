// Runs schedules by kernels, for one rank of one communicator: flattens and uploads programs, makes
// connections, and enqueues launches. Never waits for the device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "algorithms/algorithm_filter.h"
#include "algorithms/schedule.h"
#include "algorithms/segment_table.h"
#include "base/device_program.h"
#include "base/status.h"
#include "device/driver.h"
#include "executor/host/reduction.h"
#include "transport/p2p/device_group.h"

namespace tutti {

/// One collective, or one message of a group's messages.
struct CudaCall {
  std::shared_ptr<const Schedule> schedule;
  /// Of the call: collective, ranks, root, parts, count, elementBytes, channels, blocks. channel and
  /// sliceBytes are the executor's business.
  CallShape shape;
  ReductionSpec reduction;
  const void* scalar = nullptr;  // resident; read by the kernel
  Protocol protocol = Protocol::simple;
  const void* input = nullptr;
  void* output = nullptr;
};

/// How a call runs, for logs.
struct CudaLaunchFacts {
  Protocol protocol = Protocol::simple;  // the one used; Simple where the one asked for is impossible
  uint32_t blocks = 0;
  uint32_t threads = 0;
  size_t sliceBytes = 0;
};

/// Thread-safe: calls are enqueued in the order of the executor's lock, which is the order in which they run,
/// whatever their streams (a stream waits for the call before it by an event).
class CudaExecutor {
 public:
  /// `group` holds this rank. Loads the kernels, and puts the rank's Comm on the device.
  static Result<std::unique_ptr<CudaExecutor>> create(Driver& driver, std::shared_ptr<DeviceGroup> group,
                                                      int rank);
  /// Frees what kernels use: everything enqueued must be done, or the executor aborted.
  ~CudaExecutor();
  CudaExecutor(const CudaExecutor&) = delete;
  CudaExecutor& operator=(const CudaExecutor&) = delete;

  /// Why the schedule cannot run on the device in this protocol, whatever the call; ok otherwise. Names the
  /// obstacle: too many blocks for the device, messages of unknown size under LL, ...
  Status supports(const Schedule& schedule, Protocol protocol, int channels);

  /// One collective. Captured streams capture it.
  Result<CudaLaunchFacts> enqueue(const CudaCall& call, DeviceStream stream);
  /// The messages of a group, which run side by side (those on one connection in their order); `collective`
  /// is sendRecv.
  Result<CudaLaunchFacts> enqueueMessages(std::span<const CudaCall> messages, DeviceStream stream);

  /// Ends every kernel of this rank within milliseconds. Nothing can be enqueued afterwards.
  void abort();
  bool aborted() const;
  /// What a kernel reported: calls that do not match. Ok while nothing was.
  Status reportedError() const;
  /// Where blocks of this rank have been waiting for long: "channel 0 lane 1 slice 3 step 2 waits for data
  /// from rank 5", one a block, "" when all move.
  std::string position() const;
  /// The same as data.
  std::vector<device::Position> positions() const;

  /// True when all calls enqueued so far have ended.
  Result<bool> isIdle() const;

  uint64_t calls() const;     // enqueued so far
  uint64_t programs() const;  // uploaded so far

 private:
  struct State;
  explicit CudaExecutor(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tutti
