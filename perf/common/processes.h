// The processes of one run: one, or those that mpirun started.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "common/mpi_shim.h"
#include "common/outcome.h"

namespace tutti::perf {

/// Only the thread that created it may use it, except rank() and size().
class Processes {
 public:
  /// Decides by the environment whether mpirun (Open MPI, MPICH, or another launcher with PMI or PMIx)
  /// started this process, and only then opens MPI. Fails when it did and the program was built without MPI
  /// or with another one.
  static Outcome connect(std::unique_ptr<Processes>& processes);
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  Outcome barrier();
  Outcome broadcast(void* data, size_t bytes, int root);
  Outcome allGather(const void* one, void* all, size_t bytes);

  /// One T from each process, in rank order.
  template <typename T>
  Outcome gather(const T& one, std::vector<T>& all) {
    all.resize(static_cast<size_t>(size_));
    return allGather(&one, all.data(), sizeof(T));
  }
  /// The same number of elements from each process, one process after the other.
  template <typename T>
  Outcome gatherLists(const std::vector<T>& mine, std::vector<T>& all) {
    all.resize(mine.size() * static_cast<size_t>(size_));
    return allGather(mine.data(), all.data(), mine.size() * sizeof(T));
  }

  /// Ends all processes of the run. Does not return when there are others.
  void abortOthers(int code);

 private:
  Processes() = default;

  const tuttiPerfMpi_v1* mpi_ = nullptr;
  int rank_ = 0;
  int size_ = 1;
};

/// What the launcher says about this process. Reads the environment only.
struct LaunchInfo {
  bool launched = false;
  std::string by;  // the variable that says so
  int size = 0;    // 0: not told
};
LaunchInfo launchInfo();

}  // namespace tutti::perf
