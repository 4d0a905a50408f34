#include "core/planner.h"

#include <gtest/gtest.h>

#include "algorithms/registry.h"

namespace tutti {
namespace {

std::vector<PeerBuffer> touched(std::string_view algorithm, Collective collective, int ranks, int rank,
                                int root) {
  ScheduleRequest request;
  request.collective = collective;
  request.ranks = ranks;
  request.rank = rank;
  request.root = root;
  const auto schedule = generate(algorithm, request);
  EXPECT_TRUE(schedule.isOk()) << schedule.status().message();
  return peerBuffersOf(*schedule);
}

TEST(PeerBuffers, OfAZeroCopyAllReduceAreAllInputsAndOutputs) {
  const auto found = touched("direct", Collective::allReduce, 3, 1, 0);
  const std::vector<PeerBuffer> expected = {
      {0, Buffer::input}, {0, Buffer::output}, {2, Buffer::input}, {2, Buffer::output}};
  EXPECT_EQ(found, expected);
}

TEST(PeerBuffers, OfAZeroCopyBroadcastAreOnlyBetweenTheRootAndEachOther) {
  // Two ranks that are not the root have nothing to do with each other: one may return, and free its buffer,
  // before the other has begun.
  for (const PeerBuffer& one : touched("direct", Collective::broadcast, 4, 2, 0)) EXPECT_EQ(one.rank, 0);
}

TEST(PeerBuffers, AreNotTouchedByAlgorithmsOverMessagesOrScratch) {
  for (const auto* algorithm : {"ring", "oneshot"}) {
    EXPECT_TRUE(touched(algorithm, Collective::allReduce, 4, 2, 0).empty()) << algorithm;
  }
}

}  // namespace
}  // namespace tutti
