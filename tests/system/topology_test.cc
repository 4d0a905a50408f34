// What communicators do with the topology of their host: files, dumps, CPU affinity, memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "support/files.h"
#include "system/log.h"
#include "system/process_probe.h"
#include "system/surroundings.h"

namespace tutti::system_test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

/// CPUs that a thread of this process may use, as the kernel writes them.
std::string cpusOf(const std::string& task) {
  std::ifstream status("/proc/self/task/" + task + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("Cpus_allowed_list:")) return line.substr(line.find_last_of(" \t") + 1);
  return "?";
}
std::string ownCpus() { return cpusOf(std::to_string(::gettid())); }
/// Those of the thread that the library has for its sockets (named by NCCL_SET_THREAD_NAME).
std::string serviceCpus() {
  for (const auto& task : fs::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm") >> std::ws, name);
    if (name == "tutti service") return cpusOf(task.path().filename());
  }
  return "no thread";
}

/// Lines of this process's memory map with a NUMA policy for the host's segment.
int placedRanges() {
  int count = 0;
  std::ifstream maps("/proc/self/numa_maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("tutti-host-segment") != std::string::npos && line.find("prefer") != std::string::npos)
      ++count;
  return count;
}

/// Two NUMA nodes with a CPU each, whatever this machine has.
class TwoNodes : public testing::Test {
 protected:
  TwoNodes() {
    std::ofstream(file_)
        << R"(<system version="1"><cpu numaid="0" affinity="1"/><cpu numaid="1" affinity="2"/></system>)";
  }
  ~TwoNodes() override { ::unlink(file_.c_str()); }
  void SetUp() override {
    cpu_set_t all;
    if (::sched_getaffinity(0, sizeof all, &all) != 0 || !CPU_ISSET(0, &all) || !CPU_ISSET(1, &all))
      GTEST_SKIP() << "CPUs 0 and 1 are needed";
  }
  const std::string file_ = testing::TempDir() + "/tutti-two-nodes-" + std::to_string(::getpid()) + ".xml";
};

TEST_F(TwoNodes, BindTheLibrarysThreadsAndMemoryAndLeaveTheCallersAlone) {
  const Settings settings{
      {"NCCL_TOPO_FILE", file_}, {"TUTTI_HOST_DEVICES", "2"}, {"NCCL_SET_THREAD_NAME", "1"}};
  const std::string before = ownCpus();
  const Log log;
  RankProcesses ranks(
      2, Path::sharedMemory,
      [](Rank& self, const ChildSide& parent) {
        parent.say("cpus " + ownCpus() + " service " + serviceCpus() + " placed " +
                   std::to_string(placedRanges() > 0));
        return checkAndDestroy(self, parent, 1000);
      },
      [](int rank) { (void)cudaSetDevice(rank); });
  const std::string first = ranks[0].expectLine("cpus ", in(kRankLimit));
  const std::string second = ranks[1].expectLine("cpus ", in(kRankLimit));
  ranks.expectSuccess(kRankLimit);
  EXPECT_THAT(first, AnyOf(before + " service 0 placed 1", before + " service 0 placed 0"));
  EXPECT_THAT(second, HasSubstr(before + " service 1 placed"));
  const std::string text = log.text();
  EXPECT_THAT(text, HasSubstr("rank 1: device 1 is at NUMA node 1"));
  const bool forbidden = text.find("mbind to node 0") != std::string::npos;
  EXPECT_THAT(first, HasSubstr(forbidden ? "placed 0" : "placed 1")) << "memory of node 0, which exists";
}

TEST_F(TwoNodes, AreWhereTheThreadRunsThatMakesACommunicator) {
  const Settings settings{{"NCCL_TOPO_FILE", file_}};
  Child child([](const ChildSide& parent) {
    const pid_t caller = ::gettid();
    std::atomic<bool> seen{false}, end{false};
    std::thread watcher([&] {
      for (cpu_set_t cpus; !end; std::this_thread::yield())
        if (::sched_getaffinity(caller, sizeof cpus, &cpus) == 0 && CPU_ISSET(0, &cpus) &&
            !CPU_ISSET(1, &cpus))
          seen = true;
    });
    // A look in the middle of an init takes luck: one of many will do.
    const auto limit = in(20s);
    while (!seen && Child::Clock::now() < limit) {
      ncclComm_t comms[2];
      must(ncclCommInitAll(comms, 2, nullptr), "ncclCommInitAll", parent);
      for (ncclComm_t comm : comms) must(ncclCommDestroy(comm), "ncclCommDestroy", parent);
    }
    end = true;
    watcher.join();
    return seen ? 0 : 2;
  });
  EXPECT_EQ(child.wait(in(kRankLimit)), 0);
}

TEST_F(TwoNodes, ArePutAsideByTheLaunchersBindingUnlessAffinityIsIgnored) {
  for (const bool ignored : {false, true}) {
    const Settings settings{{"NCCL_TOPO_FILE", file_},
                            {"TUTTI_HOST_DEVICES", "2"},
                            {"NCCL_SET_THREAD_NAME", "1"},
                            {"NCCL_IGNORE_CPU_AFFINITY", ignored ? "1" : "0"}};
    const Log log;
    RankProcesses ranks(
        1, Path::sharedMemory,
        [](Rank& self, const ChildSide& parent) {
          parent.say("cpus " + ownCpus() + " service " + serviceCpus());
          return checkAndDestroy(self, parent, 1000);
        },
        [](int) {
          cpu_set_t one;
          CPU_ZERO(&one);
          CPU_SET(1, &one);
          if (::sched_setaffinity(0, sizeof one, &one) != 0) _exit(97);  // device 0 is at CPU 0
        });
    EXPECT_EQ(ranks[0].expectLine("cpus ", in(kRankLimit)), ignored ? "1 service 0" : "1 service 1");
    ranks.expectSuccess(kRankLimit);
    if (!ignored) {
      EXPECT_THAT(log.text(),
                  HasSubstr("rank 0: its thread may not use the CPUs of NUMA node 0: nothing is bound"));
    }
  }
}

TEST_F(TwoNodes, LeaveTheCallersAffinityAloneWhenInitFailsOrIsAborted) {
  const Settings settings{{"NCCL_TOPO_FILE", file_}, {"TUTTI_INIT_TIMEOUT", "1"}};
  Child child([](const ChildSide& parent) {
    const std::string before = ownCpus();
    ncclUniqueId id;
    must(ncclGetUniqueId(&id), "ncclGetUniqueId", parent);
    ncclComm_t comm = nullptr;
    // Rank 1 never comes.
    if (ncclCommInitRank(&comm, 2, id, 0) == ncclSuccess) return 2;
    if (ownCpus() != before) return 3;
    must(ncclGetUniqueId(&id), "ncclGetUniqueId", parent);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (ncclCommInitRankConfig(&comm, 2, id, 0, &config) != ncclInProgress) return 4;
    must(ncclCommAbort(comm), "ncclCommAbort", parent);
    return ownCpus() == before ? 0 : 5;
  });
  EXPECT_EQ(child.wait(in(kRankLimit)), 0);
}

/// The peer ends between rendezvous and the end of init: this rank is inside the scope when it fails.
TEST_F(TwoNodes, LeaveTheCallersAffinityAloneWhenAPeerFailsInTheMiddleOfInit) {
  const std::string bad = testing::TempDir() + "/tutti-bad-topology-" + std::to_string(::getpid()) + ".xml";
  std::ofstream(bad) << "<system>\n<cpu numaid=\"one\"/>\n</system>";
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const auto rank = [&](int number) {
    return [&, number](const ChildSide& parent) {
      ::setenv("NCCL_TOPO_FILE", number == 0 ? file_.c_str() : bad.c_str(), 1);
      const std::string before = ownCpus();
      ncclUniqueId id;
      if (number == 0) {
        must(ncclGetUniqueId(&id), "ncclGetUniqueId", parent);
        if (::write(pipe[1], &id, sizeof id) != sizeof id) return 2;
      } else if (::read(pipe[0], &id, sizeof id) != sizeof id) {
        return 3;
      }
      ncclComm_t comm = nullptr;
      const ncclResult_t result = ncclCommInitRank(&comm, 2, id, number);
      if (result == ncclSuccess) return 4;
      parent.say(std::string("error ") + ncclGetLastError(nullptr));
      return ownCpus() == before ? 0 : 5;
    };
  };
  Child first(rank(0)), second(rank(1));
  const std::string expected =
      "tutti-bad-topology-" + std::to_string(::getpid()) +
      ".xml:2: <system> <cpu numaid=\"one\">: attribute numaid=\"one\" is not an integer";
  EXPECT_THAT(first.expectLine("error ", in(10s)), HasSubstr(expected)) << "a file of rank 1's host";
  EXPECT_THAT(second.expectLine("error ", in(10s)), HasSubstr(expected));
  EXPECT_EQ(first.wait(in(kRankLimit)), 0);
  EXPECT_EQ(second.wait(in(kRankLimit)), 0);
  ::close(pipe[0]);
  ::close(pipe[1]);
  ::unlink(bad.c_str());
}

TEST(Topology, OneNumaNodeIsNothingToBind) {
  const std::string file = testing::TempDir() + "/tutti-one-node-" + std::to_string(::getpid()) + ".xml";
  std::ofstream(file) << R"(<system version="1"><cpu numaid="0" affinity="1"/></system>)";
  const Settings settings{{"NCCL_TOPO_FILE", file}, {"NCCL_SET_THREAD_NAME", "1"}};
  const std::string before = ownCpus();
  RankProcesses ranks(1, Path::sharedMemory, [](Rank& self, const ChildSide& parent) {
    parent.say("cpus " + ownCpus() + " service " + serviceCpus() + " placed " +
               std::to_string(placedRanges()));
    return checkAndDestroy(self, parent, 1000);
  });
  EXPECT_EQ(ranks[0].expectLine("cpus ", in(kRankLimit)), before + " service " + before + " placed 0");
  ranks.expectSuccess(kRankLimit);
  ::unlink(file.c_str());
}

TEST(Topology, AFileThatIsMissingIsAWarning) {
  const Settings settings{{"NCCL_TOPO_FILE", "/no/such/topology.xml"}};
  const Log log;
  RankProcesses ranks(2, Path::sharedMemory, [](Rank& self, const ChildSide& parent) {
    return checkAndDestroy(self, parent, 1000);
  });
  ranks.expectSuccess(kRankLimit);
  EXPECT_THAT(log.text(),
              HasSubstr("NCCL WARN NCCL_TOPO_FILE: /no/such/topology.xml does not exist: the topology is "
                        "detected without it"));
}

/// Makes a communicator of two ranks, of which rank 1 is to write the topology to `path`. Gives the log.
std::string dumpTo(const std::string& path, const std::string& file) {
  const Settings settings{
      {"NCCL_TOPO_DUMP_FILE", path}, {"NCCL_TOPO_DUMP_FILE_RANK", "1"}, {"NCCL_TOPO_FILE", file}};
  const Log log;
  RankProcesses ranks(2, Path::sharedMemory, [](Rank& self, const ChildSide& parent) {
    return checkAndDestroy(self, parent, 1000);
  });
  ranks.expectSuccess(kRankLimit);
  return log.text();
}

TEST(Topology, IsDumpedByOneRankAndReadAgain) {
  const std::string folder = testing::TempDir() + "/tutti-dump-" + std::to_string(::getpid());
  fs::create_directory(folder);
  const std::string file = std::string(TUTTI_SOURCE_DIR) + "/tests/topology/data/oci-h100-full.xml";
  const std::string log = dumpTo(folder + "/topo.xml", file);
  EXPECT_THAT(log, HasSubstr("rank 1: topology written to " + folder + "/topo.xml"));
  EXPECT_THAT(log, Not(HasSubstr("rank 0: topology written")));
  EXPECT_THAT(test::contentOf(folder + "/topo.xml"),
              HasSubstr(R"(<nvlink target="0000:1c:00.0" count="5" tclass="0x068000"/>)"))
      << "what the file says, and what this machine has";
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1);
  const std::string first = test::contentOf(folder + "/topo.xml");
  dumpTo(folder + "/again.xml", folder + "/topo.xml");
  EXPECT_EQ(test::contentOf(folder + "/again.xml"), first);
  fs::remove_all(folder);
}

TEST(Topology, ADumpThatCannotBeWrittenIsAWarning) {
  EXPECT_THAT(dumpTo("/no/such/folder/topo.xml", ""),
              HasSubstr("NCCL WARN NCCL_TOPO_DUMP_FILE: create /no/such/folder/topo.xml."));
}

}  // namespace
}  // namespace tutti::system_test
