// The host side of the device API: nccl_device.h.
//
// Without kernels a rank's LSA team (ranks whose memory its kernels load and store) is the rank alone, and
// its rail (ranks with the same place in their LSA teams) is everybody. Sizes of resources follow from their
// arguments alone, so they are answered too; only a communicator for kernels cannot be had.
#include "nccl_device.h"

#include <limits>

#include "api/entry.h"
#include "base/log.h"
#include "core/communicator.h"
#include "core/handle.h"

using namespace tutti;

namespace {

constexpr size_t kBytesOfLineA2A = 16;  // 8 of data, 8 of flags

Status needsGpu(const char* function, const char* what) {
  return invalidUsage("{} {}, which needs a GPU; the ranks here are CPUs", function, what);
}

/// As NCCL's where there is no multicast memory: success, and null.
Status noMultimem(ncclWindow_t window, void** out) {
  if (window == nullptr) return invalidArgument("window is null");
  if (out == nullptr) return invalidArgument("outPtr is null");
  *out = nullptr;
  return Status::ok();
}

Status checkCount(const char* name, int64_t value) {
  if (value >= 0) return Status::ok();
  return invalidArgument("{} is {}, but must not be negative", name, value);
}

/// For functions whose result has no room for an error: it is logged and kept for ncclGetLastError.
template <typename Answer, typename Body>
Answer answerOr(const char* function, Answer otherwise, Body&& body) noexcept {
  Answer answer = otherwise;
  const ncclResult_t result = entry(function, [&]() -> Status {
    TUTTI_ASSIGN(answer, body());
    return Status::ok();
  });
  return result == ncclSuccess ? answer : otherwise;
}

Status fillProperties(ncclComm_t comm, ncclCommProperties_t* out) {
  if (out == nullptr) return invalidArgument("props is null");
  TUTTI_ASSIGN(const CommUse communicator, resolveHandle(comm));
  if (out->magic != NCCL_API_MAGIC)
    return invalidUsage(
        "props.magic is {:#x} instead of {:#x}: initialise it with NCCL_COMM_PROPERTIES_INITIALIZER",
        out->magic, NCCL_API_MAGIC);
  // 2.29.2 had 40 bytes, up to a ginType of one byte; 2.29.7 has the layout of this header.
  constexpr size_t kFirst = 40;
  static_assert(sizeof(ncclCommProperties_t) == 56);
  if (out->size < kFirst)
    return invalidArgument("props.size is {}, but the structure has at least {} bytes", out->size, kFirst);
  out->rank = communicator->rank();
  out->nRanks = communicator->ranks();
  out->cudaDev = communicator->device();
  out->nvmlDev = -1;
  out->deviceApiSupport = false;
  out->multimemSupport = false;
  if (out->size < sizeof *out) {
    constexpr size_t kGinTypeThen = 34;
    reinterpret_cast<char*>(out)[kGinTypeThen] = NCCL_GIN_TYPE_NONE;
    return Status::ok();
  }
  out->ginType = NCCL_GIN_TYPE_NONE;
  out->nLsaTeams = communicator->ranks();
  out->hostRmaSupport = true;
  out->railedGinType = NCCL_GIN_TYPE_NONE;
  return Status::ok();
}

Status requireBarrier(int64_t words, ncclDevResourceHandle_t* buffer, ncclDevResourceRequirements_t* out) {
  *out = {};
  out->bufferSize = static_cast<size_t>(words) * sizeof(uint32_t);
  out->bufferAlign = alignof(uint32_t);
  out->outBufferHandle = buffer;
  return Status::ok();
}

}  // namespace

extern "C" {

ncclResult_t pncclDevCommCreate(ncclComm_t, const ncclDevCommRequirements_t*, ncclDevComm_t*) {
  return entry("ncclDevCommCreate",
               [] { return needsGpu("ncclDevCommCreate", "makes a communicator for CUDA kernels"); });
}

ncclResult_t pncclDevCommDestroy(ncclComm_t, const ncclDevComm_t*) {
  return entry("ncclDevCommDestroy", [] {
    return invalidUsage("there is no device communicator without a GPU: ncclDevCommCreate makes none");
  });
}

ncclResult_t pncclCommQueryProperties(ncclComm_t comm, ncclCommProperties_t* props) {
  return entry("ncclCommQueryProperties", [&] { return fillProperties(comm, props); });
}

ncclResult_t pncclGetLsaMultimemDevicePointer(ncclWindow_t window, size_t, void** outPtr) {
  return entry("ncclGetLsaMultimemDevicePointer", [&] { return noMultimem(window, outPtr); });
}
ncclResult_t pncclGetMultimemDevicePointer(ncclWindow_t window, size_t, ncclMultimemHandle_t, void** outPtr) {
  return entry("ncclGetMultimemDevicePointer", [&] { return noMultimem(window, outPtr); });
}
ncclResult_t pncclGetLsaDevicePointer(ncclWindow_t, size_t, int, void**) {
  return entry("ncclGetLsaDevicePointer",
               [] { return needsGpu("ncclGetLsaDevicePointer", "gives a pointer for CUDA kernels"); });
}
ncclResult_t pncclGetPeerDevicePointer(ncclWindow_t, size_t, int, void**) {
  return entry("ncclGetPeerDevicePointer",
               [] { return needsGpu("ncclGetPeerDevicePointer", "gives a pointer for CUDA kernels"); });
}

ncclResult_t pncclCommSuspend(ncclComm_t, int) {
  return entry("ncclCommSuspend", [] { return needsGpu("ncclCommSuspend", "releases GPU memory"); });
}
ncclResult_t pncclCommResume(ncclComm_t) {
  return entry("ncclCommResume", [] { return needsGpu("ncclCommResume", "takes GPU memory again"); });
}
ncclResult_t pncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value) {
  return entry("ncclCommMemStats", [&]() -> Status {
    if (value == nullptr) return invalidArgument("value is null");
    TUTTI_TRY(resolveHandle(comm).status());
    if (stat < ncclStatGpuMemSuspend || stat > ncclStatGpuMemTotal)
      return invalidArgument("stat is {}, which is no ncclCommMemStat_t", static_cast<int>(stat));
    *value = 0;  // of GPU memory there is none
    return Status::ok();
  });
}

ncclTeam_t pncclTeamWorld(ncclComm_t comm) {
  return answerOr("ncclTeamWorld", ncclTeam_t{}, [&]() -> Result<ncclTeam_t> {
    TUTTI_ASSIGN(const CommUse communicator, resolveHandle(comm));
    return ncclTeam_t{communicator->ranks(), communicator->rank(), 1};
  });
}

ncclTeam_t pncclTeamLsa(ncclComm_t comm) {
  return answerOr("ncclTeamLsa", ncclTeam_t{}, [&]() -> Result<ncclTeam_t> {
    TUTTI_TRY(resolveHandle(comm).status());
    return ncclTeam_t{1, 0, 1};
  });
}

ncclTeam_t pncclTeamRail(ncclComm_t comm) {
  return answerOr("ncclTeamRail", ncclTeam_t{}, [&]() -> Result<ncclTeam_t> {
    TUTTI_ASSIGN(const CommUse communicator, resolveHandle(comm));
    return ncclTeam_t{communicator->ranks(), communicator->rank(), 1};
  });
}

int pncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank) {
  return answerOr("ncclTeamRankToWorld", -1, [&]() -> Result<int> {
    TUTTI_ASSIGN(const CommUse communicator, resolveHandle(comm));
    return communicator->rank() + (rank - team.rank) * team.stride;
  });
}

int pncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank) {
  return answerOr("ncclTeamRankToLsa", -1, [&]() -> Result<int> {
    TUTTI_TRY(resolveHandle(comm).status());
    return (rank - team.rank) * team.stride;
  });
}

ncclResult_t pncclLsaBarrierCreateRequirement(ncclTeam_t team, int nBarriers,
                                              ncclLsaBarrierHandle_t* outHandle,
                                              ncclDevResourceRequirements_t* outReq) {
  return entry("ncclLsaBarrierCreateRequirement", [&]() -> Status {
    if (outHandle == nullptr || outReq == nullptr) return invalidArgument("outHandle or outReq is null");
    TUTTI_TRY(checkCount("nBarriers", nBarriers));
    TUTTI_TRY(checkCount("team.nRanks", team.nRanks));
    outHandle->nBarriers = nBarriers;
    // For each barrier: two epochs, the multicast inbox, and an inbox for each rank of the team.
    return requireBarrier(int64_t{nBarriers} * (3 + int64_t{team.nRanks}), &outHandle->bufHandle, outReq);
  });
}

ncclResult_t pncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam_t team, int nBarriers,
                                              ncclGinBarrierHandle_t* outHandle,
                                              ncclDevResourceRequirements_t* outReq) {
  return entry("ncclGinBarrierCreateRequirement", [&]() -> Status {
    if (outHandle == nullptr || outReq == nullptr) return invalidArgument("outHandle or outReq is null");
    TUTTI_TRY(resolveHandle(comm).status());
    TUTTI_TRY(checkCount("nBarriers", nBarriers));
    TUTTI_TRY(checkCount("team.nRanks", team.nRanks));
    const int64_t signals = int64_t{nBarriers} * team.nRanks;
    if (signals > std::numeric_limits<int>::max())
      return invalidArgument("{} barriers of {} ranks need more signals than an int counts", nBarriers,
                             team.nRanks);
    *outReq = {};
    outReq->ginSignalCount = static_cast<int>(signals);
    outReq->outGinSignalStart = &outHandle->signal0;
    return Status::ok();
  });
}

int pncclLLA2ACalcSlots(int maxElts, int maxEltSize) {
  return answerOr("ncclLLA2ACalcSlots", -1, [&]() -> Result<int> {
    TUTTI_TRY(checkCount("maxElts", maxElts));
    TUTTI_TRY(checkCount("maxEltSize", maxEltSize));
    const int64_t slots = int64_t{maxElts} * ((int64_t{maxEltSize} + 7) / 8);
    if (slots > std::numeric_limits<int>::max())
      return invalidArgument("{} elements of {} bytes need more slots than an int counts", maxElts,
                             maxEltSize);
    return static_cast<int>(slots);
  });
}

ncclResult_t pncclLLA2ACreateRequirement(int nBlocks, int nSlots, ncclLLA2AHandle_t* outHandle,
                                         ncclDevResourceRequirements_t* outReq) {
  return entry("ncclLLA2ACreateRequirement", [&]() -> Status {
    if (outHandle == nullptr || outReq == nullptr) return invalidArgument("outHandle or outReq is null");
    TUTTI_TRY(checkCount("nBlocks", nBlocks));
    TUTTI_TRY(checkCount("nSlots", nSlots));
    outHandle->nSlots = static_cast<uint32_t>(nSlots);
    *outReq = {};
    // For each block one line with its epoch, and two sets of slots, used in turn.
    outReq->bufferSize =
        static_cast<size_t>(nBlocks) * (1 + 2 * static_cast<size_t>(nSlots)) * kBytesOfLineA2A;
    outReq->bufferAlign = kBytesOfLineA2A;
    outReq->outBufferHandle = &outHandle->bufHandle;
    return Status::ok();
  });
}

/// NCCL exports it beside the deprecated entry point, for its own tests.
__attribute__((visibility("default"))) void ncclResetDebugInitInternal(void) { resetLog(); }

TUTTI_WEAK_ALIAS(DevCommCreate)
ncclResult_t ncclDevCommCreate(ncclComm_t, const ncclDevCommRequirements_t*, ncclDevComm_t*);
TUTTI_WEAK_ALIAS(DevCommDestroy) ncclResult_t ncclDevCommDestroy(ncclComm_t, const ncclDevComm_t*);
TUTTI_WEAK_ALIAS(CommQueryProperties) ncclResult_t ncclCommQueryProperties(ncclComm_t, ncclCommProperties_t*);
TUTTI_WEAK_ALIAS(GetLsaMultimemDevicePointer)
ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t, size_t, void**);
TUTTI_WEAK_ALIAS(GetMultimemDevicePointer)
ncclResult_t ncclGetMultimemDevicePointer(ncclWindow_t, size_t, ncclMultimemHandle_t, void**);
TUTTI_WEAK_ALIAS(GetLsaDevicePointer) ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t, size_t, int, void**);
TUTTI_WEAK_ALIAS(GetPeerDevicePointer)
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t, size_t, int, void**);
TUTTI_WEAK_ALIAS(CommSuspend) ncclResult_t ncclCommSuspend(ncclComm_t, int);
TUTTI_WEAK_ALIAS(CommResume) ncclResult_t ncclCommResume(ncclComm_t);
TUTTI_WEAK_ALIAS(CommMemStats) ncclResult_t ncclCommMemStats(ncclComm_t, ncclCommMemStat_t, uint64_t*);
TUTTI_WEAK_ALIAS(TeamWorld) ncclTeam_t ncclTeamWorld(ncclComm_t);
TUTTI_WEAK_ALIAS(TeamLsa) ncclTeam_t ncclTeamLsa(ncclComm_t);
TUTTI_WEAK_ALIAS(TeamRail) ncclTeam_t ncclTeamRail(ncclComm_t);
TUTTI_WEAK_ALIAS(TeamRankToWorld) int ncclTeamRankToWorld(ncclComm_t, ncclTeam_t, int);
TUTTI_WEAK_ALIAS(TeamRankToLsa) int ncclTeamRankToLsa(ncclComm_t, ncclTeam_t, int);
TUTTI_WEAK_ALIAS(LsaBarrierCreateRequirement)
ncclResult_t ncclLsaBarrierCreateRequirement(ncclTeam_t, int, ncclLsaBarrierHandle_t*,
                                             ncclDevResourceRequirements_t*);
TUTTI_WEAK_ALIAS(GinBarrierCreateRequirement)
ncclResult_t ncclGinBarrierCreateRequirement(ncclComm_t, ncclTeam_t, int, ncclGinBarrierHandle_t*,
                                             ncclDevResourceRequirements_t*);
TUTTI_WEAK_ALIAS(LLA2ACalcSlots) int ncclLLA2ACalcSlots(int, int);
TUTTI_WEAK_ALIAS(LLA2ACreateRequirement)
ncclResult_t ncclLLA2ACreateRequirement(int, int, ncclLLA2AHandle_t*, ncclDevResourceRequirements_t*);

}  // extern "C"
