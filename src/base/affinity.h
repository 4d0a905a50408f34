// On which CPUs a thread may run, and on which NUMA node memory lies.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"

namespace tutti {

/// The CPUs on which the calling thread may run, ascending. Empty where the system does not say.
std::vector<int32_t> threadCpus();
/// Restricts a thread to some CPUs. Fails (ncclSystemError) when there is none of them that it may have.
Status setThreadCpus(pthread_t thread, const std::vector<int32_t>& cpus);

/// What both lists have; both ascending.
std::vector<int32_t> commonCpus(const std::vector<int32_t>& a, const std::vector<int32_t>& b);

/// Restricts the calling thread, and threads that it starts, while it lives; then the thread has the CPUs
/// that it had before. Nothing is done for an empty list. Made and destroyed by the same thread.
class AffinityScope {
 public:
  explicit AffinityScope(const std::vector<int32_t>& cpus);
  ~AffinityScope();
  AffinityScope(const AffinityScope&) = delete;
  AffinityScope& operator=(const AffinityScope&) = delete;

 private:
  std::vector<int32_t> before_;  // empty: nothing was done
};

/// Asks that pages of this range which nobody has touched yet come from that NUMA node, as long as it has
/// some. Of the range, only whole pages count. Shared memory: for all who map it. An optimisation: where the
/// system forbids it (containers do), says INFO once and goes on.
void preferNode(void* start, size_t bytes, int node);

}  // namespace tutti
