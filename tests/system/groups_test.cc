// Groups of several communicators on one stream, between processes.
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "system/ranks.h"

namespace tutti::system_test {
namespace {

using namespace std::chrono_literals;

constexpr size_t kCount = 1000;
constexpr int kRounds = 30;

/// One call of a group: on which communicator, from where to where.
struct Part {
  ncclComm_t comm;
  int* data;
};

/// Adds in place on all the communicators, in this order, in one group on the null stream.
void addInOneGroup(const std::vector<Part>& parts, const ChildSide& parent) {
  must(ncclGroupStart(), "ncclGroupStart", parent);
  for (const Part& part : parts)
    must(ncclAllReduce(part.data, part.data, kCount, ncclInt32, ncclSum, part.comm, nullptr), "ncclAllReduce",
         parent);
  must(ncclGroupEnd(), "ncclGroupEnd", parent);
  must(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", parent);
}

TEST(Groups, MayNameTheirCommunicatorsInAnotherOrderOnEachRank) {
  RankProcesses ranks(2, Path::sharedMemory, [](Rank& self, const ChildSide& parent) {
    ncclComm_t second = nullptr;
    must(ncclCommSplit(self.comm, 0, self.rank, &second, nullptr), "ncclCommSplit", parent);
    for (int round = 0; round < kRounds; ++round) {
      std::vector<int> a(kCount, 1), b(kCount, 3);
      std::vector<Part> parts = {{self.comm, a.data()}, {second, b.data()}};
      if (self.rank == 1) std::swap(parts[0], parts[1]);
      addInOneGroup(parts, parent);
      if (a != std::vector<int>(kCount, 2) || b != std::vector<int>(kCount, 6)) return 2;
    }
    must(ncclCommDestroy(second), "ncclCommDestroy", parent);
    must(ncclCommDestroy(self.comm), "ncclCommDestroy", parent);
    return 0;
  });
  ranks.expectSuccess(30s);
}

// Three ranks in each of two processes, all on device 0 and its null stream. Even and odd ranks have a
// communicator each: the first process names them even, odd, even, the second odd, even, odd.
TEST(Groups, OfSisterCommunicatorsRunSideBySideOnOneStream) {
  constexpr int kLocal = 3;
  RankProcesses processes(2, Path::sharedMemory, [](Rank& self, const ChildSide& parent) {
    // The id of the larger communicator travels over the smaller one.
    ncclUniqueId id{};
    if (self.rank == 0) must(ncclGetUniqueId(&id), "ncclGetUniqueId", parent);
    must(ncclBroadcast(&id, &id, sizeof id, ncclChar, 0, self.comm, nullptr), "ncclBroadcast", parent);
    must(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", parent);
    std::vector<ncclComm_t> all(kLocal), halves(kLocal);
    const auto number = [&](int local) { return self.rank * kLocal + local; };
    must(ncclGroupStart(), "ncclGroupStart", parent);
    for (int local = 0; local < kLocal; ++local)
      must(ncclCommInitRank(&all[static_cast<size_t>(local)], 2 * kLocal, id, number(local)),
           "ncclCommInitRank", parent);
    must(ncclGroupEnd(), "ncclGroupEnd", parent);
    must(ncclGroupStart(), "ncclGroupStart", parent);
    for (int local = 0; local < kLocal; ++local) {
      const auto i = static_cast<size_t>(local);
      must(ncclCommSplit(all[i], number(local) % 2, 0, &halves[i], nullptr), "ncclCommSplit", parent);
    }
    must(ncclGroupEnd(), "ncclGroupEnd", parent);
    for (int round = 0; round < kRounds; ++round) {
      std::vector<std::vector<int>> data(kLocal, std::vector<int>(kCount, 1));
      std::vector<Part> parts;
      for (size_t i = 0; i < kLocal; ++i) parts.push_back({halves[i], data[i].data()});
      addInOneGroup(parts, parent);
      for (const auto& one : data)
        if (one != std::vector<int>(kCount, 3)) return 2;
    }
    must(ncclGroupStart(), "ncclGroupStart", parent);
    for (size_t i = 0; i < kLocal; ++i)
      for (ncclComm_t comm : {halves[i], all[i]}) must(ncclCommFinalize(comm), "ncclCommFinalize", parent);
    must(ncclGroupEnd(), "ncclGroupEnd", parent);
    for (size_t i = 0; i < kLocal; ++i)
      for (ncclComm_t comm : {halves[i], all[i]}) must(ncclCommDestroy(comm), "ncclCommDestroy", parent);
    must(ncclCommDestroy(self.comm), "ncclCommDestroy", parent);
    return 0;
  });
  processes.expectSuccess(30s);
}

}  // namespace
}  // namespace tutti::system_test
