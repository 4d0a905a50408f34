// Algorithms from files: the executor runs what the import made of them, on as many ranks as the file is for.
#include <gtest/gtest.h>

#include <iterator>

#include "algorithms/msccl_import.h"
#include "support/files.h"
#include "team.h"

namespace tutti {
namespace {

using test::Call;
using test::CallData;
using test::Team;

ImportedAlgorithm importFile(const std::string& name) {
  const std::string text = test::contentOf(std::string(TUTTI_SOURCE_DIR) + "/tests/algorithms/data/" + name);
  auto imported = importMscclXml(text, name);
  EXPECT_TRUE(imported.isOk()) << imported.status().message();
  return imported.isOk() ? std::move(imported).value() : ImportedAlgorithm{};
}

EndpointOptions optionsForFiles() {
  EndpointOptions options;
  options.channels = 2;
  options.slotBytes = 1024;
  options.scratchBytes = 32 * 1024;
  return options;
}

ReductionSpec reductionNumber(size_t number) {
  constexpr Reduction kOps[] = {Reduction::sum, Reduction::prod, Reduction::max, Reduction::min};
  ReductionSpec spec;
  spec.op = kOps[number % 4];
  spec.type = static_cast<ncclDataType_t>(number % ncclNumTypes);
  if (spec.op == Reduction::sum && number % 3 == 0) {
    spec.hasScale = true;
    spec.scale = 0.5;
    spec.integerScale = 3;
  }
  return spec;
}

class MscclFile : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Shipped, MscclFile,
                         testing::Values("allreduce_allpairs_4.xml", "allreduce_allpairs_8.xml",
                                         "allreduce_tworings_4.xml", "allgather_doubling_4.xml",
                                         "reducescatter_halving_4.xml"));

std::vector<CallData> callsOf(Team& team, const ImportedAlgorithm& imported) {
  std::vector<CallData> data;
  size_t number = 0;
  for (const bool inPlace : {false, true}) {
    if (inPlace ? !imported.inPlace : !imported.outOfPlace) continue;
    for (const size_t count : {0, 1, 63, 64, 257, 1023, 4099}) {
      for (int repeat = 0; repeat < 3; ++repeat, ++number) {
        Call call;
        call.algorithm = imported.name;
        call.collective = imported.collective;
        call.count = count;
        call.reduction = reductionNumber(number);
        call.inPlace = inPlace;
        call.channels = 1 + static_cast<int>(number % 2);
        call.salt = number;
        if (repeat == 2) call.maxSliceBytes = 64;
        data.emplace_back(team, call);
      }
    }
  }
  return data;
}

TEST_P(MscclFile, RunsInThreadsWithExactResults) {
  const ImportedAlgorithm imported = importFile(GetParam());
  ASSERT_FALSE(imported.schedules.empty());
  ExecutorOptions options;
  options.wait.spin = std::chrono::microseconds(1);
  Team team(static_cast<int>(imported.schedules.size()), optionsForFiles(), options);
  team.use(imported.name, imported.schedules);
  auto calls = callsOf(team, imported);
  ASSERT_FALSE(calls.empty());
  test::runInThreads(team, calls);
  for (const CallData& call : calls) {
    call.expectRight();
    if (HasFatalFailure()) return;
  }
}

TEST_P(MscclFile, RunsInAnyInterleavingWithExactResults) {
  const ImportedAlgorithm imported = importFile(GetParam());
  ASSERT_FALSE(imported.schedules.empty());
  Team team(static_cast<int>(imported.schedules.size()), optionsForFiles(), {});
  team.use(imported.name, imported.schedules);
  for (uint64_t seed = 0; seed < 3; ++seed) {
    auto calls = callsOf(team, imported);
    test::runInterleaved(team, calls, seed);
    if (HasFatalFailure()) return;
    for (const CallData& call : calls) call.expectRight();
  }
}

}  // namespace
}  // namespace tutti
