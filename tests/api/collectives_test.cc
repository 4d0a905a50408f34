// Every collective, type, operator, form and awkward size against an exact oracle.
#include <fmt/format.h>

#include <cstring>

#include "api/buffer.h"
#include "api/oracle.h"
#include "api/ranks.h"
#include "support/scale.h"

namespace tutti::test {
namespace {

enum class Form { outOfPlace, inPlace };
constexpr Form kForms[] = {Form::outOfPlace, Form::inPlace};
constexpr ncclRedOp_t kOps[] = {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg};

struct Case {
  ncclDataType_t type;
  ncclRedOp_t op;
  size_t count;
  Form form;
  bool device;
};

std::string describe(const Case& c, const Rank& rank) {
  return fmt::format("{} op {} count {} {} {} memory, rank {} of {}", nameOf(c.type), static_cast<int>(c.op),
                     c.count, c.form == Form::inPlace ? "in place" : "out of place",
                     c.device ? "device" : "plain", rank.rank, rank.ranks);
}

void expectElements(const std::byte* actual, const std::vector<std::byte>& expected, const Case& c,
                    const Rank& rank) {
  if (expected.empty() || std::memcmp(actual, expected.data(), expected.size()) == 0) return;
  size_t i = 0;
  while (actual[i] == expected[i]) ++i;
  const size_t element = i / sizeOf(c.type);
  ADD_FAILURE() << describe(c, rank) << ": element " << element << " is "
                << toDouble(c.type, actual + element * sizeOf(c.type)) << ", expected "
                << toDouble(c.type, expected.data() + element * sizeOf(c.type));
}

void checkAllReduce(const Rank& rank, const Case& c) {
  const size_t bytes = c.count * sizeOf(c.type);
  Buffer input(bytes, c.device);
  Buffer output(bytes, c.device);
  const auto mine =
      makeElements(c.type, c.count, [&](size_t i) { return inputValue(c.op, rank.rank, rank.ranks, i); });
  std::byte* in = c.form == Form::inPlace ? output.data() : input.data();
  if (bytes != 0) std::memcpy(in, mine.data(), bytes);
  ASSERT_NCCL_OK(ncclAllReduce(in, output.data(), c.count, c.type, c.op, rank.comm, rank.stream));
  rank.sync();
  expectElements(output.data(),
                 makeElements(c.type, c.count, [&](size_t i) { return reducedValue(c.op, rank.ranks, i); }),
                 c, rank);
  if (c.form == Form::outOfPlace) expectElements(in, mine, c, rank);
  EXPECT_EQ(output.data()[bytes], std::byte{0xee}) << describe(c, rank) << ": wrote behind the end";
}

void checkReduce(const Rank& rank, const Case& c, int root) {
  const size_t bytes = c.count * sizeOf(c.type);
  Buffer input(bytes, c.device);
  Buffer output(bytes, c.device);
  const auto mine =
      makeElements(c.type, c.count, [&](size_t i) { return inputValue(c.op, rank.rank, rank.ranks, i); });
  std::byte* in = c.form == Form::inPlace ? output.data() : input.data();
  if (bytes != 0) std::memcpy(in, mine.data(), bytes);
  ASSERT_NCCL_OK(ncclReduce(in, output.data(), c.count, c.type, c.op, root, rank.comm, rank.stream));
  rank.sync();
  if (rank.rank == root) {
    expectElements(output.data(),
                   makeElements(c.type, c.count, [&](size_t i) { return reducedValue(c.op, rank.ranks, i); }),
                   c, rank);
  } else {
    expectElements(in, mine, c, rank);  // also in place, only the root's buffer changes
  }
}

void checkBroadcast(const Rank& rank, const Case& c, int root) {
  const size_t bytes = c.count * sizeOf(c.type);
  Buffer input(bytes, c.device);
  Buffer output(bytes, c.device);
  const auto sent =
      makeElements(c.type, c.count, [&](size_t i) { return inputValue(ncclMax, root, rank.ranks, i); });
  std::byte* in = c.form == Form::inPlace ? output.data() : input.data();
  if (rank.rank == root && bytes != 0) std::memcpy(in, sent.data(), bytes);
  ASSERT_NCCL_OK(ncclBroadcast(in, output.data(), c.count, c.type, root, rank.comm, rank.stream));
  rank.sync();
  expectElements(output.data(), sent, c, rank);
  EXPECT_EQ(output.data()[bytes], std::byte{0xee}) << describe(c, rank) << ": wrote behind the end";
}

void checkAllGather(const Rank& rank, const Case& c) {
  const size_t bytes = c.count * sizeOf(c.type);
  const auto ranks = static_cast<size_t>(rank.ranks);
  Buffer input(bytes, c.device);
  Buffer output(bytes * ranks, c.device);
  const auto mine =
      makeElements(c.type, c.count, [&](size_t i) { return inputValue(ncclMax, rank.rank, rank.ranks, i); });
  std::byte* in =
      c.form == Form::inPlace ? output.data() + bytes * static_cast<size_t>(rank.rank) : input.data();
  if (bytes != 0) std::memcpy(in, mine.data(), bytes);
  ASSERT_NCCL_OK(ncclAllGather(in, output.data(), c.count, c.type, rank.comm, rank.stream));
  rank.sync();
  const auto expected = makeElements(c.type, c.count * ranks, [&](size_t i) {
    return inputValue(ncclMax, static_cast<int>(i / c.count), rank.ranks, i % c.count);
  });
  expectElements(output.data(), expected, c, rank);
  EXPECT_EQ(output.data()[bytes * ranks], std::byte{0xee}) << describe(c, rank) << ": wrote behind the end";
}

void checkReduceScatter(const Rank& rank, const Case& c) {
  const size_t bytes = c.count * sizeOf(c.type);
  const auto ranks = static_cast<size_t>(rank.ranks);
  Buffer input(bytes * ranks, c.device);
  Buffer output(bytes, c.device);
  const auto mine = makeElements(c.type, c.count * ranks,
                                 [&](size_t i) { return inputValue(c.op, rank.rank, rank.ranks, i); });
  if (bytes != 0) std::memcpy(input.data(), mine.data(), bytes * ranks);
  const size_t first = c.count * static_cast<size_t>(rank.rank);
  std::byte* out =
      c.form == Form::inPlace ? input.data() + bytes * static_cast<size_t>(rank.rank) : output.data();
  ASSERT_NCCL_OK(ncclReduceScatter(input.data(), out, c.count, c.type, c.op, rank.comm, rank.stream));
  rank.sync();
  expectElements(
      out, makeElements(c.type, c.count, [&](size_t i) { return reducedValue(c.op, rank.ranks, first + i); }),
      c, rank);
}

class Collectives : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, testing::Values(1, 2, 3, 4, 5, 7, 8));

TEST_P(Collectives, AllReduceIsExactForEveryTypeAndOperator) {
  runRanks(GetParam(), [](Rank& rank) {
    for (int type = 0; type < ncclNumTypes; ++type) {
      for (const ncclRedOp_t op : kOps) {
        for (const Form form : kForms) {
          for (const size_t count : {size_t{1}, size_t{7}, size_t{1031}}) {
            checkAllReduce(rank, {static_cast<ncclDataType_t>(type), op, count, form, count % 2 == 1});
          }
        }
      }
    }
  });
}

TEST_P(Collectives, ReduceScatterIsExactForEveryTypeAndOperator) {
  runRanks(GetParam(), [](Rank& rank) {
    for (int type = 0; type < ncclNumTypes; ++type) {
      for (const ncclRedOp_t op : kOps) {
        for (const Form form : kForms) {
          for (const size_t count : {size_t{1}, size_t{333}}) {
            checkReduceScatter(rank, {static_cast<ncclDataType_t>(type), op, count, form, type % 2 == 0});
          }
        }
      }
    }
  });
}

TEST_P(Collectives, ReduceIsExactForEveryRoot) {
  runRanks(GetParam(), [](Rank& rank) {
    for (int root = 0; root < rank.ranks; ++root) {
      for (const Form form : kForms) {
        for (const ncclDataType_t type : {ncclInt8, ncclBfloat16, ncclFloat64}) {
          for (const ncclRedOp_t op : kOps) checkReduce(rank, {type, op, 517, form, root % 2 == 0}, root);
        }
      }
    }
  });
}

TEST_P(Collectives, BroadcastReachesEveryRankFromEveryRoot) {
  runRanks(GetParam(), [](Rank& rank) {
    for (int root = 0; root < rank.ranks; ++root) {
      for (const Form form : kForms) {
        for (const size_t count : {size_t{1}, size_t{4099}}) {
          checkBroadcast(rank, {ncclUint8, ncclMax, count, form, true}, root);
          checkBroadcast(rank, {ncclFloat64, ncclMax, count, form, false}, root);
        }
      }
    }
  });
}

TEST_P(Collectives, AllGatherKeepsTheOrderOfRanks) {
  runRanks(GetParam(), [](Rank& rank) {
    for (int type = 0; type < ncclNumTypes; ++type) {
      for (const Form form : kForms) {
        for (const size_t count : {size_t{1}, size_t{997}}) {
          checkAllGather(rank, {static_cast<ncclDataType_t>(type), ncclMax, count, form, type % 2 == 0});
        }
      }
    }
  });
}

TEST_P(Collectives, LargeBuffersAreExactInDeviceAndPlainMemory) {
  runRanks(GetParam(), [](Rank& rank) {
    for (const bool device : {true, false}) {
      for (const Form form : kForms) {
        // Around slices and slots, and not a multiple of anything.
        for (const size_t count : {size_t{32767}, test::scaled<size_t>(300007, 70001)}) {
          checkAllReduce(rank, {ncclFloat32, ncclSum, count, form, device});
          checkReduceScatter(rank, {ncclFloat16, ncclSum, count, form, device});
          checkAllGather(rank, {ncclInt32, ncclMax, count, form, device});
          checkBroadcast(rank, {ncclInt64, ncclMax, count, form, device}, rank.ranks - 1);
          checkReduce(rank, {ncclInt32, ncclAvg, count, form, device}, rank.ranks / 2);
        }
      }
    }
  });
}

TEST_P(Collectives, BuffersOfDifferentKindsOnDifferentRanksStillWork) {
  runRanks(GetParam(), [](Rank& rank) {
    for (int i = 0; i < 4; ++i) {
      checkAllReduce(rank, {ncclFloat32, ncclSum, 100003, kForms[i % 2], (rank.rank + i) % 2 == 0});
    }
  });
}

TEST_P(Collectives, ManyCallsInFlightKeepTheirOrder) {
  runRanks(GetParam(), [](Rank& rank) {
    constexpr int kCalls = 200;
    constexpr size_t kCount = 257;
    std::vector<int32_t> data(kCount, 1);
    for (int i = 0; i < kCalls; ++i) {
      // max keeps values small; alternate collectives so that schedules follow one another without a barrier
      ASSERT_NCCL_OK(
          ncclAllReduce(data.data(), data.data(), kCount, ncclInt32, ncclMax, rank.comm, rank.stream));
      ASSERT_NCCL_OK(
          ncclBroadcast(data.data(), data.data(), kCount, ncclInt32, i % rank.ranks, rank.comm, rank.stream));
      ASSERT_NCCL_OK(ncclAllReduce(data.data(), data.data(), kCount, ncclInt32,
                                   i % 50 == 0 ? ncclSum : ncclMax, rank.comm, rank.stream));
    }
    rank.sync();
    int32_t expected = 1;
    for (int i = 0; i < kCalls; i += 50) expected *= rank.ranks;
    for (const int32_t value : data) ASSERT_EQ(value, expected);
  });
}

TEST(PreMulSum, ScalesEveryContributionByItsOwnRanksScalar) {
  runRanks(4, [](Rank& rank) {
    float scalar = static_cast<float>(rank.rank + 1);
    for (const auto residence : {ncclScalarHostImmediate, ncclScalarDevice}) {
      ncclRedOp_t op;
      ASSERT_NCCL_OK(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, residence, rank.comm));
      for (const size_t count : {size_t{5}, size_t{200001}}) {
        std::vector<float> data(count, 2.0f);
        ASSERT_NCCL_OK(
            ncclAllReduce(data.data(), data.data(), count, ncclFloat32, op, rank.comm, rank.stream));
        rank.sync();
        for (const float value : data) ASSERT_EQ(value, 20.0f);  // 2 * (1 + 2 + 3 + 4)
      }
      EXPECT_EQ(ncclAllReduce(&scalar, &scalar, 1, ncclFloat64, op, rank.comm, rank.stream),
                ncclInvalidArgument);
      ASSERT_NCCL_OK(ncclRedOpDestroy(op, rank.comm));
      EXPECT_EQ(ncclRedOpDestroy(op, rank.comm), ncclInvalidArgument);
    }
  });
}

TEST(OneThreadManyRanks, AGroupRunsAllRanksOfTheThread) {
  OneThread all(8);
  for (const size_t count : {size_t{2}, size_t{1000}, size_t{1} << 20}) {
    std::vector<std::vector<float>> data(8, std::vector<float>(count, 1.5f));
    ASSERT_NCCL_OK(ncclGroupStart());
    for (size_t r = 0; r < 8; ++r) {
      ASSERT_NCCL_OK(ncclAllReduce(data[r].data(), data[r].data(), count, ncclFloat32, ncclSum, all.comms[r],
                                   all.streams[r]));
    }
    ASSERT_NCCL_OK(ncclGroupEnd());
    all.sync();
    for (const auto& rank : data) {
      for (const float value : rank) ASSERT_EQ(value, 12.0f);
    }
  }
}

}  // namespace
}  // namespace tutti::test
