// libcuda.so.1 as far as it is used: types, constants and functions, declared here so that the library builds
// without a CUDA toolkit (a test compares them with the toolkit's). Found at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace tutti::cuda {

using Error = int;  // CUresult
using Device = int;
using Context = void*;
using Module = void*;
using Function = void*;
using Stream = void*;
using Event = void*;
using Address = unsigned long long;

constexpr Error kNoDevice = 100;
constexpr Error kNoBinaryForGpu = 209;
constexpr Error kNotReady = 600;
constexpr Error kPeerAccessAlreadyEnabled = 704;

constexpr int kMultiprocessors = 16;  // CUdevice_attribute
constexpr int kMajor = 75;
constexpr int kMinor = 76;
constexpr int kSharedOptin = 97;
constexpr int kRegisters = 4;  // CUfunction_attribute
constexpr int kMostDynamicShared = 8;
constexpr int kMemoryType = 2;  // CUpointer_attribute
constexpr int kIsManaged = 8;
constexpr int kDeviceOrdinal = 9;
constexpr int kHostMemory = 1;  // CUmemorytype
constexpr int kDeviceMemory = 2;
constexpr unsigned kNonBlocking = 1;    // CUstream_flags
constexpr unsigned kDisableTiming = 2;  // CUevent_flags
constexpr unsigned kEventExternal = 1;  // CU_EVENT_RECORD_EXTERNAL, CU_EVENT_WAIT_EXTERNAL
constexpr unsigned kPortable = 1;       // CU_MEMHOSTALLOC_*
constexpr unsigned kMapped = 2;
constexpr int kCaptureNone = 0;  // CUstreamCaptureStatus
constexpr int kCaptureActive = 1;
constexpr int kRelaxed = 2;            // CUstreamCaptureMode
constexpr uint64_t kLegacyStream = 1;  // CUdriverProcAddress_flags

// X(name, the version of CUDA whose form of the function it is, parameters). Every driver keeps giving that
// form, whatever newer ones it has.
#define TUTTI_CUDA_FUNCTIONS(X)                                                                      \
  X(cuInit, 2000, (unsigned))                                                                        \
  X(cuGetErrorName, 6000, (Error, const char**))                                                     \
  X(cuGetErrorString, 6000, (Error, const char**))                                                   \
  X(cuDeviceGetCount, 2000, (int*))                                                                  \
  X(cuDeviceGet, 2000, (Device*, int))                                                               \
  X(cuDeviceGetName, 2000, (char*, int, Device))                                                     \
  X(cuDeviceGetAttribute, 2000, (int*, int, Device))                                                 \
  X(cuDeviceGetPCIBusId, 4010, (char*, int, Device))                                                 \
  X(cuDeviceCanAccessPeer, 4000, (int*, Device, Device))                                             \
  X(cuDevicePrimaryCtxRetain, 7000, (Context*, Device))                                              \
  X(cuDevicePrimaryCtxRelease, 11000, (Device))                                                      \
  X(cuCtxPushCurrent, 4000, (Context))                                                               \
  X(cuCtxPopCurrent, 4000, (Context*))                                                               \
  X(cuCtxGetCurrent, 4000, (Context*))                                                               \
  X(cuCtxGetDevice, 2000, (Device*))                                                                 \
  X(cuCtxEnablePeerAccess, 4000, (Context, unsigned))                                                \
  X(cuModuleLoadData, 2000, (Module*, const void*))                                                  \
  X(cuModuleUnload, 2000, (Module))                                                                  \
  X(cuModuleGetFunction, 2000, (Function*, Module, const char*))                                     \
  X(cuFuncGetAttribute, 2020, (int*, int, Function))                                                 \
  X(cuFuncSetAttribute, 9000, (Function, int, int))                                                  \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050, (int*, Function, int, size_t))                \
  X(cuLaunchKernel, 4000,                                                                            \
    (Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream, void**, \
     void**))                                                                                        \
  X(cuMemAlloc, 3020, (Address*, size_t))                                                            \
  X(cuMemFree, 3020, (Address))                                                                      \
  X(cuMemHostAlloc, 2020, (void**, size_t, unsigned))                                                \
  X(cuMemFreeHost, 2000, (void*))                                                                    \
  X(cuMemcpyHtoDAsync, 3020, (Address, const void*, size_t, Stream))                                 \
  X(cuMemcpyDtoHAsync, 3020, (void*, Address, size_t, Stream))                                       \
  X(cuMemsetD8Async, 3020, (Address, unsigned char, size_t, Stream))                                 \
  X(cuPointerGetAttributes, 7000, (unsigned, int*, void**, Address))                                 \
  X(cuStreamCreate, 2000, (Stream*, unsigned))                                                       \
  X(cuStreamDestroy, 4000, (Stream))                                                                 \
  X(cuStreamSynchronize, 2000, (Stream))                                                             \
  X(cuStreamQuery, 2000, (Stream))                                                                   \
  X(cuStreamWaitEvent, 3020, (Stream, Event, unsigned))                                              \
  X(cuStreamGetCtx, 9020, (Stream, Context*))                                                        \
  X(cuStreamGetCaptureInfo, 10010, (Stream, int*, uint64_t*))                                        \
  X(cuThreadExchangeStreamCaptureMode, 10010, (int*))                                                \
  X(cuEventCreate, 2000, (Event*, unsigned))                                                         \
  X(cuEventDestroy, 4000, (Event))                                                                   \
  X(cuEventRecordWithFlags, 11010, (Event, Stream, unsigned))                                        \
  X(cuEventQuery, 2000, (Event))

// Functions that newer drivers have: null where there is none.
#define TUTTI_CUDA_OPTIONAL_FUNCTIONS(X) X(cuFuncLoad, 12040, (Function))

struct Api {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a name and a list of parameters
#define TUTTI_CUDA_MEMBER(name, version, parameters) Error(*name) parameters = nullptr;
  TUTTI_CUDA_FUNCTIONS(TUTTI_CUDA_MEMBER)
  TUTTI_CUDA_OPTIONAL_FUNCTIONS(TUTTI_CUDA_MEMBER)
#undef TUTTI_CUDA_MEMBER

  /// "out of memory (CUDA_ERROR_OUT_OF_MEMORY)".
  std::string text(Error error) const;
};

/// Opens the library (which stays loaded) and finds the functions. Errors say whether there is none, it is
/// older than CUDA `oldest` (12000 is 12.0), or which function it lacks.
Result<Api> open(const std::string& file, int oldest);

}  // namespace tutti::cuda
