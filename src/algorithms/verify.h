// Everything that there is to prove about the shipped algorithms, as a list of tasks.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "algorithms/checker.h"
#include "algorithms/registry.h"
#include "base/status.h"

namespace tutti {

/// One algorithm, collective and number of ranks: all roots; for algorithms over several hosts also several
/// shapes of hosts, with and without mapped buffers.
struct VerifyTask {
  const Algorithm* algorithm = nullptr;
  Collective collective = Collective::allReduce;
  int32_t ranks = 1;
  /// One rank stands for all (proveSymmetric()), which makes numbers of ranks affordable that else are not.
  bool symmetric = false;
};

struct VerifyOutcome {
  int64_t proofs = 0;
  Certificate certificate;  // of the last proof
};

/// All tasks for 1 .. maxRanks ranks, the longest first, so that threads that share them end together; with
/// `symmetricRanks` > 0 also one task of that many ranks for each declaration of symmetry. `algorithm`: of
/// that one alone; empty: of all.
std::vector<VerifyTask> verifyTasks(int32_t maxRanks, int32_t symmetricRanks,
                                    std::string_view algorithm = {});

/// Proves a task. Declared symmetry is compared with the schedules of all ranks. Thread-safe. The error is
/// that of the first proof that fails.
Result<VerifyOutcome> verify(const VerifyTask& task);

}  // namespace tutti
