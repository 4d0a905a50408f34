// Shuffles, votes and the like, against what the programming guide says of every lane.
#include <bit>

#include "hostrt/kernels/support.cuh"

namespace {

struct Shuffled {
  int broadcast, up, down, exclusive;
};

__global__ void shuffle(Shuffled* results, int argument, int width) {
  const int lane = static_cast<int>(threadIdx.x);
  Shuffled& r = results[lane];
  r.broadcast = __shfl_sync(~0u, lane * 10, argument, width);
  r.up = __shfl_up_sync(~0u, lane * 10, static_cast<unsigned>(argument), width);
  r.down = __shfl_down_sync(~0u, lane * 10, static_cast<unsigned>(argument), width);
  r.exclusive = __shfl_xor_sync(~0u, lane * 10, argument, width);
}

Shuffled expectedOf(int lane, int argument, int width) {
  const int first = lane / width * width;
  const auto from = [&](int source, bool isThere) { return (isThere ? source : lane) * 10; };
  return {from(first + argument % width, true), from(lane - argument, lane - argument >= first),
          from(lane + argument, lane + argument < first + width),
          from(lane ^ argument, (lane ^ argument) < first + width)};
}

struct Voted {
  unsigned ballot, active, matchAny, matchAll, sum, smallest, bits;
  int any, all, isMatch, largest;
  double wide;
};

__global__ void voteInWarps(Voted* results) {
  const unsigned i = threadIdx.x;
  const unsigned lane = i % 32;
  Voted& r = results[i];
  r.ballot = __ballot_sync(~0u, lane % 3 == 0);
  r.active = __activemask();
  r.any = __any_sync(~0u, lane == 5) * 2 + __any_sync(~0u, 0);
  r.all = __all_sync(~0u, lane < 32) * 2 + __all_sync(~0u, lane != 5);
  r.matchAny = __match_any_sync(~0u, lane / 8);
  r.matchAll = __match_all_sync(~0u, i / 32, &r.isMatch);
  r.sum = __reduce_add_sync(~0u, lane);
  r.smallest = __reduce_min_sync(~0u, lane + 7);
  r.largest = __reduce_max_sync(~0u, -static_cast<int>(lane));
  r.bits = __reduce_xor_sync(~0u, 1u << lane);
  r.wide = __shfl_xor_sync(~0u, lane * 1.5, 1);
}

/// Halves of a warp go different ways, with masks of their own and different numbers of operations.
__global__ void diverge(unsigned* results) {
  const unsigned lane = threadIdx.x;
  unsigned value = lane;
  if (lane < 16) {
    for (int round = 0; round < 5; ++round) value = __shfl_xor_sync(0x0000ffffu, value, 1);
  } else {
    for (int round = 0; round < 2; ++round) value += __shfl_sync(0xffff0000u, value, 16);
  }
  __syncwarp();
  results[lane] = __shfl_sync(~0u, value, static_cast<int>(31 - lane));
}

}  // namespace

TEST(Warps, ShuffleAsTheGuideSays) {
  const Buffer<Shuffled> results(32);
  for (const int width : {32, 16, 8, 2})
    for (const int argument : {0, 1, 3, 17, 31}) {
      shuffle<<<1, 32>>>(results.get(), argument, width);
      expectFinishes();
      const auto values = results.values();
      for (int lane = 0; lane < 32; ++lane) {
        const Shuffled expected = expectedOf(lane, argument, width);
        const Shuffled& r = values[static_cast<size_t>(lane)];
        EXPECT_EQ(r.broadcast, expected.broadcast) << lane << " " << argument << " " << width;
        EXPECT_EQ(r.up, expected.up) << lane << " " << argument << " " << width;
        EXPECT_EQ(r.down, expected.down) << lane << " " << argument << " " << width;
        EXPECT_EQ(r.exclusive, expected.exclusive) << lane << " " << argument << " " << width;
      }
    }
}

TEST(Warps, VoteMatchAndReduce) {
  constexpr unsigned kThreads = 64 + 20;  // the last warp is not full
  const Buffer<Voted> results(kThreads);
  voteInWarps<<<1, kThreads>>>(results.get());
  expectFinishes();
  const auto values = results.values();
  for (unsigned i = 0; i < kThreads; ++i) {
    const unsigned lane = i % 32;
    const unsigned lanes = i < 64 ? 32 : 20;
    const unsigned all = lanes == 32 ? ~0u : (1u << lanes) - 1;
    unsigned thirds = 0;
    for (unsigned l = 0; l < lanes; l += 3) thirds |= 1u << l;
    const Voted& r = values[i];
    EXPECT_EQ(r.ballot, thirds);
    EXPECT_EQ(r.active, all);
    EXPECT_EQ(r.any, 2);
    EXPECT_EQ(r.all, 2);
    EXPECT_EQ(r.matchAny, (0xffu << (lane / 8 * 8)) & all);
    EXPECT_EQ(r.matchAll, all);
    EXPECT_EQ(r.isMatch, 1);
    EXPECT_EQ(r.sum, lanes * (lanes - 1) / 2);
    EXPECT_EQ(r.smallest, 7u);
    EXPECT_EQ(r.largest, 0);
    EXPECT_EQ(r.bits, all);
    EXPECT_EQ(r.wide, (lane ^ 1) * 1.5);
  }
}

TEST(Warps, DivergeAndMeetAgain) {
  const Buffer<unsigned> results(32);
  diverge<<<1, 32>>>(results.get());
  expectFinishes();
  const auto values = results.values();
  for (unsigned lane = 0; lane < 32; ++lane) {
    const unsigned source = 31 - lane;
    EXPECT_EQ(values[lane], source < 16 ? source ^ 1 : source + 16 + 32) << lane;
  }
}
