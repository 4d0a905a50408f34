// What the headers say: constants, sizes, offsets, types of functions, values of inline functions. Compiled
// once against our headers and once against the toolkit's; abi_facts_test.cc compares.
#include "api/abi/facts.h"

#include <nccl.h>
#include <nccl_device.h>

#include <cstddef>
#include <type_traits>
#include <typeinfo>

#define CONSTANT(name) \
  { #name, std::to_string(static_cast <long long>(name)) }
#define SIZE(type) \
  { "sizeof " #type, std::to_string(sizeof(type)) }
#define OFFSET(type, member) \
  { #type "." #member, std::to_string(offsetof(type, member)) + ":" + std::to_string(sizeof(type::member)) }
// Overloads in C++ take a device communicator: the C function is the one meant.
#define FUNCTION_AS(function, ...) \
  { #function "()", typeid(static_cast <std::add_pointer_t <__VA_ARGS__>>(&function)).name() }
#define FUNCTION(function)                                    \
  {#function "()", typeid(decltype(&function)).name()}, {     \
    "p" #function "()", typeid(decltype(&p##function)).name() \
  }

namespace {

void addConstants(std::vector<AbiFact>& facts) {
  facts.insert(facts.end(), {CONSTANT(NCCL_MAJOR),
                             CONSTANT(NCCL_MINOR),
                             CONSTANT(NCCL_PATCH),
                             CONSTANT(NCCL_VERSION_CODE),
                             CONSTANT(NCCL_VERSION(2, 3, 5)),
                             CONSTANT(NCCL_VERSION(2, 8, 4)),
                             CONSTANT(NCCL_VERSION(2, 9, 6)),
                             CONSTANT(NCCL_VERSION(3, 0, 1)),
                             {"NCCL_SUFFIX", NCCL_SUFFIX},
                             CONSTANT(NCCL_UNIQUE_ID_BYTES),
                             CONSTANT(NCCL_CONFIG_UNDEF_INT),
                             CONSTANT(NCCL_SPLIT_NOCOLOR),
                             CONSTANT(NCCL_SHRINK_DEFAULT),
                             CONSTANT(NCCL_SHRINK_ABORT),
                             CONSTANT(NCCL_REVOKE_DEFAULT),
                             CONSTANT(NCCL_WIN_DEFAULT),
                             CONSTANT(NCCL_WIN_COLL_SYMMETRIC),
                             CONSTANT(NCCL_WIN_REQUIRED_ALIGNMENT),
                             CONSTANT(NCCL_CTA_POLICY_DEFAULT),
                             CONSTANT(NCCL_CTA_POLICY_EFFICIENCY),
                             CONSTANT(NCCL_CTA_POLICY_ZERO),
                             CONSTANT(NCCL_GIN_MAX_CONTEXTS),
                             CONSTANT(ncclSuccess),
                             CONSTANT(ncclUnhandledCudaError),
                             CONSTANT(ncclSystemError),
                             CONSTANT(ncclInternalError),
                             CONSTANT(ncclInvalidArgument),
                             CONSTANT(ncclInvalidUsage),
                             CONSTANT(ncclRemoteError),
                             CONSTANT(ncclInProgress),
                             CONSTANT(ncclNumResults),
                             CONSTANT(ncclSum),
                             CONSTANT(ncclProd),
                             CONSTANT(ncclMax),
                             CONSTANT(ncclMin),
                             CONSTANT(ncclAvg),
                             CONSTANT(ncclNumOps),
                             CONSTANT(ncclNumOps_dummy),
                             CONSTANT(ncclMaxRedOp),
                             CONSTANT(ncclInt8),
                             CONSTANT(ncclChar),
                             CONSTANT(ncclUint8),
                             CONSTANT(ncclInt32),
                             CONSTANT(ncclInt),
                             CONSTANT(ncclUint32),
                             CONSTANT(ncclInt64),
                             CONSTANT(ncclUint64),
                             CONSTANT(ncclFloat16),
                             CONSTANT(ncclHalf),
                             CONSTANT(ncclFloat32),
                             CONSTANT(ncclFloat),
                             CONSTANT(ncclFloat64),
                             CONSTANT(ncclDouble),
                             CONSTANT(ncclBfloat16),
                             CONSTANT(ncclFloat8e4m3),
                             CONSTANT(ncclFloat8e5m2),
                             CONSTANT(ncclNumTypes),
                             CONSTANT(ncclScalarDevice),
                             CONSTANT(ncclScalarHostImmediate)});
}

void addLayouts(std::vector<AbiFact>& facts) {
  facts.insert(facts.end(), {SIZE(ncclUniqueId),
                             SIZE(ncclResult_t),
                             SIZE(ncclRedOp_t),
                             SIZE(ncclDataType_t),
                             SIZE(ncclScalarResidence_t),
                             SIZE(ncclComm_t),
                             SIZE(ncclWindow_t),
                             SIZE(cudaStream_t),
                             SIZE(ncclConfig_t),
                             OFFSET(ncclConfig_t, size),
                             OFFSET(ncclConfig_t, magic),
                             OFFSET(ncclConfig_t, version),
                             OFFSET(ncclConfig_t, blocking),
                             OFFSET(ncclConfig_t, cgaClusterSize),
                             OFFSET(ncclConfig_t, minCTAs),
                             OFFSET(ncclConfig_t, maxCTAs),
                             OFFSET(ncclConfig_t, netName),
                             OFFSET(ncclConfig_t, splitShare),
                             OFFSET(ncclConfig_t, trafficClass),
                             OFFSET(ncclConfig_t, commName),
                             OFFSET(ncclConfig_t, collnetEnable),
                             OFFSET(ncclConfig_t, CTAPolicy),
                             OFFSET(ncclConfig_t, shrinkShare),
                             OFFSET(ncclConfig_t, nvlsCTAs),
                             OFFSET(ncclConfig_t, nChannelsPerNetPeer),
                             OFFSET(ncclConfig_t, nvlinkCentricSched),
                             SIZE(ncclSimInfo_t),
                             OFFSET(ncclSimInfo_t, size),
                             OFFSET(ncclSimInfo_t, magic),
                             OFFSET(ncclSimInfo_t, version),
                             OFFSET(ncclSimInfo_t, estimatedTime),
                             SIZE(ncclTeam_t),
                             OFFSET(ncclTeam, nRanks),
                             OFFSET(ncclTeam, rank),
                             OFFSET(ncclTeam, stride),
                             SIZE(ncclMultimemHandle_t),
                             SIZE(ncclLsaBarrierHandle_t),
                             OFFSET(ncclLsaBarrierHandle, bufHandle),
                             OFFSET(ncclLsaBarrierHandle, nBarriers),
                             SIZE(ncclGinBarrierHandle_t),
                             OFFSET(ncclGinBarrierHandle, signal0),
                             OFFSET(ncclGinBarrierHandle, bufHandle),
                             SIZE(ncclLLA2AHandle_t),
                             OFFSET(ncclLLA2AHandle, bufHandle),
                             OFFSET(ncclLLA2AHandle, nSlots),
                             SIZE(ncclWindow_vidmem),
                             OFFSET(ncclWindow_vidmem, winHost),
                             OFFSET(ncclWindow_vidmem, lsaFlatBase),
                             OFFSET(ncclWindow_vidmem, lsaRank),
                             OFFSET(ncclWindow_vidmem, worldRank),
                             OFFSET(ncclWindow_vidmem, stride4G),
                             OFFSET(ncclWindow_vidmem, mcOffset4K),
                             OFFSET(ncclWindow_vidmem, ginOffset4K),
                             OFFSET(ncclWindow_vidmem, ginWins)});
  facts.insert(facts.end(), {SIZE(ncclDevResourceRequirements_t),
                             OFFSET(ncclDevResourceRequirements, next),
                             OFFSET(ncclDevResourceRequirements, bufferSize),
                             OFFSET(ncclDevResourceRequirements, bufferAlign),
                             OFFSET(ncclDevResourceRequirements, outBufferHandle),
                             OFFSET(ncclDevResourceRequirements, ginSignalCount),
                             OFFSET(ncclDevResourceRequirements, ginCounterCount),
                             OFFSET(ncclDevResourceRequirements, outGinSignalStart),
                             OFFSET(ncclDevResourceRequirements, outGinCounterStart),
                             SIZE(ncclTeamRequirements_t),
                             OFFSET(ncclTeamRequirements, next),
                             OFFSET(ncclTeamRequirements, team),
                             OFFSET(ncclTeamRequirements, multimem),
                             OFFSET(ncclTeamRequirements, outMultimemHandle),
                             SIZE(ncclDevCommRequirements_t),
                             OFFSET(ncclDevCommRequirements, resourceRequirementsList),
                             OFFSET(ncclDevCommRequirements, teamRequirementsList),
                             OFFSET(ncclDevCommRequirements, lsaMultimem),
                             OFFSET(ncclDevCommRequirements, barrierCount),
                             OFFSET(ncclDevCommRequirements, lsaBarrierCount),
                             OFFSET(ncclDevCommRequirements, railGinBarrierCount),
                             OFFSET(ncclDevCommRequirements, lsaLLA2ABlockCount),
                             OFFSET(ncclDevCommRequirements, lsaLLA2ASlotCount),
                             OFFSET(ncclDevCommRequirements, ginForceEnable),
                             OFFSET(ncclDevCommRequirements, ginContextCount),
                             OFFSET(ncclDevCommRequirements, ginSignalCount),
                             OFFSET(ncclDevCommRequirements, ginCounterCount),
                             SIZE(ncclDevComm_t),
                             OFFSET(ncclDevComm, rank),
                             OFFSET(ncclDevComm, nRanks),
                             OFFSET(ncclDevComm, nRanks_rcp32),
                             OFFSET(ncclDevComm, lsaRank),
                             OFFSET(ncclDevComm, lsaSize),
                             OFFSET(ncclDevComm, lsaSize_rcp32),
                             OFFSET(ncclDevComm, windowTable),
                             OFFSET(ncclDevComm, resourceWindow),
                             OFFSET(ncclDevComm, resourceWindow_inlined),
                             OFFSET(ncclDevComm, lsaMultimem),
                             OFFSET(ncclDevComm, lsaBarrier),
                             OFFSET(ncclDevComm, railGinBarrier),
                             OFFSET(ncclDevComm, ginContextCount),
                             OFFSET(ncclDevComm, ginTypes),
                             OFFSET(ncclDevComm, ginHandles),
                             OFFSET(ncclDevComm, ginSignalBase),
                             OFFSET(ncclDevComm, ginSignalCount),
                             OFFSET(ncclDevComm, ginCounterBase),
                             OFFSET(ncclDevComm, ginCounterCount),
                             OFFSET(ncclDevComm, ginSignalShadows),
                             SIZE(ncclSymPtr<int>),
                             OFFSET(ncclSymPtr<int>, window),
                             OFFSET(ncclSymPtr<int>, offset)});
}

void addFunctions(std::vector<AbiFact>& facts) {
  facts.insert(facts.end(), {FUNCTION(ncclMemAlloc),
                             FUNCTION(ncclMemFree),
                             FUNCTION(ncclGetVersion),
                             FUNCTION(ncclGetUniqueId),
                             FUNCTION(ncclCommInitRankConfig),
                             FUNCTION(ncclCommInitRank),
                             FUNCTION(ncclCommInitAll),
                             FUNCTION(ncclCommInitRankScalable),
                             FUNCTION(ncclCommFinalize),
                             FUNCTION(ncclCommDestroy),
                             FUNCTION(ncclCommAbort),
                             FUNCTION(ncclCommRevoke),
                             FUNCTION(ncclCommSplit),
                             FUNCTION(ncclCommShrink),
                             FUNCTION(ncclGetErrorString),
                             FUNCTION(ncclGetLastError),
                             FUNCTION(ncclResetDebugInit),
                             FUNCTION(ncclCommGetAsyncError),
                             FUNCTION(ncclCommCount),
                             FUNCTION(ncclCommCuDevice),
                             FUNCTION(ncclCommUserRank),
                             FUNCTION(ncclCommRegister),
                             FUNCTION(ncclCommDeregister),
                             FUNCTION(ncclCommWindowRegister),
                             FUNCTION(ncclCommWindowDeregister),
                             FUNCTION(ncclRedOpCreatePreMulSum),
                             FUNCTION(ncclRedOpDestroy),
                             FUNCTION(ncclReduce),
                             FUNCTION(ncclBcast),
                             FUNCTION(ncclBroadcast),
                             FUNCTION(ncclAllReduce),
                             FUNCTION(ncclReduceScatter),
                             FUNCTION(ncclAllGather),
                             FUNCTION(ncclAlltoAll),
                             FUNCTION(ncclGather),
                             FUNCTION(ncclScatter),
                             FUNCTION(ncclSend),
                             FUNCTION(ncclRecv),
                             FUNCTION(ncclGroupStart),
                             FUNCTION(ncclGroupEnd),
                             FUNCTION(ncclGroupSimulateEnd)});
  // NVIDIA's header does not declare the twins of these.
  facts.insert(
      facts.end(),
      {FUNCTION_AS(ncclDevCommCreate,
                   ncclResult_t(ncclComm_t, const ncclDevCommRequirements_t*, ncclDevComm_t*)),
       FUNCTION_AS(ncclDevCommDestroy, ncclResult_t(ncclComm_t, const ncclDevComm_t*)),
       FUNCTION_AS(ncclTeamWorld, ncclTeam_t(ncclComm_t)), FUNCTION_AS(ncclTeamLsa, ncclTeam_t(ncclComm_t)),
       FUNCTION_AS(ncclTeamRail, ncclTeam_t(ncclComm_t)),
       FUNCTION_AS(ncclTeamRankToWorld, int(ncclComm_t, ncclTeam_t, int)),
       FUNCTION_AS(ncclTeamRankToLsa, int(ncclComm_t, ncclTeam_t, int)),
       FUNCTION_AS(ncclLsaBarrierCreateRequirement,
                   ncclResult_t(ncclTeam_t, int, ncclLsaBarrierHandle_t*, ncclDevResourceRequirements_t*)),
       FUNCTION_AS(ncclGinBarrierCreateRequirement,
                   ncclResult_t(ncclComm_t, ncclTeam_t, int, ncclGinBarrierHandle_t*,
                                ncclDevResourceRequirements_t*)),
       FUNCTION_AS(ncclLLA2ACalcSlots, int(int, int)),
       FUNCTION_AS(ncclLLA2ACreateRequirement,
                   ncclResult_t(int, int, ncclLLA2AHandle_t*, ncclDevResourceRequirements_t*))});
}

std::string text(ncclTeam_t team) {
  return std::to_string(team.nRanks) + "/" + std::to_string(team.rank) + "/" + std::to_string(team.stride);
}

/// All places in a world of 12, its pieces of 4 and their rails.
void addTeamArithmetic(std::vector<AbiFact>& facts) {
  for (int rank = 0; rank < 12; ++rank) {
    const ncclTeam_t world = {12, rank, 1};
    const ncclTeam_t inner = ncclTeamInnerFactor(world, 4);
    const ncclTeam_t outer = ncclTeamOuterFactor(world, 4);
    std::string value = text(inner) + " " + text(outer);
    for (int peer = 0; peer < inner.nRanks; ++peer)
      value += " " + std::to_string(ncclTeamRankToTeam(world, inner, peer)) +
               (ncclTeamRankIsMember(world, inner, peer) ? "y" : "n");
    for (int peer = 0; peer < outer.nRanks; ++peer)
      value += " " + std::to_string(ncclTeamRankToTeam(world, outer, peer)) +
               (ncclTeamRankIsMember(inner, inner, peer) ? "y" : "n");
    for (int i = 0; i < 8; ++i) value += " " + std::to_string(ncclTeamRankInDifference(world, inner, i));
    for (int i = 0; i < 9; ++i) value += " " + std::to_string(ncclTeamRankInDifference(world, outer, i));
    facts.push_back({"teams of rank " + std::to_string(rank), value});
  }
  ncclDevComm comm{};
  comm.rank = 7;
  comm.nRanks = 12;
  comm.nRanks_rcp32 = 0xffffffffu / 12;
  comm.lsaRank = 3;
  comm.lsaSize = 4;
  comm.lsaSize_rcp32 = 0xffffffffu / 4 + 1;
  facts.push_back({"teams of a device communicator",
                   text(ncclTeamWorld(comm)) + " " + text(ncclTeamLsa(comm)) + " " +
                       text(ncclTeamRail(comm)) + " " +
                       std::to_string(ncclTeamRankToWorld(comm, ncclTeamRail(comm), 2)) + " " +
                       std::to_string(ncclTeamRankToLsa(comm, ncclTeamLsa(comm), 0))});
  ncclSymPtr<int> place(nullptr, 100);
  place += 3;
  place -= 1L;
  facts.push_back(
      {"symmetric pointer", std::to_string(place.offset) + " " + std::to_string((place + 2u).offset)});
}

void addInitializers(std::vector<AbiFact>& facts) {
  const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  facts.insert(facts.end(), {{"config.size", std::to_string(config.size)},
                             {"config.magic", std::to_string(config.magic)},
                             {"config.version", std::to_string(config.version)},
                             {"config.blocking", std::to_string(config.blocking)},
                             {"config.netName", config.netName == nullptr ? "null" : "set"},
                             {"config.commName", config.commName == nullptr ? "null" : "set"},
                             {"config.nvlinkCentricSched", std::to_string(config.nvlinkCentricSched)}});
  const ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  facts.insert(facts.end(), {{"siminfo.size", std::to_string(info.size)},
                             {"siminfo.magic", std::to_string(info.magic)},
                             {"siminfo.version", std::to_string(info.version)},
                             {"siminfo.estimatedTime", std::to_string(info.estimatedTime)}});
}

/// What NCCL 2.29 and 2.30 have and the toolkit's header lacks.
void addNewer(std::vector<AbiFact>& facts) {
  (void)facts;
#ifdef TUTTI_NCCL_DEVICE_H_
  facts.insert(facts.end(), {FUNCTION(ncclCommGetUniqueId),
                             FUNCTION(ncclCommGrow),
                             FUNCTION(ncclCommQueryProperties),
                             FUNCTION(ncclWinGetUserPtr),
                             FUNCTION(ncclCommSuspend),
                             FUNCTION(ncclCommResume),
                             FUNCTION(ncclCommMemStats),
                             FUNCTION(ncclGetLsaMultimemDevicePointer),
                             FUNCTION(ncclGetMultimemDevicePointer),
                             FUNCTION(ncclGetLsaDevicePointer),
                             FUNCTION(ncclGetPeerDevicePointer),
                             CONSTANT(NCCL_SUSPEND_MEM),
                             CONSTANT(ncclStatGpuMemSuspend),
                             CONSTANT(ncclStatGpuMemSuspended),
                             CONSTANT(ncclStatGpuMemPersist),
                             CONSTANT(ncclStatGpuMemTotal),
                             FUNCTION(ncclPutSignal),
                             FUNCTION(ncclSignal),
                             FUNCTION(ncclWaitSignal),
                             SIZE(ncclWaitSignalDesc_t),
                             OFFSET(ncclWaitSignalDesc_t, opCnt),
                             OFFSET(ncclWaitSignalDesc_t, peer),
                             OFFSET(ncclWaitSignalDesc_t, sigIdx),
                             OFFSET(ncclWaitSignalDesc_t, ctx),
                             SIZE(ncclCommProperties_t),
                             OFFSET(ncclCommProperties, rank),
                             OFFSET(ncclCommProperties, nRanks),
                             OFFSET(ncclCommProperties, cudaDev),
                             OFFSET(ncclCommProperties, nvmlDev),
                             OFFSET(ncclCommProperties, deviceApiSupport),
                             OFFSET(ncclCommProperties, multimemSupport),
                             OFFSET(ncclCommProperties, ginType),
                             OFFSET(ncclCommProperties, nLsaTeams),
                             OFFSET(ncclCommProperties, hostRmaSupport),
                             OFFSET(ncclCommProperties, railedGinType)});
#endif
#ifdef TUTTI_NCCL_TIMEOUT
  facts.push_back(CONSTANT(ncclTimeout));
#endif
}

}  // namespace

std::vector<AbiFact> FACTS_FUNCTION() {
  std::vector<AbiFact> facts;
  addConstants(facts);
  addLayouts(facts);
  addFunctions(facts);
  addTeamArithmetic(facts);
  addInitializers(facts);
  addNewer(facts);
  return facts;
}
