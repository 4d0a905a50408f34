// Low limits on descriptors, threads, locked memory and address space: what works goes on to work, what does
// not ends with an error that names the limit, on all ranks.
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "support/command.h"
#include "support/scale.h"
#include "system/process_probe.h"
#include "system/surroundings.h"

namespace tutti::system_test {
namespace {

using namespace std::chrono_literals;
using testing::AnyOf;
using testing::HasSubstr;

struct Outcome {
  int status = -1;      // as from waitpid; -1: did not end in time
  std::string failure;  // what failed, and why
};

Outcome outcomeOf(Child& child, Child::Clock::time_point deadline) {
  Outcome result;
  for (std::string line; child.readLine(line, deadline);)
    if (line.starts_with("failed ")) result.failure = line;
  result.status = child.wait(deadline);
  return result;
}

void setLimit(__rlimit_resource resource, rlim_t value) {
  const rlimit limit{value, value};
  if (::setrlimit(resource, &limit) != 0) _exit(97);
}

/// So many descriptors more than the process has.
void limitDescriptors(int more) { setLimit(RLIMIT_NOFILE, static_cast<rlim_t>(countDescriptors() + more)); }

/// So much address space more than the process has.
void limitAddressSpace(int mebibytes) {
  std::ifstream file("/proc/self/statm");
  size_t pages = 0;
  file >> pages;
  setLimit(RLIMIT_AS, pages * 4096 + (static_cast<size_t>(mebibytes) << 20));
}

/// Another user than root and than the one of any other process.
void becomeLonelyUser(uid_t user) {
  if (::setgroups(0, nullptr) != 0 || ::setresgid(user, user, user) != 0 ||
      ::setresuid(user, user, user) != 0)
    _exit(97);
}

/// Pairs of ranks of which rank 1 has a limit, one pair for each value, all at once.
class Sweep {
 public:
  Sweep(std::vector<int> values, Path path, const std::function<void(int value)>& limit)
      : values_(std::move(values)) {
    for (const int value : values_)
      pairs_.push_back(std::make_unique<RankProcesses>(
          2, path,
          [](Rank& self, const ChildSide& parent) { return checkAndDestroy(self, parent, kLargeCount / 2); },
          [&, value](int rank) {
            if (rank == 1) limit(value);
          }));
  }

  /// A rank ends with 0, or with a failure that says `limitName`; then its peer ends as well, and names it.
  /// Some pairs work and some do not.
  void check(const std::string& limitName) {
    size_t worked = 0;
    for (size_t i = 0; i < pairs_.size(); ++i) {
      const std::string where = limitName + " of pair " + std::to_string(values_[i]);
      const Outcome limited = outcomeOf((*pairs_[i])[1], in(kRankLimit));
      const Outcome other = outcomeOf((*pairs_[i])[0], in(kRankLimit));
      if (limited.status == 0 && other.status == 0) {
        ++worked;
        continue;
      }
      EXPECT_EQ(limited.status, 1 << 8) << where;
      EXPECT_EQ(other.status, 1 << 8) << where;
      // What cudaMalloc has to say beyond its error code is in the log of the host runtime.
      // Where it cannot serve its peer, that fails first, and the rank learns of it from there; its log has
      // the limit.
      EXPECT_THAT(limited.failure, AnyOf(HasSubstr(limitName), HasSubstr("cudaMalloc: out of memory"),
                                         HasSubstr("rank 0 (host")))
          << where;
      EXPECT_THAT(other.failure, AnyOf(HasSubstr("rank 1"), HasSubstr(limitName))) << where;
    }
    EXPECT_GE(worked, 1u) << limitName;
    EXPECT_LT(worked, pairs_.size()) << limitName;
  }

 private:
  std::vector<int> values_;
  std::vector<std::unique_ptr<RankProcesses>> pairs_;
};

/// For ranks that cannot reach their peers, and whose peers wait for them in vain.
struct ShortTimes {
  const Settings init{{"TUTTI_INIT_TIMEOUT", underSanitizer() ? "8" : "2"}};
  const Settings tries{{"NCCL_SOCKET_RETRY_CNT", "3"}};
  const Settings local{{"NCCL_SOCKET_IFNAME", "lo"}};
  const Settings family{{"NCCL_SOCKET_FAMILY", "AF_INET"}};
  const Settings quiet{{"NCCL_DEBUG_FILE", "/dev/null"}};
};

TEST(Limits, OnDescriptorsAreNamedOnAllRanks) {
  const ShortTimes times;
  const char* const kName = "RLIMIT_NOFILE, ulimit -n, is ";
  const std::vector<int> values = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 64};
  Sweep mapped(values, Path::sharedMemory, limitDescriptors);
  Sweep sockets(values, Path::sockets, limitDescriptors);
  // And for all ranks of a process, the one that makes the id included.
  std::vector<std::unique_ptr<Child>> children;
  for (int more = 0; more < 16; ++more)
    children.push_back(std::make_unique<Child>([more](const ChildSide& parent) {
      limitDescriptors(more);
      ncclComm_t comms[2];
      must(ncclCommInitAll(comms, 2, nullptr), "ncclCommInitAll", parent);
      for (const ncclComm_t comm : comms) must(ncclCommDestroy(comm), "ncclCommDestroy", parent);
      return 0;
    }));
  mapped.check(kName);
  sockets.check(kName);
  size_t worked = 0;
  for (size_t more = 0; more < children.size(); ++more) {
    const Outcome outcome = outcomeOf(*children[more], in(kRankLimit));
    worked += outcome.status == 0 ? 1 : 0;
    if (outcome.status == 0) continue;
    EXPECT_EQ(outcome.status, 1 << 8) << more;
    // The rank that came further says that the other one did not come, or that nobody answered: two ranks of
    // one process compete for the last descriptor. The reason is in the log then.
    EXPECT_THAT(outcome.failure, AnyOf(HasSubstr(kName), HasSubstr("did not join"),
                                       HasSubstr("reach the rendezvous"), HasSubstr("waiting for rank")))
        << more;
  }
  EXPECT_GE(worked, 1u);
  EXPECT_LT(worked, children.size());
}

TEST(Limits, OnThreadsAndAddressSpaceAreNamedOnAllRanks) {
  const ShortTimes times;
  std::unique_ptr<Sweep> threads;
  std::unique_ptr<Sweep> addresses;
  if (::geteuid() == 0) {  // only root may become a user that has no other process
    threads = std::make_unique<Sweep>(std::vector<int>{1, 2, 5}, Path::sockets, [](int value) {
      setLimit(RLIMIT_NPROC, static_cast<rlim_t>(value));
      becomeLonelyUser(static_cast<uid_t>(54300 + value));
    });
  }
  if (!underSanitizer()) {  // sanitizers need all address space
    addresses = std::make_unique<Sweep>(std::vector<int>{1, 4, 8, 12, 20, 40, 100, 200, 400, 2000},
                                        Path::sharedMemory, limitAddressSpace);
  }
  if (threads) threads->check("RLIMIT_NPROC, ulimit -u, is ");
  if (addresses) addresses->check("RLIMIT_AS, ulimit -v, is ");
}

TEST(Memory, ThatRunsOutAnywhereIsAnErrorAndEndsNoProcess) {
  if (underSanitizer()) GTEST_SKIP() << "sanitizers have an operator new of their own";
  const Settings init{{"TUTTI_INIT_TIMEOUT", "1"}};
  const Settings quiet{{"NCCL_DEBUG_FILE", "/dev/null"}};
  const std::string program = test::programBeside("system_out_of_memory");
  // About 1300 allocations from the id to the end; some of the numbers, others in each run of the tests.
  std::minstd_rand random(static_cast<unsigned>(::getpid()));
  std::atomic<int> failed{0};
  std::vector<std::jthread> threads;
  for (int range = 0; range < 12; ++range) {
    const auto number = static_cast<int>(range * 110 + 1 + random() % 110);
    threads.emplace_back([&, number] {
      const test::Outcome outcome = test::runCommand(program + " " + std::to_string(number));
      EXPECT_EQ(outcome.status, 0) << "allocation " << number << ": " << outcome.output;
      failed += outcome.output.find("failed") != std::string::npos ? 1 : 0;
    });
  }
  threads.clear();
  EXPECT_GE(failed, 4);
}

TEST(Limits, OnLockedMemoryDoNotMatter) {
  for (const Path path : {Path::sharedMemory, Path::sockets}) {
    RankProcesses ranks(
        2, path,
        [](Rank& self, const ChildSide& parent) { return checkAndDestroy(self, parent, kLargeCount); },
        [](int) {
          setLimit(RLIMIT_MEMLOCK, 0);
          if (::geteuid() == 0) becomeLonelyUser(54321);  // root need not keep to it
        });
    ranks.expectSuccess(kRankLimit);
  }
}

}  // namespace
}  // namespace tutti::system_test
