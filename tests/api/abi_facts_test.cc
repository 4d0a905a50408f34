// The headers, compared with what NCCL 2.28.9 says (typed in below) and with the toolkit's own headers.
#include <gmock/gmock.h>

#include <map>
#include <set>

#include "api/abi/facts.h"

namespace {

using Facts = std::map<std::string, std::string>;

Facts asMap(const std::vector<AbiFact>& list) {
  Facts facts;
  for (const AbiFact& fact : list) EXPECT_TRUE(facts.emplace(fact.name, fact.value).second) << fact.name;
  return facts;
}

/// From the published interface of 2.28.9, LP64. Layouts are "offset:size".
const Facts kPublished = {
    {"NCCL_VERSION_CODE", "22809"},
    {"NCCL_VERSION(2, 8, 4)", "2804"},
    {"NCCL_VERSION(2, 9, 6)", "20906"},
    {"NCCL_UNIQUE_ID_BYTES", "128"},
    {"NCCL_CONFIG_UNDEF_INT", "-2147483648"},
    {"NCCL_SPLIT_NOCOLOR", "-1"},
    {"ncclSuccess", "0"},
    {"ncclUnhandledCudaError", "1"},
    {"ncclSystemError", "2"},
    {"ncclInternalError", "3"},
    {"ncclInvalidArgument", "4"},
    {"ncclInvalidUsage", "5"},
    {"ncclRemoteError", "6"},
    {"ncclInProgress", "7"},
    {"ncclNumResults", "8"},
    {"ncclInt8", "0"},
    {"ncclUint8", "1"},
    {"ncclInt32", "2"},
    {"ncclUint32", "3"},
    {"ncclInt64", "4"},
    {"ncclUint64", "5"},
    {"ncclFloat16", "6"},
    {"ncclFloat32", "7"},
    {"ncclFloat64", "8"},
    {"ncclBfloat16", "9"},
    {"ncclFloat8e4m3", "10"},
    {"ncclFloat8e5m2", "11"},
    {"ncclNumTypes", "12"},
    {"ncclSum", "0"},
    {"ncclProd", "1"},
    {"ncclMax", "2"},
    {"ncclMin", "3"},
    {"ncclAvg", "4"},
    {"ncclNumOps", "5"},
    {"ncclMaxRedOp", "2147483647"},
    {"ncclScalarDevice", "0"},
    {"ncclScalarHostImmediate", "1"},
    {"sizeof ncclUniqueId", "128"},
    {"sizeof ncclResult_t", "4"},
    {"sizeof ncclConfig_t", "80"},
    {"ncclConfig_t.size", "0:8"},
    {"ncclConfig_t.magic", "8:4"},
    {"ncclConfig_t.version", "12:4"},
    {"ncclConfig_t.blocking", "16:4"},
    {"ncclConfig_t.cgaClusterSize", "20:4"},
    {"ncclConfig_t.minCTAs", "24:4"},
    {"ncclConfig_t.maxCTAs", "28:4"},
    {"ncclConfig_t.netName", "32:8"},
    {"ncclConfig_t.splitShare", "40:4"},
    {"ncclConfig_t.trafficClass", "44:4"},
    {"ncclConfig_t.commName", "48:8"},
    {"ncclConfig_t.collnetEnable", "56:4"},
    {"ncclConfig_t.CTAPolicy", "60:4"},
    {"ncclConfig_t.shrinkShare", "64:4"},
    {"ncclConfig_t.nvlsCTAs", "68:4"},
    {"ncclConfig_t.nChannelsPerNetPeer", "72:4"},
    {"ncclConfig_t.nvlinkCentricSched", "76:4"},
    {"config.magic", "3405692655"},   // 0xcafebeef
    {"siminfo.magic", "1952993923"},  // 0x74685283
    {"sizeof ncclSimInfo_t", "24"},
    {"sizeof ncclWindow_vidmem", "72"},
    {"sizeof ncclDevComm_t", "200"},
    {"sizeof ncclDevCommRequirements_t", "56"},
};

/// From 2.29.7 and 2.30.
const Facts kNewer = {
    {"sizeof ncclWaitSignalDesc_t", "16"},
    {"ncclWaitSignalDesc_t.opCnt", "0:4"},
    {"ncclWaitSignalDesc_t.peer", "4:4"},
    {"ncclWaitSignalDesc_t.sigIdx", "8:4"},
    {"ncclWaitSignalDesc_t.ctx", "12:4"},
    {"sizeof ncclCommProperties_t", "56"},
    {"ncclCommProperties.rank", "16:4"},
    {"ncclCommProperties.deviceApiSupport", "32:1"},
    {"ncclCommProperties.multimemSupport", "33:1"},
    {"ncclCommProperties.ginType", "36:4"},
    {"ncclCommProperties.nLsaTeams", "40:4"},
    {"ncclCommProperties.hostRmaSupport", "44:1"},
    {"ncclCommProperties.railedGinType", "48:4"},
    {"NCCL_SUSPEND_MEM", "1"},
    {"ncclStatGpuMemSuspend", "0"},
    {"ncclStatGpuMemSuspended", "1"},
    {"ncclStatGpuMemPersist", "2"},
    {"ncclStatGpuMemTotal", "3"},
    // Mangled: the argument lists.
    {"ncclCommSuspend()", "PF12ncclResult_tP8ncclCommiE"},
    {"ncclCommMemStats()", "PF12ncclResult_tP8ncclComm17ncclCommMemStat_tPmE"},
    {"ncclGetLsaMultimemDevicePointer()", "PF12ncclResult_tP17ncclWindow_vidmemmPPvE"},
    {"ncclGetMultimemDevicePointer()", "PF12ncclResult_tP17ncclWindow_vidmemm18ncclMultimemHandlePPvE"},
    {"ncclGetPeerDevicePointer()", "PF12ncclResult_tP17ncclWindow_vidmemmiPPvE"},
    {"ncclCommGetUniqueId()", "PF12ncclResult_tP8ncclCommP12ncclUniqueIdE"},
    {"ncclCommGrow()", "PF12ncclResult_tP8ncclCommiPK12ncclUniqueIdiPS1_P17ncclConfig_v22800E"},
    {"ncclWinGetUserPtr()", "PF12ncclResult_tP8ncclCommP17ncclWindow_vidmemPPvE"},
    {"ncclPutSignal()",
     "PF12ncclResult_tPKvm14ncclDataType_tiP17ncclWindow_vidmemmiijP8ncclCommP11CUstream_stE"},
    {"ncclSignal()", "PF12ncclResult_tiiijP8ncclCommP11CUstream_stE"},
    {"ncclWaitSignal()", "PF12ncclResult_tiP20ncclWaitSignalDesc_tP8ncclCommP11CUstream_stE"},
    {"ncclCommQueryProperties()", "PF12ncclResult_tP8ncclCommP18ncclCommPropertiesE"},
};

void expectContains(const Facts& all, const Facts& expected) {
  for (const auto& [name, value] : expected) {
    const auto found = all.find(name);
    ASSERT_NE(found, all.end()) << name;
    EXPECT_EQ(found->second, value) << name;
  }
}

TEST(AbiFacts, OurHeadersSayWhatNccl228Published) {
  const Facts own = asMap(ownAbiFacts());
  expectContains(own, kPublished);
  expectContains(own, kNewer);
}

TEST(AbiFacts, TheTimeoutResultIsThereForThoseWhoAskForIt) {
  const Facts own = asMap(ownAbiFacts()), with = asMap(ownAbiFactsWithTimeout());
  EXPECT_EQ(own.count("ncclTimeout"), 0u);
  EXPECT_EQ(with.at("ncclTimeout"), "8");
  EXPECT_EQ(with.at("ncclNumResults"), "9");
  EXPECT_EQ(with.at("config.version"), "23000");
  std::set<std::string> different;
  for (const auto& [name, value] : own)
    if (with.at(name) != value) different.insert(name);
  EXPECT_THAT(different, testing::ElementsAre("config.version", "ncclNumResults"));
}

#ifdef ABI_HAVE_TOOLKIT
TEST(AbiFacts, TheToolkitsHeadersSayTheSame) {
  const Facts own = asMap(ownAbiFacts()), toolkit = asMap(toolkitAbiFacts());
  if (toolkit.at("NCCL_VERSION_CODE") != own.at("NCCL_VERSION_CODE"))
    GTEST_SKIP() << "the toolkit has NCCL " << toolkit.at("NCCL_VERSION_CODE");
  EXPECT_GT(toolkit.size(), 200u);
  expectContains(toolkit, kPublished);
  expectContains(own, toolkit);
}
#else
TEST(AbiFacts, TheToolkitsHeadersSayTheSame) {
  GTEST_SKIP() << "no toolkit with nccl.h was found when this was configured";
}
#endif

}  // namespace
