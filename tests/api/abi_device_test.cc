// The host side of the device API.
#include <gmock/gmock.h>
#include <nccl.h>
#include <nccl_device.h>

#include <cstring>

namespace {

class AbiDevice : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(ncclCommInitAll(comms_, 2, nullptr), ncclSuccess) << ncclGetLastError(nullptr);
  }
  void TearDown() override {
    for (ncclComm_t comm : comms_) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  }
  ncclComm_t comms_[2] = {};
};

TEST_F(AbiDevice, TeamsWithoutKernelsAreRanksAlone) {
  const ncclTeam_t world = ncclTeamWorld(comms_[1]), lsa = ncclTeamLsa(comms_[1]),
                   rail = ncclTeamRail(comms_[1]);
  EXPECT_EQ(world.nRanks, 2);
  EXPECT_EQ(world.rank, 1);
  EXPECT_EQ(world.stride, 1);
  EXPECT_EQ(lsa.nRanks, 1);
  EXPECT_EQ(lsa.rank, 0);
  EXPECT_EQ(rail.nRanks, 2);
  EXPECT_EQ(rail.rank, 1);
  EXPECT_EQ(ncclTeamRankToWorld(comms_[1], lsa, 0), 1);
  EXPECT_EQ(ncclTeamRankToLsa(comms_[1], world, 1), 0);
}

TEST_F(AbiDevice, ABadCommunicatorHasNoTeam) {
  EXPECT_EQ(ncclTeamWorld(nullptr).nRanks, 0);
  EXPECT_EQ(ncclTeamLsa(nullptr).nRanks, 0);
  EXPECT_EQ(ncclTeamRail(nullptr).nRanks, 0);
  EXPECT_EQ(ncclTeamRankToWorld(nullptr, {}, 0), -1);
  EXPECT_EQ(ncclTeamRankToLsa(nullptr, {}, 0), -1);
  EXPECT_THAT(ncclGetLastError(nullptr), testing::HasSubstr("ncclTeamRankToLsa"));
}

TEST_F(AbiDevice, PropertiesAreFilledForOldAndNewCallers) {
  ncclCommProperties_t properties = NCCL_COMM_PROPERTIES_INITIALIZER;
  ASSERT_EQ(ncclCommQueryProperties(comms_[1], &properties), ncclSuccess);
  EXPECT_EQ(properties.rank, 1);
  EXPECT_EQ(properties.nRanks, 2);
  EXPECT_FALSE(properties.deviceApiSupport);
  EXPECT_EQ(properties.nLsaTeams, 2);
  EXPECT_TRUE(properties.hostRmaSupport);

  // 2.29.2: 40 bytes, of which the last five are one enum of a byte and nothing. What follows is somebody
  // else's.
  unsigned char old[64];
  std::memset(old, 0xee, sizeof old);
  const ncclCommProperties_t fresh = NCCL_COMM_PROPERTIES_INITIALIZER;
  std::memcpy(old, &fresh, offsetof(ncclCommProperties_t, rank));
  const size_t size = 40;
  std::memcpy(old, &size, sizeof size);
  ASSERT_EQ(ncclCommQueryProperties(comms_[1], reinterpret_cast<ncclCommProperties_t*>(old)), ncclSuccess);
  EXPECT_EQ(old[34], NCCL_GIN_TYPE_NONE);
  for (size_t i = 35; i < sizeof old; ++i) EXPECT_EQ(old[i], 0xee) << i;

  ncclCommProperties_t wrong = NCCL_COMM_PROPERTIES_INITIALIZER;
  wrong.magic = 1;
  EXPECT_EQ(ncclCommQueryProperties(comms_[0], &wrong), ncclInvalidUsage);
  wrong = NCCL_COMM_PROPERTIES_INITIALIZER;
  wrong.size = 8;
  EXPECT_EQ(ncclCommQueryProperties(comms_[0], &wrong), ncclInvalidArgument);
  EXPECT_EQ(ncclCommQueryProperties(comms_[0], nullptr), ncclInvalidArgument);
}

TEST_F(AbiDevice, CommunicatorsForKernelsNeedAGpuAndTheAnswerSaysSo) {
  ncclDevCommRequirements_t requirements{};
  ncclDevComm_t device;
  EXPECT_EQ(ncclDevCommCreate(comms_[0], &requirements, &device), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), testing::HasSubstr("needs a GPU"));
  EXPECT_EQ(ncclDevCommDestroy(comms_[0], &device), ncclInvalidUsage);
}

TEST_F(AbiDevice, GpuMemoryAndItsPointersAreAnsweredAsWithoutAny) {
  uint64_t bytes = 7;
  for (const auto stat :
       {ncclStatGpuMemSuspend, ncclStatGpuMemSuspended, ncclStatGpuMemPersist, ncclStatGpuMemTotal}) {
    ASSERT_EQ(ncclCommMemStats(comms_[0], stat, &bytes), ncclSuccess);
    EXPECT_EQ(bytes, 0u);
  }
  EXPECT_EQ(ncclCommMemStats(comms_[0], static_cast<ncclCommMemStat_t>(4), &bytes), ncclInvalidArgument);
  EXPECT_EQ(ncclCommMemStats(nullptr, ncclStatGpuMemTotal, &bytes), ncclInvalidArgument);
  EXPECT_EQ(ncclCommSuspend(comms_[0], NCCL_SUSPEND_MEM), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), testing::HasSubstr("releases GPU memory, which needs a GPU"));
  EXPECT_EQ(ncclCommResume(comms_[0]), ncclInvalidUsage);

  const auto window = reinterpret_cast<ncclWindow_t>(&bytes);
  void* pointer = &bytes;
  EXPECT_EQ(ncclGetLsaMultimemDevicePointer(window, 0, &pointer), ncclSuccess);
  EXPECT_EQ(pointer, nullptr);
  EXPECT_EQ(ncclGetMultimemDevicePointer(window, 0, {}, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclGetLsaMultimemDevicePointer(nullptr, 0, &pointer), ncclInvalidArgument);
  EXPECT_EQ(ncclGetPeerDevicePointer(window, 0, 0, &pointer), ncclInvalidUsage);
  EXPECT_EQ(ncclGetLsaDevicePointer(window, 0, 0, &pointer), ncclInvalidUsage);
}

TEST_F(AbiDevice, SizesOfResourcesFollowFromTheArguments) {
  ncclDevResourceRequirements_t required;
  ncclLLA2AHandle_t a2a;
  EXPECT_EQ(ncclLLA2ACalcSlots(10, 9), 20);
  EXPECT_EQ(ncclLLA2ACalcSlots(0, 9), 0);
  EXPECT_EQ(ncclLLA2ACalcSlots(-1, 9), -1);
  EXPECT_EQ(ncclLLA2ACalcSlots(1 << 30, 64), -1);
  ASSERT_EQ(ncclLLA2ACreateRequirement(4, 20, &a2a, &required), ncclSuccess);
  EXPECT_EQ(required.bufferSize, 4u * 41 * 16);
  EXPECT_EQ(required.bufferAlign, 16u);
  EXPECT_EQ(required.outBufferHandle, &a2a.bufHandle);
  EXPECT_EQ(a2a.nSlots, 20u);
  EXPECT_EQ(ncclLLA2ACreateRequirement(4, 20, nullptr, &required), ncclInvalidArgument);
  EXPECT_EQ(ncclLLA2ACreateRequirement(-4, 20, &a2a, &required), ncclInvalidArgument);

  ncclGinBarrierHandle_t gin;
  ASSERT_EQ(ncclGinBarrierCreateRequirement(comms_[0], {8, 0, 1}, 3, &gin, &required), ncclSuccess);
  EXPECT_EQ(required.ginSignalCount, 24);
  EXPECT_EQ(required.outGinSignalStart, &gin.signal0);
  EXPECT_EQ(ncclGinBarrierCreateRequirement(comms_[0], {1 << 20, 0, 1}, 1 << 20, &gin, &required),
            ncclInvalidArgument);
}

}  // namespace
