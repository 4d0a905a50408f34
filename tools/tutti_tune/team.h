// The ranks that measure: threads of one process or of those that mpirun started. One of them, thread 0 of
// process 0, conducts; the others do what it says, one command after the other.
//
//   conductor   command -> (MPI broadcast) -> thread 0 of every process -> barrier -> all threads do it
//               result  <- (MPI gather)    <- slowest rank of each process <- barrier
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <tutti/tutti.h>

#include "algorithms/schedule.h"
#include "common/device.h"
#include "common/processes.h"
#include "common/team.h"

namespace tutti::tune {

/// One sample: some calls in a row on the first `ranks` ranks.
struct Trial {
  int size = 0;  // index of the communicator: which number of ranks
  Collective collective = Collective::allReduce;
  size_t count = 0;         // elements (float), as the call's
  char algorithm[80] = {};  // empty: the library's own choice
  int channels = 0;
  int warmups = 1;
  int calls = 1;
};

class Team {
 public:
  Team(std::vector<int> sizes, int threads, size_t maxBytes, perf::Processes& processes);

  /// Makes a communicator for each number of ranks, then runs `conduct` on one thread of the job. Errors name
  /// the rank.
  perf::Outcome run(const std::function<perf::Outcome(Team&)>& conduct);

  /// For the conductor: seconds of one of the calls, on the slowest rank. Inputs are written before the first
  /// of them.
  perf::Outcome measure(const Trial& trial, double* seconds);
  /// For the conductor: what a call would run by; false where the library's settings leave nothing.
  bool plan(int size, Collective collective, size_t count, bool mapped, tuttiPlan_t* plan) const;
  /// For the conductor: what the last call of that communicator ran by.
  perf::Outcome lastPlan(int size, tuttiPlan_t* plan) const;

 private:
  enum class Order : int { measure, stop };
  struct Command {
    Order order = Order::stop;
    Trial trial;
  };
  struct Rank {
    int number = 0;
    perf::Stream stream;
    perf::DeviceBuffer send, recv;
    std::vector<ncclComm_t> comms;  // by size; null where the rank is not in
    double seconds = 0;
    perf::Outcome outcome;
  };

  void thread(int index, const std::function<perf::Outcome(Team&)>& conduct);
  perf::Outcome exchangeIds();
  perf::Outcome prepare(Rank& rank);
  perf::Outcome connect(Rank& rank);
  perf::Outcome execute(Rank& rank, const Trial& trial);
  perf::Outcome time(Rank& rank, const Trial& trial);
  perf::Outcome call(Rank& rank, const Trial& trial, int calls);
  perf::Outcome obey();
  perf::Outcome collect(double* seconds);
  bool meet(int index, const Trial& trial);

  const std::vector<int> sizes_;
  const int threads_;
  const size_t maxBytes_;
  perf::Processes& processes_;
  perf::ThreadBarrier barrier_;
  std::deque<perf::ThreadBarrier> meetings_;  // of the ranks of each size, where there is one process
  std::vector<Rank> ranks_;
  std::vector<ncclUniqueId> ids_;  // by size
  Command command_;
  perf::Outcome outcome_;  // of the conductor
};

}  // namespace tutti::tune
