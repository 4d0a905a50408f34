// Groups: calls between ncclGroupStart and ncclGroupEnd, launched together. One per thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "core/handle.h"
#include "core/one_sided.h"
#include "core/operation.h"

namespace tutti {

/// A call that makes or ends a communicator, and may wait for the other ranks' calls.
struct Job {
  std::function<Status()> run;
  /// Makes run() return soon, with this error.
  std::function<void(const Status& why)> cancel;
  /// Jobs of a group with the same key run in call order, on one thread. Null: on a thread of its own.
  const void* order = nullptr;
  bool blocking = true;
  /// Is in progress until the job has ended, when the job is not blocking; gets its error. May be null.
  std::shared_ptr<CommUse> subject;
};

/// What a group has collected.
struct GroupWork {
  struct Entry {
    ncclComm_t comm;
    Communicator* communicator;  // set while launching
    Operation operation;
    uint64_t capture = 0;  // that the call goes into, set while launching; 0: it is executed
  };
  struct OneSidedEntry {
    ncclComm_t comm;
    cudaStream_t stream;
    std::vector<OneSidedCall> calls;
  };
  std::vector<Job> jobs;
  std::vector<Entry> entries;
  std::vector<OneSidedEntry> oneSided;

  bool blocking() const;
  /// Seconds that the operations would take.
  Result<double> predictSeconds();
  /// Jobs, then operations, then one-sided calls.
  Status run();

 private:
  Status runJobs();
  Status launch();
  Status launchOneSided();
  Status resolve(std::vector<CommUse>& uses);
  Status checkEntries() const;
  Status checkSharing(const Entry& entry) const;
  void collect(const Entry& first, std::vector<Operation>& operations) const;
  Status launchKernels(std::vector<Entry*>& firsts, std::vector<Operation>& operations) const;
  Status checkCaptures();
};

/// The calling thread's group. Outside of an explicit group every call is a group of its own.
class Group {
 public:
  static Group& ofThisThread();

  void start() { ++depth_; }
  bool active() const { return depth_ > 0; }

  /// Launches now, or with the group when one is open.
  Status submit(const CommUse& use, const Operation& operation);
  Status submitOneSided(const CommUse& use, cudaStream_t stream, std::vector<OneSidedCall> calls);
  /// Runs the job now, or, when a group is open, at its end, all jobs of the group at once, each on a thread
  /// of its own: they wait for each other. A job that does not block goes on in the background: then this, or
  /// end(), says ncclInProgress.
  Status submitJob(Job job);
  /// An argument error inside a group: kept and returned by end() too; nothing of the group is launched then.
  void latch(const Status& error) {
    if (active() && error_.isOk()) error_ = error;
  }

  /// Ends one level; the outermost one only estimates how long the operations would take, and drops them. For
  /// a communicator's operations this is the sum of the collectives and the longest message, and the group
  /// takes as long as the slowest communicator.
  Status simulateEnd(ncclSimInfo_t* info);

  /// Ends one level; the outermost one runs the jobs, then launches the operations.
  Status end();

 private:
  int depth_ = 0;
  Status error_;
  GroupWork work_;
};

/// The answer of a non-blocking call that goes on in the background. Not an error.
Status inProgress();

}  // namespace tutti
