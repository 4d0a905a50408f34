// Every shipped algorithm is proved, for all ranks, roots and orders of calls.
#include "algorithms/checker.h"

#include <gtest/gtest.h>

#include <numeric>

#include "algorithms/registry.h"
#include "algorithms/send_recv.h"

namespace tutti {
namespace {

constexpr Collective kCollectives[] = {Collective::allReduce, Collective::allGather, Collective::reduceScatter,
                                       Collective::broadcast, Collective::reduce};

bool rooted(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce;
}

ScheduleSet schedules(std::string_view algorithm, Collective collective, int32_t ranks, int32_t root = 0,
                      Layout layout = {}) {
  ScheduleRequest request{collective, ranks, 0, root, std::move(layout)};
  auto all = generateAll(algorithm, request);
  EXPECT_TRUE(all.isOk()) << all.status().message();
  return all.isOk() ? std::move(all).value() : ScheduleSet{};
}

/// Calls body(algorithm, collective, ranks, root) for everything that exists.
template <typename Body>
void forAll(int32_t maxRanks, Body body) {
  for (const Algorithm& algorithm : algorithms())
    for (const Collective collective : kCollectives)
      for (int32_t ranks = 1; ranks <= maxRanks; ++ranks) {
        if (!algorithm.implements(collective, ranks)) continue;
        for (int32_t root = 0; root < (rooted(collective) ? ranks : 1); ++root)
          body(algorithm, collective, ranks, root);
      }
}

TEST(Checker, ProvesEveryAlgorithmForUpTo16RanksAndAllRoots) {
  int proofs = 0;
  forAll(16, [&](const Algorithm& algorithm, Collective collective, int32_t ranks, int32_t root) {
    const ScheduleSet set = schedules(algorithm.name, collective, ranks, root);
    const auto certificate = prove(set);
    ASSERT_TRUE(certificate.isOk()) << certificate.status().message() << "\n" << toText(set[0]);
    ++proofs;
  });
  EXPECT_GT(proofs, 800);
}

}  // namespace
}  // namespace tutti
