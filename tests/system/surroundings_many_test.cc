// Many ranks on one machine, and many communicators at a time: how long it takes, and how much memory.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "support/scale.h"
#include "system/process_probe.h"
#include "system/surroundings.h"

namespace tutti::system_test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// So much fewer under a sanitizer, which makes threads and init several times slower.
constexpr int kProcesses = 4;
constexpr int kThreads = underSanitizer() ? 10 : 50;
constexpr int kManyRanks = kProcesses * kThreads;

/// Processes with some ranks each, as threads. `body` gets the unique id and the number of the process.
class RankGroups {
 public:
  RankGroups(int processes,
             const std::function<int(const ncclUniqueId&, int process, const ChildSide&)>& body) {
    for (int process = 0; process < processes; ++process)
      children_.push_back(std::make_unique<Child>([=, &body](const ChildSide& parent) {
        ncclUniqueId id{};
        if (process == 0) {
          must(ncclGetUniqueId(&id), "ncclGetUniqueId", parent);
          parent.say("id " + toHex(id));
        } else {
          parent.receive(&id, sizeof id);
        }
        return body(id, process, parent);
      }));
    const ncclUniqueId id = fromHex(children_[0]->expectLine("id ", in(30s)));
    for (int process = 1; process < processes; ++process) (*this)[process].send(&id, sizeof id);
  }
  Child& operator[](int process) { return *children_[static_cast<size_t>(process)]; }

 private:
  std::vector<std::unique_ptr<Child>> children_;
};

void inThreads(int threads, const std::function<void(int)>& body) {
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i) all.emplace_back(body, i);
  for (std::thread& thread : all) thread.join();
}

TEST(ManyRanks, InitialiseInFiveSeconds) {
  const auto start = Clock::now();
  RankGroups groups(kProcesses, [](const ncclUniqueId& id, int process, const ChildSide& parent) {
    std::vector<ncclComm_t> comms(kThreads);
    inThreads(kThreads, [&](int thread) {
      must(ncclCommInitRank(&comms[static_cast<size_t>(thread)], kManyRanks, id, process * kThreads + thread),
           "ncclCommInitRank", parent);
    });
    parent.say("ready");
    std::vector<std::vector<int>> data(kThreads);
    inThreads(kThreads, [&](int thread) {
      const auto i = static_cast<size_t>(thread);
      data[i].assign(3, process * kThreads + thread);
      cudaStream_t stream = nullptr;
      must(cudaStreamCreate(&stream), "cudaStreamCreate", parent);
      must(ncclAllReduce(data[i].data(), data[i].data(), 3, ncclInt32, ncclSum, comms[i], stream),
           "ncclAllReduce", parent, comms[i]);
      must(cudaStreamSynchronize(stream), "cudaStreamSynchronize", parent);
      must(ncclCommDestroy(comms[i]), "ncclCommDestroy", parent);
      must(cudaStreamDestroy(stream), "cudaStreamDestroy", parent);
    });
    for (const auto& values : data)
      for (const int value : values)
        if (value != kManyRanks * (kManyRanks - 1) / 2) return 2;
    return 0;
  });
  for (int process = 0; process < kProcesses; ++process) groups[process].expectLine("ready", in(60s));
  const double init = std::chrono::duration<double>(Clock::now() - start).count();
  for (int process = 0; process < kProcesses; ++process)
    EXPECT_EQ(groups[process].wait(in(60s)), 0) << process;
  const double all = std::chrono::duration<double>(Clock::now() - start).count();
  RecordProperty("ranks", kManyRanks);
  RecordProperty("init_seconds", std::to_string(init));
  RecordProperty("all_seconds", std::to_string(all));
  std::printf("%d ranks: init %.2f s, with AllReduce and destroy %.2f s\n", kManyRanks, init, all);
  double load = 0;
  ::getloadavg(&load, 1);
  // Others' work on the machine is not ours.
  EXPECT_LT(init, underSanitizer() || load > 3 ? 30 : 5);
}

/// Proportional share of this process in all memory that it has touched, in KiB: memory files count once.
long proportionalKilobytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("Pss:")) return std::stol(line.substr(4));
  return -1;
}

constexpr int kCommunicators = underSanitizer() ? 8 : 64;

/// `count` communicators of 8 ranks in so many processes, all there at a time; "kilobytes N" for what all of
/// them together cost this process.
void manyCommunicators(int processes, bool mappable, int count,
                       size_t elements = (1 << 20) / test::scaled(1, 16), double mostMebibytes = 4) {
  constexpr int kRanks = 8;
  const int threads = kRanks / processes;
  RankGroups groups(processes, [=](const ncclUniqueId& id, int process, const ChildSide& parent) {
    std::vector<float*> data(static_cast<size_t>(threads));
    std::vector<std::vector<ncclComm_t>> comms(static_cast<size_t>(threads));
    long before = 0;
    for (int round = 0; round <= count; ++round) {
      if (round == 1) before = proportionalKilobytes();
      inThreads(threads, [&](int thread) {
        const auto i = static_cast<size_t>(thread);
        const int rank = process * threads + thread;
        must(cudaSetDevice(thread), "cudaSetDevice", parent);
        ncclComm_t comm = nullptr;
        if (round == 0) {
          must(ncclCommInitRank(&comm, kRanks, id, rank), "ncclCommInitRank", parent);
          if (mappable) {
            must(cudaMalloc(reinterpret_cast<void**>(&data[i]), elements * sizeof(float)), "cudaMalloc",
                 parent);
          } else {
            data[i] = static_cast<float*>(std::malloc(elements * sizeof(float)));
          }
        } else {
          must(ncclCommSplit(comms[i][0], 0, rank, &comm, nullptr), "ncclCommSplit", parent, comms[i][0]);
        }
        comms[i].push_back(comm);
      });
      // All exist by now; each does its work.
      inThreads(threads, [&](int thread) {
        const auto i = static_cast<size_t>(thread);
        must(cudaSetDevice(thread), "cudaSetDevice", parent);
        std::fill_n(data[i], elements, 1.0f);
        must(ncclAllReduce(data[i], data[i], elements, ncclFloat, ncclSum, comms[i].back(), nullptr),
             "ncclAllReduce", parent, comms[i].back());
        must(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", parent);
        if (std::count(data[i], data[i] + elements, 8.0f) != static_cast<ptrdiff_t>(elements)) _exit(3);
      });
    }
    parent.say("kilobytes " + std::to_string(proportionalKilobytes() - before));
    char go = 0;
    parent.receive(&go, 1);
    inThreads(threads, [&](int thread) {
      for (const ncclComm_t comm : comms[static_cast<size_t>(thread)])
        must(ncclCommDestroy(comm), "ncclCommDestroy", parent);
    });
    return 0;
  });
  double kilobytes = 0;
  for (int process = 0; process < processes; ++process)
    kilobytes += std::strtod(groups[process].expectLine("kilobytes ", in(60s)).c_str(), nullptr);
  for (int process = 0; process < processes; ++process) groups[process].send("x", 1);
  for (int process = 0; process < processes; ++process)
    EXPECT_EQ(groups[process].wait(in(30s)), 0) << process;
  const double mebibytes = kilobytes / 1024 / count / kRanks;
  testing::Test::RecordProperty("MiB_per_rank", std::to_string(mebibytes));
  std::printf("%d communicators of 8 ranks in %d process(es): %.2f MiB for each rank of each\n", count,
              processes, mebibytes);
  if (!underSanitizer()) {
    EXPECT_LT(mebibytes, mostMebibytes);
  }
}

TEST(ManyCommunicators, OfOneProcessCostLessThanFourMebibytesARank) {
  manyCommunicators(1, true, kCommunicators);
}
TEST(ManyCommunicators, OfTwoProcessesCostLessThanFourMebibytesARank) {
  manyCommunicators(2, true, kCommunicators / 4);
}
// Slots take memory as messages need it: here an eighth of one.
TEST(ManyCommunicators, WithSmallMessagesThroughSocketsCostLessThanAMebibyteARank) {
  const Settings apart{{"NCCL_SHM_DISABLE", "1"}, {"NCCL_P2P_DISABLE", "1"}};
  manyCommunicators(2, true, kCommunicators / 8, 16384, 1);
}
TEST(ManyCommunicators, ThatCopyThroughSlotsCostLessThanFourMebibytesARank) {
  manyCommunicators(2, false, kCommunicators);
}

}  // namespace
}  // namespace tutti::system_test
