// Unique ids, communicators and their state.
#include "api/entry.h"
#include "bootstrap/unique_id.h"
#include "core/communicator.h"
#include "core/derive.h"
#include "core/handle.h"
#include "core/init.h"
#include "core/lifecycle.h"

using namespace tutti;

extern "C" {

ncclResult_t pncclGetUniqueId(ncclUniqueId* uniqueId) {
  return entry("ncclGetUniqueId", [&]() -> Status {
    if (uniqueId == nullptr) return invalidArgument("uniqueId is null");
    TUTTI_ASSIGN(*uniqueId, createUniqueId());
    return Status::ok();
  });
}

ncclResult_t pncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  return entry("ncclCommInitRank", [&] { return initRank(comm, nranks, commId, rank, nullptr); });
}

ncclResult_t pncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                     ncclConfig_t* config) {
  return entry("ncclCommInitRankConfig", [&] { return initRank(comm, nranks, commId, rank, config); });
}

ncclResult_t pncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId,
                                       ncclUniqueId* commIds, ncclConfig_t* config) {
  return entry("ncclCommInitRankScalable",
               [&] { return initRankScalable(newcomm, nranks, myrank, nId, commIds, config); });
}

ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config) {
  return entry("ncclCommSplit", [&] { return splitComm(comm, color, key, newcomm, config); });
}

ncclResult_t pncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                             ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags) {
  return entry("ncclCommShrink", [&] {
    return shrinkComm(comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags);
  });
}

ncclResult_t pncclCommRevoke(ncclComm_t comm, int revokeFlags) {
  return entry("ncclCommRevoke", [&] { return revokeComm(comm, revokeFlags); });
}

ncclResult_t pncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* uniqueId) {
  return entry("ncclCommGetUniqueId", [&]() -> Status {
    if (uniqueId == nullptr) return invalidArgument("uniqueId is null");
    TUTTI_ASSIGN(*uniqueId, growId(comm));
    return Status::ok();
  });
}

ncclResult_t pncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId* uniqueId, int rank,
                           ncclComm_t* newcomm, ncclConfig_t* config) {
  return entry("ncclCommGrow", [&] { return growComm(comm, nRanks, uniqueId, rank, newcomm, config); });
}

ncclResult_t pncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist) {
  return entry("ncclCommInitAll", [&] { return initAll(comm, ndev, devlist); });
}

ncclResult_t pncclCommFinalize(ncclComm_t comm) {
  return entry("ncclCommFinalize", [&] { return finalizeComm(comm); });
}

ncclResult_t pncclCommDestroy(ncclComm_t comm) {
  return entry("ncclCommDestroy", [&] { return destroyComm(comm); });
}

ncclResult_t pncclCommAbort(ncclComm_t comm) {
  return entry("ncclCommAbort", [&] { return abortComm(comm); });
}

ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  return entry("ncclCommGetAsyncError", [&] { return tutti::asyncError(comm, asyncError); });
}

ncclResult_t pncclCommCount(const ncclComm_t comm, int* count) {
  return entry("ncclCommCount", [&]() -> Status {
    if (count == nullptr) return invalidArgument("count is null");
    TUTTI_ASSIGN(const CommUse communicator, resolveHandle(comm, Allow::making));
    *count = communicator->ranks();
    return Status::ok();
  });
}

ncclResult_t pncclCommCuDevice(const ncclComm_t comm, int* device) {
  return entry("ncclCommCuDevice", [&]() -> Status {
    if (device == nullptr) return invalidArgument("device is null");
    TUTTI_ASSIGN(const CommUse communicator, resolveHandle(comm, Allow::making));
    *device = communicator->device();
    return Status::ok();
  });
}

ncclResult_t pncclCommUserRank(const ncclComm_t comm, int* rank) {
  return entry("ncclCommUserRank", [&]() -> Status {
    if (rank == nullptr) return invalidArgument("rank is null");
    TUTTI_ASSIGN(const CommUse communicator, resolveHandle(comm, Allow::making));
    *rank = communicator->rank();
    return Status::ok();
  });
}

TUTTI_WEAK_ALIAS(GetUniqueId) ncclResult_t ncclGetUniqueId(ncclUniqueId*);
TUTTI_WEAK_ALIAS(CommInitRank) ncclResult_t ncclCommInitRank(ncclComm_t*, int, ncclUniqueId, int);
TUTTI_WEAK_ALIAS(CommInitRankConfig)
ncclResult_t ncclCommInitRankConfig(ncclComm_t*, int, ncclUniqueId, int, ncclConfig_t*);
TUTTI_WEAK_ALIAS(CommInitRankScalable)
ncclResult_t ncclCommInitRankScalable(ncclComm_t*, int, int, int, ncclUniqueId*, ncclConfig_t*);
TUTTI_WEAK_ALIAS(CommSplit) ncclResult_t ncclCommSplit(ncclComm_t, int, int, ncclComm_t*, ncclConfig_t*);
TUTTI_WEAK_ALIAS(CommShrink)
ncclResult_t ncclCommShrink(ncclComm_t, int*, int, ncclComm_t*, ncclConfig_t*, int);
TUTTI_WEAK_ALIAS(CommRevoke) ncclResult_t ncclCommRevoke(ncclComm_t, int);
TUTTI_WEAK_ALIAS(CommGetUniqueId) ncclResult_t ncclCommGetUniqueId(ncclComm_t, ncclUniqueId*);
TUTTI_WEAK_ALIAS(CommGrow)
ncclResult_t ncclCommGrow(ncclComm_t, int, const ncclUniqueId*, int, ncclComm_t*, ncclConfig_t*);
TUTTI_WEAK_ALIAS(CommInitAll) ncclResult_t ncclCommInitAll(ncclComm_t*, int, const int*);
TUTTI_WEAK_ALIAS(CommFinalize) ncclResult_t ncclCommFinalize(ncclComm_t);
TUTTI_WEAK_ALIAS(CommDestroy) ncclResult_t ncclCommDestroy(ncclComm_t);
TUTTI_WEAK_ALIAS(CommAbort) ncclResult_t ncclCommAbort(ncclComm_t);
TUTTI_WEAK_ALIAS(CommGetAsyncError) ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t*);
TUTTI_WEAK_ALIAS(CommCount) ncclResult_t ncclCommCount(const ncclComm_t, int*);
TUTTI_WEAK_ALIAS(CommCuDevice) ncclResult_t ncclCommCuDevice(const ncclComm_t, int*);
TUTTI_WEAK_ALIAS(CommUserRank) ncclResult_t ncclCommUserRank(const ncclComm_t, int*);

}  // extern "C"
