#include "core/job_plan.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

PeerInfo peerOn(const std::string& host, const std::string& machine, int processors) {
  PeerInfo peer;
  peer.hostName = peer.hostId = host;
  peer.machineId = machine;
  peer.processors = processors;
  return peer;
}

TEST(Crowded, AreJobsWithMoreRanksThanProcessorsOnAHost) {
  EXPECT_FALSE(isCrowded({peerOn("a", "m", 2), peerOn("a", "m", 2)}));
  EXPECT_TRUE(
      isCrowded({peerOn("a", "m", 2), peerOn("b", "n", 8), peerOn("a", "m", 2), peerOn("a", "m", 2)}));
}

TEST(Crowded, AreContainersThatShareTheProcessorsOfAMachine) {
  EXPECT_TRUE(isCrowded({peerOn("a", "m", 2), peerOn("b", "m", 2), peerOn("c", "m", 2)}));
  EXPECT_FALSE(isCrowded({peerOn("a", "m", 2), peerOn("b", "n", 2), peerOn("c", "o", 2)}));
}

TEST(Crowded, IsCountedByHostWhereMachinesAreNotKnown) {
  EXPECT_FALSE(isCrowded({peerOn("a", "", 1), peerOn("b", "", 1)}));
  EXPECT_TRUE(isCrowded({peerOn("a", "", 1), peerOn("b", "", 1), peerOn("b", "", 1)}));
}

TEST(Crowded, IsNothingWhereProcessorsAreNotKnown) {
  EXPECT_FALSE(isCrowded({peerOn("a", "m", 0), peerOn("a", "m", 0)}));
}

}  // namespace
}  // namespace tutti
