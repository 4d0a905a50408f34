// A communicator's calls where kernels run them: planned, compared with the other ranks', and enqueued.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "core/operation.h"
#include "core/planner.h"
#include "core/progress.h"
#include "device/driver.h"
#include "executor/cuda/cuda_executor.h"
#include "transport/p2p/device_group.h"

namespace tutti {

class Communicator;

/// Nothing here waits for the device: a call returns when its kernels are in their streams. Thread-safe.
class KernelCalls {
 public:
  /// Collective over the communicator's ranks, which must all be of this process. After the endpoint was
  /// made.
  static Result<std::unique_ptr<KernelCalls>> create(Communicator& communicator, Driver& driver,
                                                     Deadline deadline);
  /// Everything enqueued must have ended; see giveUp().
  ~KernelCalls();
  /// For calls that were aborted, and may still be in streams behind work of the program: kernels that begin
  /// later must find their memory. They are kept, without the communicator, and freed when a later
  /// communicator is made or given up.
  static void giveUp(std::unique_ptr<KernelCalls> calls);
  KernelCalls(const KernelCalls&) = delete;
  KernelCalls& operator=(const KernelCalls&) = delete;

  /// What the planner needs to know.
  const KernelPlanning& planning() const { return planning_; }

  /// The operations of one group: collectives in their order, then the messages, which run side by side. All
  /// streams of the operations wait for each other before, and for the group's end. After a failure the
  /// communicator has failed, since its peers may wait already; unless no way to run the first operation
  /// exists, which is so on all ranks.
  /// `captured`: the streams are being captured. From then on the ranks' calls are not compared: when, how
  /// often and whether captured ones run is up to whoever launches the graph.
  Status enqueue(std::span<const Operation> operations, bool captured);
  /// 0 where nothing is captured on the stream; else the capture's number.
  Result<uint64_t> captureOf(cudaStream_t stream) const;
  /// An error where the stream is none of the communicator's device.
  Status checkStream(cudaStream_t stream) const;

  bool busy() const;
  /// Waits until all that was enqueued has ended, or the deadline passes (an error then).
  Status drain(Deadline deadline) const;
  /// Ends the kernels that wait. From any thread.
  void abort() { executor_->abort(); }
  /// An error that a kernel or the device reported; ok otherwise.
  Status deviceError() const;
  /// Tells `progress` where the kernels stand. For the thread that watches.
  void observe(Progress& progress);
  /// What all kernels of the process do now, block by block, where the driver can tell. Empty when another
  /// rank has just been told.
  std::string details() const;

 private:
  KernelCalls(Communicator& communicator, Driver& driver);

  void note(const Operation& operation, uint64_t number, uint32_t messages);
  Status enqueueAll(std::span<const Operation> operations, uint64_t firstCollective);
  Status enqueueCollective(const Operation& operation, uint64_t number, DeviceStream stream);
  Status enqueueMessages(std::span<const Operation> messages, DeviceStream stream);
  bool mayUsePeerBuffers(const Operation& operation);
  Result<Plan> planOf(const Operation& operation);
  CudaCall callOf(const Operation& operation, const Plan& plan) const;
  Status compare(const Operation& operation, const Plan& plan);
  /// Makes `to` wait for what was enqueued on `from`.
  Status chain(DeviceStream from, DeviceStream to);

  Communicator& communicator_;  // not of calls that were given up
  Driver& driver_;
  const int device_;
  KernelPlanning planning_;
  std::shared_ptr<DeviceGroup> group_;
  std::unique_ptr<CudaExecutor> executor_;
  DeviceEvent event_ = nullptr;  // of chain(): what a stream waits for is settled when it is told to

  mutable std::mutex mutex_;  // the planner's, and the order of calls
  uint64_t compared_ = 0;
  bool captured_ = false;            // the group that is being enqueued is
  bool begun_ = false;               // some call of the group was compared with the other ranks'
  std::vector<Operation> messages_;  // kept between calls so that they allocate nothing
  std::vector<CudaCall> calls_;

  // What observe() tells of: the last call.
  struct Last {
    Operation operation;
    uint64_t number = 0;
    uint32_t messages = 0;
  };
  mutable std::mutex lastMutex_;  // guards last_; never held while anything waits
  Last last_;
  // Of observe() alone.
  bool shown_ = false;
  uint64_t shownNumber_ = 0;
  std::vector<device::Position> positions_;
};

}  // namespace tutti
