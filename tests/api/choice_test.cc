// tuttiCommSetAlgo, tuttiCommQueryPlan and tuttiCommLastPlan.
#include <gmock/gmock.h>
#include <string>

#include "api/ranks.h"
#include "tutti/tutti.h"

namespace tutti::test {
namespace {

using testing::HasSubstr;

std::string algorithmOf(const Rank& self, size_t count, int mapped = 0) {
  tuttiPlan_t plan = TUTTI_PLAN_INITIALIZER;
  const ncclResult_t result = tuttiCommQueryPlan(self.comm, "allreduce", count, ncclFloat32, mapped, &plan);
  return result == ncclSuccess ? plan.algorithm : ncclGetLastError(nullptr);
}

TEST(Choice, CanBePinnedAndAskedFor) {
  runRanks(3, [](Rank& self) {
    EXPECT_EQ(algorithmOf(self, 2), "oneshot");
    tuttiPlan_t last = TUTTI_PLAN_INITIALIZER;
    EXPECT_NCCL_OK(tuttiCommLastPlan(self.comm, &last));
    EXPECT_STREQ(last.algorithm, "");
    float value[2] = {1, 2};
    for (const char* algorithm : {"ring", "tree", "doubling", "twoshot"}) {
      ASSERT_NCCL_OK(tuttiCommSetAlgo(self.comm, algorithm, "simple", 1));
      ASSERT_NCCL_OK(ncclAllReduce(value, value, 2, ncclFloat32, ncclMax, self.comm, self.stream));
      self.sync();
      EXPECT_EQ(value[1], 2.0F);
      EXPECT_NCCL_OK(tuttiCommLastPlan(self.comm, &last));
      EXPECT_STREQ(last.algorithm, algorithm);
      EXPECT_STREQ(last.protocol, "simple");
      EXPECT_EQ(last.reason, "algo " + std::string(algorithm));
      EXPECT_EQ(last.channels, 1);
      EXPECT_GT(last.seconds, 0);
    }
    ASSERT_NCCL_OK(tuttiCommSetAlgo(self.comm, nullptr, nullptr, 0));
    EXPECT_EQ(algorithmOf(self, 2), "oneshot");
    EXPECT_EQ(algorithmOf(self, 1 << 22, 1), "direct");
    EXPECT_NE(algorithmOf(self, 1 << 22, 0), "direct");
  });
}

TEST(Choice, TellsWhatItDependsOn) {
  runRanks(2, [](Rank& self) {
    tuttiPlan_t plan = TUTTI_PLAN_INITIALIZER;
    ASSERT_NCCL_OK(tuttiCommQueryPlan(self.comm, "AllGather", 8, ncclInt8, 1, &plan));
    EXPECT_EQ(plan.hosts, 1);
    EXPECT_GE(plan.rails, 1);
    EXPECT_EQ(plan.maxChannels, 1);
    EXPECT_STREQ(plan.reason, "prediction");
  });
}

TEST(Choice, ThatIsImpossibleIsRefusedByTheCall) {
  runRanks(2, [](Rank& self) {
    float value = 1;
    ASSERT_NCCL_OK(tuttiCommSetAlgo(self.comm, "allgather:tree", nullptr, 0));
    float both[2] = {};
    EXPECT_EQ(ncclAllGather(&value, both, 1, ncclFloat32, self.comm, self.stream), ncclInvalidUsage);
    EXPECT_THAT(ncclGetLastError(nullptr),
                HasSubstr("algo allgather:tree leaves no algorithm for AllGather"));
    ASSERT_NCCL_OK(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, self.comm, self.stream));
    self.sync();
    EXPECT_EQ(value, 2.0F);
    ASSERT_NCCL_OK(tuttiCommSetAlgo(self.comm, nullptr, "LL", 0));
    EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, self.comm, self.stream),
              ncclInvalidUsage);
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("proto LL leaves no protocol for AllReduce"));
    EXPECT_THAT(algorithmOf(self, 1), HasSubstr("leaves no protocol"));
  });
}

TEST(Choice, RefusesWhatIsNoChoice) {
  runRanks(2, [](Rank& self) {
    EXPECT_EQ(tuttiCommSetAlgo(self.comm, "rign", nullptr, 0), ncclInvalidUsage);
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("algo rign: \"rign\" is no algorithm"));
    EXPECT_EQ(tuttiCommSetAlgo(self.comm, nullptr, "fast", 0), ncclInvalidUsage);
    EXPECT_EQ(tuttiCommSetAlgo(self.comm, nullptr, nullptr, 2), ncclInvalidArgument);
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("2 channels, but this communicator has 1"));
    EXPECT_EQ(tuttiCommSetAlgo(self.comm, nullptr, nullptr, -1), ncclInvalidArgument);
    EXPECT_EQ(tuttiCommSetAlgo(nullptr, nullptr, nullptr, 0), ncclInvalidArgument);
    ASSERT_NCCL_OK(ncclGroupStart());
    EXPECT_EQ(tuttiCommSetAlgo(self.comm, "ring", nullptr, 0), ncclInvalidUsage);
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("inside a group"));
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    EXPECT_EQ(algorithmOf(self, 2), "oneshot");  // none of these changed anything

    tuttiPlan_t plan = TUTTI_PLAN_INITIALIZER;
    EXPECT_EQ(tuttiCommQueryPlan(self.comm, "allsum", 1, ncclFloat32, 0, &plan), ncclInvalidArgument);
    EXPECT_EQ(tuttiCommQueryPlan(self.comm, nullptr, 1, ncclFloat32, 0, &plan), ncclInvalidArgument);
    EXPECT_EQ(tuttiCommQueryPlan(self.comm, "reduce", 1, ncclFloat32, 2, &plan), ncclInvalidArgument);
    EXPECT_EQ(tuttiCommQueryPlan(self.comm, "reduce", 1, ncclFloat32, 0, nullptr), ncclInvalidArgument);
    EXPECT_EQ(tuttiCommQueryPlan(self.comm, "reduce", SIZE_MAX, ncclFloat32, 0, &plan), ncclInvalidArgument);
    EXPECT_EQ(tuttiCommLastPlan(self.comm, nullptr), ncclInvalidArgument);
    plan.size = 8;
    EXPECT_EQ(tuttiCommLastPlan(self.comm, &plan), ncclInvalidArgument);
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("plan.size is 8"));
  });
}

}  // namespace
}  // namespace tutti::test
