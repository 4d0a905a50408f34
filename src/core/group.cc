#include "core/group.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "base/thread_object.h"
#include "core/background.h"
#include "core/capture.h"
#include "core/communicator.h"
#include "core/launcher.h"
#include "device/host_table.h"

namespace tutti {
namespace {

constexpr unsigned kSimInfoMagic = 0x74685283;

/// Kept between calls so that launching allocates nothing.
struct LaunchScratch {
  std::vector<RankTask*> tasks;
  std::vector<Operation> operations;
  std::vector<CommUse> uses;
  std::vector<Operation> own;
  std::vector<GroupWork::Entry*> inKernels;  // the first entry of each communicator whose calls kernels run
};

/// The next message to oneself of that kind, from `at` on; the end when there is none.
size_t nextToSelf(std::span<const Operation> operations, int self, Operation::Kind kind, size_t at) {
  while (at < operations.size() && !(operations[at].kind == kind && operations[at].root == self)) ++at;
  return at;
}

/// A message to oneself moves only together with its counterpart in the same group: without it, it would wait
/// for ever. Both must have the same size: the first send goes to the first receive, and so on.
Status checkSelfMessages(const Communicator& communicator, std::span<const Operation> operations) {
  const int self = communicator.rank();
  int sends = 0;
  int receives = 0;
  for (const Operation& operation : operations) {
    if (operation.kind == Operation::Kind::collective || operation.root != self) continue;
    ++(operation.kind == Operation::Kind::send ? sends : receives);
  }
  if (sends != receives)
    return invalidUsage("rank {} has {} send(s) to itself but {} receive(s) from itself in this group", self,
                        sends, receives);
  size_t send = 0;
  size_t receive = 0;
  for (int pair = 1; pair <= sends; ++pair, ++send, ++receive) {
    send = nextToSelf(operations, self, Operation::Kind::send, send);
    receive = nextToSelf(operations, self, Operation::Kind::recv, receive);
    if (operations[send].count != operations[receive].count)
      return invalidUsage(
          "rank {} sends {} bytes to itself, but receives {} (pair {} of {} in this group); nothing of the "
          "group was started",
          self, operations[send].count, operations[receive].count, pair, sends);
  }
  return Status::ok();
}

Status checkStream(cudaStream_t stream) {
  TUTTI_ASSIGN(const tuttiHostRuntime_v1* runtime, hostTable());
  int device = 0;
  if (stream == nullptr || runtime->streamDevice(stream, &device) == 0) return Status::ok();
  return invalidArgument("{} is not a stream, or was destroyed", static_cast<const void*>(stream));
}

/// Marks what non-blocking work has to do with as in progress, until it is done.
class InProgress {
 public:
  explicit InProgress(const GroupWork& work) {
    for (const Job& job : work.jobs)
      if (job.subject != nullptr) mark(job.subject->handle());
    for (const GroupWork::Entry& entry : work.entries) mark(entry.comm);
    for (const GroupWork::OneSidedEntry& entry : work.oneSided) mark(entry.comm);
  }
  void end(const Status& outcome) {
    for (ncclComm_t comm : comms_) {
      if (!outcome.isOk()) {
        const std::lock_guard lock(comm->mutex);
        if (comm->failure.isOk()) comm->failure = outcome;
      }
      comm->pending.fetch_sub(1, std::memory_order_acq_rel);
    }
  }

 private:
  void mark(ncclComm_t comm) {
    comm->pending.fetch_add(1, std::memory_order_acq_rel);
    comms_.push_back(comm);
  }
  std::vector<ncclComm_t> comms_;
};

Status continueInBackground(GroupWork work) {
  struct Shared {
    GroupWork work;
    InProgress progress;
  };
  InProgress progress(work);
  auto shared = std::make_shared<Shared>(Shared{std::move(work), std::move(progress)});
  const Status started = runInBackground([shared]() mutable {
    Status outcome = shared->work.run();
    InProgress ended = std::move(shared->progress);
    // Uses of handles go first: whoever then sees that nothing is in progress may destroy them.
    shared.reset();
    ended.end(outcome);
  });
  if (started.isOk()) return inProgress();
  for (const Job& job : shared->work.jobs) job.cancel(started);
  const Status outcome = shared->work.run();  // ends at once, and leaves the handles in the right state
  shared->progress.end(outcome.isOk() ? started : outcome);
  return started;
}

}  // namespace

Status inProgress() { return {ncclInProgress, "in progress: poll ncclCommGetAsyncError"}; }

Group& Group::ofThisThread() { return threadObject<Group>(); }

Status Group::submit(const CommUse& use, const Operation& operation) {
  TUTTI_TRY(use->error());
  work_.entries.push_back({use.handle(), nullptr, operation, 0});
  if (active()) return Status::ok();
  const Status status = work_.run();
  work_.entries.clear();
  return status;
}

Status Group::submitOneSided(const CommUse& use, cudaStream_t stream, std::vector<OneSidedCall> calls) {
  if (!active()) return launchOneSided(*use, stream, std::move(calls));
  work_.oneSided.push_back({use.handle(), stream, std::move(calls)});
  return Status::ok();
}

Status Group::submitJob(Job job) {
  if (active()) {
    work_.jobs.push_back(std::move(job));
    return Status::ok();
  }
  if (job.blocking) return job.run();
  GroupWork work;
  work.jobs.push_back(std::move(job));
  return continueInBackground(std::move(work));
}

Status Group::end() {
  if (depth_ == 0) return invalidUsage("ncclGroupEnd without ncclGroupStart");
  if (--depth_ > 0) return error_;
  const Status error = std::exchange(error_, Status::ok());
  if (!error.isOk()) {
    // Nothing is launched; those that wait for a job learn why it does not come.
    for (const Job& job : work_.jobs) {
      job.cancel(error);
      job.run().ignore();
    }
    work_ = {};
    return error;
  }
  if (!work_.blocking()) return continueInBackground(std::exchange(work_, {}));
  const Status status = work_.run();
  work_.jobs.clear();
  work_.entries.clear();
  work_.oneSided.clear();
  return status;
}

Status Group::simulateEnd(ncclSimInfo_t* info) {
  if (depth_ == 0) return invalidUsage("ncclGroupSimulateEnd without ncclGroupStart");
  // The group ends whatever comes of it: later calls would never run otherwise.
  const bool isOutermost = --depth_ == 0;
  const Status error = isOutermost ? std::exchange(error_, Status::ok()) : error_;
  GroupWork work = isOutermost ? std::exchange(work_, {}) : GroupWork();
  if (info == nullptr) return invalidArgument("simInfo is null");
  if (info->magic != kSimInfoMagic) {
    return invalidArgument(
        "simInfo.magic is {:#x} instead of {:#x}: initialise the structure with NCCL_SIM_INFO_INITIALIZER",
        info->magic, kSimInfoMagic);
  }
  constexpr size_t kNeeded = offsetof(ncclSimInfo_t, estimatedTime) + sizeof info->estimatedTime;
  if (info->size < kNeeded)
    return invalidArgument("simInfo.size is {}, but the structure has {} bytes", info->size, kNeeded);
  if (!isOutermost) return error;
  TUTTI_TRY(error);
  if (!work.jobs.empty()) return invalidUsage("a group that makes or ends communicators cannot be simulated");
  TUTTI_ASSIGN(const double seconds, work.predictSeconds());
  info->estimatedTime = static_cast<float>(seconds * 1e6);
  return Status::ok();
}

Result<double> GroupWork::predictSeconds() {
  std::vector<CommUse> uses;
  TUTTI_TRY(resolve(uses));
  double slowest = 0;
  for (const CommUse& use : uses) {
    double collectives = 0;
    double message = 0;
    for (const Entry& entry : entries) {
      if (entry.communicator != use.get()) continue;
      TUTTI_ASSIGN(const double seconds, use->planner().predictSeconds(entry.operation));
      if (entry.operation.kind == Operation::Kind::collective) {
        collectives += seconds;
      } else {
        message = std::max(message, seconds);
      }
    }
    slowest = std::max(slowest, collectives + message);
  }
  return slowest;
}

bool GroupWork::blocking() const {
  return std::all_of(jobs.begin(), jobs.end(), [](const Job& job) { return job.blocking; });
}

Status GroupWork::run() {
  if (!jobs.empty()) TUTTI_TRY(runJobs());
  if (!entries.empty()) TUTTI_TRY(launch());
  return oneSided.empty() ? Status::ok() : launchOneSided();
}

/// Calls of one communicator on one stream run in order; others side by side.
Status GroupWork::launchOneSided() {
  for (size_t i = 0; i < oneSided.size(); ++i) {
    OneSidedEntry& entry = oneSided[i];
    if (entry.comm == nullptr) continue;
    TUTTI_ASSIGN(const CommUse use, resolveForLaunch(entry.comm));
    for (size_t j = i + 1; j < oneSided.size(); ++j) {
      OneSidedEntry& other = oneSided[j];
      if (other.comm != entry.comm || other.stream != entry.stream) continue;
      std::move(other.calls.begin(), other.calls.end(), std::back_inserter(entry.calls));
      other.comm = nullptr;
    }
    TUTTI_TRY(tutti::launchOneSided(*use, entry.stream, std::move(entry.calls)));
  }
  return Status::ok();
}

Status GroupWork::runJobs() {
  std::vector<Status> results(jobs.size());
  std::vector<std::function<void()>> chains;
  std::vector<bool> taken(jobs.size());
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (taken[i]) continue;
    std::vector<size_t> chain{i};
    for (size_t j = i + 1; jobs[i].order != nullptr && j < jobs.size(); ++j)
      if (jobs[j].order == jobs[i].order) chain.push_back(j);
    for (const size_t job : chain) taken[job] = true;
    chains.emplace_back([this, &results, chain = std::move(chain)] {
      for (const size_t job : chain) results[job] = jobs[job].run();
    });
  }
  const Status threads = runTogether(chains, [this](const Status& why) {
    for (const Job& job : jobs) job.cancel(why);
  });
  TUTTI_TRY(threads);
  for (const Status& result : results) TUTTI_TRY(result);
  return Status::ok();
}

/// Kernels in one stream run one after the other: ranks of one communicator would wait there for ever.
Status GroupWork::checkSharing(const Entry& entry) const {
  const Communicator& mine = *entry.communicator;
  for (const Entry& other : entries) {
    const Communicator& theirs = *other.communicator;
    if (other.comm == entry.comm || theirs.session() != mine.session() || theirs.device() != mine.device() ||
        other.operation.stream != entry.operation.stream)
      continue;
    return invalidUsage(
        "ranks {} and {} of a communicator were given the same stream: kernels in it run one after the "
        "other, and "
        "these would wait for each other",
        mine.rank(), theirs.rank());
  }
  return Status::ok();
}

Status GroupWork::checkEntries() const {
  for (const Entry& entry : entries) {
    KernelCalls* const kernels = entry.communicator->kernels();
    TUTTI_TRY(kernels != nullptr ? kernels->checkStream(entry.operation.stream)
                                 : checkStream(entry.operation.stream));
    if (kernels != nullptr) TUTTI_TRY(checkSharing(entry));
  }
  std::vector<Operation>& own = threadObject<LaunchScratch>().own;
  for (const Entry& entry : entries) {
    if (entry.operation.kind == Operation::Kind::collective ||
        entry.operation.root != entry.communicator->rank()) {
      continue;
    }
    own.clear();
    for (const Entry& other : entries) {
      if (other.comm == entry.comm) own.push_back(other.operation);
    }
    TUTTI_TRY(checkSelfMessages(*entry.communicator, own));
  }
  return Status::ok();
}

/// Another thread may have ended a communicator since its calls were collected.
Status GroupWork::resolve(std::vector<CommUse>& uses) {
  for (Entry& entry : entries) {
    const auto known = std::find_if(uses.begin(), uses.end(),
                                    [&](const CommUse& use) { return use.handle() == entry.comm; });
    if (known != uses.end()) {
      entry.communicator = known->get();
      continue;
    }
    TUTTI_ASSIGN(CommUse use, resolveForLaunch(entry.comm));
    entry.communicator = use.get();
    uses.push_back(std::move(use));
  }
  return Status::ok();
}

/// Finds the captures that the calls go into. Those on one communicator are one operation of it, so they go
/// into one graph, or none.
Status GroupWork::checkCaptures() {
  bool any = false;
  for (Entry& entry : entries) {
    KernelCalls* const kernels = entry.communicator->kernels();
    TUTTI_ASSIGN(entry.capture, kernels != nullptr ? kernels->captureOf(entry.operation.stream)
                                                   : captureOf(*entry.communicator, entry.operation.stream));
    any = any || entry.capture != 0;
  }
  if (!any) return Status::ok();
  for (const Entry& entry : entries) {
    const bool same = std::all_of(entries.begin(), entries.end(), [&](const Entry& other) {
      return other.comm != entry.comm || other.capture == entry.capture;
    });
    if (!same)
      return invalidUsage("the streams of a group must be captured into the same graph, or none of them");
  }
  return Status::ok();
}

/// The operations of the entry's communicator, from it on.
void GroupWork::collect(const Entry& first, std::vector<Operation>& operations) const {
  operations.clear();
  for (const Entry* entry = &first; entry != entries.data() + entries.size(); ++entry)
    if (entry->comm == first.comm) operations.push_back(entry->operation);
}

/// Kernels of several communicators in one stream run one after the other: in the same order on all ranks,
/// whatever order each names them in. Captured or not: launches on a stream that is captured go into its
/// graph by themselves.
Status GroupWork::launchKernels(std::vector<Entry*>& firsts, std::vector<Operation>& operations) const {
  std::ranges::sort(firsts, {}, [](const Entry* one) {
    return std::pair(one->communicator->session(), one->communicator->rank());
  });
  Status status;
  for (const Entry* first : firsts) {
    collect(*first, operations);
    if (Status enqueued = first->communicator->kernels()->enqueue(operations, first->capture != 0);
        !enqueued.isOk())
      status = std::move(enqueued);
  }
  return status;
}

Status GroupWork::launch() {
  auto& [tasks, operations, uses, own, inKernels] = threadObject<LaunchScratch>();
  tasks.clear();
  uses.clear();
  inKernels.clear();
  struct Release {
    std::vector<CommUse>& uses;
    ~Release() { uses.clear(); }
  } release{uses};
  TUTTI_TRY(resolve(uses));
  TUTTI_TRY(checkEntries());
  TUTTI_TRY(checkCaptures());
  std::vector<CapturedOperations> captured;  // empty, and so without memory, but for captures
  // The entries of one communicator form one task. Groups name few communicators, so a scan is the fastest
  // way.
  for (size_t i = 0; i < entries.size(); ++i) {
    Communicator* communicator = entries[i].communicator;
    if (communicator == nullptr) continue;
    for (size_t j = i + 1; j < entries.size(); ++j)
      if (entries[j].communicator == communicator) entries[j].communicator = nullptr;
    if (communicator->kernels() != nullptr) {
      inKernels.push_back(&entries[i]);
      continue;
    }
    collect(entries[i], operations);
    if (entries[i].capture == 0) {
      tasks.push_back(communicator->tasks().acquire(operations));
    } else {
      captured.push_back({communicator, operations});
    }
  }
  const Status status = captureOperations(std::move(captured));
  const Status launched = tasks.empty() ? Status::ok() : launchTasks(tasks);
  TUTTI_TRY(launchKernels(inKernels, operations));
  return launched.isOk() ? status : launched;
}

}  // namespace tutti
