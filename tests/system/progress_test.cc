// Work goes on without the caller, and when there are fewer processors than ranks.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <numeric>
#include <sstream>
#include <thread>
#include <vector>

#include "support/scale.h"
#include "system/process_probe.h"
#include "system/ranks.h"

namespace tutti::system_test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class SendFirst : public testing::TestWithParam<std::tuple<Path, size_t>> {};

TEST_P(SendFirst, ReturnsBeforeThePeerKnowsThatItMustReceive) {
  const auto [path, bytes] = GetParam();
  RankProcesses ranks(2, path, [bytes = bytes](Rank& self, const ChildSide& parent) {
    std::vector<unsigned char> host(bytes);
    for (size_t i = 0; i < bytes; ++i) host[i] = static_cast<unsigned char>(i * 7 + i / 251);
    void* data = nullptr;
    must(cudaMalloc(&data, bytes), "cudaMalloc", parent);
    if (self.rank == 0) {
      must(cudaMemcpy(data, host.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy", parent);
      must(ncclSend(data, bytes, ncclUint8, 1, self.comm, nullptr), "ncclSend", parent);
      parent.say("sent");  // only now may the other one be told
      must(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", parent);
    } else {
      char go = 0;
      parent.receive(&go, 1);
      must(ncclRecv(data, bytes, ncclUint8, 0, self.comm, nullptr), "ncclRecv", parent);
      must(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", parent);
      std::vector<unsigned char> got(bytes);
      must(cudaMemcpy(got.data(), data, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy", parent);
      parent.say(got == host ? "right" : "wrong");
    }
    must(ncclCommDestroy(self.comm), "ncclCommDestroy", parent);
    cudaFree(data);
    return 0;
  });
  ranks[0].expectLine("sent", in(10s));
  std::this_thread::sleep_for(20ms);
  ranks[1].send("x", 1);
  EXPECT_EQ(ranks[1].expectLine("", in(20s)), "right");
  ranks.expectSuccess(20s);
}

INSTANTIATE_TEST_SUITE_P(Paths, SendFirst,
                         testing::Combine(testing::Values(Path::sharedMemory, Path::sockets),
                                          testing::Values(size_t{1}, size_t{100000}, size_t{64} << 20)),
                         [](const auto& each) {
                           return std::string(nameOf(std::get<0>(each.param))) +
                                  std::to_string(std::get<1>(each.param));
                         });

/// Keeps this process on the first two processors that it may use.
void useTwoProcessors() {
  cpu_set_t all;
  cpu_set_t two;
  CPU_ZERO(&two);
  if (::sched_getaffinity(0, sizeof all, &all) != 0) return;
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&two) < 2; ++cpu)
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &two);
  ::sched_setaffinity(0, sizeof two, &two);
}

class EightRanks : public testing::TestWithParam<size_t> {};

TEST_P(EightRanks, OnTwoProcessorsFinishAtASteadyPace) {
  const size_t count = GetParam();
  constexpr int kWindows = 20;
  constexpr int kCalls = test::scaled(20, 3);
  RankProcesses ranks(8, Path::sharedMemory, [count](Rank& self, const ChildSide& parent) {
    useTwoProcessors();
    void* data = nullptr;
    must(cudaMalloc(&data, count * sizeof(int)), "cudaMalloc", parent);
    std::vector<double> windows;
    for (int window = 0; window < kWindows; ++window) {
      const Clock::time_point start = Clock::now();
      for (int call = 0; call < kCalls; ++call) {
        must(ncclAllReduce(data, data, count, ncclInt, ncclSum, self.comm, nullptr), "ncclAllReduce", parent);
        must(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", parent);
      }
      windows.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    }
    std::string text = "windows";
    for (const double window : windows) text += " " + std::to_string(window);
    parent.say(text);
    must(ncclCommDestroy(self.comm), "ncclCommDestroy", parent);
    cudaFree(data);
    return 0;
  });
  std::istringstream times(ranks[0].expectLine("windows ", in(60s)));
  std::vector<double> windows{std::istream_iterator<double>(times), std::istream_iterator<double>()};
  ranks.expectSuccess(30s);
  ASSERT_EQ(windows.size(), static_cast<size_t>(kWindows));
  std::vector<double> sorted = windows;
  std::sort(sorted.begin(), sorted.end());
  const double median = sorted[sorted.size() / 2];
  RecordProperty("median_ms_of_20_calls", std::to_string(median));
  // Ranks that spin while the one they wait for has no processor would need a scheduler tick (about 4 ms) for
  // each of the many steps of each call.
  EXPECT_LT(median, underSanitizer() ? 4000 : 20 * 20) << testing::PrintToString(windows);
  // A steady pace: other programs may disturb a few windows, a stall would be far above. (A call that waits
  // for a scheduler tick takes 4 ms, where others take 0.1: a window of such calls is no stall.)
  EXPECT_LT(sorted[sorted.size() * 3 / 4], 5 * median + kCalls * 5) << testing::PrintToString(windows);
  EXPECT_LT(sorted.back(), 20 * median + 400) << testing::PrintToString(windows);
}

INSTANTIATE_TEST_SUITE_P(Counts, EightRanks, testing::Values(size_t{2}, size_t{16384}, size_t{1} << 20));

}  // namespace
}  // namespace tutti::system_test
