// All ranks get the same bits, in every run, whatever the inputs: rounding, overflow, infinities, NaN.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "team.h"

namespace tutti {
namespace {

using test::Team;

constexpr size_t kElements = 1003;

EndpointOptions endpointOptions() {
  EndpointOptions options;
  options.channels = 2;
  options.slotBytes = 2048;
  options.scratchBytes = 32 * 1024;
  return options;
}

/// One AllReduce of arbitrary bits on every rank, each on its own thread; by rank.
std::vector<std::vector<std::byte>> allReduce(Team& team, const std::string& algorithm,
                                              const ReductionSpec& spec,
                                              const std::vector<std::vector<std::byte>>& inputs) {
  const size_t width = elementBytes(spec.type);
  std::vector<std::vector<std::byte>> outputs(inputs.size());
  std::vector<std::byte*> peerInput;
  std::vector<std::byte*> peerOutput;
  for (size_t r = 0; r < inputs.size(); ++r) {
    outputs[r].resize(inputs[r].size());
    peerInput.push_back(const_cast<std::byte*>(inputs[r].data()));  // only read
    peerOutput.push_back(outputs[r].data());
  }
  std::vector<std::thread> threads;
  for (int r = 0; r < team.ranks(); ++r) {
    threads.emplace_back([&, r] {
      Launch launch;
      launch.schedule = team.schedule(algorithm, Collective::allReduce, 0, r);
      const EndpointOptions& options = team.endpoint(r).options();
      launch.shape = {Collective::allReduce, team.ranks(), 0, launch.schedule->parts, kElements, width, 0, 1};
      launch.shape.sliceBytes =
          std::min(launch.schedule->maxSliceBytes(options.slotBytes, options.scratchBytes), size_t{1} << 20);
      launch.reduction = spec;
      launch.input = inputs[static_cast<size_t>(r)].data();
      launch.output = outputs[static_cast<size_t>(r)].data();
      launch.peerInput = peerInput;
      launch.peerOutput = peerOutput;
      auto run = team.executor(r).start({&launch, 1});
      ASSERT_TRUE(run.isOk()) << run.status().message();
      const Status status = team.executor(r).finish(**run);
      ASSERT_TRUE(status.isOk()) << status.message();
    });
  }
  for (auto& thread : threads) thread.join();
  return outputs;
}

constexpr ncclDataType_t kFloats[] = {ncclFloat16,    ncclBfloat16, ncclFloat8e4m3,
                                      ncclFloat8e5m2, ncclFloat32,  ncclFloat64};

class Identical : public testing::TestWithParam<std::tuple<std::string, int>> {};
INSTANTIATE_TEST_SUITE_P(
    AllReduce, Identical,
    testing::Combine(testing::Values("ring", "tree", "doubling", "oneshot", "twoshot", "direct"),
                     testing::Values(2, 5, 8)),
    [](const auto& test) { return std::get<0>(test.param) + "_" + std::to_string(std::get<1>(test.param)); });

TEST_P(Identical, BitsOnAllRanksAndInEveryRun) {
  const auto& [algorithm, ranks] = GetParam();
  Team team(ranks, endpointOptions(), {});
  std::mt19937_64 random(static_cast<uint64_t>(ranks));
  for (const ncclDataType_t type : kFloats)
    for (const Reduction op : {Reduction::sum, Reduction::prod, Reduction::max, Reduction::min})
      for (const bool scaled : {false, true}) {
        ReductionSpec spec{op, type};
        if (scaled && op != Reduction::sum) continue;
        spec.hasScale = scaled;
        spec.scale = 1.0 / ranks;
        std::vector<std::vector<std::byte>> inputs(static_cast<size_t>(ranks));
        for (auto& input : inputs) {
          input.resize(kElements * elementBytes(type));
          for (std::byte& byte : input) byte = static_cast<std::byte>(random());
        }
        const auto first = allReduce(team, algorithm, spec, inputs);
        const auto second = allReduce(team, algorithm, spec, inputs);
        for (size_t r = 0; r < first.size(); ++r) {
          ASSERT_EQ(first[r], first[0]) << "type " << type << " op " << static_cast<int>(op) << " rank " << r;
          ASSERT_EQ(second[r], first[0])
              << "type " << type << " op " << static_cast<int>(op) << " rank " << r;
        }
      }
}

/// A NaN with this sign and payload bits.
uint64_t nanBits(ncclDataType_t type, uint64_t random) {
  switch (type) {
    case ncclFloat16:
      return 0x7c01 | (random & 0x83ff);
    case ncclBfloat16:
      return 0x7f81 | (random & 0x807f);
    case ncclFloat8e4m3:
      return 0x7f | (random & 0x80);
    case ncclFloat8e5m2:
      return 0x7d | (random & 0x82);
    case ncclFloat32:
      return 0x7f800001u | (random & 0x807fffffu);
    default:
      return 0x7ff0000000000001u | (random & 0x800fffffffffffffu);
  }
}

uint64_t canonicalNan(ncclDataType_t type) {
  switch (type) {
    case ncclFloat16:
      return 0x7e00;
    case ncclBfloat16:
      return 0x7fc0;
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 0x7f;
    case ncclFloat32:
      return 0x7fc00000u;
    default:
      return 0x7ff8000000000000u;
  }
}

// Element i is NaN on rank i mod p alone, of any sign and payload.
TEST_P(Identical, ANanOnAnyRankIsTheSameNanInEveryResult) {
  const auto& [algorithm, ranks] = GetParam();
  Team team(ranks, endpointOptions(), {});
  std::mt19937_64 random(99);
  for (const ncclDataType_t type : kFloats)
    for (const Reduction op : {Reduction::sum, Reduction::prod, Reduction::max, Reduction::min}) {
      const size_t width = elementBytes(type);
      std::vector<std::vector<std::byte>> inputs(static_cast<size_t>(ranks));
      for (size_t r = 0; r < inputs.size(); ++r) {
        inputs[r].resize(kElements * width);
        for (size_t i = r; i < kElements; i += inputs.size()) {
          const uint64_t bits = nanBits(type, random());
          std::memcpy(inputs[r].data() + i * width, &bits, width);
        }
      }
      const auto outputs = allReduce(team, algorithm, {op, type}, inputs);
      const uint64_t expected = canonicalNan(type);
      for (size_t r = 0; r < outputs.size(); ++r)
        for (size_t i = 0; i < kElements; ++i)
          ASSERT_EQ(std::memcmp(outputs[r].data() + i * width, &expected, width), 0)
              << "type " << type << " op " << static_cast<int>(op) << " rank " << r << " element " << i;
    }
}

}  // namespace
}  // namespace tutti
