// AlltoAll, Gather, Scatter and the forms with a count for every rank.
#include <gmock/gmock.h>

#include <cstring>
#include <functional>

#include "api/buffer.h"
#include "api/oracle.h"
#include "api/ranks.h"
#include "support/scale.h"
#include "tutti/tutti.h"

namespace tutti::test {
namespace {

using testing::HasSubstr;

/// Element `i` of what rank `from` has for rank `to`.
int32_t element(int from, int to, size_t i) {
  return static_cast<int32_t>(from * 1000003 + to * 10007 + static_cast<int>(i));
}

void put(std::byte* memory, size_t at, int from, int to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const int32_t value = element(from, to, i);
    std::memcpy(memory + (at + i) * sizeof value, &value, sizeof value);
  }
}

size_t wrongIn(const std::byte* memory, size_t at, int from, int to, size_t count) {
  size_t wrong = 0;
  for (size_t i = 0; i < count; ++i) {
    int32_t value = 0;
    std::memcpy(&value, memory + (at + i) * sizeof value, sizeof value);
    wrong += value != element(from, to, i) ? 1 : 0;
  }
  return wrong;
}

size_t notUntouched(const std::byte* memory, size_t elements) {
  size_t wrong = 0;
  for (size_t i = 0; i < elements * sizeof(int32_t); ++i) wrong += memory[i] != std::byte{0xee} ? 1 : 0;
  return wrong;
}

constexpr size_t kCounts[] = {1, 17, 4099, scaled<size_t>(70001, 40001)};

class Moves : public testing::TestWithParam<int> {
 protected:
  /// Calls body(rank, count, device memory, in place) on every rank.
  static void forms(const std::function<void(Rank&, size_t, bool, bool)>& body) {
    runRanks(GetParam(), [&](Rank& rank) {
      for (const size_t count : kCounts)
        for (const bool device : {true, false})
          for (const bool inPlace : {false, true}) body(rank, count, device, inPlace);
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, Moves, testing::Values(1, 2, 3, 5, 8));

TEST_P(Moves, AlltoAllExchangesAllBlocksAlsoInPlace) {
  forms([](Rank& rank, size_t count, bool device, bool inPlace) {
    const auto ranks = static_cast<size_t>(rank.ranks);
    Buffer input(ranks * count * 4, device);
    Buffer output(ranks * count * 4, device);
    std::byte* in = inPlace ? output.data() : input.data();
    for (size_t p = 0; p < ranks; ++p) put(in, p * count, rank.rank, static_cast<int>(p), count);
    ASSERT_NCCL_OK(ncclAlltoAll(in, output.data(), count, ncclInt32, rank.comm, rank.stream));
    rank.sync();
    for (size_t p = 0; p < ranks; ++p) {
      EXPECT_EQ(wrongIn(output.data(), p * count, static_cast<int>(p), rank.rank, count), 0u)
          << "from " << p << " to " << rank.rank << " count " << count << (inPlace ? " in place" : "");
      if (inPlace) continue;
      EXPECT_EQ(wrongIn(in, p * count, rank.rank, static_cast<int>(p), count), 0u);
    }
    EXPECT_EQ(output.data()[ranks * count * 4], std::byte{0xee});
  });
}

TEST_P(Moves, AlltoAllInPlaceOnSomeRanksOnlyIsRight) {
  runRanks(GetParam(), [](Rank& rank) {
    const auto ranks = static_cast<size_t>(rank.ranks);
    for (const size_t count : {size_t{100}, size_t{100001}}) {
      Buffer input(ranks * count * 4, true);
      Buffer output(ranks * count * 4, true);
      std::byte* in = rank.rank % 2 == 0 ? output.data() : input.data();
      for (size_t p = 0; p < ranks; ++p) put(in, p * count, rank.rank, static_cast<int>(p), count);
      ASSERT_NCCL_OK(ncclAlltoAll(in, output.data(), count, ncclInt32, rank.comm, rank.stream));
      rank.sync();
      for (size_t p = 0; p < ranks; ++p)
        EXPECT_EQ(wrongIn(output.data(), p * count, static_cast<int>(p), rank.rank, count), 0u);
    }
  });
}

TEST_P(Moves, GatherBringsAllBlocksToEveryRoot) {
  forms([](Rank& rank, size_t count, bool device, bool inPlace) {
    const auto ranks = static_cast<size_t>(rank.ranks);
    const auto own = static_cast<size_t>(rank.rank);
    for (int root = 0; root < rank.ranks; ++root) {
      const bool isRoot = rank.rank == root;
      Buffer input(count * 4, device);
      Buffer output(ranks * count * 4, device);
      std::byte* in = inPlace && isRoot ? output.data() + own * count * 4 : input.data();
      put(in, 0, rank.rank, root, count);
      std::byte* out = isRoot || count % 2 == 1 ? output.data() : nullptr;  // matters on the root only
      ASSERT_NCCL_OK(ncclGather(in, out, count, ncclInt32, root, rank.comm, rank.stream));
      rank.sync();
      EXPECT_EQ(wrongIn(in, 0, rank.rank, root, count), 0u);
      if (!isRoot) {
        EXPECT_EQ(notUntouched(output.data(), ranks * count), 0u);
        continue;
      }
      for (size_t p = 0; p < ranks; ++p)
        EXPECT_EQ(wrongIn(output.data(), p * count, static_cast<int>(p), root, count), 0u) << "from " << p;
      EXPECT_EQ(output.data()[ranks * count * 4], std::byte{0xee});
    }
  });
}

TEST_P(Moves, ScatterGivesEveryRankItsBlockFromEveryRoot) {
  forms([](Rank& rank, size_t count, bool device, bool inPlace) {
    const auto ranks = static_cast<size_t>(rank.ranks);
    const auto own = static_cast<size_t>(rank.rank);
    for (int root = 0; root < rank.ranks; ++root) {
      const bool isRoot = rank.rank == root;
      Buffer input(ranks * count * 4, device);
      Buffer output(count * 4, device);
      if (isRoot)
        for (size_t p = 0; p < ranks; ++p) put(input.data(), p * count, root, static_cast<int>(p), count);
      std::byte* out = inPlace && isRoot ? input.data() + own * count * 4 : output.data();
      ASSERT_NCCL_OK(
          ncclScatter(isRoot ? input.data() : nullptr, out, count, ncclInt32, root, rank.comm, rank.stream));
      rank.sync();
      EXPECT_EQ(wrongIn(out, 0, root, rank.rank, count), 0u) << "root " << root;
      EXPECT_EQ(output.data()[count * 4], std::byte{0xee});
      if (isRoot) continue;
      EXPECT_EQ(notUntouched(input.data(), ranks * count), 0u);
    }
  });
}

TEST(Moves, WorkForEveryTypeAsBytes) {
  runRanks(3, [](Rank& rank) {
    for (int t = 0; t < ncclNumTypes; ++t) {
      const auto type = static_cast<ncclDataType_t>(t);
      const size_t bytes = 7 * sizeOf(type);
      std::vector<unsigned char> in(3 * bytes);
      std::vector<unsigned char> out(3 * bytes);
      for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<unsigned char>(i * 31 + rank.rank * 7);
      ASSERT_NCCL_OK(ncclAlltoAll(in.data(), out.data(), 7, type, rank.comm, rank.stream));
      rank.sync();
      const size_t own = static_cast<size_t>(rank.rank) * bytes;
      for (size_t p = 0; p < 3; ++p)
        for (size_t i = 0; i < bytes; ++i)
          ASSERT_EQ(out[p * bytes + i], static_cast<unsigned char>((own + i) * 31 + p * 7));
    }
  });
}

TEST(Moves, RefuseWrongRootsPointersAndOverlaps) {
  runRanks(2, [](Rank& rank) {
    std::vector<int> data(64);
    int* d = data.data();
    const auto refused = [&](ncclResult_t result, const char* words) {
      EXPECT_EQ(result, ncclInvalidArgument);
      EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr(words));
    };
    refused(ncclGather(d, d + 32, 4, ncclInt32, 2, rank.comm, rank.stream), "root 2");
    refused(ncclScatter(d, d + 32, 4, ncclInt32, -1, rank.comm, rank.stream), "root -1");
    refused(ncclAlltoAll(nullptr, d, 4, ncclInt32, rank.comm, rank.stream), "sendbuff is null");
    refused(ncclAlltoAll(d, nullptr, 4, ncclInt32, rank.comm, rank.stream), "recvbuff is null");
    refused(ncclAlltoAll(d, d + 1, 4, ncclInt32, rank.comm, rank.stream), "overlap");
    refused(ncclAllReduce(d, d + 1, 4, ncclInt32, ncclSum, rank.comm, rank.stream), "overlap");
    refused(ncclAllGather(d + 4 * (1 - rank.rank), d, 4, ncclInt32, rank.comm, rank.stream), "overlap");
    refused(ncclReduceScatter(d, d + 4 * (1 - rank.rank), 4, ncclInt32, ncclSum, rank.comm, rank.stream),
            "overlap");
    refused(ncclAllGather(d + 4 * rank.rank + 1, d, 4, ncclInt32, rank.comm, rank.stream), "overlap");
    // Neighbours are no overlap.
    EXPECT_NCCL_OK(ncclAllReduce(d, d + 4, 4, ncclInt32, ncclSum, rank.comm, rank.stream));
    EXPECT_NCCL_OK(ncclAlltoAll(d, d + 8, 4, ncclInt32, rank.comm, rank.stream));
    EXPECT_NCCL_OK(ncclAlltoAll(nullptr, nullptr, 0, ncclInt32, rank.comm, rank.stream));
    EXPECT_NCCL_OK(ncclGather(nullptr, nullptr, 0, ncclInt32, 1, rank.comm, rank.stream));
    EXPECT_NCCL_OK(ncclScatter(nullptr, nullptr, 0, ncclInt32, 1, rank.comm, rank.stream));
    rank.sync();
  });
}

// --- a count for every rank -------------------------------------------------------------------------------

/// Uneven, with zeros: what rank `from` has for rank `to`. `scale` stretches it over slices.
size_t unevenCount(int from, int to, int ranks, size_t scale) {
  const int mixed = (from * 5 + to * 3 + ranks) % 7;
  return mixed < 2 ? 0 : static_cast<size_t>(mixed) * scale + static_cast<size_t>(to);
}

struct Blocks {
  std::vector<size_t> counts;
  std::vector<size_t> displacements;
  size_t extent = 0;

  /// `gap` elements before every block; in the reverse order of ranks when `reversed`.
  Blocks(int ranks, const std::function<size_t(int)>& count, size_t gap, bool reversed)
      : counts(static_cast<size_t>(ranks)), displacements(static_cast<size_t>(ranks)) {
    for (int i = 0; i < ranks; ++i) {
      const auto r = static_cast<size_t>(reversed ? ranks - 1 - i : i);
      counts[r] = count(static_cast<int>(r));
      displacements[r] = extent + gap;
      extent += gap + counts[r];
    }
  }
  /// Everything outside of the blocks is as before.
  size_t touchedGaps(const std::byte* memory) const {
    std::vector<bool> used(extent);
    for (size_t b = 0; b < counts.size(); ++b)
      for (size_t i = 0; i < counts[b]; ++i) used[displacements[b] + i] = true;
    size_t wrong = 0;
    for (size_t i = 0; i < extent; ++i) wrong += used[i] ? 0 : notUntouched(memory + i * 4, 1);
    return wrong;
  }
};

struct Layout {
  size_t scale;
  size_t gap;
  bool reversed;
  bool device;
};
constexpr size_t kLong = scaled<size_t>(33333, 11111);  // several slices
constexpr Layout kLayouts[] = {{1, 0, false, true},     {1, 3, true, false},      {997, 0, false, true},
                               {997, 5, true, true},    {kLong, 0, false, false}, {kLong, 7, false, true},
                               {kLong, 0, false, true}, {1, 0, true, true}};

TEST_P(Moves, AllGathervPutsBlocksOfAllSizesInTheirPlaces) {
  runRanks(GetParam(), [](Rank& rank) {
    const auto count = [&](size_t scale) {
      return [&rank, scale](int r) { return unevenCount(r, 1, rank.ranks, scale); };
    };
    for (const Layout& layout : kLayouts)
      for (const bool inPlace : {false, true}) {
        // Displacements may differ between ranks.
        const bool reversed = layout.reversed && rank.rank % 2 == 0;
        const Blocks blocks(rank.ranks, count(layout.scale), layout.gap, reversed);
        const auto own = static_cast<size_t>(rank.rank);
        Buffer input(blocks.counts[own] * 4, layout.device);
        Buffer output(blocks.extent * 4, layout.device);
        std::byte* in = inPlace ? output.data() + blocks.displacements[own] * 4 : input.data();
        put(in, 0, rank.rank, 0, blocks.counts[own]);
        const bool implied = layout.gap == 0 && !reversed;
        ASSERT_NCCL_OK(tuttiAllGatherv(in, output.data(), blocks.counts[own], blocks.counts.data(),
                                       implied ? nullptr : blocks.displacements.data(), ncclInt32, rank.comm,
                                       rank.stream));
        rank.sync();
        for (int r = 0; r < rank.ranks; ++r) {
          const auto b = static_cast<size_t>(r);
          EXPECT_EQ(wrongIn(output.data(), blocks.displacements[b], r, 0, blocks.counts[b]), 0u);
        }
        EXPECT_EQ(blocks.touchedGaps(output.data()), 0u);
        EXPECT_EQ(output.data()[blocks.extent * 4], std::byte{0xee});
      }
  });
}

TEST_P(Moves, ReduceScattervLeavesEachRankItsBlockOfTheSum) {
  runRanks(GetParam(), [](Rank& rank) {
    for (const Layout& layout : kLayouts)
      for (const bool inPlace : {false, true})
        for (const ncclRedOp_t op : {ncclSum, ncclMax, ncclAvg}) {
          const bool reversed = layout.reversed && rank.rank % 2 == 0;
          const Blocks blocks(
              rank.ranks, [&](int r) { return unevenCount(r, 2, rank.ranks, layout.scale); }, layout.gap,
              reversed);
          const auto own = static_cast<size_t>(rank.rank);
          Buffer input(blocks.extent * 4, layout.device);
          Buffer output(blocks.counts[own] * 4, layout.device);
          for (int r = 0; r < rank.ranks; ++r)
            put(input.data(), blocks.displacements[static_cast<size_t>(r)], rank.rank, r,
                blocks.counts[static_cast<size_t>(r)]);
          std::byte* out = inPlace ? input.data() + blocks.displacements[own] * 4 : output.data();
          const bool implied = layout.gap == 0 && !reversed;
          ASSERT_NCCL_OK(tuttiReduceScatterv(input.data(), out, blocks.counts.data(),
                                             implied ? nullptr : blocks.displacements.data(),
                                             blocks.counts[own], ncclInt32, op, rank.comm, rank.stream));
          rank.sync();
          size_t wrong = 0;
          for (size_t i = 0; i < blocks.counts[own]; ++i) {
            int64_t expected = element(rank.ranks - 1, rank.rank, i);  // the largest
            if (op != ncclMax) {
              expected = 0;
              for (int r = 0; r < rank.ranks; ++r) expected += element(r, rank.rank, i);
              if (op == ncclAvg) expected /= rank.ranks;
            }
            int32_t value = 0;
            std::memcpy(&value, out + i * 4, 4);
            wrong += value != static_cast<int32_t>(expected) ? 1 : 0;
          }
          EXPECT_EQ(wrong, 0u) << "op " << op << " scale " << layout.scale << " rank " << rank.rank;
          if (inPlace) continue;
          EXPECT_EQ(blocks.touchedGaps(input.data()), 0u);
        }
  });
}

TEST_P(Moves, AlltoAllvMovesWhatEachPairHas) {
  runRanks(GetParam(), [](Rank& rank) {
    for (const Layout& layout : kLayouts) {
      const Blocks sent(
          rank.ranks, [&](int r) { return unevenCount(rank.rank, r, rank.ranks, layout.scale); }, layout.gap,
          layout.reversed);
      const Blocks received(
          rank.ranks, [&](int r) { return unevenCount(r, rank.rank, rank.ranks, layout.scale); }, layout.gap,
          false);
      Buffer input(sent.extent * 4, layout.device);
      Buffer output(received.extent * 4, layout.device);
      for (int r = 0; r < rank.ranks; ++r)
        put(input.data(), sent.displacements[static_cast<size_t>(r)], rank.rank, r,
            sent.counts[static_cast<size_t>(r)]);
      ASSERT_NCCL_OK(tuttiAlltoAllv(
          input.data(), sent.counts.data(), sent.displacements.data(), output.data(), received.counts.data(),
          layout.gap == 0 ? nullptr : received.displacements.data(), ncclInt32, rank.comm, rank.stream));
      rank.sync();
      for (int r = 0; r < rank.ranks; ++r) {
        const auto b = static_cast<size_t>(r);
        EXPECT_EQ(wrongIn(output.data(), received.displacements[b], r, rank.rank, received.counts[b]), 0u);
      }
      EXPECT_EQ(received.touchedGaps(output.data()), 0u);
    }
  });
}

TEST_P(Moves, GathervAndScattervServeEveryRoot) {
  runRanks(GetParam(), [](Rank& rank) {
    for (const Layout& layout : kLayouts)
      for (int root = 0; root < rank.ranks; ++root) {
        const bool inPlace = root % 2 == 1;
        const bool isRoot = rank.rank == root;
        const auto own = static_cast<size_t>(rank.rank);
        const Blocks blocks(
            rank.ranks, [&](int r) { return unevenCount(r, root, rank.ranks, layout.scale); }, layout.gap,
            layout.reversed);
        Buffer gathered(blocks.extent * 4, layout.device);
        Buffer mine(blocks.counts[own] * 4, layout.device);
        std::byte* in = isRoot && inPlace ? gathered.data() + blocks.displacements[own] * 4 : mine.data();
        put(in, 0, rank.rank, root, blocks.counts[own]);
        ASSERT_NCCL_OK(tuttiGatherv(in, isRoot ? gathered.data() : nullptr, blocks.counts[own],
                                    isRoot ? blocks.counts.data() : nullptr,
                                    isRoot ? blocks.displacements.data() : nullptr, ncclInt32, root,
                                    rank.comm, rank.stream));
        rank.sync();
        if (isRoot) {
          for (int r = 0; r < rank.ranks; ++r) {
            const auto b = static_cast<size_t>(r);
            EXPECT_EQ(wrongIn(gathered.data(), blocks.displacements[b], r, root, blocks.counts[b]), 0u);
          }
          EXPECT_EQ(blocks.touchedGaps(gathered.data()), 0u);
        }
        // And back, to other memory.
        Buffer back(blocks.counts[own] * 4, layout.device);
        std::byte* out = isRoot && inPlace ? gathered.data() + blocks.displacements[own] * 4 : back.data();
        ASSERT_NCCL_OK(tuttiScatterv(isRoot ? gathered.data() : nullptr, out,
                                     isRoot ? blocks.counts.data() : nullptr,
                                     isRoot ? blocks.displacements.data() : nullptr, blocks.counts[own],
                                     ncclInt32, root, rank.comm, rank.stream));
        rank.sync();
        EXPECT_EQ(wrongIn(out, 0, rank.rank, root, blocks.counts[own]), 0u) << "root " << root;
        EXPECT_EQ(back.data()[blocks.counts[own] * 4], std::byte{0xee});
      }
  });
}

TEST(VariableCounts, StandInGroupsBesideOtherCallsAndReadTheirArraysAtOnce) {
  runRanks(4, [](Rank& rank) {
    std::vector<int> in(40, rank.rank);
    std::vector<int> gathered(40, -1);
    std::vector<int> exchanged(40, -1);
    std::vector<int> sum(7, 1);
    int message = -1;
    int own = -1;
    const int next = (rank.rank + 1) % 4;
    const int previous = (rank.rank + 3) % 4;
    ASSERT_NCCL_OK(ncclGroupStart());
    // Messages around the calls, to oneself and to others, must not be taken for parts of them.
    ASSERT_NCCL_OK(ncclRecv(&own, 1, ncclInt32, rank.rank, rank.comm, rank.stream));
    ASSERT_NCCL_OK(ncclSend(in.data() + 20, 1, ncclInt32, next, rank.comm, rank.stream));
    {
      const std::vector<size_t> counts = {1, 2, 3, 4};
      ASSERT_NCCL_OK(tuttiAllGatherv(in.data(), gathered.data(), counts[static_cast<size_t>(rank.rank)],
                                     counts.data(), nullptr, ncclInt32, rank.comm, rank.stream));
      const std::vector<size_t> all(4, static_cast<size_t>(rank.rank) + 1);
      ASSERT_NCCL_OK(tuttiAlltoAllv(in.data(), all.data(), nullptr, exchanged.data(), counts.data(), nullptr,
                                    ncclInt32, rank.comm, rank.stream));
    }
    ASSERT_NCCL_OK(ncclAllReduce(sum.data(), sum.data(), 7, ncclInt32, ncclSum, rank.comm, rank.stream));
    ASSERT_NCCL_OK(ncclRecv(&message, 1, ncclInt32, previous, rank.comm, rank.stream));
    const int mine = 100 + rank.rank;
    ASSERT_NCCL_OK(ncclSend(&mine, 1, ncclInt32, rank.rank, rank.comm, rank.stream));
    ASSERT_NCCL_OK(ncclGroupEnd());
    rank.sync();
    const std::vector<int> expected = {0, 1, 1, 2, 2, 2, 3, 3, 3, 3, -1};
    EXPECT_EQ(std::vector<int>(gathered.begin(), gathered.begin() + 11), expected);
    EXPECT_EQ(std::vector<int>(exchanged.begin(), exchanged.begin() + 11), expected);
    EXPECT_EQ(sum, std::vector<int>(7, 4));
    EXPECT_EQ(message, previous);
    EXPECT_EQ(own, mine);
  });
}

TEST(VariableCounts, OfZeroNeedNoBuffers) {
  runRanks(3, [](Rank& rank) {
    const size_t none[3] = {0, 0, 0};
    EXPECT_NCCL_OK(tuttiAllGatherv(nullptr, nullptr, 0, none, nullptr, ncclInt32, rank.comm, rank.stream));
    EXPECT_NCCL_OK(
        tuttiReduceScatterv(nullptr, nullptr, none, nullptr, 0, ncclInt32, ncclSum, rank.comm, rank.stream));
    EXPECT_NCCL_OK(
        tuttiAlltoAllv(nullptr, none, nullptr, nullptr, none, nullptr, ncclInt32, rank.comm, rank.stream));
    EXPECT_NCCL_OK(tuttiGatherv(nullptr, nullptr, 0, none, nullptr, ncclInt32, 1, rank.comm, rank.stream));
    EXPECT_NCCL_OK(tuttiScatterv(nullptr, nullptr, none, nullptr, 0, ncclInt32, 1, rank.comm, rank.stream));
    // Only rank 1 has something.
    const size_t one[3] = {0, 5, 0};
    std::vector<int> out(5, -1);
    const std::vector<int> in(5, 42);
    EXPECT_NCCL_OK(tuttiAllGatherv(rank.rank == 1 ? in.data() : nullptr, out.data(), one[rank.rank], one,
                                   nullptr, ncclInt32, rank.comm, rank.stream));
    rank.sync();
    EXPECT_EQ(out, in);
  });
}

TEST(VariableCounts, RefuseWrongArgumentsByName) {
  runRanks(2, [](Rank& rank) {
    std::vector<int> data(64);
    int* d = data.data();
    const size_t counts[2] = {3, 4};
    const size_t huge[2] = {SIZE_MAX / 4, SIZE_MAX / 4};
    const size_t overlapping[2] = {0, 2};
    const size_t own = counts[rank.rank];
    const auto refused = [&](ncclResult_t result, const char* words) {
      EXPECT_EQ(result, ncclInvalidArgument);
      EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr(words));
    };
    refused(tuttiAllGatherv(d, d + 32, own, nullptr, nullptr, ncclInt32, rank.comm, rank.stream),
            "recvcounts is null");
    refused(tuttiAllGatherv(d, d + 32, own + 1, counts, nullptr, ncclInt32, rank.comm, rank.stream),
            "sendcount is");
    refused(tuttiAllGatherv(d, d + 32, own, counts, overlapping, ncclInt32, rank.comm, rank.stream),
            "recvdispls: the blocks of ranks 0 and 1 overlap");
    refused(tuttiAllGatherv(d, d + 1, own, counts, nullptr, ncclInt32, rank.comm, rank.stream), "overlap");
    refused(tuttiAllGatherv(nullptr, d, own, counts, nullptr, ncclInt32, rank.comm, rank.stream),
            "sendbuff is null");
    refused(tuttiAllGatherv(d, d + 32, own, counts, nullptr, static_cast<ncclDataType_t>(99), rank.comm,
                            rank.stream),
            "data type 99");
    refused(
        tuttiReduceScatterv(d, d + 32, counts, nullptr, own + 1, ncclInt32, ncclSum, rank.comm, rank.stream),
        "recvcount is");
    refused(tuttiReduceScatterv(d, d + 32, counts, nullptr, own, ncclInt32, static_cast<ncclRedOp_t>(77),
                                rank.comm, rank.stream),
            "operator 77");
    refused(tuttiAlltoAllv(d, huge, nullptr, d + 32, counts, nullptr, ncclInt32, rank.comm, rank.stream),
            "sendcounts[0]");
    refused(tuttiAlltoAllv(d, counts, nullptr, d, counts, nullptr, ncclInt32, rank.comm, rank.stream),
            "overlap");
    refused(tuttiAlltoAllv(d, counts, nullptr, nullptr, counts, nullptr, ncclInt32, rank.comm, rank.stream),
            "recvbuff is null");
    refused(tuttiGatherv(d, d + 32, own, counts, nullptr, ncclInt32, 2, rank.comm, rank.stream), "root 2");
    refused(tuttiScatterv(d, d + 32, counts, nullptr, own, ncclInt32, -1, rank.comm, rank.stream), "root -1");
    EXPECT_EQ(tuttiGatherv(d, d + 32, own, counts, nullptr, ncclInt32, 0, nullptr, rank.stream),
              ncclInvalidArgument);
    // After all that the communicator works.
    EXPECT_NCCL_OK(tuttiAllGatherv(d, d + 32, own, counts, nullptr, ncclInt32, rank.comm, rank.stream));
    rank.sync();
  });
}

TEST(VariableCounts, ThatDoNotMatchFailTheCommunicatorAndNameTheSizes) {
  runRanks(2, [](Rank& rank) {
    std::vector<int> data(64);
    // Rank 0 sends 6 elements where rank 1 expects 5.
    const size_t sent[2] = {1, rank.rank == 0 ? 6u : 1u};
    const size_t received[2] = {rank.rank == 0 ? 1u : 5u, 1};
    ASSERT_NCCL_OK(tuttiAlltoAllv(data.data(), sent, nullptr, data.data() + 32, received, nullptr, ncclInt32,
                                  rank.comm, rank.stream));
    rank.sync();
    ncclResult_t error = ncclSuccess;
    if (rank.rank == 1) {
      ASSERT_NCCL_OK(ncclCommGetAsyncError(rank.comm, &error));
      EXPECT_NE(error, ncclSuccess);
      EXPECT_THAT(ncclGetLastError(rank.comm), HasSubstr("rank 0 sent 24 bytes where 20 were expected"));
    }
  });
}

TEST(VariableCounts, ThatDifferBetweenRanksFailLargeCallsToo) {
  constexpr size_t kSmall = size_t{1} << 18;
  constexpr size_t kTotal = 4 * kSmall;
  runRanks(2, [](Rank& rank) {
    float* data = nullptr;  // that peers can map: calls of this size then take no copies
    ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&data), 2 * kTotal * sizeof(float)), cudaSuccess);
    // Equal totals.
    const size_t counts[2] = {rank.rank == 0 ? kSmall : 3 * kSmall, rank.rank == 0 ? 3 * kSmall : kSmall};
    ncclResult_t error = tuttiReduceScatterv(data, data + kTotal, counts, nullptr, counts[rank.rank],
                                             ncclFloat, ncclSum, rank.comm, rank.stream);
    rank.sync();
    if (error == ncclSuccess) {
      ASSERT_NCCL_OK(ncclCommGetAsyncError(rank.comm, &error));
    }
    EXPECT_NE(error, ncclSuccess);
    EXPECT_THAT(ncclGetLastError(rank.comm), HasSubstr("do not match"));
    EXPECT_EQ(cudaFree(data), cudaSuccess);
  });
}

}  // namespace
}  // namespace tutti::test
