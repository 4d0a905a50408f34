/* The host side of NCCL's device API (2.28, and what 2.29 added). C and C++. BSD-3-Clause; see LICENSE.
 *
 * Types and functions that host code needs to compile and link: communicators for kernels, teams, resources.
 * Names and layouts are NVIDIA's (2.28.9). What kernels use (sessions, GIN, pointers of peers) is not here
 * yet: a program with kernels that use the device API needs NVIDIA's nccl_device.h. docs/compatibility.md
 * says what each function does here. */
#ifndef TUTTI_NCCL_DEVICE_H_
#define TUTTI_NCCL_DEVICE_H_

/* NVIDIA's header tree defines these guards; a translation unit has one set of these types. */
#ifdef _NCCL_DEVICE_CORE_H_
#error "Tutti's nccl_device.h and NVIDIA's nccl_device/ headers in one translation unit: use one of them"
#endif
#define _NCCL_DEVICE_CORE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nccl.h"

#ifdef __CUDACC__
#define NCCL_HOST_DEVICE_INLINE __host__ __device__ __forceinline__
#define NCCL_DEVICE_INLINE __device__ __forceinline__
#elif defined(__cplusplus)
#define NCCL_HOST_DEVICE_INLINE inline __attribute__((always_inline))
#define NCCL_DEVICE_INLINE
#else
#define NCCL_HOST_DEVICE_INLINE static inline __attribute__((always_inline))
#define NCCL_DEVICE_INLINE
#endif
#ifdef __cplusplus
#define NCCL_EXTERN_C extern "C"
#else
#define NCCL_EXTERN_C
#endif

#define NCCL_GIN_MAX_CONTEXTS 4

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

typedef struct ncclDevComm ncclDevComm_t;
typedef struct ncclTeam ncclTeam_t;
typedef struct ncclMultimemHandle ncclMultimemHandle_t;
typedef struct ncclLsaBarrierHandle ncclLsaBarrierHandle_t;
typedef struct ncclGinBarrierHandle ncclGinBarrierHandle_t;
typedef struct ncclLLA2AHandle ncclLLA2AHandle_t;
typedef struct ncclDevCommRequirements ncclDevCommRequirements_t;
typedef struct ncclDevResourceRequirements ncclDevResourceRequirements_t;
typedef struct ncclTeamRequirements ncclTeamRequirements_t;
typedef struct ncclCommProperties ncclCommProperties_t;

typedef uint32_t ncclDevResourceHandle;
typedef ncclDevResourceHandle ncclDevResourceHandle_t;
typedef uint32_t ncclGinSignal_t;
typedef uint32_t ncclGinCounter_t;
typedef void* ncclGinWindow_t;

/* Ranks at equal distances: rank i of the team is world rank `ours + (i - rank) * stride`. */
struct ncclTeam {
  int nRanks;
  int rank;
  int stride;
};

struct ncclMultimemHandle {
  void* mcBasePtr;
};

struct ncclLsaBarrierHandle {
  ncclDevResourceHandle_t bufHandle;
  int nBarriers;
};

struct ncclGinBarrierHandle {
  ncclGinSignal_t signal0;
  ncclDevResourceHandle_t bufHandle;
};

struct ncclLLA2AHandle {
  ncclDevResourceHandle_t bufHandle;
  uint32_t nSlots;
};

/* What ncclWindow_t points to, in device memory. */
struct ncclWindow_vidmem {
  void* winHost;
  char* lsaFlatBase;
  int lsaRank;
  int worldRank;
  uint32_t stride4G;
  uint32_t mcOffset4K;
  uint32_t ginOffset4K;
  ncclGinWindow_t ginWins[NCCL_GIN_MAX_CONTEXTS];
};

/* A buffer or signals that the user wants a device communicator to hold; a list. */
struct ncclDevResourceRequirements {
  ncclDevResourceRequirements_t* next;
  size_t bufferSize;
  size_t bufferAlign;
  ncclDevResourceHandle_t* outBufferHandle; /* set by ncclDevCommCreate, when not null */
  int ginSignalCount;
  int ginCounterCount;
  ncclGinSignal_t* outGinSignalStart;
  ncclGinCounter_t* outGinCounterStart;
};

struct ncclTeamRequirements {
  ncclTeamRequirements_t* next;
  ncclTeam_t team;
  bool multimem;
  ncclMultimemHandle_t* outMultimemHandle; /* set by ncclDevCommCreate, when not null */
};

struct ncclDevCommRequirements {
  ncclDevResourceRequirements_t* resourceRequirementsList;
  ncclTeamRequirements_t* teamRequirementsList;
  bool lsaMultimem;
  int barrierCount;
  int lsaBarrierCount;
  int railGinBarrierCount;
  int lsaLLA2ABlockCount;
  int lsaLLA2ASlotCount;
  bool ginForceEnable;
  int ginContextCount;
  int ginSignalCount;
  int ginCounterCount;
};

struct ncclDevCommWindowTable;

/* A communicator as kernels see it. */
struct ncclDevComm {
  int rank;
  int nRanks;
  uint32_t nRanks_rcp32;
  int lsaRank;
  int lsaSize;
  uint32_t lsaSize_rcp32;
  struct ncclDevCommWindowTable* windowTable;
  ncclWindow_t resourceWindow;
  struct ncclWindow_vidmem resourceWindow_inlined;
  ncclMultimemHandle_t lsaMultimem;
  ncclLsaBarrierHandle_t lsaBarrier;
  ncclGinBarrierHandle_t railGinBarrier;
  uint8_t ginContextCount;
  uint8_t ginTypes[4];
  void* ginHandles[4];
  uint32_t ginSignalBase;
  int ginSignalCount;
  uint32_t ginCounterBase;
  int ginCounterCount;
  uint64_t* ginSignalShadows;
};

/* Since 2.29. */
typedef enum { NCCL_GIN_TYPE_NONE = 0, NCCL_GIN_TYPE_PROXY = 2, NCCL_GIN_TYPE_GDAKI = 3 } ncclGinType_t;

/* What a communicator can do (layout of 2.29.7). Initialise with NCCL_COMM_PROPERTIES_INITIALIZER. */
struct ncclCommProperties {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int rank;
  int nRanks;
  int cudaDev;
  int nvmlDev; /* -1: unknown */
  bool deviceApiSupport;
  bool multimemSupport;
  ncclGinType_t ginType;
  int nLsaTeams;
  bool hostRmaSupport;
  ncclGinType_t railedGinType;
};

/* The members after the version are the library's to fill. */
#ifdef __cplusplus
#define NCCL_COMM_PROPERTIES_INITIALIZER                                                       \
  {                                                                                            \
    sizeof(ncclCommProperties_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, 0, 0, 0, 0, false, false, \
        NCCL_GIN_TYPE_NONE, 0, false, NCCL_GIN_TYPE_NONE                                       \
  }
#else
#define NCCL_COMM_PROPERTIES_INITIALIZER \
  { .size = sizeof(ncclCommProperties_t), .magic = NCCL_API_MAGIC, .version = NCCL_VERSION_CODE }
#endif

#define TUTTI_NCCL_FUNCTION(type, name, args) \
  type nccl##name args;                       \
  type pnccl##name args

/* Communicators for kernels: they need a GPU. Without one, ncclInvalidUsage. */
TUTTI_NCCL_FUNCTION(ncclResult_t, DevCommCreate,
                    (ncclComm_t comm, const ncclDevCommRequirements_t* reqs, ncclDevComm_t* outDevComm));
TUTTI_NCCL_FUNCTION(ncclResult_t, DevCommDestroy, (ncclComm_t comm, const ncclDevComm_t* devComm));
TUTTI_NCCL_FUNCTION(ncclResult_t, CommQueryProperties, (ncclComm_t comm, ncclCommProperties_t* props));

/* Since 2.29: pointers into windows, for kernels. */
TUTTI_NCCL_FUNCTION(ncclResult_t, GetLsaMultimemDevicePointer,
                    (ncclWindow_t window, size_t offset, void** outPtr));
TUTTI_NCCL_FUNCTION(ncclResult_t, GetMultimemDevicePointer,
                    (ncclWindow_t window, size_t offset, ncclMultimemHandle_t multimem, void** outPtr));
TUTTI_NCCL_FUNCTION(ncclResult_t, GetLsaDevicePointer,
                    (ncclWindow_t window, size_t offset, int lsaRank, void** outPtr));
TUTTI_NCCL_FUNCTION(ncclResult_t, GetPeerDevicePointer,
                    (ncclWindow_t window, size_t offset, int peer, void** outPtr));

/* Teams: all ranks; those whose memory this rank's kernels can load and store (without a GPU: itself alone);
 * those with the same place in their LSA teams. No error can be told here: the members of the team of a bad
 * communicator are 0, a rank of one is -1. */
TUTTI_NCCL_FUNCTION(ncclTeam_t, TeamWorld, (ncclComm_t comm));
TUTTI_NCCL_FUNCTION(ncclTeam_t, TeamLsa, (ncclComm_t comm));
TUTTI_NCCL_FUNCTION(ncclTeam_t, TeamRail, (ncclComm_t comm));
TUTTI_NCCL_FUNCTION(int, TeamRankToWorld, (ncclComm_t comm, ncclTeam_t team, int rank));
TUTTI_NCCL_FUNCTION(int, TeamRankToLsa, (ncclComm_t comm, ncclTeam_t team, int rank));

/* Sizes of resources, for ncclDevCommRequirements_t. */
TUTTI_NCCL_FUNCTION(ncclResult_t, LsaBarrierCreateRequirement,
                    (ncclTeam_t team, int nBarriers, ncclLsaBarrierHandle_t* outHandle,
                     ncclDevResourceRequirements_t* outReq));
TUTTI_NCCL_FUNCTION(ncclResult_t, GinBarrierCreateRequirement,
                    (ncclComm_t comm, ncclTeam_t team, int nBarriers, ncclGinBarrierHandle_t* outHandle,
                     ncclDevResourceRequirements_t* outReq));
TUTTI_NCCL_FUNCTION(int, LLA2ACalcSlots, (int maxElts, int maxEltSize));
TUTTI_NCCL_FUNCTION(ncclResult_t, LLA2ACreateRequirement,
                    (int nBlocks, int nSlots, ncclLLA2AHandle_t* outHandle,
                     ncclDevResourceRequirements_t* outReq));

#undef TUTTI_NCCL_FUNCTION

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

/* Arithmetic of teams, for host and device. */

/* The rank in team `a` that rank `bPeer` of team `b` has. Both teams contain the caller. */
NCCL_EXTERN_C NCCL_HOST_DEVICE_INLINE int ncclTeamRankToTeam(ncclTeam_t a, ncclTeam_t b, int bPeer) {
  return a.rank + (bPeer - b.rank) * b.stride / a.stride;
}

NCCL_EXTERN_C NCCL_HOST_DEVICE_INLINE bool ncclTeamRankIsMember(ncclTeam_t a, ncclTeam_t b, int bPeer) {
  const int distance = (bPeer - b.rank) * b.stride;
  const int place = a.rank + distance / a.stride;
  return distance % a.stride == 0 && place >= 0 && place < a.nRanks;
}

/* The parent cut into pieces of innerSize consecutive ranks: the caller's piece, and the ranks with the same
 * place in the other pieces. */
NCCL_EXTERN_C NCCL_HOST_DEVICE_INLINE ncclTeam_t ncclTeamInnerFactor(ncclTeam_t parent, int innerSize) {
  ncclTeam_t team;
  team.nRanks = innerSize;
  team.rank = parent.rank % innerSize;
  team.stride = parent.stride;
  return team;
}
NCCL_EXTERN_C NCCL_HOST_DEVICE_INLINE ncclTeam_t ncclTeamOuterFactor(ncclTeam_t parent, int innerSize) {
  ncclTeam_t team;
  team.nRanks = parent.nRanks / innerSize;
  team.rank = parent.rank / innerSize;
  team.stride = parent.stride * innerSize;
  return team;
}

/* The index-th rank of `parent` that is not in its subset. */
NCCL_EXTERN_C NCCL_HOST_DEVICE_INLINE int ncclTeamRankInDifference(ncclTeam_t parent, ncclTeam_t subset,
                                                                   int index) {
  int step = subset.stride / parent.stride;
  int first = parent.rank - subset.rank * step; /* the subset's lowest member, as a rank of parent */
  int member;
  if (step < 0) {
    first += (subset.nRanks - 1) * step;
    step = -step;
  }
  for (member = 0; member < subset.nRanks && index >= first + member * step; ++member) ++index;
  return index;
}

#ifdef __cplusplus
/* The same questions as above, to a device communicator. */
NCCL_HOST_DEVICE_INLINE ncclTeam ncclTeamWorld(const ncclDevComm& comm) {
  return ncclTeam{comm.nRanks, comm.rank, 1};
}
NCCL_HOST_DEVICE_INLINE ncclTeam ncclTeamLsa(const ncclDevComm& comm) {
  return ncclTeam{comm.lsaSize, comm.lsaRank, 1};
}
NCCL_HOST_DEVICE_INLINE ncclTeam ncclTeamRail(const ncclDevComm& comm) {
  return ncclTeam{comm.nRanks / comm.lsaSize, comm.rank / comm.lsaSize, comm.lsaSize};
}
NCCL_HOST_DEVICE_INLINE int ncclTeamRankToWorld(const ncclDevComm& comm, ncclTeam team, int rank) {
  return comm.rank + (rank - team.rank) * team.stride;
}
NCCL_HOST_DEVICE_INLINE int ncclTeamRankToLsa(const ncclDevComm& comm, ncclTeam team, int rank) {
  return comm.lsaRank + (rank - team.rank) * team.stride;
}

/* A place in a window that is the same on all ranks. */
template <typename T>
struct ncclSymPtr {
  using ElementType = T;
  ncclWindow_t window;
  size_t offset;

  NCCL_HOST_DEVICE_INLINE constexpr ncclSymPtr(ncclWindow_t inWindow = nullptr, size_t atOffset = 0)
      : window(inWindow), offset(atOffset) {}
  template <typename U>
  NCCL_HOST_DEVICE_INLINE operator ncclSymPtr<U>() const {
    return {window, offset};
  }
  template <typename Integer>
  NCCL_HOST_DEVICE_INLINE ncclSymPtr& operator+=(Integer elements) {
    offset += static_cast<size_t>(elements) * sizeof(T);
    return *this;
  }
  template <typename Integer>
  NCCL_HOST_DEVICE_INLINE ncclSymPtr& operator-=(Integer elements) {
    offset -= static_cast<size_t>(elements) * sizeof(T);
    return *this;
  }
};
template <typename T, typename Integer>
NCCL_HOST_DEVICE_INLINE ncclSymPtr<T> operator+(ncclSymPtr<T> place, Integer elements) {
  return place += elements;
}
template <typename T, typename Integer>
NCCL_HOST_DEVICE_INLINE ncclSymPtr<T> operator-(ncclSymPtr<T> place, Integer elements) {
  return place -= elements;
}
template <typename T>
NCCL_HOST_DEVICE_INLINE ptrdiff_t operator-(ncclSymPtr<T> a, ncclSymPtr<T> b) {
  return (static_cast<ptrdiff_t>(a.offset) - static_cast<ptrdiff_t>(b.offset)) /
         static_cast<ptrdiff_t>(sizeof(T));
}
template <typename T>
NCCL_HOST_DEVICE_INLINE bool operator==(ncclSymPtr<T> a, ncclSymPtr<T> b) {
  return a.window == b.window && a.offset == b.offset;
}
template <typename T>
NCCL_HOST_DEVICE_INLINE bool operator!=(ncclSymPtr<T> a, ncclSymPtr<T> b) {
  return !(a == b);
}
#endif

#endif /* TUTTI_NCCL_DEVICE_H_ */
