// What holds for the numbers of a reduction: types, operators, scalars, NaN, rounding.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <random>

#include "api/buffer.h"
#include "api/oracle.h"
#include "api/ranks.h"
#include "support/scale.h"
#include "tutti/tutti.h"

namespace tutti::test {
namespace {

constexpr ncclDataType_t kFloats[] = {ncclFloat16,    ncclBfloat16, ncclFloat8e4m3,
                                      ncclFloat8e5m2, ncclFloat32,  ncclFloat64};

int scalarOf(int rank) { return rank % 2 == 0 ? 2 : 1; }

/// Zeros and ones, so that the scaled sum of up to 5 ranks is exact in every type.
double contribution(int rank, size_t i) {
  return static_cast<double>((i / 3 + static_cast<size_t>(rank)) % 2);
}

double scaledSum(int ranks, size_t i) {
  double sum = 0;
  for (int r = 0; r < ranks; ++r) sum += scalarOf(r) * contribution(r, i);
  return sum;
}

void expectSame(const std::byte* actual, const std::vector<std::byte>& expected, const std::string& what) {
  EXPECT_EQ(std::memcmp(actual, expected.data(), expected.size()), 0) << what;
}

/// All collectives that reduce, with an operator made from this rank's own scalar.
void checkPreMulSum(const Rank& rank, ncclDataType_t type, ncclRedOp_t op, bool device) {
  constexpr size_t kCount = 331;
  const size_t width = sizeOf(type);
  const auto ranks = static_cast<size_t>(rank.ranks);
  const size_t own = static_cast<size_t>(rank.rank) * kCount;
  Buffer input(ranks * kCount * width, device);
  Buffer output(ranks * kCount * width, device);
  const auto mine = makeElements(type, ranks * kCount, [&](size_t i) { return contribution(rank.rank, i); });
  std::memcpy(input.data(), mine.data(), mine.size());
  const auto expected =
      makeElements(type, ranks * kCount, [&](size_t i) { return scaledSum(rank.ranks, i); });
  const std::vector<std::byte> block(expected.begin() + static_cast<long>(own * width),
                                     expected.begin() + static_cast<long>((own + kCount) * width));
  const std::string what = fmt::format("{} rank {} of {}", nameOf(type), rank.rank, rank.ranks);
  ASSERT_NCCL_OK(
      ncclAllReduce(input.data(), output.data(), ranks * kCount, type, op, rank.comm, rank.stream));
  rank.sync();
  expectSame(output.data(), expected, what + " AllReduce");
  const int root = rank.ranks - 1;
  ASSERT_NCCL_OK(
      ncclReduce(input.data(), output.data(), ranks * kCount, type, op, root, rank.comm, rank.stream));
  rank.sync();
  if (rank.rank == root) expectSame(output.data(), expected, what + " Reduce");
  ASSERT_NCCL_OK(ncclReduceScatter(input.data(), output.data(), kCount, type, op, rank.comm, rank.stream));
  rank.sync();
  expectSame(output.data(), block, what + " ReduceScatter");
  const std::vector<size_t> counts(ranks, kCount);
  ASSERT_NCCL_OK(tuttiReduceScatterv(input.data(), output.data(), counts.data(), nullptr, kCount, type, op,
                                     rank.comm, rank.stream));
  rank.sync();
  expectSame(output.data(), block, what + " ReduceScatterv");
}

TEST(PreMulSum, IsExactForEveryTypeResidenceAndCollective) {
  for (const int ranks : {1, 2, 5}) {
    runRanks(ranks, [](Rank& rank) {
      for (int t = 0; t < ncclNumTypes; ++t) {
        const auto type = static_cast<ncclDataType_t>(t);
        for (const auto residence : {ncclScalarHostImmediate, ncclScalarDevice}) {
          std::byte scalar[8] = {};
          fromDouble(type, scalarOf(rank.rank), scalar);
          ncclRedOp_t op;
          ASSERT_NCCL_OK(ncclRedOpCreatePreMulSum(&op, scalar, type, residence, rank.comm));
          // An immediate scalar is read now; a resident one later.
          if (residence == ncclScalarHostImmediate) std::memset(scalar, 0, sizeof scalar);
          checkPreMulSum(rank, type, op, t % 2 == 0);
          ASSERT_NCCL_OK(ncclRedOpDestroy(op, rank.comm));
        }
      }
    });
  }
}

TEST(PreMulSum, ReadsAResidentScalarInTheOrderOfTheStream) {
  runRanks(2, [](Rank& rank) {
    float* scalar = nullptr;
    ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&scalar), sizeof(float)), cudaSuccess);
    ncclRedOp_t op;
    ASSERT_NCCL_OK(ncclRedOpCreatePreMulSum(&op, scalar, ncclFloat32, ncclScalarDevice, rank.comm));
    std::vector<float> in(5, 1.0f);
    std::vector<std::vector<float>> out(8, std::vector<float>(5));
    const std::vector<float> scalars = {1, 2, 3, 4, 5, 6, 7, 8};
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(cudaMemcpyAsync(scalar, &scalars[i], sizeof(float), cudaMemcpyHostToDevice, rank.stream),
                cudaSuccess);
      ASSERT_NCCL_OK(ncclAllReduce(in.data(), out[i].data(), 5, ncclFloat32, op, rank.comm, rank.stream));
    }
    // Calls keep what they need of an operator.
    ASSERT_NCCL_OK(ncclRedOpDestroy(op, rank.comm));
    rank.sync();
    for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], std::vector<float>(5, 2 * scalars[i]));
    EXPECT_EQ(cudaFree(scalar), cudaSuccess);
  });
}

TEST(PreMulSum, WrongUseIsRefused) {
  runRanks(2, [](Rank& rank) {
    float scalar = 2;
    ncclRedOp_t op;
    EXPECT_EQ(ncclRedOpCreatePreMulSum(nullptr, &scalar, ncclFloat32, ncclScalarHostImmediate, rank.comm),
              ncclInvalidArgument);
    EXPECT_EQ(ncclRedOpCreatePreMulSum(&op, nullptr, ncclFloat32, ncclScalarHostImmediate, rank.comm),
              ncclInvalidArgument);
    EXPECT_EQ(ncclRedOpCreatePreMulSum(&op, &scalar, ncclNumTypes, ncclScalarHostImmediate, rank.comm),
              ncclInvalidArgument);
    EXPECT_EQ(
        ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, static_cast<ncclScalarResidence_t>(7), rank.comm),
        ncclInvalidArgument);
    EXPECT_EQ(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarHostImmediate, nullptr),
              ncclInvalidArgument);
    EXPECT_EQ(ncclRedOpDestroy(ncclSum, rank.comm), ncclInvalidArgument);
    EXPECT_EQ(ncclRedOpDestroy(static_cast<ncclRedOp_t>(ncclNumOps + 3), rank.comm), ncclInvalidArgument);
    std::vector<float> data(4, 1);
    EXPECT_EQ(ncclAllReduce(data.data(), data.data(), 4, ncclFloat32,
                            static_cast<ncclRedOp_t>(ncclNumOps + 3), rank.comm, rank.stream),
              ncclInvalidArgument);
    EXPECT_EQ(ncclAllReduce(data.data(), data.data(), 4, ncclFloat32, static_cast<ncclRedOp_t>(-1), rank.comm,
                            rank.stream),
              ncclInvalidArgument);
  });
}

/// A NaN of the type with that sign; `payload` changes the bits that do not matter.
std::vector<std::byte> nanOf(ncclDataType_t type, bool negative, bool payload) {
  std::vector<std::byte> bytes(sizeOf(type));
  fromDouble(type, std::nan(""), bytes.data());
  if (payload && type != ncclFloat8e4m3) bytes[0] |= std::byte{1};
  bytes.back() &= std::byte{0x7f};
  if (negative) bytes.back() |= std::byte{0x80};
  return bytes;
}

// Small buffers, large ones, and large ones that peers map: three algorithms. Element i is NaN on rank i mod
// n only.
TEST(NaN, InOneContributionIsTheSameNanInEveryResult) {
  for (const int ranks : {2, 3, 5}) {
    runRanks(ranks, [](Rank& rank) {
      for (const ncclDataType_t type : kFloats) {
        const size_t width = sizeOf(type);
        for (const size_t count : {size_t{33}, scaled<size_t>(60001, 20011)}) {
          Buffer input(count * width, count > 100 && type % 2 == 0);
          Buffer output(count * width, count > 100 && type % 2 == 0);
          const auto mine = makeElements(type, count, [&](size_t i) { return contribution(rank.rank, i); });
          std::memcpy(input.data(), mine.data(), mine.size());
          for (size_t i = static_cast<size_t>(rank.rank); i < count; i += static_cast<size_t>(rank.ranks)) {
            const auto nan = nanOf(type, i % 2 == 1, i % 4 > 1);
            std::memcpy(input.data() + i * width, nan.data(), width);
          }
          for (const ncclRedOp_t op : {ncclMin, ncclMax, ncclSum, ncclProd, ncclAvg}) {
            ASSERT_NCCL_OK(
                ncclAllReduce(input.data(), output.data(), count, type, op, rank.comm, rank.stream));
            rank.sync();
            auto nan = nanOf(type, false, false);
            if (sizeOf(type) == 1)
              nan[0] = std::byte{0x7f};  // of both 8-bit formats, as CUDA's conversions make it
            size_t wrong = 0;
            for (size_t i = 0; i < count; ++i)
              wrong += std::memcmp(output.data() + i * width, nan.data(), width) != 0;
            EXPECT_EQ(wrong, 0u) << nameOf(type) << " op " << op << " count " << count;
          }
        }
      }
    });
  }
}

TEST(Rounding, GivesTheSameBitsOnAllRanksAndInEveryRun) {
  for (const int ranks : {2, 3, 8}) {
    runRanks(ranks, [](Rank& rank) {
      std::mt19937_64 random(static_cast<uint64_t>(rank.rank));
      for (const ncclDataType_t type : kFloats) {
        const size_t width = sizeOf(type);
        for (const size_t count : {size_t{1}, size_t{257}, scaled<size_t>(50021, 20011)}) {
          for (const bool device : {true, false}) {
            Buffer input(count * width, device);
            Buffer first(count * width, device);
            Buffer second(count * width, device);
            for (size_t i = 0; i < count * width; ++i) input.data()[i] = static_cast<std::byte>(random());
            for (const ncclRedOp_t op : {ncclSum, ncclProd, ncclAvg}) {
              ASSERT_NCCL_OK(
                  ncclAllReduce(input.data(), first.data(), count, type, op, rank.comm, rank.stream));
              ASSERT_NCCL_OK(
                  ncclAllReduce(input.data(), second.data(), count, type, op, rank.comm, rank.stream));
              // What rank 0 has must be what all have.
              Buffer ofRoot(count * width, false);
              ASSERT_NCCL_OK(ncclBroadcast(first.data(), ofRoot.data(), count * width, ncclUint8, 0,
                                           rank.comm, rank.stream));
              rank.sync();
              EXPECT_EQ(std::memcmp(first.data(), second.data(), count * width), 0)
                  << nameOf(type) << " op " << op << " count " << count;
              EXPECT_EQ(std::memcmp(first.data(), ofRoot.data(), count * width), 0)
                  << nameOf(type) << " op " << op << " count " << count;
            }
          }
        }
      }
    });
  }
}

// Inside a host, contributions meet in one step: 2048 + 7 x 1 is 2055 in float, rounded once to 2056. Added
// one by one in half, each 1 would be lost.
TEST(Rounding, OfSmallFloatsHappensOnceWhereAllContributionsMeet) {
  runRanks(8, [](Rank& rank) {
    for (const size_t count : {size_t{3}, size_t{100003}}) {
      Buffer input(count * 2, true);
      Buffer output(count * 2, true);
      const auto mine =
          makeElements(ncclFloat16, count, [&](size_t) { return rank.rank == 0 ? 2048.0 : 1.0; });
      std::memcpy(input.data(), mine.data(), mine.size());
      ASSERT_NCCL_OK(
          ncclAllReduce(input.data(), output.data(), count, ncclFloat16, ncclSum, rank.comm, rank.stream));
      rank.sync();
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(toDouble(ncclFloat16, output.data() + i * 2), 2056.0);
    }
  });
}

TEST(IntegerAverage, SumsThenDividesTowardZero) {
  runRanks(3, [](Rank& rank) {
    const int values[3][4] = {{1, -1, 100, -100}, {1, -1, 100, -100}, {0, 0, 101, -101}};
    for (int t = 0; t < ncclNumTypes; ++t) {
      const auto type = static_cast<ncclDataType_t>(t);
      if (isFloat(type)) continue;
      const auto in =
          makeElements(type, 4, [&](size_t i) { return values[rank.rank][isSigned(type) ? i : i & 2]; });
      std::vector<std::byte> out(in.size());
      ASSERT_NCCL_OK(ncclAllReduce(in.data(), out.data(), 4, type, ncclAvg, rank.comm, rank.stream));
      rank.sync();
      // Sums wrap modulo 2^n before they are divided: 301 is 45 in 8 bits.
      const bool narrow = sizeOf(type) == 1;
      const double large = narrow ? 15 : 100;
      const double expected[4] = {0, isSigned(type) ? 0.0 : 0.0, large, isSigned(type) ? -large : large};
      for (size_t i = 0; i < 4; ++i)
        EXPECT_EQ(toDouble(type, out.data() + i * sizeOf(type)), expected[i]) << nameOf(type) << " " << i;
    }
  });
}

}  // namespace
}  // namespace tutti::test
