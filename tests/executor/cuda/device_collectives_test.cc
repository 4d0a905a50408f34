// Every shipped schedule, run by kernels on virtual GPUs and compared with exact results.
#include <gtest/gtest.h>

#include "device_team.h"

namespace tutti {
namespace {

using test::Call;
using test::CallBuffers;
using test::DeviceTeam;
using test::everything;
using test::kProtocols;

ReductionSpec randomReduction(std::mt19937_64& random) {
  ReductionSpec spec;
  spec.type = static_cast<ncclDataType_t>(random() % ncclNumTypes);
  spec.op = static_cast<Reduction>(random() % 4);
  if (random() % 4 == 0) {
    spec.hasScale = true;
    spec.scale = spec.op == Reduction::prod ? 1.0 : 0.5;
    spec.integerScale = 3;
  }
  if (spec.type < ncclFloat16 && spec.op == Reduction::sum && random() % 4 == 0)
    spec.divisor = 1 + random() % 9;
  return spec;
}

void expectAllRight(DeviceTeam& team, const std::vector<CallBuffers>& calls) {
  team.synchronize();
  for (const CallBuffers& buffers : calls) {
    buffers.expectRight();
    if (testing::Test::HasFatalFailure()) return;
  }
  for (int r = 0; r < team.ranks(); ++r) EXPECT_TRUE(team.executor(r).reportedError().isOk());
}

class DeviceRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(OneToEight, DeviceRanks, testing::Range(1, 9));

TEST_P(DeviceRanks, AllSchedulesGiveExactResultsInAllProtocolsForAllKindsOfSizes) {
  const int ranks = GetParam();
  DeviceTeam team({.ranks = ranks});
  std::mt19937_64 random(static_cast<uint64_t>(ranks));
  // Around the borders of lines, slots, slices; elements of a block, the type is drawn below. Many ranks keep
  // few cores busy for long: each of their schedules then has some of the sizes.
  const std::vector<size_t> counts = {0, ranks <= 4 ? 1500u : 500u, 1, 77};
  const size_t sizes = test::kThreadSanitizer ? 1 : ranks <= 2 ? 4 : ranks <= 4 ? 2 : 1;
  std::vector<CallBuffers> calls;
  size_t drawn = 0;
  int formNumber = 0;
  for (const Call& form : everything(ranks)) {
    if (test::kThreadSanitizer && ranks > 2 && formNumber++ % 4 != ranks % 4) continue;
    for (const Protocol protocol : kProtocols) {
      bool otherProtocol = false;
      for (size_t n = 0; n < sizes && !otherProtocol; ++n) {
        Call call = form;
        call.count = counts[drawn++ % counts.size()];
        call.reduction = randomReduction(random);
        call.salt = calls.size();
        call.root = static_cast<int>(random() % static_cast<uint64_t>(ranks));
        call.inPlace = random() % 2 == 0;
        call.channels = 1 + static_cast<int>(random() % (ranks <= 4 ? 3 : 2));
        calls.emplace_back(ranks, call);
        const CudaLaunchFacts facts = team.enqueue(calls.back(), protocol);
        otherProtocol = facts.protocol != protocol;
        if (HasFailure()) break;
      }
      if (HasFailure() || otherProtocol) break;
    }
    if (HasFailure()) break;
  }
  expectAllRight(team, calls);
}

TEST_P(DeviceRanks, RandomMixesOfSchedulesAndProtocolsNeedNoBarrierBetweenCalls) {
  const int ranks = GetParam();
  DeviceTeam team({.ranks = ranks, .devices = 4});  // from five ranks on, some share a device
  std::mt19937_64 random(77u + static_cast<uint64_t>(ranks));
  const auto forms = everything(ranks);
  std::vector<CallBuffers> calls;
  for (int i = 0; i < test::scaled(60, 8); ++i) {
    Call call = forms[random() % forms.size()];
    call.count = random() % 3 == 0 ? random() % 8 : random() % 2000;
    call.reduction = randomReduction(random);
    call.salt = calls.size();
    call.root = static_cast<int>(random() % static_cast<uint64_t>(ranks));
    call.inPlace = random() % 2 == 0;
    call.channels = 1 + static_cast<int>(random() % 3);
    calls.emplace_back(ranks, call);
    team.enqueue(calls.back(), kProtocols[random() % 3], static_cast<int>(random() % 2));
    if (HasFailure()) break;
  }
  expectAllRight(team, calls);
}

TEST(DeviceTypes, AllTypesAndOperatorsAreExactInAllProtocols) {
  DeviceTeam team({.ranks = 3});
  std::vector<CallBuffers> calls;
  for (int type = 0; type < ncclNumTypes; ++type) {
    for (int op = 0; op < 4; ++op) {
      for (const Protocol protocol : kProtocols) {
        for (const char* algorithm : {"ring", "oneshot", "direct"}) {
          if (std::string(algorithm) != "ring" && protocol != Protocol::simple) continue;
          if (test::kThreadSanitizer && (type + op + static_cast<int>(protocol)) % 5 != 0) continue;
          for (const int kind : {0, 1, 2}) {  // plain, PreMulSum, average of integers
            if (kind != 0 && op != 0) continue;
            if (kind == 2 && type >= ncclFloat16) continue;
            Call call;
            call.algorithm = algorithm;
            call.reduction.type = static_cast<ncclDataType_t>(type);
            call.reduction.op = static_cast<Reduction>(op);
            call.reduction.hasScale = kind == 1;
            call.reduction.scale = 0.5;
            call.reduction.integerScale = 3;
            call.reduction.divisor = kind == 2 ? 3 : 1;
            call.count = 613;
            call.salt = calls.size();
            calls.emplace_back(3, call);
            team.enqueue(calls.back(), protocol);
            ASSERT_FALSE(HasFailure());
          }
        }
      }
    }
  }
  expectAllRight(team, calls);
}

TEST(DeviceTypes, AScalarInTheDevicesMemoryIsReadWhenTheKernelRuns) {
  DeviceTeam team({.ranks = 2});
  const float half = 0.5f;
  const double quarter = 0.25;
  const int64_t three = 3;
  const uint16_t halfBits = 0x3f00;  // of bfloat16
  const std::vector<std::pair<ncclDataType_t, const void*>> scalars = {
      {ncclFloat32, &half}, {ncclFloat64, &quarter}, {ncclInt64, &three}, {ncclBfloat16, &halfBits}};
  std::vector<CallBuffers> calls;
  for (const auto& [type, scalar] : scalars) {
    for (const Protocol protocol : kProtocols) {
      Call call;
      call.reduction.type = type;
      call.reduction.hasScale = true;
      call.reduction.scale = type == ncclFloat64 ? 0.25 : 0.5;
      call.reduction.integerScale = 3;
      call.count = 100;
      call.salt = calls.size();
      calls.emplace_back(2, call);
      for (int r = 0; r < 2; ++r) {
        CudaCall asked = team.call(calls.back(), r, protocol);
        asked.reduction.hasScale = false;
        asked.reduction.scale = 17;
        asked.scalar = scalar;
        ASSERT_TRUE(team.executor(r).enqueue(asked, team.stream(r)).isOk());
      }
    }
  }
  expectAllRight(team, calls);
}

TEST(DeviceHosts, PairsOfAlgorithmsRunOverTwoHostsOfOneProcess) {
  constexpr int kRanks = 5;
  DeviceTeam team({.ranks = kRanks});
  std::mt19937_64 random(3);
  std::vector<CallBuffers> calls;
  size_t number = 0;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.medium != Medium::hosts) continue;
    for (const Collective collective : algorithm.collectives) {
      if (!algorithm.implements(collective, kRanks)) continue;
      for (const bool mapped : {false, true}) {
        if (test::kThreadSanitizer && number++ % 8 != 0) continue;
        ScheduleRequest request;
        request.collective = collective;
        request.ranks = kRanks;
        request.hosts = consecutiveHosts({3, 2});
        request.mapped = mapped;
        auto all = generateAll(algorithm.name, request);
        ASSERT_TRUE(all.isOk()) << all.status().message();
        Call call;
        call.algorithm = std::string(algorithm.name) + (mapped ? " mapped" : "");
        call.collective = collective;
        team.use(call.algorithm, *all);
        call.reduction = randomReduction(random);
        call.count = 1 + random() % 900;
        call.salt = calls.size();
        call.channels = 1 + static_cast<int>(random() % 2);
        const Protocol protocol = kProtocols[random() % 3];
        if (team.executor(0).supports(all->front(), protocol, call.channels).isOk() || mapped) {
          calls.emplace_back(kRanks, call);
          team.enqueue(calls.back(), mapped ? Protocol::simple : protocol);
        }
        ASSERT_FALSE(HasFailure()) << call.text();
      }
    }
  }
  EXPECT_GT(calls.size(), 5u);
  expectAllRight(team, calls);
}

TEST(DeviceLarge, CallsOfMegabytesGoThroughOrdinarySlots) {
  DeviceTeam team({.ranks = 3,
                   .channels = 2,
                   .slotBytes = 128 * 1024,
                   .scratchBytes = 512 * 1024,
                   .linesLL = 16 * 1024,
                   .linesLL128 = 1024});
  std::vector<CallBuffers> calls;
  for (const char* algorithm : {"ring", "tree", "twoshot", "direct", "circulant"}) {
    for (const Protocol protocol : kProtocols) {
      Call call;
      call.algorithm = algorithm;
      call.count = test::scaled<size_t>(200'003, 20'001);
      call.channels = 2;
      call.salt = calls.size();
      calls.emplace_back(3, call);
      const CudaLaunchFacts facts = team.enqueue(calls.back(), protocol);
      // Not of the smaller calls under sanitizers.
      EXPECT_TRUE(facts.threads > 32u || call.count < 200'003) << facts.threads;
      if (facts.protocol != protocol) break;
    }
  }
  expectAllRight(team, calls);
}

TEST(DeviceStaged, RanksThatDoNotReachEachOtherTalkThroughTheHostsMemory) {
  DeviceTeam team({.ranks = 3, .staged = true});
  ASSERT_TRUE(team.group().isStaged());
  std::mt19937_64 random(8);
  std::vector<CallBuffers> calls;
  for (const Call& form : everything(3)) {
    const auto schedule = team.schedule(form.algorithm, form.collective, 0, 0);
    if (schedule->needsMappedUserBuffers()) {
      EXPECT_THAT(team.executor(0).supports(*schedule, Protocol::simple, 1).message(),
                  testing::HasSubstr("works in peers' buffers, which rank 0"));
      continue;
    }
    Call call = form;
    call.count = 700;
    call.reduction = randomReduction(random);
    call.salt = calls.size();
    calls.emplace_back(3, call);
    team.enqueue(calls.back(), kProtocols[calls.size() % 3]);
    ASSERT_FALSE(HasFailure());
  }
  expectAllRight(team, calls);
}

TEST(DeviceCommunicators, TwoOfTheSameDevicesDoNotMeet) {
  DeviceTeam first({.ranks = 3});
  DeviceTeam second({.ranks = 3});
  std::vector<CallBuffers> firstCalls;
  std::vector<CallBuffers> secondCalls;
  for (size_t i = 0; i < test::scaled<size_t>(20, 4); ++i) {
    Call call;
    call.algorithm = i % 2 == 0 ? "ring" : "oneshot";
    call.count = 300 + i;
    call.salt = 2 * i;
    firstCalls.emplace_back(3, call);
    call.salt = 2 * i + 1;
    secondCalls.emplace_back(3, call);
    first.enqueue(firstCalls.back(), kProtocols[i % 3]);
    second.enqueue(secondCalls.back(), kProtocols[(i + 1) % 3]);
  }
  expectAllRight(first, firstCalls);
  expectAllRight(second, secondCalls);
}

// ---- blocks of different sizes

int32_t contribution(int rank, size_t block, size_t index) {
  return 1000 * rank + 37 * static_cast<int32_t>(block) + static_cast<int32_t>(index % 911);
}

class VariableBuffers {
 public:
  VariableBuffers(int ranks, Collective collective, const std::vector<size_t>& counts, size_t gap)
      : collective_(collective), sizes_(std::make_shared<BlockSizes>()) {
    size_t end = 0;
    for (const size_t count : counts) {
      sizes_->counts.push_back(count);
      sizes_->offsets.push_back(end);
      end += count + gap;
    }
    for (int r = 0; r < ranks; ++r) {
      const auto rank = static_cast<size_t>(r);
      inputs_.emplace_back(gathers() ? counts[rank] : end, kUntouched);
      outputs_.emplace_back(gathers() ? end : counts[rank], kUntouched);
      for (size_t b = 0; b < counts.size(); ++b)
        for (size_t i = 0; i < counts[b] && (!gathers() || b == rank); ++i)
          inputs_[rank][(gathers() ? 0 : sizes_->offsets[b]) + i] = contribution(r, b, i);
    }
  }

  CudaCall call(DeviceTeam& team, const std::string& algorithm, int rank, Protocol protocol) {
    CudaCall call;
    call.schedule = team.schedule(algorithm, collective_, 0, rank);
    call.shape = {.collective = collective_,
                  .ranks = team.ranks(),
                  .parts = call.schedule->parts,
                  .elementBytes = sizeof(int32_t),
                  .channels = 2,
                  .blocks = sizes_};
    call.reduction.type = ncclInt32;
    call.protocol = protocol;
    call.input = inputs_[static_cast<size_t>(rank)].data();
    call.output = outputs_[static_cast<size_t>(rank)].data();
    return call;
  }

  void expectRight(const std::string& algorithm) const {
    for (size_t rank = 0; rank < outputs_.size(); ++rank) {
      std::vector<int32_t> wanted(outputs_[rank].size(), kUntouched);
      for (size_t b = 0; b < sizes_->counts.size(); ++b) {
        for (size_t i = 0; i < sizes_->counts[b] && (gathers() || b == rank); ++i) {
          int32_t sum = 0;
          for (size_t from = 0; from < outputs_.size(); ++from)
            sum += contribution(static_cast<int>(from), b, i);
          wanted[(gathers() ? sizes_->offsets[b] : 0) + i] =
              gathers() ? contribution(static_cast<int>(b), b, i) : sum;
        }
      }
      ASSERT_EQ(outputs_[rank], wanted) << algorithm << " " << name(collective_) << " rank " << rank;
    }
  }

 private:
  static constexpr int32_t kUntouched = -77;
  bool gathers() const { return collective_ == Collective::allGather; }

  Collective collective_;
  std::shared_ptr<BlockSizes> sizes_;
  std::vector<std::vector<int32_t>> inputs_;
  std::vector<std::vector<int32_t>> outputs_;
};

class DeviceVariableBlocks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, DeviceVariableBlocks, testing::Values(2, 3, 4, 7));

TEST_P(DeviceVariableBlocks, GoThroughEveryAlgorithmAndProtocol) {
  const int ranks = GetParam();
  DeviceTeam team({.ranks = ranks});
  std::mt19937_64 random(static_cast<uint64_t>(ranks));
  std::vector<std::pair<std::string, std::unique_ptr<VariableBuffers>>> calls;
  for (const Algorithm& algorithm : algorithms()) {
    for (const Collective collective : {Collective::allGather, Collective::reduceScatter}) {
      if (!algorithm.implements(collective, ranks)) continue;
      for (const Protocol protocol : kProtocols) {
        if (test::kThreadSanitizer && protocol == Protocol::ll128) continue;
        std::vector<size_t> counts;
        for (int r = 0; r < ranks; ++r) counts.push_back(random() % 3 == 0 ? 0 : random() % 900);
        // Peers' inputs are read by block: gaps are each rank's own, see docs/schedule.md.
        const size_t gap = algorithm.medium == Medium::userBuffers ? 0 : random() % 2 * 5;
        calls.emplace_back(algorithm.name, std::make_unique<VariableBuffers>(ranks, collective, counts, gap));
        for (int r = 0; r < ranks; ++r) {
          auto facts = team.executor(r).enqueue(
              calls.back().second->call(team, calls.back().first, r, protocol), team.stream(r));
          ASSERT_TRUE(facts.isOk()) << facts.status().message();
        }
        if (algorithm.medium != Medium::messages) break;
      }
    }
  }
  team.synchronize();
  for (const auto& [algorithm, buffers] : calls) {
    buffers->expectRight(algorithm);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace tutti
