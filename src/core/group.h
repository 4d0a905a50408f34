// Groups: calls between ncclGroupStart and ncclGroupEnd, launched together. One per thread.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "core/operation.h"

namespace tutti {

class Communicator;

/// The calling thread's group. Outside of an explicit group every call is a group of its own.
class Group {
 public:
  static Group& ofThisThread();

  void start() { ++depth_; }
  bool active() const { return depth_ > 0; }

  /// Launches now, or with the group when one is open.
  Status submit(Communicator& communicator, const Operation& operation);
  /// Runs `job` (an initialisation) now, or, when a group is open, at its end, all jobs of the group at once,
  /// each on a thread of its own: they wait for each other.
  Status submitJob(std::function<Status()> job);
  /// An argument error inside a group: kept and returned by end() too; nothing of the group is launched then.
  void latch(const Status& error) {
    if (active() && error_.isOk()) error_ = error;
  }

  /// Ends one level; the outermost one runs the jobs, then launches the operations.
  Status end();

 private:
  Status runJobs();
  Status launch();
  Status checkEntries();
  Status checkCaptures();
  void clear();

  struct Entry {
    Communicator* communicator;
    Operation operation;
    uint64_t capture = 0;  // that the call goes into; 0: it is executed
  };
  int depth_ = 0;
  Status error_;
  std::vector<Entry> entries_;
  std::vector<std::function<Status()>> jobs_;
};

}  // namespace tutti
