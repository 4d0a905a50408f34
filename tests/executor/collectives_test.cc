// Every shipped schedule, run and compared with exact results.
#include <gtest/gtest.h>

#include "support/scale.h"
#include "team.h"

namespace tutti {
namespace {

using test::Call;
using test::CallData;
using test::everything;
using test::Team;

constexpr size_t kSlot = 1024;
constexpr size_t kScratch = 9 * 1024;

EndpointOptions smallOptions() {
  EndpointOptions options;
  options.channels = 3;
  options.slotBytes = kSlot;
  options.scratchBytes = kScratch;
  return options;
}

ExecutorOptions executorOptions() {
  ExecutorOptions options;
  options.wait.spin = std::chrono::microseconds(1);
  options.streamBytes = 20000;  // so that both kinds of stores are used
  return options;
}

void expectRight(const std::vector<CallData>& calls) {
  for (const CallData& data : calls) {
    data.expectRight();
    if (testing::Test::HasFatalFailure()) return;
  }
}

std::vector<CallData> prepare(Team& team, const std::vector<Call>& calls) {
  std::vector<CallData> data;
  data.reserve(calls.size());
  for (const Call& call : calls) data.emplace_back(team, call);
  return data;
}

ReductionSpec randomReduction(std::mt19937_64& random) {
  ReductionSpec spec;
  spec.type = static_cast<ncclDataType_t>(random() % ncclNumTypes);
  spec.op = static_cast<Reduction>(random() % 4);
  const bool integer = spec.type < ncclFloat16;
  if (random() % 4 == 0) {
    spec.hasScale = true;
    spec.scale = spec.op == Reduction::prod ? 1.0 : 0.5;
    spec.integerScale = 3;
  }
  if (integer && spec.op == Reduction::sum && random() % 4 == 0) spec.divisor = 1 + random() % 9;
  return spec;
}

class Ranks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(OneToNine, Ranks, testing::Range(1, 10));

TEST_P(Ranks, AllSchedulesGiveExactResultsForAllKindsOfSizes) {
  const int ranks = GetParam();
  Team team(ranks, smallOptions(), executorOptions());
  std::mt19937_64 random(static_cast<uint64_t>(ranks));
  std::vector<Call> calls;
  for (const Call& form : everything(ranks)) {
    // around the borders of lines, slots, slices; elements of a block, the type is drawn below
    for (const size_t count : {0, 1, 17, 64, 257, 1023, 2049, 5000}) {
      Call call = form;
      call.count = count;
      call.reduction = randomReduction(random);
      call.salt = calls.size();
      call.root = static_cast<int>(random() % static_cast<uint64_t>(ranks));
      call.inPlace = random() % 2 == 0;
      call.channels = 1 + static_cast<int>(random() % 3);
      if (random() % 2 == 0) call.maxSliceBytes = 64 * (1 + random() % 4);
      calls.push_back(call);
    }
  }
  auto data = prepare(team, calls);
  test::runInThreads(team, data);
  expectRight(data);
}

TEST_P(Ranks, RandomMixesNeedNoBarrierBetweenCalls) {
  const int ranks = GetParam();
  Team team(ranks, smallOptions(), executorOptions());
  std::mt19937_64 random(77u + static_cast<uint64_t>(ranks));
  const auto forms = everything(ranks);
  std::vector<Call> calls;
  const int length = ranks % 3 == 2 ? 200 : 60;
  for (int i = 0; i < length; ++i) {
    Call call = forms[random() % forms.size()];
    call.count = random() % 3 == 0 ? random() % 8 : random() % 3000;
    call.reduction = randomReduction(random);
    call.salt = calls.size();
    call.root = static_cast<int>(random() % static_cast<uint64_t>(ranks));
    call.inPlace = random() % 2 == 0;
    call.channels = 1 + static_cast<int>(random() % 2);
    calls.push_back(call);
  }
  auto data = prepare(team, calls);
  std::vector<std::mt19937_64> delays;
  for (int r = 0; r < ranks; ++r) delays.emplace_back(static_cast<uint64_t>(r));
  test::runInThreads(team, data, [&](int rank, size_t) {
    if (delays[static_cast<size_t>(rank)]() % 40 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(300));
  });
  expectRight(data);
}

TEST_P(Ranks, RandomInterleavingsOnOneThreadGiveTheSame) {
  const int ranks = GetParam();
  Team team(ranks, smallOptions(), executorOptions());
  for (uint64_t seed = 0; seed < 2; ++seed) {
    std::mt19937_64 random(seed);
    const auto forms = everything(ranks);
    std::vector<Call> calls;
    for (int i = 0; i < 40; ++i) {
      Call call = forms[random() % forms.size()];
      call.count = random() % 2000;
      call.reduction = randomReduction(random);
      call.salt = calls.size();
      call.root = static_cast<int>(random() % static_cast<uint64_t>(ranks));
      call.inPlace = random() % 2 == 0;
      call.maxSliceBytes = 64 * (1 + random() % 8);
      calls.push_back(call);
    }
    auto data = prepare(team, calls);
    test::runInterleaved(team, data, seed);
    if (HasFatalFailure()) return;
    expectRight(data);
  }
}

TEST_P(Ranks, OneShotTwiceInARowDoesNotOverwriteWhatASlowPeerReads) {
  Team team(GetParam(), smallOptions(), executorOptions());
  std::vector<Call> calls;
  for (int i = 0; i < 50; ++i) {
    Call call;
    call.algorithm = "oneshot";
    call.count = 300;
    call.salt = static_cast<size_t>(i);
    calls.push_back(call);
  }
  for (uint64_t seed = 0; seed < 3; ++seed) {
    auto data = prepare(team, calls);
    test::runInterleaved(team, data, seed);
    if (HasFatalFailure()) return;
    expectRight(data);
  }
}

TEST(LargeCalls, MoveSeveralMegabytesThroughOrdinarySlots) {
  EndpointOptions options;
  options.channels = 2;
  options.slotBytes = 128 * 1024;
  options.scratchBytes = 512 * 1024;
  Team team(3, options, ExecutorOptions());
  std::vector<Call> calls;
  for (const Call& form : everything(3)) {
    Call call = form;
    const bool manyBlocks =
        holdsAllBlocks(call.collective, Buffer::output) || holdsAllBlocks(call.collective, Buffer::input);
    call.count = test::scaled<size_t>(200'003, 70'001) / (manyBlocks ? 3 : 1);
    call.channels = 2;
    calls.push_back(call);
  }
  auto data = prepare(team, calls);
  test::runInThreads(team, data);
  expectRight(data);
}

}  // namespace
}  // namespace tutti
