// Several hosts with several ranks each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "system/log.h"
#include "system/ranks.h"

namespace tutti::system_test {
namespace {

using namespace std::chrono_literals;

/// A float that depends on rank and place; sums of them are not exact, so that the order shows.
float contribution(int rank, size_t i) {
  return static_cast<float>((i * 2654435761u + static_cast<size_t>(rank) * 40503u) % 100003) / 977.0f - 50.0f;
}

/// A digest of the sum that this rank got; empty, and a line to the parent, where it is far from right.
std::string digest(const std::vector<float>& sum, int ranks) {
  uint64_t hash = 1469598103934665603u;
  for (size_t i = 0; i < sum.size(); ++i) {
    double exact = 0;
    for (int rank = 0; rank < ranks; ++rank) exact += static_cast<double>(contribution(rank, i));
    if (std::abs(exact - static_cast<double>(sum[i])) > 1e-3) return "wrong at " + std::to_string(i);
    uint32_t bits = 0;
    std::memcpy(&bits, &sum[i], sizeof bits);
    hash = (hash ^ bits) * 1099511628211u;
  }
  return std::to_string(hash);
}

/// Reduces vectors of several lengths, `inPlace` or not, in memory that peers can map or in the process's
/// own.
int reduceAll(Rank& self, const ChildSide& parent, bool mappable) {
  std::string said;
  for (const size_t count : {size_t{1}, size_t{1000}, size_t{300001}})
    for (const bool inPlace : {false, true}) {
      std::vector<float> input(count);
      for (size_t i = 0; i < count; ++i) input[i] = contribution(self.rank, i);
      std::vector<float> output(count);
      float* from = input.data();
      float* to = output.data();
      if (mappable) {
        must(cudaMalloc(reinterpret_cast<void**>(&from), count * sizeof(float)), "cudaMalloc", parent);
        must(cudaMalloc(reinterpret_cast<void**>(&to), count * sizeof(float)), "cudaMalloc", parent);
        std::memcpy(from, input.data(), count * sizeof(float));
      }
      if (inPlace) std::memcpy(to, input.data(), count * sizeof(float));
      must(ncclAllReduce(inPlace ? to : from, to, count, ncclFloat, ncclSum, self.comm, nullptr),
           "ncclAllReduce", parent, self.comm);
      must(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", parent);
      said += digest(std::vector<float>(to, to + count), self.ranks) + " ";
      if (mappable) {
        must(cudaFree(from), "cudaFree", parent);
        must(cudaFree(to), "cudaFree", parent);
      }
    }
  parent.say("sums " + said);
  must(ncclCommDestroy(self.comm), "ncclCommDestroy", parent);
  return 0;
}

std::string sumsWith(const std::vector<bool>& hostIsMappable) {
  const Log log;
  RankProcesses ranks(5, Path::hosts, [&](Rank& self, const ChildSide& parent) {
    return reduceAll(self, parent, hostIsMappable[static_cast<size_t>(self.rank / 2)]);
  });
  std::set<std::string> sums;
  for (int rank = 0; rank < ranks.size(); ++rank) sums.insert(ranks[rank].expectLine("sums ", in(30s)));
  ranks.expectSuccess(20s);
  EXPECT_EQ(sums.size(), 1u) << "ranks differ: " << testing::PrintToString(sums);
  EXPECT_THAT(log.text(), testing::HasSubstr("algorithm hierarchical"));
  EXPECT_THAT(*sums.begin(), testing::Not(testing::HasSubstr("wrong")));
  return *sums.begin();
}

TEST(Hosts, OfSeveralRanksReduceToTheSameBitsWhateverMemoryTheirBuffersAreIn) {
  const std::string all = sumsWith({true, true, true});
  EXPECT_EQ(sumsWith({true, false, true}), all);
  EXPECT_EQ(sumsWith({false, false, false}), all);
  EXPECT_EQ(sumsWith({true, true, true}), all);
}

}  // namespace
}  // namespace tutti::system_test
