#include "core/group.h"

#include <thread>

#include "core/communicator.h"
#include "core/launcher.h"
#include "device/host_table.h"

namespace tutti {

Group& Group::ofThisThread() {
  static thread_local Group group;
  return group;
}

Status Group::submit(Communicator& communicator, const Operation& operation) {
  TUTTI_TRY(communicator.error());
  entries_.push_back({&communicator, operation});
  return active() ? Status::ok() : launch();
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

Status Group::launch() {
  // Kept between calls so that launching allocates nothing.
  static thread_local std::vector<RankTask*> tasks;
  static thread_local std::vector<Operation> operations;
  tasks.clear();
  // The entries of one communicator form one task. Groups name few communicators, so a scan is the fastest way.
  for (size_t i = 0; i < entries_.size(); ++i) {
    Communicator* communicator = entries_[i].communicator;
    if (communicator == nullptr) continue;
    operations.clear();
    for (size_t j = i; j < entries_.size(); ++j) {
      if (entries_[j].communicator != communicator) continue;
      operations.push_back(entries_[j].operation);
      if (j != i) entries_[j].communicator = nullptr;
    }
    tasks.push_back(communicator->tasks().acquire(operations));
  }
  entries_.clear();
  return launchTasks(tasks);
}

}  // namespace tutti
