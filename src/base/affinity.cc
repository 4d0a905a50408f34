#include "base/affinity.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <iterator>
#include <memory>

#include "base/log.h"

namespace tutti {
namespace {

constexpr size_t kMostCpus = 65536;

/// A set with room for `cpus` CPUs.
struct CpuSet {
  explicit CpuSet(size_t cpus) : set(CPU_ALLOC(cpus)), bytes(CPU_ALLOC_SIZE(cpus)) {
    if (set != nullptr) CPU_ZERO_S(bytes, set);
  }
  ~CpuSet() { CPU_FREE(set); }
  CpuSet(const CpuSet&) = delete;
  CpuSet& operator=(const CpuSet&) = delete;

  cpu_set_t* set;
  size_t bytes;
};

}  // namespace

std::vector<int32_t> threadCpus() {
  std::vector<int32_t> cpus;
  // The kernel wants room for all CPUs that it may ever have.
  for (size_t room = 1024; room <= kMostCpus; room *= 4) {
    const CpuSet found(room);
    if (found.set == nullptr) return cpus;
    if (::sched_getaffinity(0, found.bytes, found.set) == 0) {
      for (size_t cpu = 0; cpu < found.bytes * 8; ++cpu)
        if (CPU_ISSET_S(cpu, found.bytes, found.set)) cpus.push_back(static_cast<int32_t>(cpu));
      return cpus;
    }
    if (errno != EINVAL) return cpus;
  }
  return cpus;
}

Status setThreadCpus(pthread_t thread, const std::vector<int32_t>& cpus) {
  if (cpus.empty() || cpus.front() < 0 || static_cast<size_t>(cpus.back()) >= kMostCpus)
    return invalidArgument("a thread cannot run on these {} CPUs", cpus.size());
  const CpuSet wanted(static_cast<size_t>(cpus.back()) + 1);
  if (wanted.set == nullptr) return systemError(ENOMEM, "allocate a set of CPUs");
  for (const int32_t cpu : cpus) CPU_SET_S(static_cast<size_t>(cpu), wanted.bytes, wanted.set);
  if (const int error = ::pthread_setaffinity_np(thread, wanted.bytes, wanted.set); error != 0)
    return systemError(error, "restrict a thread to {} CPUs, {} to {}", cpus.size(), cpus.front(),
                       cpus.back());
  return Status::ok();
}

std::vector<int32_t> commonCpus(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  std::vector<int32_t> both;
  std::ranges::set_intersection(a, b, std::back_inserter(both));
  return both;
}

AffinityScope::AffinityScope(const std::vector<int32_t>& cpus) {
  if (cpus.empty()) return;
  std::vector<int32_t> before = threadCpus();
  if (before.empty() || before == cpus) return;  // what cannot be restored is not changed
  const Status status = setThreadCpus(::pthread_self(), cpus);
  if (status.isOk()) {
    before_ = std::move(before);
  } else {
    logInfo(Subsystem::init, "CPU affinity: {}", status.message());
  }
}

AffinityScope::~AffinityScope() {
  if (before_.empty()) return;
  if (const Status status = setThreadCpus(::pthread_self(), before_); !status.isOk())
    logWarn("CPU affinity of the calling thread could not be restored: {}", status.message());
}

void preferNode(void* start, size_t bytes, int node) {
  constexpr int kPreferred = 1;  // MPOL_PREFERRED of <numaif.h>, which libnuma has
  constexpr size_t kWordBits = 8 * sizeof(unsigned long);
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t first = (reinterpret_cast<uintptr_t>(start) + page - 1) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(start) + bytes) / page * page;
  if (node < 0 || first >= end) return;
  std::vector<unsigned long> nodes(static_cast<size_t>(node) / kWordBits + 1);
  nodes.back() = 1ul << (static_cast<size_t>(node) % kWordBits);
  // The kernel takes one bit less than it is told.
  if (::syscall(SYS_mbind, first, end - first, kPreferred, nodes.data(), nodes.size() * kWordBits + 1, 0) ==
      0)
    return;
  static std::atomic<bool> said{false};
  if (!said.exchange(true))
    logInfo(Subsystem::init, "memory is not placed on NUMA nodes: {}",
            systemError(errno, "mbind to node {}", node).message());
}

}  // namespace tutti
