#include "common/worker.h"

#include <tutti/tutti.h>

#include <algorithm>
#include <chrono>
#include <numeric>

namespace tutti::perf {
namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

ncclRedOp_t builtIn(Operator op) {
  switch (op) {
    case Operator::prod:
      return ncclProd;
    case Operator::max:
      return ncclMax;
    case Operator::min:
      return ncclMin;
    case Operator::avg:
      return ncclAvg;
    default:
      return ncclSum;
  }
}

bool meansUnsupported(ncclResult_t result) {
  return result == ncclInvalidUsage || result == ncclInvalidArgument;
}

Outcome somebodyFailed() { return Outcome::failure("stopped because of another failure"); }

}  // namespace

Worker::Worker(Job& job, int thread, Findings& findings, Printer& printer)
    : job_(job),
      options_(job.options),
      thread_(thread),
      findings_(findings),
      printer_(printer),
      check_(job),
      ranks_(job.ranksOf(thread)),
      count_(job.options.devicesPerThread),
      operators_(static_cast<size_t>(job.options.devicesPerThread), ncclSum) {}

void Worker::run() {
  for (int cycle = 0; options_.cycles == 0 || cycle < options_.cycles; ++cycle) {
    if (const Outcome outcome = runCycle(); !outcome.isOk()) {
      job_.fail(outcome.message());
      break;
    }
  }
  dropOperators();
}

Outcome Worker::meet() { return job_.meet(thread_) ? Outcome::ok() : somebodyFailed(); }

Outcome Worker::runCycle() {
  const std::vector<Operator> none{Operator::none};
  const int roots = job_.collective.hasRoot() && options_.allRoots ? ranks_[0].groupSize : 1;
  for (const DataType* type : options_.types) {
    for (const Operator op : job_.collective.reduces() ? options_.operators : none) {
      for (int root = 0; root < roots; ++root) {
        const int chosen = options_.allRoots ? root : options_.root;
        const Combination combination{type, op, job_.collective.hasRoot() ? chosen : -1};
        if (const Outcome outcome = runCombination(combination); !outcome.isOk()) return outcome;
      }
    }
  }
  return Outcome::ok();
}

Outcome Worker::runCombination(const Combination& combination) {
  bool supported = true;
  if (const Outcome outcome = setUpOperators(combination, supported); !outcome.isOk()) return outcome;
  if (supported)
    if (const Outcome outcome = probe(combination, supported); !outcome.isOk()) return outcome;
  Outcome outcome;
  if (supported) {
    outcome = runSizes(combination);
  } else if (thread_ == 0 && job_.isRoot()) {
    printer_.note(std::string("# ") + combination.type->name + " " + nameOf(combination.op) +
                  ": left out, the library does not support it: " + ncclGetLastError(nullptr));
  }
  if (const Outcome met = meet(); outcome.isOk()) outcome = met;
  dropOperators();
  return outcome;
}

Outcome Worker::runSizes(const Combination& combination) {
  for (const uint64_t bytes : options_.sizes())
    if (const Outcome outcome = runSize(combination, bytes); !outcome.isOk()) return outcome;
  return Outcome::ok();
}

Outcome Worker::setUpOperators(const Combination& combination, bool& supported) {
  std::fill(operators_.begin(), operators_.end(), builtIn(combination.op));
  if (combination.op != Operator::mulsum) return Outcome::ok();
  const Watchdog::Section section(job_.watchdog);
  if (!section) return somebodyFailed();
  for (int i = 0; i < count_; ++i) {
    const int scalar = mulsumScalar(ranks_[i].groupRank);
    uint64_t bits = combination.type->isFloating() ? encodeFloat(*combination.type, scalar)
                                                   : static_cast<uint64_t>(scalar);
    const ncclResult_t result = ncclRedOpCreatePreMulSum(&operators_[i], &bits, combination.type->nccl,
                                                         ncclScalarHostImmediate, ranks_[i].comm);
    if (options_.allOperators && meansUnsupported(result)) {
      supported = false;
      return Outcome::ok();
    }
    if (result != ncclSuccess) return checkNccl(result, "ncclRedOpCreatePreMulSum", ranks_[i].comm);
    ownOperators_ = true;
  }
  return Outcome::ok();
}

void Worker::dropOperators() {
  if (!ownOperators_) return;
  ownOperators_ = false;
  const Watchdog::Section section(job_.watchdog);
  if (!section) return;
  for (int i = 0; i < count_; ++i) ncclRedOpDestroy(operators_[i], ranks_[i].comm);
}

void Worker::setUpSubjects(const Combination& combination, uint64_t bytes, bool inPlace) {
  const auto width = static_cast<size_t>(combination.type->bytes);
  subjects_.clear();
  calls_.clear();
  pattern_ = std::make_unique<Pattern>(*combination.type, combination.op, ranks_[0].groupSize);
  for (int i = 0; i < count_; ++i) {
    RankState& state = ranks_[i];
    Subject subject;
    subject.state = &state;
    subject.pattern = pattern_.get();
    subject.shape = job_.collective.shape(bytes / width, width, state.groupRank, state.groupSize);
    subject.root = std::max(combination.root, 0);
    subject.inPlace = inPlace;
    subjects_.push_back(subject);

    const Pointers pointers = pointersOf(subject, options_.misalign);
    calls_.push_back({pointers.send, pointers.recv, subject.shape.count, combination.type->nccl,
                      operators_[i], subject.root, state.groupRank, state.groupSize, state.comm,
                      state.stream.get(), subject.shape.total, 0});
  }
}

Outcome Worker::probe(const Combination& combination, bool& supported) {
  setUpSubjects(combination, options_.minBytes, false);
  for (const Subject& subject : subjects_)
    if (const Outcome outcome = check_.fill(subject); !outcome.isOk()) return outcome;
  if (thread_ == 0)
    job_.watchdog.limit(std::chrono::seconds(options_.timeoutSeconds),
                        std::string("the first ") + job_.collective.name() + " operation");
  const size_t resident = Job::residentBytes();
  ncclResult_t result = ncclSuccess;
  {
    const Watchdog::Section section(job_.watchdog);
    if (!section) return somebodyFailed();
    result = enqueueOnce(1);
  }
  if ((options_.allTypes || options_.allOperators) && meansUnsupported(result)) {
    supported = false;
    return Outcome::ok();
  }
  if (result != ncclSuccess)
    return checkNccl(result, "rank " + std::to_string(ranks_[0].rank) + ": " + job_.collective.name(),
                     ranks_[0].comm);
  const Outcome outcome = wait();
  if (thread_ == 0) job_.noteFirstUse(resident);
  return outcome;
}

Outcome Worker::runSize(const Combination& combination, uint64_t bytes) {
  if (thread_ == 0)
    job_.watchdog.limit(std::chrono::seconds(options_.timeoutSeconds),
                        std::string(job_.collective.name()) + " of " + std::to_string(bytes) + " bytes");
  Row row;
  for (const bool inPlace : {false, true}) {
    if (inPlace && !job_.collective.hasInPlace()) continue;
    setUpSubjects(combination, bytes, inPlace);
    if (const Outcome outcome = measure(inPlace, inPlace ? row.inPlace : row.outOfPlace); !outcome.isOk())
      return outcome;
  }
  if (thread_ != 0 || !job_.isRoot()) return Outcome::ok();
  const CallShape& shape = subjects_[0].shape;
  row.bytes = shape.total * static_cast<size_t>(combination.type->bytes);
  row.count = shape.count;
  row.type = combination.type->name;
  row.op = nameOf(combination.op);
  row.root = combination.root;
  printer_.row(row);
  for (const auto* measurement : {&row.outOfPlace, &row.inPlace}) {
    if (!*measurement) continue;
    findings_.busBytesSum += (*measurement)->busBytes;
    ++findings_.measurements;
    findings_.totals.wrong += (*measurement)->wrong.value_or(0);
  }
  findings_.totals.averageBusBytes = findings_.busBytesSum / static_cast<double>(findings_.measurements);
  findings_.rows.push_back(std::move(row));
  return Outcome::ok();
}

Outcome Worker::measure(bool inPlace, std::optional<Measurement>& result) {
  // Fresh inputs for the timed calls: denormals, infinities and unmapped pages would distort the times.
  for (const Subject& subject : subjects_)
    if (const Outcome outcome = check_.fill(subject); !outcome.isOk()) return outcome;
  for (int i = 0; i < options_.warmup; ++i)
    if (const Outcome outcome = enqueue(options_.aggregated); !outcome.isOk()) return outcome;
  if (const Outcome outcome = wait(); !outcome.isOk()) return outcome;
  if (const Outcome outcome = timeIterations(); !outcome.isOk())
    return outcome.within(inPlace ? "in place" : "out of place");

  uint64_t wrong = 0;
  if (const Outcome outcome = checkResults(wrong); !outcome.isOk()) return outcome;
  job_.threadWrong[thread_] = wrong;
  job_.threadTimes[thread_] = iterationSeconds_;
  job_.threadTimes[thread_].push_back(seconds_);
  if (const Outcome outcome = meet(); !outcome.isOk()) return outcome;
  if (thread_ == 0) {
    Measurement measurement;
    if (const Outcome outcome = combine(measurement); !outcome.isOk()) return outcome;
    if (options_.showAlgo)
      if (const Outcome outcome = askAlgorithm(measurement.runBy.emplace()); !outcome.isOk()) return outcome;
    result = std::move(measurement);
  }
  return meet();
}

Outcome Worker::askAlgorithm(RunBy& runBy) const {
  tuttiPlan_t plan = TUTTI_PLAN_INITIALIZER;
  const ncclResult_t result = tuttiCommLastPlan(ranks_[0].comm, &plan);
  if (result != ncclSuccess) return checkNccl(result, "tuttiCommLastPlan", ranks_[0].comm);
  runBy = {plan.algorithm, plan.protocol, plan.channels, plan.seconds};
  return Outcome::ok();
}

Outcome Worker::timeIterations() {
  iterationSeconds_.clear();
  if (options_.graphLaunches > 0) return timeGraphs();
  return options_.statistic == Statistic::mean ? timeTogether() : timeSingly();
}

Outcome Worker::timeTogether() {
  if (options_.perIteration) {
    events_.clear();
    for (int i = 0; i < count_; ++i) {
      // An event belongs to the device of its stream.
      cudaSetDevice(ranks_[i].device);
      events_.push_back(std::make_unique<EventList>());
      const auto events = static_cast<size_t>(options_.iterations) + 1;
      if (const Outcome outcome = events_.back()->create(events); !outcome.isOk()) return outcome;
    }
  }
  if (const Outcome outcome = meet(); !outcome.isOk()) return outcome;
  double enqueueing = 0;
  double pause = 0;  // in barriers that do not count
  const Clock::time_point start = Clock::now();
  if (const Outcome outcome = recordEvents(0); !outcome.isOk()) return outcome;
  for (int i = 0; i < options_.iterations; ++i) {
    const Clock::time_point begin = Clock::now();
    if (const Outcome outcome = enqueue(options_.aggregated); !outcome.isOk()) return outcome;
    enqueueing += secondsSince(begin);
    if (const Outcome outcome = recordEvents(static_cast<size_t>(i) + 1); !outcome.isOk()) return outcome;
    if (options_.blocking == Blocking::never) continue;
    if (const Outcome outcome = wait(); !outcome.isOk()) return outcome;
    if (options_.blocking == Blocking::wait) continue;
    const Clock::time_point barrier = Clock::now();
    if (const Outcome outcome = meet(); !outcome.isOk()) return outcome;
    if (options_.blocking == Blocking::waitAndBarrierOuter) pause += secondsSince(barrier);
  }
  if (const Outcome outcome = wait(); !outcome.isOk()) return outcome;
  const double all = options_.cpuTime ? enqueueing : secondsSince(start) - pause;
  seconds_ = all / options_.iterations / options_.aggregated;
  return readEvents();
}

Outcome Worker::timeGraphs() {
  if (const Outcome outcome = capture(options_.iterations, options_.aggregated); !outcome.isOk())
    return outcome;
  if (const Outcome outcome = meet(); !outcome.isOk()) return outcome;
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < options_.graphLaunches; ++i)
    if (const Outcome outcome = launchGraphs(); !outcome.isOk()) return outcome;
  const double launching = secondsSince(start);
  if (const Outcome outcome = wait(); !outcome.isOk()) return outcome;
  const double all = options_.cpuTime ? launching : secondsSince(start);
  seconds_ = all / options_.graphLaunches / options_.iterations / options_.aggregated;
  graphs_.clear();
  return Outcome::ok();
}

Outcome Worker::timeSingly() {
  for (int i = 0; i < options_.iterations; ++i) {
    if (const Outcome outcome = meet(); !outcome.isOk()) return outcome;
    const Clock::time_point start = Clock::now();
    if (const Outcome outcome = enqueue(options_.aggregated); !outcome.isOk()) return outcome;
    const double enqueueing = secondsSince(start);
    if (const Outcome outcome = wait(); !outcome.isOk()) return outcome;
    const double all = options_.cpuTime ? enqueueing : secondsSince(start);
    iterationSeconds_.push_back(all / options_.aggregated);
  }
  seconds_ = summarize(iterationSeconds_).p50;
  return Outcome::ok();
}

Outcome Worker::recordEvents(size_t index) {
  if (!options_.perIteration) return Outcome::ok();
  for (int i = 0; i < count_; ++i) {
    if (options_.nullStream) cudaSetDevice(ranks_[i].device);
    if (const Outcome outcome = events_[i]->record(index, ranks_[i].stream.get()); !outcome.isOk())
      return outcome;
  }
  return Outcome::ok();
}

Outcome Worker::readEvents() {
  if (!options_.perIteration) return Outcome::ok();
  iterationSeconds_.assign(static_cast<size_t>(options_.iterations), 0);
  for (const auto& list : events_) {
    for (size_t i = 0; i < iterationSeconds_.size(); ++i) {
      double seconds = 0;
      if (const Outcome outcome = list->secondsBetween(i, seconds); !outcome.isOk()) return outcome;
      iterationSeconds_[i] = std::max(iterationSeconds_[i], seconds / options_.aggregated);
    }
  }
  return Outcome::ok();
}

Outcome Worker::checkResults(uint64_t& wrong) {
  for (int i = 0; i < options_.check; ++i) {
    for (const Subject& subject : subjects_)
      if (const Outcome outcome = check_.fill(subject); !outcome.isOk()) return outcome;
    // One operation: a second one in place would start from the result of the first.
    if (options_.graphLaunches > 0) {
      if (const Outcome outcome = capture(1, 1); !outcome.isOk()) return outcome;
      if (const Outcome outcome = launchGraphs(); !outcome.isOk()) return outcome;
    } else if (const Outcome outcome = enqueue(1); !outcome.isOk()) {
      return outcome;
    }
    if (const Outcome outcome = wait(); !outcome.isOk()) return outcome;
    graphs_.clear();
    for (const Subject& subject : subjects_)
      if (const Outcome outcome = check_.countWrong(subject, wrong); !outcome.isOk()) return outcome;
  }
  return Outcome::ok();
}

ncclResult_t Worker::enqueueRounds(int operations, int rounds) {
  for (int i = 0; i < operations * rounds; ++i) {
    for (Call& call : calls_) call.round = i % rounds;
    if (const ncclResult_t result = enqueueGroup(1); result != ncclSuccess) return result;
  }
  return ncclSuccess;
}

ncclResult_t Worker::enqueueOnce(int operations) {
  const int rounds = job_.collective.rounds(ranks_[0].groupSize);
  return rounds == 1 ? enqueueGroup(operations) : enqueueRounds(operations, rounds);
}

ncclResult_t Worker::enqueueGroup(int operations) {
  const bool grouped = operations * count_ > 1;
  if (grouped)
    if (const ncclResult_t result = ncclGroupStart(); result != ncclSuccess) return result;
  ncclResult_t first = ncclSuccess;
  for (int m = 0; m < operations; ++m) {
    for (int i = 0; i < count_; ++i) {
      if (options_.nullStream && count_ > 1) cudaSetDevice(ranks_[i].device);
      const ncclResult_t result = job_.collective.enqueue(calls_[i]);
      if (first == ncclSuccess) first = result;
    }
  }
  if (!grouped) return first;
  const ncclResult_t end = ncclGroupEnd();
  return first == ncclSuccess ? end : first;
}

Outcome Worker::enqueue(int operations) {
  const Watchdog::Section section(job_.watchdog);
  if (!section) return somebodyFailed();
  const ncclResult_t result = enqueueOnce(operations);
  if (result == ncclSuccess) return Outcome::ok();
  return checkNccl(result, "rank " + std::to_string(ranks_[0].rank) + ": " + job_.collective.name(),
                   ranks_[0].comm);
}

Outcome Worker::capture(int iterations, int operations) {
  graphs_.clear();
  for (int i = 0; i < count_; ++i) {
    graphs_.push_back(std::make_unique<StreamGraph>());
    if (const Outcome outcome = graphs_.back()->begin(ranks_[i].stream.get()); !outcome.isOk())
      return outcome;
  }
  for (int i = 0; i < iterations; ++i)
    if (const Outcome outcome = enqueue(operations); !outcome.isOk()) return outcome;
  for (const auto& graph : graphs_)
    if (const Outcome outcome = graph->end(); !outcome.isOk()) return outcome;
  return Outcome::ok();
}

Outcome Worker::launchGraphs() {
  // The library is called by the launch, so the watchdog must not abort the communicators meanwhile.
  const Watchdog::Section section(job_.watchdog);
  if (!section) return somebodyFailed();
  for (int i = 0; i < count_; ++i)
    if (const Outcome outcome = graphs_[static_cast<size_t>(i)]->launch(); !outcome.isOk())
      return outcome.within("rank " + std::to_string(ranks_[i].rank));
  return Outcome::ok();
}

Outcome Worker::wait() {
  for (int i = 0; i < count_; ++i) {
    if (options_.nullStream) cudaSetDevice(ranks_[i].device);
    const cudaError_t error = cudaStreamSynchronize(ranks_[i].stream.get());
    if (job_.watchdog.failed()) return somebodyFailed();
    if (error != cudaSuccess)
      return checkCuda(error, "rank " + std::to_string(ranks_[i].rank) + ": cudaStreamSynchronize");
  }
  const Watchdog::Section section(job_.watchdog);
  if (!section) return somebodyFailed();
  for (int i = 0; i < count_; ++i) {
    ncclResult_t state = ncclSuccess;
    const std::string who = "rank " + std::to_string(ranks_[i].rank);
    const ncclResult_t result = ncclCommGetAsyncError(ranks_[i].comm, &state);
    if (result != ncclSuccess) return checkNccl(result, who + ": ncclCommGetAsyncError", ranks_[i].comm);
    if (state != ncclSuccess) return checkNccl(state, who, ranks_[i].comm);
  }
  return Outcome::ok();
}

Outcome Worker::combineTimes(Measurement& measurement) {
  std::vector<double> mine;
  for (const auto& times : job_.threadTimes) mine.insert(mine.end(), times.begin(), times.end());
  const size_t perThread = job_.threadTimes[0].size();
  std::vector<double> all;
  if (const Outcome outcome = job_.processes.gatherLists(mine, all); !outcome.isOk()) return outcome;

  std::vector<double> totals;                       // by thread of the run
  std::vector<double> slowest(perThread - 1, 0.0);  // by iteration
  for (size_t thread = 0; thread * perThread < all.size(); ++thread) {
    const double* times = all.data() + thread * perThread;
    for (size_t i = 0; i + 1 < perThread; ++i) slowest[i] = std::max(slowest[i], times[i]);
    totals.push_back(times[perThread - 1]);
  }
  const Summary over = summarize(totals);
  switch (options_.average) {
    case Average::rank0:
      measurement.seconds = totals[0];
      break;
    case Average::mean:
      measurement.seconds = over.mean;
      break;
    case Average::min:
      measurement.seconds = over.min;
      break;
    case Average::max:
      measurement.seconds = over.max;
      break;
  }
  const Summary iterations = summarize(slowest);
  if (options_.statistic == Statistic::median) measurement.seconds = iterations.p50;
  if (options_.statistic == Statistic::min) measurement.seconds = iterations.min;
  if (options_.perIteration) {
    measurement.iterationSeconds = slowest;
    slowest.erase(slowest.begin(), slowest.begin() + options_.perIterationSkip);
    measurement.iterationSummary = summarize(slowest);
  }
  return Outcome::ok();
}

Outcome Worker::combine(Measurement& measurement) {
  if (const Outcome outcome = combineTimes(measurement); !outcome.isOk()) return outcome;
  const uint64_t mine = std::accumulate(job_.threadWrong.begin(), job_.threadWrong.end(), uint64_t{0});
  std::vector<uint64_t> all;
  if (const Outcome outcome = job_.processes.gather(mine, all); !outcome.isOk()) return outcome;
  if (options_.check > 0) measurement.wrong = std::accumulate(all.begin(), all.end(), uint64_t{0});
  const Subject& subject = subjects_[0];
  const double bytes = static_cast<double>(subject.shape.total) * subject.width();
  measurement.algBytes = measurement.seconds > 0 ? bytes / measurement.seconds : 0;
  measurement.algBytes *= job_.collective.algorithmFactor(subject.state->groupSize);
  measurement.busBytes = measurement.algBytes * job_.collective.busFactor(subject.state->groupSize);
  return Outcome::ok();
}

}  // namespace tutti::perf
