// One rank's communicator: the few parts it is made of, and their life.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/fault_state.h"
#include "base/status.h"
#include "bootstrap/control.h"
#include "core/capture.h"
#include "core/planner.h"
#include "core/reduction_ops.h"
#include "core/registrations.h"
#include "core/task_queue.h"
#include "executor/host/host_executor.h"
#include "transport/endpoint.h"

namespace tutti {

/// How ncclCommInitRank and its kin make a communicator.
struct CommunicatorSetup {
  int rank = 0;
  int ranks = 1;
  int device = 0;
  ncclUniqueId id{};
  std::string name;
  int minChannels = 0;  // 0: the library decides
  int maxChannels = 0;
};

/// Owns control channel, endpoint, operators, planner and tasks. Calls must not overlap, except abort(),
/// error() and what the parts say of themselves.
///
///   control    who is there, who died                 (bootstrap)
///   endpoint   FIFOs, flags, mapped memory            (transport)
///   planner    operation -> schedule                  (algorithms)
///   executor   runs schedules                         (executor)
///   tasks      operations in flight, in order
class Communicator {
 public:
  /// Collective over all ranks; blocks until they have met or the init deadline passed.
  static Result<std::unique_ptr<Communicator>> create(const CommunicatorSetup& setup);
  ~Communicator();

  int rank() const { return setup_.rank; }
  int ranks() const { return setup_.ranks; }
  int device() const { return setup_.device; }
  const std::string& name() const { return setup_.name; }
  const std::vector<PeerInfo>& peers() const { return peers_; }

  Endpoint& endpoint() { return *endpoint_; }
  Planner& planner() { return *planner_; }
  ReductionOps& operators() { return *operators_; }
  HostExecutor& executor() { return *executor_; }
  TaskQueue& tasks() { return *tasks_; }
  Registrations& registrations() { return registrations_; }
  const std::shared_ptr<CaptureLink>& captureLink() const { return captureLink_; }
  const FaultState& faults() const { return *faults_; }

  /// Numbers that all ranks count alike.
  uint64_t nextNegotiation() { return ++negotiations_; }

  /// Records an error that makes the communicator unusable, tells the other ranks and wakes everyone who
  /// waits.
  void fail(const Status& error);
  /// Ok, or the error that made the communicator unusable.
  Status error() const { return faults_->error(); }

  /// Waits for the operations that were enqueued. Idempotent.
  Status finalize();
  /// Orderly end: finalize, say goodbye. Peers need not be there.
  Status close();
  /// Ends at once: running operations return with an error.
  void abort();

 private:
  explicit Communicator(const CommunicatorSetup& setup);
  Status connect(Deadline deadline);
  Status exchangePeers(Deadline deadline);
  void wake();

  const CommunicatorSetup setup_;
  std::shared_ptr<FaultState> faults_;
  std::unique_ptr<Control> control_;
  std::vector<PeerInfo> peers_;
  std::unique_ptr<Endpoint> endpoint_;
  std::unique_ptr<ReductionOps> operators_;
  std::unique_ptr<Planner> planner_;
  std::unique_ptr<HostExecutor> executor_;
  std::unique_ptr<TaskQueue> tasks_;
  Registrations registrations_;
  const std::shared_ptr<CaptureLink> captureLink_ = std::make_shared<CaptureLink>(*this);
  uint64_t negotiations_ = 0;
  bool closed_ = false;
};

}  // namespace tutti
