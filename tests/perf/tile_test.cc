#include "common/tile.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace tutti::perf {
namespace {

std::vector<std::byte> written(const Tile& tile, uint64_t first, size_t count) {
  std::vector<std::byte> data(count * static_cast<size_t>(tile.elementBytes()));
  tile.write(data.data(), first, count);
  return data;
}

TEST(Tile, CountsExactlyTheElementsThatDiffer) {
  TileCache cache;
  const Pattern pattern(*findDataType("float"), Operator::sum, 4);
  const size_t count = 3 * Tile::kPeriod + 17;
  const auto tile = cache.get(pattern, kResult, count);
  std::vector<std::byte> data = written(*tile, 5, count);
  EXPECT_EQ(tile->countWrong(data.data(), 5, count), 0u);

  data[4 * 100] ^= std::byte{1};                         // one bit
  data[4 * (Tile::kPeriod + 1) + 3] ^= std::byte{0x80};  // a sign, in the second period
  data[4 * (count - 1)] ^= std::byte{2};                 // the last element
  data[4 * (count - 1) + 1] ^= std::byte{2};             // the same element again
  EXPECT_EQ(tile->countWrong(data.data(), 5, count), 3u);
}

TEST(Tile, NoticesDataShiftedByOneElementOrByAPowerOfTwo) {
  TileCache cache;
  const Pattern pattern(*findDataType("half"), Operator::none, 2);
  const size_t count = 1u << 18;
  const auto tile = cache.get(pattern, 1, count);
  for (const uint64_t shift : {1u, 1u << 16, 1u << 17}) {
    const std::vector<std::byte> data = written(*tile, shift, count);
    EXPECT_GT(tile->countWrong(data.data(), 0, count), count / 2) << shift;
  }
}

TEST(Tile, RanksAndResultDiffer) {
  TileCache cache;
  const Pattern pattern(*findDataType("int32"), Operator::sum, 3);
  const auto result = written(*cache.get(pattern, kResult, 100), 0, 100);
  const auto first = written(*cache.get(pattern, 0, 100), 0, 100);
  const auto second = written(*cache.get(pattern, 1, 100), 0, 100);
  EXPECT_NE(result, first);
  EXPECT_NE(first, second);
}

TEST(TileCache, GrownAndRebuiltTilesHoldTheSameSequence) {
  TileCache cache;
  const Pattern sum(*findDataType("bfloat16"), Operator::sum, 5);
  const Pattern moved(*findDataType("bfloat16"), Operator::none, 5);
  const auto small = written(*cache.get(sum, 2, 10), 0, 10);
  const auto grown = written(*cache.get(sum, 2, 5000), 0, 10);
  EXPECT_EQ(small, grown);
  EXPECT_GE(cache.get(moved, 0, 7)->elements(), 7u);
  const auto again = written(*cache.get(sum, 2, 64), 0, 10);
  EXPECT_EQ(small, again);
}

TEST(TileCache, TilesOutliveTheCachesNextPattern) {
  TileCache cache;
  const Pattern one(*findDataType("int8"), Operator::sum, 2);
  const Pattern other(*findDataType("int8"), Operator::prod, 2);
  const auto tile = cache.get(one, 0, 50);
  const auto before = written(*tile, 0, 50);
  cache.get(other, 0, 50);
  EXPECT_EQ(written(*tile, 0, 50), before);
}

}  // namespace
}  // namespace tutti::perf
