#include "core/group.h"

#include <algorithm>
#include <thread>

#include "core/capture.h"
#include "core/communicator.h"
#include "core/launcher.h"
#include "device/host_table.h"

namespace tutti {
namespace {

/// A message to oneself moves only together with its counterpart in the same group: without it, it would wait
/// for ever.
Status checkSelfMessages(const Communicator& communicator, std::span<const Operation> operations) {
  int sends = 0;
  int receives = 0;
  for (const Operation& operation : operations) {
    if (operation.kind == Operation::Kind::collective || operation.root != communicator.rank()) continue;
    ++(operation.kind == Operation::Kind::send ? sends : receives);
  }
  if (sends == receives) return Status::ok();
  return invalidUsage("rank {} has {} send(s) to itself but {} receive(s) from itself in this group",
                      communicator.rank(), sends, receives);
}

Status checkStream(const tuttiHostRuntime_v1& runtime, cudaStream_t stream) {
  int device = 0;
  if (stream == nullptr || runtime.streamDevice(stream, &device) == 0) return Status::ok();
  return invalidArgument("{} is not a stream, or was destroyed", static_cast<const void*>(stream));
}

}  // namespace

Group& Group::ofThisThread() {
  static thread_local Group group;
  return group;
}

Status Group::submit(Communicator& communicator, const Operation& operation) {
  TUTTI_TRY(communicator.error());
  entries_.push_back({&communicator, operation, 0});
  if (active()) return Status::ok();
  const Status status = launch();
  entries_.clear();
  return status;
}

Status Group::submitJob(std::function<Status()> job) {
  if (!active()) return job();
  jobs_.push_back(std::move(job));
  return Status::ok();
}

Status Group::end() {
  if (depth_ == 0) return invalidUsage("ncclGroupEnd without ncclGroupStart");
  if (--depth_ > 0) return error_;
  Status status = error_;
  if (status.isOk() && !jobs_.empty()) status = runJobs();
  if (status.isOk() && !entries_.empty()) status = launch();
  clear();
  return status;
}

void Group::clear() {
  error_ = Status::ok();
  entries_.clear();
  jobs_.clear();
}

Status Group::runJobs() {
  std::vector<Status> results(jobs_.size());
  std::vector<std::thread> threads;
  for (size_t i = 1; i < jobs_.size(); ++i) {
    threads.emplace_back([&, i] { results[i] = jobs_[i](); });
  }
  results[0] = jobs_[0]();
  for (std::thread& thread : threads) thread.join();
  for (const Status& result : results) TUTTI_TRY(result);
  return Status::ok();
}

Status Group::checkEntries() {
  TUTTI_ASSIGN(const tuttiHostRuntime_v1* runtime, hostTable());
  for (const Entry& entry : entries_) TUTTI_TRY(checkStream(*runtime, entry.operation.stream));
  static thread_local std::vector<Operation> own;
  for (const Entry& entry : entries_) {
    if (entry.operation.kind == Operation::Kind::collective ||
        entry.operation.root != entry.communicator->rank()) {
      continue;
    }
    own.clear();
    for (const Entry& other : entries_) {
      if (other.communicator == entry.communicator) own.push_back(other.operation);
    }
    TUTTI_TRY(checkSelfMessages(*entry.communicator, own));
  }
  return Status::ok();
}

/// Finds the captures that the calls go into. Those on one communicator are one operation of it, so they go
/// into one graph, or none.
Status Group::checkCaptures() {
  bool any = false;
  for (Entry& entry : entries_) {
    TUTTI_ASSIGN(entry.capture, captureOf(*entry.communicator, entry.operation.stream));
    any = any || entry.capture != 0;
  }
  if (!any) return Status::ok();
  for (const Entry& entry : entries_) {
    const bool same = std::all_of(entries_.begin(), entries_.end(), [&](const Entry& other) {
      return other.communicator != entry.communicator || other.capture == entry.capture;
    });
    if (!same)
      return invalidUsage("the streams of a group must be captured into the same graph, or none of them");
  }
  return Status::ok();
}

Status Group::launch() {
  // Kept between calls so that launching allocates nothing.
  static thread_local std::vector<RankTask*> tasks;
  static thread_local std::vector<Operation> operations;
  tasks.clear();
  TUTTI_TRY(checkEntries());
  TUTTI_TRY(checkCaptures());
  Status status;
  // The entries of one communicator form one task. Groups name few communicators, so a scan is the fastest
  // way.
  for (size_t i = 0; i < entries_.size(); ++i) {
    Communicator* communicator = entries_[i].communicator;
    if (communicator == nullptr) continue;
    operations.clear();
    for (size_t j = i; j < entries_.size(); ++j) {
      if (entries_[j].communicator != communicator) continue;
      operations.push_back(entries_[j].operation);
      if (j != i) entries_[j].communicator = nullptr;
    }
    if (entries_[i].capture == 0) {
      tasks.push_back(communicator->tasks().acquire(operations));
    } else if (Status added = captureOperations(*communicator, operations); !added.isOk()) {
      status = std::move(added);
    }
  }
  entries_.clear();
  const Status launched = launchTasks(tasks);
  return launched.isOk() ? status : launched;
}

}  // namespace tutti
