#include "executor/host/simd/reduce.h"

#include <gtest/gtest.h>

#include <numeric>

#include <array>

#include <cstring>
#include <random>
#include <vector>

#include "reduce_oracle.h"

namespace tutti {
namespace {

constexpr Reduction kOps[] = {Reduction::sum, Reduction::prod, Reduction::max, Reduction::min};
constexpr size_t kGuard = 64;

bool isFloat(ncclDataType_t type) { return type >= ncclFloat16; }

/// Bits that are interesting for the type: random ones, and often zeros, infinities, NaNs, subnormals,
/// extremes.
uint64_t interestingBits(ncclDataType_t type, std::mt19937_64& random) {
  const uint64_t bits = random();
  if (random() % 4 != 0) {
    if (type == ncclFloat32 && random() % 2 == 0) {
      const float value =
          std::ldexp(static_cast<float>(bits % 2048) - 1024.0f, static_cast<int>(random() % 12) - 6);
      uint32_t code;
      std::memcpy(&code, &value, sizeof(code));
      return code;
    }
    return bits;
  }
  static const std::vector<uint64_t> kSpecial[ncclNumTypes] = {
      {0, 1, 0x7f, 0x80, 0xff},                               // int8
      {0, 1, 0x7f, 0x80, 0xff},                               // uint8
      {0, 1, 0x7fffffff, 0x80000000, 0xffffffff},             // int32
      {0, 1, 0x7fffffff, 0x80000000, 0xffffffff},             // uint32
      {0, 1, 0x7fffffffffffffff, 0x8000000000000000, ~0ull},  // int64
      {0, 1, 0x7fffffffffffffff, 0x8000000000000000, ~0ull},  // uint64
      {0, 0x8000, 1, 0x8001, 0x3ff, 0x400, 0x7bff, 0x7c00, 0xfc00, 0x7c01, 0x7e00, 0xffff, 0x3c00},
      {0, 0x80000000, 1, 0x007fffff, 0x00800000, 0x7f7fffff, 0x7f800000, 0xff800000, 0x7f800001, 0xffc12345},
      {0, 1ull << 63, 1, 0x000fffffffffffff, 0x7fefffffffffffff, 0x7ff0000000000000, 0xfff0000000000000,
       0x7ff0000000000001, 0xfff8000000012345},
      {0, 0x8000, 1, 0x7f, 0x80, 0x7f7f, 0x7f80, 0xff80, 0x7f81, 0x7fc0, 0xffff, 0x3f80},
      {0, 0x80, 1, 7, 8, 0x7e, 0x7f, 0xfe, 0xff, 0x38},              // e4m3
      {0, 0x80, 1, 3, 4, 0x7b, 0x7c, 0xfc, 0x7d, 0x7f, 0xff, 0x3c},  // e5m2
  };
  const auto& special = kSpecial[type];
  return special[random() % special.size()];
}

struct Case {
  ReductionSpec spec;
  size_t elements = 0;
  int sources = 1;
  int destinations = 1;
  Scaled scaled = Scaled::none;
  bool finalize = false;
  bool stream = false;
  bool inPlace = false;
  std::vector<size_t> shifts;  // of each buffer from a 64-byte boundary, in elements
};

Case randomCase(ncclDataType_t type, Reduction op, std::mt19937_64& random) {
  Case c;
  c.spec = {op, type};
  c.elements = random() % 3 == 0 ? random() % 20 : random() % 400;
  c.sources = 1 + static_cast<int>(random() % 5);
  c.destinations = 1 + static_cast<int>(random() % 3);
  c.scaled = static_cast<Scaled>(random() % 4);
  c.finalize = random() % 2 == 0;
  c.stream = random() % 3 == 0;
  c.inPlace = random() % 3 == 0;
  c.spec.hasScale = random() % 2 == 0;
  c.spec.scale = random() % 2 == 0 ? 1.0 / 3 : -2.5;
  c.spec.integerScale = random();
  if (!isFloat(type)) c.spec.divisor = 1 + random() % (random() % 2 == 0 ? 9 : 400);
  const bool sameShift = random() % 2 == 0;
  for (int b = 0; b < c.sources + c.destinations; ++b) {
    c.shifts.push_back(sameShift && b > 0 ? c.shifts[0] : random() % 64);
  }
  return c;
}

std::vector<bool> scaledSources(const Case& c) {
  std::vector<bool> scaled;
  for (int s = 0; s < c.sources; ++s) {
    scaled.push_back(c.scaled == Scaled::all || (c.scaled == Scaled::first && s == 0) ||
                     (c.scaled == Scaled::rest && s > 0));
  }
  return scaled;
}

/// A buffer at a chosen offset from a cache line, with guard bytes on both sides.
class Guarded {
 public:
  Guarded(size_t bytes, size_t shift)
      : storage_(bytes + shift + 2 * kGuard + 64, std::byte{0xa5}), bytes_(bytes) {
    const auto address = reinterpret_cast<uintptr_t>(storage_.data());
    data_ = storage_.data() + ((64 - address % 64) % 64) + kGuard + shift;
  }
  std::byte* data() { return data_; }
  bool guardsIntact() const {
    const auto bad = [](std::byte b) { return b != std::byte{0xa5}; };
    return std::none_of(storage_.data(), const_cast<const std::byte*>(data_), bad) &&
           std::none_of(const_cast<const std::byte*>(data_) + bytes_, storage_.data() + storage_.size(), bad);
  }

 private:
  std::vector<std::byte> storage_;
  size_t bytes_;
  std::byte* data_;
};

void runCase(const Case& c, std::mt19937_64& random) {
  const size_t width = elementBytes(c.spec.type);
  const size_t bytes = c.elements * width;
  std::vector<std::vector<std::byte>> values;
  for (int s = 0; s < c.sources; ++s) {
    std::vector<std::byte> source(bytes);
    for (size_t i = 0; i < c.elements; ++i) {
      const uint64_t code = interestingBits(c.spec.type, random);
      std::memcpy(source.data() + i * width, &code, width);
    }
    values.push_back(std::move(source));
  }
  std::vector<const std::byte*> plain;
  for (const auto& source : values) plain.push_back(source.data());
  const auto expected = oracle::reduce(c.spec, plain, c.elements, scaledSources(c), c.finalize);

  for (const SimdTarget target : availableTargets()) {
    std::vector<Guarded> buffers;
    for (int b = 0; b < c.sources + c.destinations; ++b) {
      buffers.emplace_back(bytes, c.shifts[static_cast<size_t>(b)] * width);
    }
    std::vector<const std::byte*> sources;
    std::vector<std::byte*> destinations;
    for (int s = 0; s < c.sources; ++s) {
      Guarded& buffer = buffers[static_cast<size_t>(s)];
      if (bytes != 0) std::memcpy(buffer.data(), values[static_cast<size_t>(s)].data(), bytes);
      sources.push_back(buffer.data());
    }
    for (int d = 0; d < c.destinations; ++d) {
      destinations.push_back(buffers[static_cast<size_t>(c.sources + d)].data());
    }
    if (c.inPlace) destinations[0] = buffers[static_cast<size_t>(c.sources) - 1].data();
    Reducer(c.spec, target)
        .run(sources.data(), c.sources, destinations.data(), c.destinations, bytes, c.scaled, c.finalize,
             c.stream);
    for (int d = 0; d < c.destinations; ++d) {
      for (size_t i = 0; i < bytes; ++i) {
        ASSERT_EQ(destinations[static_cast<size_t>(d)][i], expected[i])
            << name(target) << " type " << c.spec.type << " op " << static_cast<int>(c.spec.op) << " element "
            << i / width << " of " << c.elements << ", " << c.sources << " sources, destination " << d
            << ", scaled " << static_cast<int>(c.scaled) << " scale " << c.spec.hasScale << " finalize "
            << c.finalize << " divisor " << c.spec.divisor << " stream " << c.stream << " in place "
            << c.inPlace;
      }
    }
    for (const Guarded& buffer : buffers) ASSERT_TRUE(buffer.guardsIntact()) << name(target);
  }
}

class EveryType : public testing::TestWithParam<int> {};

TEST_P(EveryType, GivesTheOraclesBitsOnEveryTargetAlignmentAndLength) {
  const auto type = static_cast<ncclDataType_t>(GetParam());
  std::mt19937_64 random(1000u + static_cast<unsigned>(type));
  for (const Reduction op : kOps) {
    for (int i = 0; i < 200; ++i) {
      runCase(randomCase(type, op, random), random);
      if (HasFatalFailure()) return;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Types, EveryType, testing::Range(0, static_cast<int>(ncclNumTypes)));

/// Every value of a 16-bit format against a handful of others: all roundings, subnormals, overflows.
TEST(NarrowFloats, RoundLikeTheOracleForEveryCode) {
  for (const ncclDataType_t type : {ncclFloat16, ncclBfloat16}) {
    for (const uint16_t other : {0x0000, 0x8001, 0x03ff, 0x3c00, 0xbc01, 0x7bff}) {
      std::vector<uint16_t> a(65536);
      for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<uint16_t>(i);
      const std::vector<uint16_t> b(a.size(), other);
      const auto* pa = reinterpret_cast<const std::byte*>(a.data());
      const auto* pb = reinterpret_cast<const std::byte*>(b.data());
      for (const Reduction op : {Reduction::sum, Reduction::prod}) {
        const ReductionSpec spec{op, type};
        const auto expected = oracle::reduce(spec, {pa, pb}, a.size(), {false, false}, false);
        for (const SimdTarget target : availableTargets()) {
          std::vector<std::byte> result(expected.size());
          const std::byte* sources[] = {pa, pb};
          std::byte* destination = result.data();
          Reducer(spec, target).run(sources, 2, &destination, 1, result.size(), Scaled::none, false, false);
          ASSERT_EQ(std::memcmp(result.data(), expected.data(), result.size()), 0)
              << name(target) << " type " << type << " op " << static_cast<int>(op) << " other " << other;
        }
      }
    }
  }
}

TEST(NarrowFloats, RoundOnceOverAllSources) {
  // 2048 + 1 + 1: rounding after each addition would stay at 2048
  const uint16_t big = 0x6800;
  const uint16_t one = 0x3c00;
  for (const SimdTarget target : availableTargets()) {
    const std::byte* sources[] = {reinterpret_cast<const std::byte*>(&big),
                                  reinterpret_cast<const std::byte*>(&one),
                                  reinterpret_cast<const std::byte*>(&one)};
    uint16_t result = 0;
    auto* destination = reinterpret_cast<std::byte*>(&result);
    Reducer({Reduction::sum, ncclFloat16}, target)
        .run(sources, 3, &destination, 1, 2, Scaled::none, false, false);
    EXPECT_EQ(result, 0x6801) << name(target);
  }
}

TEST(MinAndMax, GiveTheSameForEitherOrderOfNanAndZeros) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float pairs[][2] = {{nan, 1.0f}, {-nan, INFINITY}, {0.0f, -0.0f}, {-0.0f, 0.0f}, {nan, -nan}};
  for (const SimdTarget target : availableTargets()) {
    for (const Reduction op : {Reduction::max, Reduction::min}) {
      for (const auto& pair : pairs) {
        uint32_t results[2] = {};
        for (int order = 0; order < 2; ++order) {
          const std::byte* sources[] = {reinterpret_cast<const std::byte*>(&pair[order]),
                                        reinterpret_cast<const std::byte*>(&pair[1 - order])};
          auto* destination = reinterpret_cast<std::byte*>(&results[order]);
          Reducer({op, ncclFloat32}, target).run(sources, 2, &destination, 1, 4, Scaled::none, false, false);
        }
        EXPECT_EQ(results[0], results[1]) << name(target);
        const bool hasNan = std::isnan(pair[0]) || std::isnan(pair[1]);
        EXPECT_EQ(results[0], hasNan ? 0x7fc00000u : (op == Reduction::max ? 0u : 0x80000000u))
            << name(target);
      }
    }
  }
}

TEST(IntegerAverage, TruncatesTowardZero) {
  const int32_t values[] = {-7, 7, -8, 8, -1, 1, 0, std::numeric_limits<int32_t>::min()};
  ReductionSpec spec{Reduction::sum, ncclInt32};
  spec.divisor = 4;
  for (const SimdTarget target : availableTargets()) {
    int32_t result[8];
    const auto* source = reinterpret_cast<const std::byte*>(values);
    auto* destination = reinterpret_cast<std::byte*>(result);
    Reducer(spec, target).run(&source, 1, &destination, 1, sizeof(values), Scaled::none, true, false);
    EXPECT_EQ((std::vector<int32_t>(result, result + 8)),
              (std::vector<int32_t>{-1, 1, -2, 2, 0, 0, 0, std::numeric_limits<int32_t>::min() / 4}))
        << name(target);
  }
}

TEST(IntegerAverage, OfMoreRanksThanTheTypeCanCount) {
  for (const uint64_t ranks : {uint64_t{128}, uint64_t{200}, uint64_t{256}, uint64_t{1000}}) {
    for (const SimdTarget target : availableTargets()) {
      for (const auto type : {ncclInt8, ncclUint8}) {
        ReductionSpec spec{Reduction::sum, type};
        spec.divisor = ranks;
        std::array<uint8_t, 256> values;
        std::iota(values.begin(), values.end(), uint8_t{0});
        std::array<uint8_t, 256> result;
        const auto* source = reinterpret_cast<const std::byte*>(values.data());
        auto* destination = reinterpret_cast<std::byte*>(result.data());
        Reducer(spec, target).run(&source, 1, &destination, 1, values.size(), Scaled::none, true, false);
        for (size_t i = 0; i < values.size(); ++i) {
          const int value = type == ncclInt8 ? static_cast<int8_t>(values[i]) : values[i];
          ASSERT_EQ(result[i], static_cast<uint8_t>(value / static_cast<int>(ranks)))
              << name(target) << " " << value;
        }
      }
    }
  }
}

TEST(Copies, KeepEveryBitIncludingSignallingNans) {
  std::vector<uint32_t> from(1003, 0x7f800001u);
  for (const SimdTarget target : availableTargets()) {
    for (const bool stream : {false, true}) {
      std::vector<uint32_t> one(from.size()), two(from.size());
      std::byte* destinations[] = {reinterpret_cast<std::byte*>(one.data()),
                                   reinterpret_cast<std::byte*>(two.data())};
      copyToMany(destinations, 2, reinterpret_cast<const std::byte*>(from.data()), from.size() * 4, stream,
                 target);
      EXPECT_EQ(one, from);
      EXPECT_EQ(two, from);
      std::fill(one.begin(), one.end(), 0u);
      copyBytes(destinations[0], reinterpret_cast<const std::byte*>(from.data()), from.size() * 4, stream,
                target);
      EXPECT_EQ(one, from);
    }
  }
}

TEST(SimdTargets, AreFoundByNameAndRefusedWithTheListOfWhatThereIs) {
  EXPECT_EQ(availableTargets().front(), SimdTarget::scalar);
  EXPECT_EQ(*parseTarget(name(bestTarget())), bestTarget());
  const auto wrong = parseTarget("avx9");
  ASSERT_FALSE(wrong.isOk());
  EXPECT_EQ(wrong.status().code(), ncclInvalidArgument);
  EXPECT_NE(wrong.status().message().find("scalar"), std::string::npos);
}

}  // namespace
}  // namespace tutti
