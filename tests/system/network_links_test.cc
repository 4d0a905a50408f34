// Links that are interrupted, hosts that vanish, addresses that change, while a job runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <new>
#include <thread>

#include "system/log.h"
#include "system/network.h"
#include "system/process_probe.h"
#include "system/ranks.h"

namespace tutti::system_test::network_links {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

constexpr auto kPatience = 20s;
constexpr size_t kCount = 200'000;

/// What a job's processes and the test see of each other.
struct Shared {
  std::atomic<bool> stop{false};
  std::atomic<int> calls{0};  // of rank 0, done and right
};

/// Ranks on hosts, each of which reduces again and again until told to stop.
class Job {
 public:
  Job(const Network& network, const std::vector<int>& hosts, bool idle = false)
      : shared_(new (map()) Shared),
        ranks_(
            static_cast<int>(hosts.size()), Path::sharedMemory,
            [shared = shared_, idle](Rank& self, const ChildSide& parent) {
              return run(*shared, idle, self, parent);
            },
            [&](int rank) {
              if (!network.enter(hosts[static_cast<size_t>(rank)])) _exit(98);
            }) {}
  ~Job() { ::munmap(shared_, sizeof(Shared)); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  RankProcesses& ranks() { return ranks_; }
  int calls() const { return shared_->calls; }
  /// Waits until `more` further calls have been made.
  bool goesOn(int more = 3) const {
    const int target = calls() + more;
    const auto deadline = Clock::now() + kPatience;
    while (calls() < target) {
      if (Clock::now() >= deadline) return false;
      std::this_thread::sleep_for(2ms);
    }
    return true;
  }
  void stop() {
    shared_->stop = true;
    ranks_.expectSuccess(kPatience);
  }
  std::string errorOf(int rank) { return ranks_[rank].expectLine("error ", in(kPatience)); }

 private:
  static void* map() {
    return ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  }

  /// Calls until rank 0 has been told to stop, which it passes on in the first value. When the communicator
  /// fails: "error MESSAGE". `idle`: one call, then nothing until the communicator fails.
  static int run(Shared& shared, bool idle, Rank& self, const ChildSide& parent) {
    void* memory = nullptr;
    must(cudaMalloc(&memory, kCount * sizeof(float)), "cudaMalloc", parent);
    auto* data = static_cast<float*>(memory);
    ncclResult_t state = ncclSuccess;
    for (bool done = false; !done;) {
      for (size_t i = 0; i < kCount; ++i)
        data[i] = static_cast<float>(self.rank + 1 + static_cast<int>(i % 7));
      data[0] = self.rank == 0 && shared.stop ? 1.0F : 0.0F;
      state = ncclAllReduce(data, data, kCount, ncclFloat, ncclSum, self.comm, nullptr);
      while (state == ncclSuccess && cudaStreamQuery(nullptr) == cudaErrorNotReady) {
        must(ncclCommGetAsyncError(self.comm, &state), "ncclCommGetAsyncError", parent);
        std::this_thread::sleep_for(200us);
      }
      if (state == ncclSuccess)
        must(ncclCommGetAsyncError(self.comm, &state), "ncclCommGetAsyncError", parent);
      if (state != ncclSuccess) break;
      const int n = self.ranks;
      for (size_t i = 1; i < kCount; ++i)
        if (data[i] != static_cast<float>(n * (n + 1) / 2 + n * static_cast<int>(i % 7))) return 2;
      if (self.rank == 0) ++shared.calls;
      done = data[0] != 0;
      while (idle && state == ncclSuccess) {
        must(ncclCommGetAsyncError(self.comm, &state), "ncclCommGetAsyncError", parent);
        std::this_thread::sleep_for(1ms);
      }
      if (state != ncclSuccess) break;
    }
    if (state == ncclSuccess) {
      must(ncclCommDestroy(self.comm), "ncclCommDestroy", parent);
      return 0;
    }
    parent.say(std::string("error ") + ncclGetErrorString(state) + ": " + ncclGetLastError(self.comm));
    must(ncclCommAbort(self.comm), "ncclCommAbort", parent);
    return 0;
  }

  Shared* shared_;
  RankProcesses ranks_;
};

class NetworkLinks : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = Network::whatIsMissing(); !missing.empty()) GTEST_SKIP() << missing;
  }
  static Network plugged(int hosts) {
    Network network(hosts);
    for (int host = 0; host < hosts; ++host) network.plug(host);
    return network;
  }
};

TEST_F(NetworkLinks, ThatAreInterruptedForAWhileCostOnlyTime) {
  struct Interruption {
    const char* name;
    std::string cut, mend;
  };
  const Interruption interruptions[] = {
      {"link down", "link set eth0 down\n", "link set eth0 up\n"},
      {"blackhole", "route add blackhole 10.77.0.3/32\n", "route del blackhole 10.77.0.3/32\n"},
      {"no address", "address del 10.77.0.6/24 dev eth0\n", "address add 10.77.0.6/24 dev eth0\n"},
  };
  const Network network = plugged(6);
  const Settings settings{{"TUTTI_STALL_WARN", "0.3"}};
  std::vector<std::unique_ptr<Log>> logs;
  std::vector<std::unique_ptr<Job>> jobs;
  for (int i = 0; i < 3; ++i) {
    logs.push_back(std::make_unique<Log>());
    jobs.push_back(std::make_unique<Job>(network, std::vector<int>{2 * i, 2 * i + 1}));
    EXPECT_TRUE(jobs.back()->goesOn()) << interruptions[i].name;
  }
  for (int i = 0; i < 3; ++i) network.ip(2 * i + 1, interruptions[i].cut);
  std::this_thread::sleep_for(200ms);
  int before[3];
  for (int i = 0; i < 3; ++i) before[i] = jobs[static_cast<size_t>(i)]->calls();
  std::this_thread::sleep_for(700ms);
  for (int i = 0; i < 3; ++i) {
    const auto& job = jobs[static_cast<size_t>(i)];
    EXPECT_EQ(job->calls(), before[i]) << interruptions[i].name << ": the link was not cut";
    network.ip(2 * i + 1, interruptions[i].mend);
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(jobs[static_cast<size_t>(i)]->goesOn()) << interruptions[i].name;
    jobs[static_cast<size_t>(i)]->stop();
    EXPECT_THAT(
        logs[static_cast<size_t>(i)]->text(),
        AllOf(HasSubstr("has not moved for"), HasSubstr("waits for data from rank"), Not(HasSubstr("died"))))
        << interruptions[i].name;
  }
}

TEST_F(NetworkLinks, ThatStayDownAreAnErrorAfterTheTimeOutThatWasAskedFor) {
  const Network network = plugged(2);
  const Settings settings{{"TUTTI_TIMEOUT", "0.5"}};
  Job job(network, {0, 1});
  EXPECT_TRUE(job.goesOn());
  network.ip(1, "link set eth0 down\n");
  const auto cut = Clock::now();
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_THAT(job.errorOf(rank), AllOf(HasSubstr("has not moved for"),
                                         HasSubstr("waits for data from rank " + std::to_string(1 - rank))));
  EXPECT_LT(Clock::now() - cut, underSanitizer() ? 8s : 3s);
  job.ranks().expectSuccess(kPatience);
}

TEST_F(NetworkLinks, WhoseHostHasVanishedAreNoticedByTheOthers) {
  const Network network = plugged(5);
  const Settings settings{{"TUTTI_PEER_TIMEOUT", "1"}};
  Job busy(network, {0, 1, 2});
  Job idle(network, {3, 4}, true);
  EXPECT_TRUE(busy.goesOn());
  EXPECT_TRUE(idle.calls() > 0 || idle.goesOn(1));
  // No goodbye, no reset, nothing comes from there any more.
  for (const int host : {2, 4}) network.ip(host, "link set eth0 down\n");
  busy.ranks()[2].kill(SIGKILL);
  idle.ranks()[1].kill(SIGKILL);
  const auto vanished = Clock::now();
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_THAT(busy.errorOf(rank),
                AllOf(HasSubstr("rank 2"), AnyOf(HasSubstr("timed out"), HasSubstr("No route to host"))))
        << "said by rank " << rank;
  EXPECT_THAT(idle.errorOf(0),
              AllOf(HasSubstr("rank 1"), AnyOf(HasSubstr("timed out"), HasSubstr("No route to host"))));
  EXPECT_LT(Clock::now() - vanished, underSanitizer() ? 12s : 6s);
}

TEST_F(NetworkLinks, ThatLeadNowhereAtTheStartAreAnErrorThatNamesThem) {
  const Network network = plugged(2);
  network.ip(1, "address del fe80::2/64 dev eth0\nroute add blackhole 10.77.0.1/32\n");
  const Settings settings{{"TUTTI_INIT_TIMEOUT", "1"}};
  const auto start = Clock::now();
  Job job(network, {0, 1});
  EXPECT_THAT(job.ranks()[0].expectLine("failed ", in(kPatience)),
              HasSubstr("rank 1 of 2 did not join within 1 s"));
  EXPECT_THAT(
      job.ranks()[1].expectLine("failed ", in(kPatience)),
      AllOf(HasSubstr("rank 1: reach the rendezvous of the process that made the unique id at 10.77.0.1:"),
            HasSubstr("connect to 10.77.0.1:")));
  EXPECT_LT(Clock::now() - start, underSanitizer() ? 12s : 6s);
}

TEST_F(NetworkLinks, BetweenSomeRanksOnlyAreNamedByThoseWhoMissThem) {
  const Network network = plugged(3);
  network.ip(2, "address del fe80::3/64 dev eth0\nroute add blackhole 10.77.0.2/32\n");  // rank 0 is reached,
                                                                                         // rank 1 is not
  const Settings settings{{"TUTTI_PEER_TIMEOUT", "1"}};
  Job job(network, {0, 1, 2});
  EXPECT_THAT(job.errorOf(1), AllOf(HasSubstr("rank 2"), HasSubstr("10.77.0.3:")));
  EXPECT_THAT(job.errorOf(0), HasSubstr("rank"));
}

TEST_F(NetworkLinks, WhoseEndsHaveDifferentPacketSizesWork) {
  const Network network = plugged(2);
  network.ip(0, "link set eth0 mtu 9000\n");
  network.ip(1, "link set eth0 mtu 1280\n");
  network.ipOnSwitch("link set host0 mtu 9000\nlink set host1 mtu 1280\n");
  Job job(network, {0, 1});
  EXPECT_TRUE(job.goesOn(5));
  job.stop();
}

TEST_F(NetworkLinks, OfAHostWithANewAddressServeNewCommunicators) {
  const Network network = plugged(2);
  for (int host = 0; host < 2; ++host)
    network.ip(host, "address del fe80::" + std::to_string(host + 1) + "/64 dev eth0\n");
  const Settings settings{{"TUTTI_PEER_TIMEOUT", "1"}};
  RankProcesses ranks(
      2, Path::sharedMemory,
      [](Rank& self, const ChildSide& parent) {
        parent.say("first");
        ncclUniqueId id{};
        parent.receive(&id, 1);
        if (self.rank == 0) {
          must(ncclGetUniqueId(&id), "ncclGetUniqueId", parent);
          parent.say("id " + toHex(id));
        } else {
          parent.receive(&id, sizeof id);
        }
        ncclComm_t second = nullptr;
        must(ncclCommInitRank(&second, 2, id, self.rank), "ncclCommInitRank", parent);
        void* data = nullptr;
        must(cudaMalloc(&data, 4096), "cudaMalloc", parent);
        must(ncclAllReduce(data, data, 1024, ncclFloat, ncclSum, second, nullptr), "ncclAllReduce", parent);
        must(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", parent);
        must(ncclCommDestroy(second), "ncclCommDestroy", parent);
        // Its connections have no address any more: it cannot leave in order, but it leaves soon.
        const auto start = Clock::now();
        must(ncclCommAbort(self.comm), "ncclCommAbort", parent);
        return Clock::now() - start < 5s ? 0 : 3;
      },
      [&](int rank) {
        if (!network.enter(rank)) _exit(98);
      });
  for (int rank = 0; rank < 2; ++rank) ranks[rank].expectLine("first", in(kPatience));
  for (int host = 0; host < 2; ++host)
    network.ip(host, "address del " + Network::addressOf(host) + "/24 dev eth0\naddress add 10.77.0.1" +
                         std::to_string(host + 1) + "/24 dev eth0\n");
  for (int rank = 0; rank < 2; ++rank) ranks[rank].send("x", 1);
  const ncclUniqueId id = fromHex(ranks[0].expectLine("id ", in(kPatience)));
  ranks[1].send(&id, sizeof id);
  ranks.expectSuccess(kPatience);
}

}  // namespace
}  // namespace tutti::system_test::network_links
