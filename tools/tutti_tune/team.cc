#include "tutti_tune/team.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "algorithms/algorithm_filter.h"

namespace tutti::tune {
namespace {

using perf::checkCuda;
using perf::checkNccl;
using perf::Outcome;
using Clock = std::chrono::steady_clock;

constexpr int kMostMessage = 400;

ncclResult_t enqueue(const Trial& trial, const void* send, void* recv, ncclComm_t comm, cudaStream_t stream) {
  const size_t count = trial.count;
  switch (trial.collective) {
    case Collective::allReduce:
      return ncclAllReduce(send, recv, count, ncclFloat32, ncclSum, comm, stream);
    case Collective::allGather:
      return ncclAllGather(send, recv, count, ncclFloat32, comm, stream);
    case Collective::reduceScatter:
      return ncclReduceScatter(send, recv, count, ncclFloat32, ncclSum, comm, stream);
    case Collective::broadcast:
      return ncclBroadcast(send, recv, count, ncclFloat32, 0, comm, stream);
    case Collective::reduce:
      return ncclReduce(send, recv, count, ncclFloat32, ncclSum, 0, comm, stream);
    case Collective::allToAll:
      return ncclAlltoAll(send, recv, count, ncclFloat32, comm, stream);
    case Collective::gather:
      return ncclGather(send, recv, count, ncclFloat32, 0, comm, stream);
    default:
      return ncclScatter(send, recv, count, ncclFloat32, 0, comm, stream);
  }
}

}  // namespace

Team::Team(std::vector<int> sizes, int threads, size_t maxBytes, perf::Processes& processes)
    : sizes_(std::move(sizes)),
      threads_(threads),
      maxBytes_(maxBytes),
      processes_(processes),
      barrier_(threads),
      ranks_(static_cast<size_t>(threads)) {
  for (const int size : sizes_) meetings_.emplace_back(std::min(size, threads));
  for (int i = 0; i < threads; ++i) ranks_[static_cast<size_t>(i)].number = processes.rank() * threads + i;
}

bool Team::meet(int index, const Trial& trial) {
  if (processes_.size() == 1) return meetings_[static_cast<size_t>(trial.size)].wait();
  if (!barrier_.wait()) return false;
  if (index == 0 && !processes_.barrier().isOk()) barrier_.breakUp();
  return barrier_.wait();
}

Outcome Team::exchangeIds() {
  ids_.resize(sizes_.size());
  for (ncclUniqueId& id : ids_) {
    if (processes_.rank() == 0)
      if (const Outcome outcome = checkNccl(ncclGetUniqueId(&id), "ncclGetUniqueId"); !outcome.isOk())
        return outcome;
    if (const Outcome outcome = processes_.broadcast(&id, sizeof id, 0); !outcome.isOk()) return outcome;
  }
  return Outcome::ok();
}

Outcome Team::prepare(Rank& rank) {
  int devices = 0;
  if (const Outcome outcome = checkCuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount"); !outcome.isOk())
    return outcome;
  if (devices < 1) return Outcome::failure("cudaGetDeviceCount: there is no device");
  if (const Outcome outcome = checkCuda(cudaSetDevice(rank.number % devices), "cudaSetDevice");
      !outcome.isOk())
    return outcome;
  if (const Outcome outcome = perf::Stream::create(false, rank.stream); !outcome.isOk()) return outcome;
  for (perf::DeviceBuffer* buffer : {&rank.send, &rank.recv})
    if (const Outcome outcome =
            perf::DeviceBuffer::allocate(perf::DeviceBuffer::Source::nccl, maxBytes_, *buffer);
        !outcome.isOk())
      return outcome;
  return connect(rank);
}

Outcome Team::connect(Rank& rank) {
  rank.comms.assign(sizes_.size(), nullptr);
  for (size_t i = 0; i < sizes_.size(); ++i) {
    if (rank.number >= sizes_[i]) continue;
    const Outcome outcome = checkNccl(ncclCommInitRank(&rank.comms[i], sizes_[i], ids_[i], rank.number),
                                      "ncclCommInitRank (" + std::to_string(sizes_[i]) + " ranks)");
    if (!outcome.isOk()) return outcome;
  }
  return Outcome::ok();
}

Outcome Team::run(const std::function<Outcome(Team&)>& conduct) {
  if (const Outcome outcome = exchangeIds(); !outcome.isOk()) return outcome;
  std::vector<std::thread> others;
  for (int index = 1; index < threads_; ++index)
    others.emplace_back([this, index, &conduct] { thread(index, conduct); });
  thread(0, conduct);
  for (std::thread& other : others) other.join();
  return outcome_;
}

/// All threads have prepared, or failed to: thread 0 tells all processes which.
void Team::thread(int index, const std::function<Outcome(Team&)>& conduct) {
  Rank& rank = ranks_[static_cast<size_t>(index)];
  rank.outcome = prepare(rank).within("rank " + std::to_string(rank.number));
  barrier_.wait();
  if (index == 0) {
    double ignored = 0;
    outcome_ = collect(&ignored);
    if (!outcome_.isOk()) barrier_.breakUp();
    if (outcome_.isOk() && processes_.rank() == 0) {
      outcome_ = conduct(*this);
      command_.order = Order::stop;
      const Outcome told = processes_.broadcast(&command_, sizeof command_, 0);
      if (outcome_.isOk()) outcome_ = told;
    } else if (outcome_.isOk()) {
      outcome_ = obey();
    }
    command_.order = Order::stop;
    barrier_.wait();
  } else {
    while (barrier_.wait() && command_.order == Order::measure) {
      rank.outcome = execute(rank, command_.trial).within("rank " + std::to_string(rank.number));
      barrier_.wait(rank.comms[static_cast<size_t>(command_.trial.size)] == nullptr);
    }
  }
  for (ncclComm_t comm : rank.comms)
    if (comm != nullptr) outcome_.isOk() ? ncclCommDestroy(comm) : ncclCommAbort(comm);
}

/// Thread 0 of the other processes.
Outcome Team::obey() {
  while (true) {
    if (const Outcome outcome = processes_.broadcast(&command_, sizeof command_, 0); !outcome.isOk())
      return outcome;
    if (command_.order == Order::stop) return Outcome::ok();
    barrier_.wait();
    ranks_[0].outcome = execute(ranks_[0], command_.trial).within("rank " + std::to_string(ranks_[0].number));
    barrier_.wait();
    double ignored = 0;
    if (const Outcome outcome = collect(&ignored); !outcome.isOk()) return outcome;
  }
}

Outcome Team::measure(const Trial& trial, double* seconds) {
  command_ = {Order::measure, trial};
  if (const Outcome outcome = processes_.broadcast(&command_, sizeof command_, 0); !outcome.isOk())
    return outcome;
  barrier_.wait();
  ranks_[0].outcome = execute(ranks_[0], trial).within("rank " + std::to_string(ranks_[0].number));
  barrier_.wait();
  return collect(seconds);
}

/// Thread 0: the slowest of all ranks' times, or the first error.
Outcome Team::collect(double* seconds) {
  struct Report {
    double seconds = 0;
    char problem[kMostMessage] = {};
  };
  Report mine;
  for (const Rank& rank : ranks_) {
    mine.seconds = std::max(mine.seconds, rank.seconds);
    if (!rank.outcome.isOk() && mine.problem[0] == 0)
      std::strncpy(mine.problem, rank.outcome.message().c_str(), sizeof mine.problem - 1);
  }
  std::vector<Report> all;
  if (const Outcome outcome = processes_.gather(mine, all); !outcome.isOk()) return outcome;
  *seconds = 0;
  for (const Report& report : all) {
    if (report.problem[0] != 0) return Outcome::failure(report.problem);
    *seconds = std::max(*seconds, report.seconds);
  }
  return Outcome::ok();
}

Outcome Team::call(Rank& rank, const Trial& trial, int calls) {
  const ncclComm_t comm = rank.comms[static_cast<size_t>(trial.size)];
  for (int i = 0; i < calls; ++i) {
    const ncclResult_t result = enqueue(trial, rank.send.data(), rank.recv.data(), comm, rank.stream.get());
    if (result != ncclSuccess) return checkNccl(result, std::string(name(trial.collective)), comm);
  }
  if (calls == 0) return Outcome::ok();
  return checkCuda(cudaStreamSynchronize(rank.stream.get()), "cudaStreamSynchronize");
}

/// The barrier is for all threads, also those whose ranks do not take part: a failure must not keep a rank
/// from it.
Outcome Team::execute(Rank& rank, const Trial& trial) {
  rank.seconds = 0;
  const bool takesPart = rank.comms[static_cast<size_t>(trial.size)] != nullptr;
  Outcome outcome = takesPart ? time(rank, trial) : Outcome::ok();
  if (!takesPart && processes_.size() > 1) meet(rank.number % threads_, trial);
  return outcome;
}

Outcome Team::time(Rank& rank, const Trial& trial) {
  const ncclComm_t comm = rank.comms[static_cast<size_t>(trial.size)];
  const std::string algo = trial.algorithm[0] == 0
                               ? std::string()
                               : std::string(functionName(trial.collective)) + ":" + trial.algorithm;
  Outcome outcome =
      checkNccl(tuttiCommSetAlgo(comm, algo.c_str(), nullptr, trial.channels), "tuttiCommSetAlgo", comm);
  if (outcome.isOk()) outcome = call(rank, trial, trial.warmups);
  const size_t sent = trial.collective == Collective::allReduce ||
                              trial.collective == Collective::allGather ||
                              trial.collective == Collective::broadcast ||
                              trial.collective == Collective::reduce || trial.collective == Collective::gather
                          ? trial.count
                          : trial.count * static_cast<size_t>(sizes_[static_cast<size_t>(trial.size)]);
  std::fill_n(reinterpret_cast<float*>(rank.send.data()), sent, 1.0F);
  meet(rank.number % threads_, trial);
  if (!outcome.isOk()) return outcome;
  const Clock::time_point start = Clock::now();
  outcome = call(rank, trial, trial.calls);
  rank.seconds = std::chrono::duration<double>(Clock::now() - start).count() / trial.calls;
  if (!outcome.isOk()) return outcome;
  ncclResult_t state = ncclSuccess;
  outcome = checkNccl(ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError", comm);
  return outcome.isOk() ? checkNccl(state, name(trial.collective), comm) : outcome;
}

bool Team::plan(int size, Collective collective, size_t count, bool mapped, tuttiPlan_t* plan) const {
  *plan = TUTTI_PLAN_INITIALIZER;
  return tuttiCommQueryPlan(ranks_[0].comms[static_cast<size_t>(size)],
                            std::string(functionName(collective)).c_str(), count, ncclFloat32, mapped ? 1 : 0,
                            plan) == ncclSuccess;
}

Outcome Team::lastPlan(int size, tuttiPlan_t* plan) const {
  *plan = TUTTI_PLAN_INITIALIZER;
  const ncclComm_t comm = ranks_[0].comms[static_cast<size_t>(size)];
  return checkNccl(tuttiCommLastPlan(comm, plan), "tuttiCommLastPlan", comm);
}

}  // namespace tutti::tune
