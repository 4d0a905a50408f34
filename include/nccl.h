/* NCCL-compatible C API of Tutti (level 2.28, and what 2.29 added). BSD-3-Clause; see LICENSE.
 *
 * Programs compiled against NVIDIA's nccl.h and programs compiled against this one run on the same
 * libnccl.so.2. Works in C and C++, with the CUDA headers (a toolkit's or Tutti's own) or without any.
 * What each function does, and where it differs from NCCL: docs/compatibility.md.
 *
 * Macros that a program may define before it includes this file:
 *   TUTTI_NCCL_TIMEOUT             the program knows NCCL 2.30's result ncclTimeout: the enum has it, and
 *                                  NCCL_CONFIG_INITIALIZER tells the library
 *   TUTTI_NCCL_WITHOUT_CUDA_TYPES  only the CUDA runtime's C API is included, not __half and its like,
 *                                  which saves half a second of compile time */
#ifndef NCCL_H_
#define NCCL_H_

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__has_include)
#if __has_include(<cuda_runtime_api.h>)
#include <cuda_runtime_api.h>
#define TUTTI_HAVE_CUDA_HEADERS 1
/* A toolkit's other headers do not go with Tutti's own runtime headers, which have no such types. */
#if !defined(TUTTI_NCCL_WITHOUT_CUDA_TYPES) && !defined(TUTTI_HOST_CUDA_HEADERS)
#if __has_include(<cuda_runtime.h>)
#include <cuda_runtime.h>
#endif
#if __has_include(<cuda_fp16.h>)
#include <cuda_fp16.h>
#endif
#if __has_include(<cuda_bf16.h>)
#include <cuda_bf16.h>
#endif
#if defined(__cplusplus) && __has_include(<cuda_fp8.h>)
#include <cuda_fp8.h>
#endif
#endif
#endif
#endif
#ifndef TUTTI_HAVE_CUDA_HEADERS
typedef struct CUstream_st* cudaStream_t;
#endif

#define NCCL_MAJOR 2
#define NCCL_MINOR 28
#define NCCL_PATCH 9
#define NCCL_SUFFIX ""
#define NCCL_VERSION(X, Y, Z) (((X) <= 2 && (Y) <= 8) ? (X)*1000 + (Y)*100 + (Z) : (X)*10000 + (Y)*100 + (Z))
#define NCCL_VERSION_CODE 22809

#define NCCL_COMM_NULL NULL
#define NCCL_UNIQUE_ID_BYTES 128
#define NCCL_API_MAGIC 0xcafebeef
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL
#define NCCL_UNDEF_FLOAT (-1.0f)
#define NCCL_SPLIT_NOCOLOR (-1)
#define NCCL_SHRINK_DEFAULT 0x00
#define NCCL_SHRINK_ABORT 0x01
#define NCCL_REVOKE_DEFAULT 0x00
#define NCCL_WIN_DEFAULT 0x00
#define NCCL_WIN_COLL_SYMMETRIC 0x01
#define NCCL_WIN_REQUIRED_ALIGNMENT 4096
#define NCCL_CTA_POLICY_DEFAULT 0x00
#define NCCL_CTA_POLICY_EFFICIENCY 0x01
#define NCCL_CTA_POLICY_ZERO 0x02

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* Opaque handles. A communicator belongs to one rank; calls on one communicator must not overlap, except
 * ncclCommAbort and ncclCommGetAsyncError, which any thread may call at any time. */
typedef struct ncclComm* ncclComm_t;
typedef struct ncclWindow_vidmem* ncclWindow_t;

typedef struct {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
#ifdef TUTTI_NCCL_TIMEOUT
  ncclTimeout = 8,
  ncclNumResults = 9
#else
  ncclNumResults = 8
#endif
} ncclResult_t;

typedef enum { ncclNumOps_dummy = 5 } ncclRedOp_dummy_t;

typedef enum {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4,
  ncclNumOps = 5, /* handles of ncclRedOpCreatePreMulSum start here */
  ncclMaxRedOp = 0x7fffffff
} ncclRedOp_t;

typedef enum {
  ncclInt8 = 0,
  ncclChar = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclHalf = 6,
  ncclFloat32 = 7,
  ncclFloat = 7,
  ncclFloat64 = 8,
  ncclDouble = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12
} ncclDataType_t;

/* Where the scalar of ncclRedOpCreatePreMulSum lives. */
typedef enum {
  ncclScalarDevice = 0,       /* read when the collective runs */
  ncclScalarHostImmediate = 1 /* read before the call returns */
} ncclScalarResidence_t;

/* Options of a communicator. Initialise with NCCL_CONFIG_INITIALIZER; fields left undefined take the
 * library's defaults, and the environment overrides both. */
typedef struct ncclConfig_v22800 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char* netName;
  int splitShare;
  int trafficClass;
  const char* commName;
  int collnetEnable;
  int CTAPolicy;
  int shrinkShare;
  int nvlsCTAs;
  int nChannelsPerNetPeer;
  int nvlinkCentricSched;
} ncclConfig_t;

/* The version in a configuration says which results and fields the caller knows. */
#ifdef TUTTI_NCCL_TIMEOUT
#define TUTTI_NCCL_CALLER_VERSION NCCL_VERSION(2, 30, 0)
#else
#define TUTTI_NCCL_CALLER_VERSION NCCL_VERSION_CODE
#endif

#define NCCL_CONFIG_INITIALIZER                                                                     \
  {                                                                                                 \
    sizeof(ncclConfig_t), NCCL_API_MAGIC, TUTTI_NCCL_CALLER_VERSION, NCCL_CONFIG_UNDEF_INT,         \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR, \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT, \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, \
        NCCL_CONFIG_UNDEF_INT                                                                       \
  }

typedef struct ncclSimInfo_v22200 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  float estimatedTime; /* microseconds */
} ncclSimInfo_t;

#define NCCL_SIM_INFO_INITIALIZER \
  { sizeof(ncclSimInfo_t), 0x74685283, NCCL_VERSION_CODE, NCCL_UNDEF_FLOAT }

/* ncclWaitSignal waits until `opCnt` signals with index `sigIdx` have come from rank `peer`. */
typedef struct {
  int opCnt;
  int peer;
  int sigIdx;
  int ctx;
} ncclWaitSignalDesc_t;

#define TUTTI_NCCL_FUNCTION(name, args) \
  ncclResult_t nccl##name args;         \
  ncclResult_t pnccl##name args

/* Library. */
TUTTI_NCCL_FUNCTION(GetVersion, (int* version));
TUTTI_NCCL_FUNCTION(GetUniqueId, (ncclUniqueId * uniqueId));
const char* ncclGetErrorString(ncclResult_t result);
const char* pncclGetErrorString(ncclResult_t result);
/* The last error of this thread, or of comm when it is not null. Valid until the thread's next error. */
const char* ncclGetLastError(ncclComm_t comm);
const char* pncclGetLastError(ncclComm_t comm);
/* Reads the log's settings again. Deprecated in NCCL, as here. */
#ifdef __GNUC__
#define TUTTI_NCCL_DEPRECATED __attribute__((deprecated("not a supported part of the NCCL API")))
#else
#define TUTTI_NCCL_DEPRECATED
#endif
TUTTI_NCCL_DEPRECATED void ncclResetDebugInit(void);
TUTTI_NCCL_DEPRECATED void pncclResetDebugInit(void);

/* Memory that peers can map, which lets collectives work in place on it. */
TUTTI_NCCL_FUNCTION(MemAlloc, (void** ptr, size_t size));
TUTTI_NCCL_FUNCTION(MemFree, (void* ptr));

/* Communicators. */
TUTTI_NCCL_FUNCTION(CommInitRank, (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank));
TUTTI_NCCL_FUNCTION(CommInitRankConfig,
                    (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t* config));
TUTTI_NCCL_FUNCTION(CommInitAll, (ncclComm_t * comm, int ndev, const int* devlist));
TUTTI_NCCL_FUNCTION(CommInitRankScalable, (ncclComm_t * newcomm, int nranks, int myrank, int nId,
                                           ncclUniqueId* commIds, ncclConfig_t* config));
TUTTI_NCCL_FUNCTION(CommFinalize, (ncclComm_t comm));
TUTTI_NCCL_FUNCTION(CommDestroy, (ncclComm_t comm));
TUTTI_NCCL_FUNCTION(CommAbort, (ncclComm_t comm));
TUTTI_NCCL_FUNCTION(CommRevoke, (ncclComm_t comm, int revokeFlags));
TUTTI_NCCL_FUNCTION(CommSplit,
                    (ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config));
TUTTI_NCCL_FUNCTION(CommShrink, (ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                                 ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags));
/* Since 2.29. New ranks join an existing communicator: one of its ranks makes an id for them and gives it to
 * ncclCommGrow, the other ranks pass no id and -1 as rank; the new ranks pass no communicator. */
TUTTI_NCCL_FUNCTION(CommGetUniqueId, (ncclComm_t comm, ncclUniqueId* uniqueId));
TUTTI_NCCL_FUNCTION(CommGrow, (ncclComm_t comm, int nRanks, const ncclUniqueId* uniqueId, int rank,
                               ncclComm_t* newcomm, ncclConfig_t* config));
TUTTI_NCCL_FUNCTION(CommGetAsyncError, (ncclComm_t comm, ncclResult_t* asyncError));
TUTTI_NCCL_FUNCTION(CommCount, (const ncclComm_t comm, int* count));
TUTTI_NCCL_FUNCTION(CommCuDevice, (const ncclComm_t comm, int* device));
TUTTI_NCCL_FUNCTION(CommUserRank, (const ncclComm_t comm, int* rank));
TUTTI_NCCL_FUNCTION(CommRegister, (const ncclComm_t comm, void* buff, size_t size, void** handle));
TUTTI_NCCL_FUNCTION(CommDeregister, (const ncclComm_t comm, void* handle));
TUTTI_NCCL_FUNCTION(CommWindowRegister,
                    (ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win, int winFlags));
TUTTI_NCCL_FUNCTION(CommWindowDeregister, (ncclComm_t comm, ncclWindow_t win));
/* Since 2.29: the buffer that this rank registered as the window. */
TUTTI_NCCL_FUNCTION(WinGetUserPtr, (ncclComm_t comm, ncclWindow_t win, void** outUserPtr));

/* Since 2.29.7: GPU memory of a communicator. */
#define NCCL_SUSPEND_MEM 0x01
typedef enum {
  ncclStatGpuMemSuspend = 0,   /* bytes that suspending would release */
  ncclStatGpuMemSuspended = 1, /* 1: suspended */
  ncclStatGpuMemPersist = 2,   /* bytes that stay */
  ncclStatGpuMemTotal = 3
} ncclCommMemStat_t;
TUTTI_NCCL_FUNCTION(CommSuspend, (ncclComm_t comm, int flags));
TUTTI_NCCL_FUNCTION(CommResume, (ncclComm_t comm));
TUTTI_NCCL_FUNCTION(CommMemStats, (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value));

/* Reduction operators. */
TUTTI_NCCL_FUNCTION(RedOpCreatePreMulSum, (ncclRedOp_t * op, void* scalar, ncclDataType_t datatype,
                                           ncclScalarResidence_t residence, ncclComm_t comm));
TUTTI_NCCL_FUNCTION(RedOpDestroy, (ncclRedOp_t op, ncclComm_t comm));

/* Collectives. Counts are in elements, per rank where a buffer holds one block for every rank. */
TUTTI_NCCL_FUNCTION(Reduce, (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                             ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream));
TUTTI_NCCL_FUNCTION(Bcast, (void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                            cudaStream_t stream));
TUTTI_NCCL_FUNCTION(Broadcast, (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                int root, ncclComm_t comm, cudaStream_t stream));
TUTTI_NCCL_FUNCTION(AllReduce, (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream));
TUTTI_NCCL_FUNCTION(ReduceScatter,
                    (const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
                     ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream));
TUTTI_NCCL_FUNCTION(AllGather, (const void* sendbuff, void* recvbuff, size_t sendcount,
                                ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream));
TUTTI_NCCL_FUNCTION(AlltoAll, (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                               ncclComm_t comm, cudaStream_t stream));
TUTTI_NCCL_FUNCTION(Gather, (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                             int root, ncclComm_t comm, cudaStream_t stream));
TUTTI_NCCL_FUNCTION(Scatter, (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                              int root, ncclComm_t comm, cudaStream_t stream));
TUTTI_NCCL_FUNCTION(Send, (const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
                           ncclComm_t comm, cudaStream_t stream));
TUTTI_NCCL_FUNCTION(Recv, (void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                           cudaStream_t stream));

/* One-sided, since 2.29: data into a peer's window, then a signal; signals alone; waiting for signals. */
TUTTI_NCCL_FUNCTION(PutSignal, (const void* localbuff, size_t count, ncclDataType_t datatype, int peer,
                                ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx,
                                unsigned int flags, ncclComm_t comm, cudaStream_t stream));
TUTTI_NCCL_FUNCTION(Signal, (int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
                             cudaStream_t stream));
TUTTI_NCCL_FUNCTION(WaitSignal,
                    (int nDesc, ncclWaitSignalDesc_t* signalDescs, ncclComm_t comm, cudaStream_t stream));

/* Groups: calls between Start and End are launched together by the outermost End. */
TUTTI_NCCL_FUNCTION(GroupStart, (void));
TUTTI_NCCL_FUNCTION(GroupEnd, (void));
TUTTI_NCCL_FUNCTION(GroupSimulateEnd, (ncclSimInfo_t * simInfo));

#undef TUTTI_NCCL_FUNCTION
#undef TUTTI_NCCL_DEPRECATED

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif /* NCCL_H_ */
