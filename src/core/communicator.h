// One rank's communicator: the few parts it is made of, and their life.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/fault_state.h"
#include "base/status.h"
#include "bootstrap/control.h"
#include "core/capture.h"
#include "core/host_topology.h"
#include "core/kernel_calls.h"
#include "core/monitor.h"
#include "core/one_sided.h"
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
  std::vector<Kin> kin;  // see JoinRequest
  bool blocking = true;
  std::string name;
  /// The result of time-outs: NCCL 2.30's for callers that know it.
  ncclResult_t timedOut = ncclRemoteError;
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
///   monitor    where this rank stands, and the others
class Communicator {
 public:
  explicit Communicator(const CommunicatorSetup& setup);
  ~Communicator();

  /// Where the unique id is known later than the object is made. Before connect().
  void setId(const ncclUniqueId& id, std::vector<Kin> kin = {}) {
    setup_.id = id;
    setup_.kin = std::move(kin);
  }
  void setRank(int rank, int ranks);
  /// Collective over all ranks; blocks until they have met, the init deadline passed, or interrupt() ends it.
  /// After a failure the peers know of it, and the object can only be closed or aborted.
  Status connect();

  const CommunicatorSetup& setup() const { return setup_; }
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
  /// Runs the calls instead of executor() and tasks(); null where CPU threads run them. After connect().
  KernelCalls* kernels() { return kernels_.get(); }
  Monitor& monitor() { return *monitor_; }
  /// TUTTI_CHECK: ranks compare their calls.
  bool checksCalls() const { return checksCalls_; }
  Registrations& registrations() { return registrations_; }
  OneSided& oneSided() { return *oneSided_; }
  Control& control() { return *control_; }
  /// Random, the same for all ranks.
  uint64_t session() const { return session_; }
  const std::shared_ptr<CaptureLink>& captureLink() const { return captureLink_; }
  const FaultState& faults() const { return *faults_; }
  /// Whether kernels of one rank's device may use the memory of another's; why not, in words, where not. Not
  /// what the devices can do: what the user and the topology say.
  bool mayReachDevice(int rank, int peer, std::string* why) const;
  KernelMachine kernelMachine() const;
  /// Of this rank's host. After connect().
  const HostTopology& topology() const { return *topology_; }

  /// Numbers that all ranks count alike.
  uint64_t nextNegotiation() { return ++negotiations_; }

  /// Records an error that makes the communicator unusable, tells the other ranks and wakes everyone who
  /// waits.
  void fail(const Status& error);
  /// `error`, or the death of a peer from which it follows: a connection may be refused a moment before the
  /// news of the death arrives. Waits for that moment; not on the service thread.
  Status rootCause(const Status& error) const;
  /// Ok, or the error that made the communicator unusable.
  Status error() const { return faults_->error(); }

  /// Exchanges bytes with all ranks over the control channel; after revoke() over a channel made for this.
  /// One call at a time.
  Result<std::vector<std::string>> exchange(const std::string& mine, Deadline deadline);
  /// See Control::deriveId.
  ncclUniqueId deriveId(int leader, std::string_view purpose) const {
    return control_->deriveId(leader, purpose);
  }
  /// See Control::kin.
  std::vector<Kin> kin(const std::vector<int>& ranks) const { return control_->kin(ranks); }
  /// While `child` is being made it fails when this communicator is aborted, and (`onFault`) when it fails.
  /// Once connect() has ended it stands on its own.
  void adopt(Communicator& child, bool onFault);

  /// Waits for the operations that were enqueued. Idempotent.
  Status finalize();
  /// Ends what runs here and on the other ranks; nothing can be enqueued any more. Idempotent.
  Status revoke(std::string_view why);
  bool revoked() const { return revoked_.load(std::memory_order_acquire); }
  /// Orderly end: finalize, say goodbye. Peers need not be there.
  Status close();
  /// Ends what goes on: whoever waits, in connect() too, returns with an error. May be called by any thread
  /// while others work with the object.
  void interrupt(const Status& why);
  /// interrupt(), then closes. Nobody else works with the object any more, but for tasks on streams; those
  /// that cannot end yet keep the object, and the last one deletes it.
  static void abort(std::unique_ptr<Communicator> communicator);

 private:
  Status connectTo(Deadline deadline);
  void startMonitor();
  NodeId gpuNode(int rank) const;
  Status findTopology();
  Status startKernels(Deadline deadline);
  Status drainKernels(Deadline deadline) const;
  Status endKernels(Deadline deadline);
  Status exchangePeers(Deadline deadline);
  /// Tells the peers of a failure, when it is news, and says goodbye.
  void endControl();
  void wake();
  void raiseDependents(const Status& why, bool aborted);
  void releaseParts();

  CommunicatorSetup setup_;
  std::shared_ptr<FaultState> faults_;
  std::unique_ptr<Control> control_;
  std::vector<PeerInfo> peers_;
  std::shared_ptr<const HostTopology> topology_;
  DevicePlace place_;
  RankBinding binding_;
  std::unique_ptr<Endpoint> endpoint_;
  std::unique_ptr<ReductionOps> operators_;
  std::unique_ptr<Planner> planner_;
  std::unique_ptr<HostExecutor> executor_;
  std::unique_ptr<TaskQueue> tasks_;
  std::unique_ptr<KernelCalls> kernels_;
  double deviceBandwidth_ = 0;
  const std::shared_ptr<Monitor> monitor_ = std::make_shared<Monitor>();
  std::mutex partsMutex_;    // wake() comes at any time, also while endpoint_ and tasks_ are being made
  std::mutex controlMutex_;  // abort ends the control channel while others may announce a failure
  bool checksCalls_ = false;
  std::unique_ptr<OneSided> oneSided_;
  Registrations registrations_;
  const std::shared_ptr<CaptureLink> captureLink_ = std::make_shared<CaptureLink>(*this);
  uint64_t session_ = 0;
  uint64_t negotiations_ = 0;
  std::atomic<bool> revoked_{false};
  bool closed_ = false;

  /// What others hold of something that is being made. Once it is made their faults are nothing to it: a
  /// fault comes either before that, and the making fails, or not at all.
  struct Making {
    explicit Making(std::shared_ptr<FaultState> subject) : faults(std::move(subject)) {}
    void raise(const Status& why) {
      const std::lock_guard lock(mutex);
      if (made) return;
      faults->raise(why);
      fault = why;
    }
    /// Ok, or the fault that came before.
    Status finish() {
      const std::lock_guard lock(mutex);
      made = true;
      return fault;
    }
    const std::shared_ptr<FaultState> faults;
    std::mutex mutex;
    bool made = false;
    Status fault;
  };
  struct Dependent {
    std::weak_ptr<Making> making;
    bool onFault;
  };
  std::shared_ptr<Making> making_;
  std::mutex dependentsMutex_;
  std::vector<Dependent> dependents_;
  std::mutex exchangeMutex_;
};

}  // namespace tutti
