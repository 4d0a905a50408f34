// AllGather and ReduceScatter whose blocks differ in size, through every algorithm that has them.
#include <gtest/gtest.h>

#include <numeric>

#include "team.h"

namespace tutti {
namespace {

using test::Team;

constexpr int32_t kUntouched = -77;

/// Contribution of a rank to element `index` of a block.
int32_t contribution(int rank, int32_t block, size_t index) {
  return 1000 * rank + 37 * block + static_cast<int32_t>(index % 911);
}

/// One call on all ranks: every block is `gap` elements after the one before.
class VariableCallData {
 public:
  VariableCallData(Team& team, Collective collective, std::vector<size_t> counts, size_t gap)
      : team_(team), collective_(collective), sizes_(std::make_shared<BlockSizes>()) {
    size_t offset = 0;
    for (const size_t count : counts) {
      sizes_->counts.push_back(count);
      sizes_->offsets.push_back(offset);
      offset += count + gap;
    }
    const bool gathers = collective == Collective::allGather;
    for (int r = 0; r < team.ranks(); ++r) {
      const auto rank = static_cast<size_t>(r);
      inputs_.emplace_back(gathers ? counts[rank] : offset, kUntouched);
      outputs_.emplace_back(gathers ? offset : counts[rank], kUntouched);
      for (size_t b = 0; b < counts.size(); ++b) {
        if (gathers && b != rank) continue;
        for (size_t i = 0; i < counts[b]; ++i)
          inputs_[rank][(gathers ? 0 : sizes_->offsets[b]) + i] = contribution(r, static_cast<int32_t>(b), i);
      }
    }
    for (auto& input : inputs_) peerInput_.push_back(reinterpret_cast<std::byte*>(input.data()));
    for (auto& output : outputs_) peerOutput_.push_back(reinterpret_cast<std::byte*>(output.data()));
  }

  Launch launch(const std::string& algorithm, int rank) {
    Launch made;
    made.schedule = team_.schedule(algorithm, collective_, 0, rank);
    const EndpointOptions& options = team_.endpoint(rank).options();
    made.shape = {.collective = collective_,
                  .ranks = team_.ranks(),
                  .parts = made.schedule->parts,
                  .elementBytes = sizeof(int32_t),
                  .blocks = sizes_};
    made.shape.sliceBytes =
        std::min(made.schedule->maxSliceBytes(options.slotBytes, options.scratchBytes), size_t{1} << 20);
    made.reduction.type = ncclInt32;
    made.input = peerInput_[static_cast<size_t>(rank)];
    made.output = peerOutput_[static_cast<size_t>(rank)];
    made.peerInput = peerInput_;
    made.peerOutput = peerOutput_;
    return made;
  }

  void expectRight(const std::string& algorithm) const {
    for (int r = 0; r < team_.ranks(); ++r) {
      const auto rank = static_cast<size_t>(r);
      std::vector<int32_t> wanted(outputs_[rank].size(), kUntouched);
      for (size_t b = 0; b < sizes_->counts.size(); ++b) {
        const bool gathers = collective_ == Collective::allGather;
        if (!gathers && b != rank) continue;
        for (size_t i = 0; i < sizes_->counts[b]; ++i) {
          int32_t value = contribution(static_cast<int>(b), static_cast<int32_t>(b), i);
          if (!gathers) {
            value = 0;
            for (int from = 0; from < team_.ranks(); ++from)
              value += contribution(from, static_cast<int32_t>(b), i);
          }
          wanted[(gathers ? sizes_->offsets[b] : 0) + i] = value;
        }
      }
      ASSERT_EQ(outputs_[rank], wanted) << algorithm << " " << name(collective_) << " rank " << r;
    }
  }

 private:
  Team& team_;
  Collective collective_;
  std::shared_ptr<BlockSizes> sizes_;
  std::vector<std::vector<int32_t>> inputs_;
  std::vector<std::vector<int32_t>> outputs_;
  std::vector<std::byte*> peerInput_;
  std::vector<std::byte*> peerOutput_;
};

class VariableBlocks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, VariableBlocks, testing::Values(2, 3, 4, 7, 8));

TEST_P(VariableBlocks, GoThroughEveryAlgorithm) {
  const int ranks = GetParam();
  EndpointOptions options;
  options.slotBytes = 1024;
  options.scratchBytes = 9 * 1024;
  ExecutorOptions executorOptions;
  executorOptions.wait.spin = std::chrono::microseconds(1);
  Team team(ranks, options, executorOptions);
  std::mt19937_64 random(static_cast<uint64_t>(ranks));
  int runs = 0;
  for (const Algorithm& algorithm : algorithms())
    for (const Collective collective : {Collective::allGather, Collective::reduceScatter}) {
      if (!algorithm.implements(collective, ranks)) continue;
      for (const size_t scale : {size_t{3}, size_t{900}}) {
        std::vector<size_t> counts;
        for (int r = 0; r < ranks; ++r) counts.push_back(random() % 3 == 0 ? 0 : random() % scale);
        // Peers' inputs are read by block: gaps are each rank's own, see docs/schedule.md.
        const size_t gap = algorithm.medium == Medium::userBuffers ? 0 : random() % 2 * 5;
        VariableCallData data(team, collective, counts, gap);
        const std::string name(algorithm.name);
        std::vector<std::thread> threads;
        for (int r = 0; r < ranks; ++r)
          threads.emplace_back([&, r] {
            const std::vector<Launch> launches = {data.launch(name, r)};
            auto run = team.executor(r).start(launches);
            ASSERT_TRUE(run.isOk()) << run.status().message();
            const Status status = team.executor(r).finish(**run);
            ASSERT_TRUE(status.isOk()) << status.message();
          });
        for (std::thread& thread : threads) thread.join();
        data.expectRight(name);
        if (HasFatalFailure()) return;
        ++runs;
      }
    }
  EXPECT_GE(runs, 20);
}

}  // namespace
}  // namespace tutti
