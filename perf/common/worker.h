// One thread of a perf program: runs all measurements on its ranks.
#pragma once

#include <memory>
#include <vector>

#include "common/buffer_check.h"
#include "common/job.h"

namespace tutti::perf {

/// What the run has found so far; filled by the worker of thread 0 only.
struct Findings {
  std::vector<Row> rows;
  Totals totals;
  double busBytesSum = 0;
  size_t measurements = 0;
};

/// Receives what is to be printed (process 0, thread 0).
class Printer {
 public:
  virtual ~Printer() = default;
  virtual void row(const Row& row) = 0;
  /// A line of its own, such as why something was left out.
  virtual void note(const std::string& text) = 0;
};

class Worker {
 public:
  /// `findings` and `printer` are used by thread 0 only.
  Worker(Job& job, int thread, Findings& findings, Printer& printer);

  /// All cycles, types, operators, roots and sizes. On an error the whole job has been told.
  void run();

 private:
  /// One type, operator and root.
  struct Combination {
    const DataType* type;
    Operator op;
    int root;
  };

  Outcome runCycle();
  Outcome runCombination(const Combination& combination);
  Outcome runSizes(const Combination& combination);
  Outcome runSize(const Combination& combination, uint64_t bytes);
  /// False in `supported` when the library has neither this type nor this operator.
  Outcome probe(const Combination& combination, bool& supported);

  Outcome setUpOperators(const Combination& combination, bool& supported);
  void dropOperators();
  void setUpSubjects(const Combination& combination, uint64_t bytes, bool inPlace);

  Outcome measure(bool inPlace, std::optional<Measurement>& result);
  Outcome timeIterations();
  Outcome timeTogether();
  Outcome timeGraphs();
  Outcome timeSingly();
  Outcome checkResults(uint64_t& wrong);
  /// What ran the last operation of this thread's first rank.
  Outcome askAlgorithm(RunBy& runBy) const;

  /// One iteration: this many operations (-m) on all ranks of this thread, in one group (a group for each
  /// round where an operation has several).
  ncclResult_t enqueueOnce(int operations);
  ncclResult_t enqueueGroup(int operations);
  ncclResult_t enqueueRounds(int operations, int rounds);
  Outcome enqueue(int operations);
  /// Puts iterations into a graph for each rank of this thread instead.
  Outcome capture(int iterations, int operations);
  Outcome launchGraphs();
  /// Until the streams of this thread are done.
  Outcome wait();
  Outcome meet();
  Outcome recordEvents(size_t index);
  Outcome readEvents();

  /// Thread 0: all threads' and processes' numbers become one.
  Outcome combine(Measurement& measurement);
  Outcome combineTimes(Measurement& measurement);

  Job& job_;
  const Options& options_;
  const int thread_;
  Findings& findings_;
  Printer& printer_;
  BufferCheck check_;
  RankState* ranks_;
  int count_;
  std::unique_ptr<Pattern> pattern_;
  std::vector<Subject> subjects_;
  std::vector<Call> calls_;
  std::vector<ncclRedOp_t> operators_;  // by local rank
  bool ownOperators_ = false;
  double seconds_ = 0;                    // of one operation, as this thread saw it
  std::vector<double> iterationSeconds_;  // by iteration, slowest of this thread's ranks
  std::vector<std::unique_ptr<EventList>> events_;
  std::vector<std::unique_ptr<StreamGraph>> graphs_;  // by local rank
};

}  // namespace tutti::perf
