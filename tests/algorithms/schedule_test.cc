// The IR itself: builders, text, tables; layout and the registry.
#include "algorithms/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "algorithms/double_tree.h"
#include "algorithms/registry.h"
#include "algorithms/segment_table.h"
#include "algorithms/send_recv.h"
#include "algorithms/symbolic/value.h"

namespace tutti {
namespace {

using testing::HasSubstr;

constexpr Location kIn{Buffer::input, 0, 1, kSelf};
constexpr Location kOut{Buffer::output, 0, 1, kSelf};

TEST(Affine, WrapsIntoItsModulusAlsoBelowZero) {
  EXPECT_EQ(Affine(1, -1, 4).at(3), 2);
  EXPECT_EQ(Affine(5, 1, 4).at(0), 1);
  EXPECT_EQ(Affine(7).at(100), 7);
  EXPECT_EQ(Affine(0, 3, 0).at(4), 12);
  EXPECT_EQ(Affine(0, -1, 0).at(4), -4);
  EXPECT_EQ(Affine(2000000000, 2000000000, 7).at(1), 4000000000LL % 7);
}

TEST(Lane, BuildersFillTheFieldsOfTheirStep) {
  Lane lane;
  const Step send = lane.send(3, kIn, 2);
  EXPECT_EQ(send.kind, StepKind::send);
  EXPECT_EQ(send.peerTo, Affine(3));
  EXPECT_EQ(send.portTo, 2);
  const Step fused = lane.recvReduceCopySend(1, kIn, kOut, 2, 4, 5);
  EXPECT_EQ(fused.peerFrom, Affine(1));
  EXPECT_EQ(fused.peerTo, Affine(2));
  EXPECT_EQ(fused.portFrom, 4);
  EXPECT_EQ(fused.portTo, 5);
  EXPECT_EQ(fused.src, kIn);
  EXPECT_EQ(fused.dst, kOut);
  const Step forward = lane.recvSend(1, 2, 3);
  EXPECT_EQ(movedSegments(forward), 3);
  EXPECT_EQ(sizeSegments(forward).first, Affine(kNoSegment));
  EXPECT_EQ(lane.signalTeam(1, 3).team, 1);
  EXPECT_EQ(lane.wait(2, 1).flag, 1);
  EXPECT_EQ(lane.blocks.size(), 1u);
  lane.loop(5).send(0, kIn);
  lane.once().recv(0, kOut);
  EXPECT_EQ(lane.blocks.size(), 3u);
  EXPECT_EQ(lane.blocks[1].iterations, 5);
}

TEST(Schedule, TidyRemovesWhatRunsNothing) {
  Schedule schedule;
  schedule.lanes.resize(2);
  schedule.lanes[0].loop(0).send(1, kIn);
  schedule.lanes[0].loop(-3).send(1, kIn);
  schedule.lanes[0].once();
  schedule.lanes[0].once().recv(1, kOut);
  schedule.lanes[1].loop(0).recv(2, kOut);
  const Schedule tidied = tidy(schedule);
  ASSERT_EQ(tidied.lanes.size(), 1u);
  ASSERT_EQ(tidied.lanes[0].blocks.size(), 1u);
  EXPECT_EQ(tidied.lanes[0].blocks[0].steps[0].kind, StepKind::recv);
}

TEST(Schedule, SizesComeFromTheUsersBufferElseFromSizeAs) {
  const Location scratch{Buffer::scratch, 7};
  Lane lane;
  EXPECT_EQ(sizeSegments(lane.copy({Buffer::input, 2}, scratch)).first, Affine(2));
  EXPECT_EQ(sizeSegments(lane.copy(scratch, {Buffer::output, 3})).first, Affine(3));
  EXPECT_EQ(sizeSegments(lane.send(1, scratch)).first, Affine(kNoSegment));
  Step& sized = lane.send(1, scratch);
  sized.sizeAs = 5;
  EXPECT_EQ(sizeSegments(sized).first, Affine(5));
  EXPECT_EQ(sizeSegments(lane.recvReduce(1, {Buffer::input, 4}, scratch)).first, Affine(4));
}

TEST(Schedule, SliceSizeIsLimitedBySlotsAndScratch) {
  Schedule schedule;
  schedule.maxCount = 4;
  EXPECT_EQ(schedule.maxSliceBytes(1024, 0), 256u);
  schedule.scratchSegments = 3;
  EXPECT_EQ(schedule.maxSliceBytes(1024, 700), 192u);  // 233, whole cache lines
  EXPECT_EQ(schedule.maxSliceBytes(1024, 100), 0u);
  schedule.maxCount = schedule.scratchSegments = 0;
  EXPECT_EQ(schedule.maxSliceBytes(1, 1), SIZE_MAX);
}

TEST(Schedule, KnowsWhatItNeeds) {
  const auto make = [](const char* algorithm, Collective collective, int32_t ranks, int32_t rank) {
    return *generate(algorithm, {collective, ranks, rank, 0, {}});
  };
  for (int32_t rank = 0; rank < 3; ++rank) {
    EXPECT_FALSE(make("ring", Collective::allReduce, 3, rank).needsMapped());
    EXPECT_TRUE(make("oneshot", Collective::broadcast, 3, rank).needsMapped());
    EXPECT_FALSE(make("oneshot", Collective::broadcast, 3, rank).needsMappedUserBuffers());
    EXPECT_TRUE(make("direct", Collective::broadcast, 3, rank).needsMappedUserBuffers());
  }
  EXPECT_FALSE(make("direct", Collective::allReduce, 1, 0).needsMapped());
  Schedule ownFlags;
  ownFlags.ranks = 2;
  ownFlags.lanes.emplace_back().signal(0);
  EXPECT_FALSE(ownFlags.needsMapped());
}

TEST(Schedule, TextShowsEveryStepOnALineAndLoopsIndented) {
  const std::string text = toText(*generate("ring", {Collective::allReduce, 4, 1, 0, {}}));
  EXPECT_THAT(text, HasSubstr("ring AllReduce, rank 1 of 4: 4 segments\nlane 0\n"));
  EXPECT_THAT(text, HasSubstr("  send               input[0] -> rank 2\n"));
  EXPECT_THAT(text,
              HasSubstr("  for i = 0 .. 1\n    recvReduceSend     input[3-i mod 4] (+) rank 0 -> rank 2\n"));
  EXPECT_THAT(text, HasSubstr("output[1] = input[1] (+) rank 0 -> rank 2  final\n"));
  const std::string direct = toText(*generate("direct", {Collective::allReduce, 3, 1, 0, {}}));
  EXPECT_THAT(direct, HasSubstr("team 0: ranks 0 1 2\n"));
  EXPECT_THAT(direct, HasSubstr("output[1] @ team 0 = sum of input[1] @ team 0  final"));
}

// The ring's text does not grow with the ranks: loops and affine numbers.
TEST(Schedule, TextOfTheRingHasTheSameSizeForAnyNumberOfRanks) {
  const auto steps = [](const Schedule& schedule) {
    size_t count = 0;
    for (const Lane& lane : schedule.lanes)
      for (const Block& block : lane.blocks) count += block.steps.size();
    return count;
  };
  EXPECT_EQ(steps(*generate("ring", {Collective::allReduce, 4, 2, 0, {}})),
            steps(*generate("ring", {Collective::allReduce, 4096, 2, 0, {}})));
  EXPECT_LE(steps(*generate("tree", {Collective::allReduce, 4096, 2, 0, {}})), 8u);
}

TEST(DoubleTree, EveryRankHasChildrenInOneTreeAtMostButTheRoot) {
  for (int32_t ranks = 2; ranks <= 40; ++ranks)
    for (const int32_t root : {0, ranks - 1, ranks / 2}) {
      int32_t edges[2] = {0, 0};
      for (int32_t rank = 0; rank < ranks; ++rank) {
        const auto trees = doubleTree(ranks, rank, root, {});
        for (int t = 0; t < 2; ++t) {
          const TreeNode& node = trees[static_cast<size_t>(t)];
          EXPECT_EQ(node.parent < 0, rank == root);
          for (const int32_t child : node.children) {
            if (child < 0) continue;
            ++edges[t];
            EXPECT_EQ(doubleTree(ranks, child, root, {})[static_cast<size_t>(t)].parent, rank);
          }
        }
        const bool leafSomewhere = trees[0].childCount() == 0 || trees[1].childCount() == 0;
        EXPECT_TRUE(rank == root || leafSomewhere) << ranks << " " << rank;
      }
      EXPECT_EQ(edges[0], ranks - 1);
      EXPECT_EQ(edges[1], ranks - 1);
    }
}

TEST(Layout, RejectsWhatIsNoPermutation) {
  EXPECT_TRUE(Layout({0, 1, 2}).identity());
  EXPECT_FALSE(Layout({1, 0, 2}).identity());
  EXPECT_EQ(Layout({2, 0, 1}).positionOf(2), 0);
  EXPECT_EQ(Layout({2, 0, 1}).rankAt(1), 0);
  for (const std::vector<int32_t>& order : {std::vector<int32_t>{0, 0}, {0, 2}, {-1, 0}})
    EXPECT_FALSE(Layout(order).isPermutation());
}

TEST(Registry, NamesWhatDoesNotFit) {
  const auto message = [](std::string_view algorithm, const ScheduleRequest& request) {
    return generate(algorithm, request).status().message();
  };
  EXPECT_THAT(message("rong", {}), HasSubstr("no algorithm \"rong\""));
  EXPECT_THAT(message("ring", {Collective::allToAll, 2, 0, 0, {}}), HasSubstr("does not implement AlltoAll"));
  EXPECT_THAT(message("ring", {Collective::allReduce, 0, 0, 0, {}}), HasSubstr("0 ranks"));
  EXPECT_THAT(message("ring", {Collective::allReduce, 2, 2, 0, {}}), HasSubstr("rank 2 is not one of 2"));
  EXPECT_THAT(message("ring", {Collective::reduce, 2, 0, -1, {}}), HasSubstr("root -1"));
  EXPECT_THAT(message("ring", {Collective::allReduce, 2, 0, 0, Layout({1, 1})}),
              HasSubstr("not a permutation"));
  EXPECT_THAT(message("ring", {Collective::allReduce, 2, 0, 0, Layout({2, 1, 0})}),
              HasSubstr("orders 3 ranks of 2"));
  EXPECT_THAT(message("doubling", {Collective::allGather, 6, 0, 0, {}}), HasSubstr("on 6 ranks"));
  EXPECT_TRUE(generate("RING", {}).isOk());
}

TEST(SendRecv, GivesPartsToTwoRanksOnly) {
  EXPECT_EQ(sendRecv(4, 1, 1, 3).lanes[0].blocks[0].steps[0].portTo, kPointToPointPort);
  EXPECT_EQ(sendRecv(4, 3, 1, 3).lanes[0].blocks[0].steps[0].kind, StepKind::recv);
  EXPECT_TRUE(sendRecv(4, 0, 1, 3).lanes.empty());
  EXPECT_EQ(sendRecv(4, 2, 2, 2).lanes[0].blocks[0].steps[0].kind, StepKind::copy);
}

CallShape shape(Collective collective, size_t count, int32_t parts, size_t sliceBytes) {
  CallShape s;
  s.collective = collective;
  s.ranks = 4;
  s.parts = parts;
  s.count = count;
  s.elementBytes = 4;
  s.sliceBytes = sliceBytes;
  return s;
}

// Over all segments and slices, every byte of the buffer is covered exactly once.
TEST(SegmentTable, PiecesCoverTheBufferOnce) {
  for (const Collective collective : {Collective::allReduce, Collective::allGather})
    for (const size_t count : {0u, 1u, 15u, 16u, 17u, 1000u, 4099u})
      for (const int32_t parts : {1, 3, 4})
        for (const int32_t channels : {1, 3}) {
          std::vector<int> hits;
          for (int32_t channel = 0; channel < channels; ++channel) {
            CallShape s = shape(collective, count, parts, 256);
            s.channel = channel;
            s.channels = channels;
            const SegmentTable table(s);
            hits.resize(table.bufferBytes(Buffer::output, 0));
            const int32_t segments = parts * (collective == Collective::allGather ? 4 : 1);
            for (int32_t segment = 0; segment < segments; ++segment)
              for (size_t slice = 0; slice < table.slices(); ++slice) {
                const Piece piece = table.piece(Buffer::output, segment, slice, 0);
                EXPECT_EQ(piece.bytes, table.bytes(segment, slice));
                EXPECT_LE(piece.bytes, 256u);
                for (size_t b = 0; b < piece.bytes; ++b) ++hits.at(piece.offset + b);
              }
          }
          EXPECT_THAT(hits, testing::Each(1)) << count << " " << parts << " " << channels;
        }
}

TEST(SegmentTable, AnEmptyCallStillRunsOnce) {
  EXPECT_EQ(SegmentTable(shape(Collective::allReduce, 0, 4, 256)).slices(), 1u);
}

TEST(ExpressionTable, TellsOrdersAndDuplicatesApart) {
  ExpressionTable table(3);
  const int32_t a = *table.combine(table.leaf(0), table.leaf(1));
  EXPECT_EQ(a, *table.combine(0, 1));
  EXPECT_NE(a, *table.combine(1, 0));
  EXPECT_FALSE(table.containsAll(a));
  const int32_t all = *table.combine(a, 2);
  EXPECT_TRUE(table.containsAll(all));
  EXPECT_EQ(table.depth(all), 2);
  EXPECT_EQ(table.toText(all), "(0 + 1) + 2");
  EXPECT_THAT(table.combine(a, 1).status().message(), HasSubstr("rank 1 is reduced twice"));
}

TEST(ExpressionTable, TellsDuplicatesApartAlsoAbove64Ranks) {
  ExpressionTable table(100);
  int32_t right = 0;
  for (int32_t rank = 1; rank < 100; ++rank) right = *table.combine(right, rank);
  EXPECT_TRUE(table.containsAll(right));
  int32_t wrong = 0;
  for (int32_t rank = 1; rank < 99; ++rank) wrong = *table.combine(wrong, rank);
  wrong = *table.combine(wrong, 42);  // in place of 99
  EXPECT_EQ(table.contributions(wrong), 100);
  EXPECT_FALSE(table.containsAll(wrong));
  EXPECT_FALSE(table.combine(right, 0).isOk());
}

}  // namespace
}  // namespace tutti
