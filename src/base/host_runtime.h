// The table through which the library uses the host runtime (src/hostrt): one versioned C symbol,
// tuttiHostRuntime_v1, exported by lib/host/libcudart.so.13 and by lib/host/libtutti_hostrt.so.1. Plain C,
// because the two libraries may be built at different times. Functions return 0 on success and an errno value
// otherwise, unless they say something else. All are thread-safe and none throws.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Where a pointer of the runtime's memory lives: a memory file that another process can map.
typedef struct tuttiMemoryFileRef {
  int fd;            // owned by the runtime; valid while the allocation lives; duplicate before keeping
  uint64_t fileId;   // unique within this process and never used again
  void* base;        // where the file is mapped in this process
  size_t fileBytes;  // length of that mapping
  size_t offset;     // of the pointer asked for, from base
  int device;        // that the memory belongs to
} tuttiMemoryFileRef;

/// Work that a stream runs in its order. `run` is called once, on the stream's worker, and may block; the
/// next work of the stream starts when it returns. `release` is called after it, or instead of it when the
/// stream is destroyed.
typedef struct tuttiStreamTask {
  void (*run)(void* context);
  void (*release)(void* context);  // may be null
  void* context;
} tuttiStreamTask;

/// Work that stands in a graph, because its stream was being captured. Every launch of the graph calls
/// `launch`, in the launching thread, for all work of the graph in the order in which it was captured; the
/// task that it gives then runs in its place in the graph (base rules: once, on a worker, may block). When
/// `launch` answers an errno value instead, nothing runs in that place and the launch reports an error.
/// `release` is called once, when the graph, its copies and its executables are gone and no launch of them
/// runs any more.
typedef struct tuttiGraphWork {
  int (*launch)(void* context, tuttiStreamTask* task);
  void (*release)(void* context);  // may be null
  void* context;
} tuttiGraphWork;

/// Whether calls on a stream are executed or put into a graph. `id` is that of the capture: equal for streams
/// whose work goes into the same graph, 0 when nothing is captured.
typedef struct tuttiCaptureState {
  uint64_t id;
  int invalidated;  // the capture broke a rule: nothing can be added any more
} tuttiCaptureState;

/// A launch of a kernel: numbers of blocks and of threads in x, y, z.
typedef struct tuttiKernelShape {
  uint32_t grid[3];
  uint32_t block[3];
  size_t sharedBytes;  // of dynamic shared memory
} tuttiKernelShape;

/// Where a pointer's memory is.
typedef enum tuttiPointerKind {  // NOLINT(readability-identifier-naming): C, like its neighbours
  tuttiPointerUnknown,           // plain memory, or none
  tuttiPointerHost,
  tuttiPointerDevice,
  tuttiPointerManaged
} tuttiPointerKind;
typedef struct tuttiPointerFacts {
  tuttiPointerKind kind;
  int device;  // -1 where it belongs to none
} tuttiPointerFacts;

typedef struct tuttiDeviceFacts {
  char name[256];
  char busId[32];  // "0000:1b:00.0"
  int major;       // compute capability
  int minor;
  int multiprocessors;
} tuttiDeviceFacts;

typedef struct tuttiHostRuntime_v1 {
  uint32_t size;     // sizeof of the table that the runtime was built with
  uint32_t version;  // 1

  int (*deviceCount)(int* count);
  int (*currentDevice)(int* device);  // of the calling thread
  int (*setCurrentDevice)(int device);

  /// Memory in memory files, aligned to 4096 bytes, zeroed. Counted as memory of the device.
  int (*memoryAllocate)(int device, size_t bytes, void** pointer);
  int (*memoryFree)(void* pointer);
  /// 0 when the pointer lies in memory of the runtime (of memoryAllocate, cudaMalloc, cudaHostAlloc), ENOENT
  /// when not.
  int (*memoryFileOf)(const void* pointer, tuttiMemoryFileRef* ref);

  /// Streams. `stream` is the cudaStream_t that the caller was given; null is the legacy default stream of
  /// the calling thread's current device, which, as in CUDA, waits for all blocking streams of the device and
  /// is waited for by them.
  int (*streamDevice)(void* stream, int* device);
  /// When everything enqueued on the stream so far (and everything it must wait for) is done: occupies it,
  /// sets *occupation and returns 0; the caller then works inline, and later work of the stream waits until
  /// the caller calls streamEnd or streamHandOff. Otherwise EBUSY: use streamEnqueue. Never blocks.
  int (*streamTryBegin)(void* stream, void** occupation);
  void (*streamEnd)(void* occupation);
  /// Gives the rest of the work to the stream's worker, ahead of what was enqueued meanwhile, and ends the
  /// occupation. Does not fail: what it needs was reserved by streamTryBegin.
  void (*streamHandOff)(void* occupation, tuttiStreamTask task);
  int (*streamEnqueue)(void* stream, tuttiStreamTask task);
  /// 0 when the stream's work so far is done, EBUSY when not, EIO when an asynchronous error is pending.
  int (*streamQuery)(void* stream);
  int (*streamSynchronize)(void* stream);

  /// Capture. While a stream is captured, streamTryBegin, streamEnqueue, streamQuery and streamSynchronize
  /// answer EPERM for it; so they do for the legacy stream while a blocking stream of its device is captured
  /// (as does streamCapture; the legacy stream depends on the blocking ones).
  int (*streamCapture)(void* stream, tuttiCaptureState* state);
  /// Puts work into the graph that the streams are captured into: after everything captured on all of them so
  /// far, before everything captured on them later. EINVAL when they are not all in the same capture, EPERM
  /// when that was invalidated. Takes `work` over only when it succeeds.
  int (*streamCaptureAdd)(void* const* streams, size_t count, tuttiGraphWork work);

  /// Which of the machine's `slots` a device is: CUDA_VISIBLE_DEVICES numbers devices anew in every process,
  /// slots are the same in all of them.
  int (*deviceSlot)(int device, int* slot, int* slots);

  /// What kernels on virtual GPUs are doing, for reports of time-outs: which kernels, blocks and threads run,
  /// and at which line they wait or poll. Gives the length of the text; writes up to `bytes`, with a zero at
  /// the end.
  size_t (*kernelReport)(char* text, size_t bytes);
  /// The tutti::shim::TwinTable (base/kernel_shim/abi.h), for kernels of modules that were loaded before the
  /// runtime.
  const void* (*kernelTwins)(void);

  // ---- From here on: what a driver of virtual GPUs needs. A table of an earlier release ends above. These
  // functions do not depend on the current device: the default streams (null, cudaStreamLegacy,
  // cudaStreamPerThread) are those of `device`, and another stream must belong to it.

  int (*deviceFacts)(int device, tuttiDeviceFacts* facts);
  /// Sets *reaches to 1 where kernels of `device` can use memory of `peer`, else to 0.
  int (*deviceReaches)(int device, int peer, int* reaches);

  /// Memory of the host that all devices see under its address, otherwise as memoryAllocate. Freeing does
  /// not wait.
  int (*pinnedAllocate)(int device, size_t bytes, void** pointer);
  int (*pinnedFree)(void* pointer);
  int (*pointerFacts)(const void* pointer, tuttiPointerFacts* facts);

  /// Launches the kernel of a tutti::shim::KernelTwin (base/kernel_shim/abi.h), registered or not, with its
  /// arguments, which are copied, as cudaLaunchKernel does: in the stream's order, or as a node of the graph
  /// that it is captured into. EINVAL for a shape that no device can run, EPERM when the capture was
  /// invalidated, EIO when a kernel has failed on the device.
  int (*kernelLaunch)(int device, void* stream, const void* twin, const tuttiKernelShape* shape,
                      void* const* arguments);
  /// Blocks of that size that the device runs at the same time when it runs nothing else. 0: it can run none.
  int (*kernelResident)(int device, const void* twin, uint32_t threads, size_t sharedBytes, uint32_t* blocks);

  /// Events without timing; they are cudaEvent_t too.
  int (*eventCreate)(int device, void** event);
  int (*eventDestroy)(void* event);
  /// `inGraph`: the stream is captured, and each launch of the graph does it.
  int (*eventRecord)(int device, void* stream, void* event, int inGraph);
  /// Later work of the stream waits for the event.
  int (*eventWait)(int device, void* stream, void* event, int inGraph);
  /// 0 when what was recorded is done, or nothing was; EBUSY when not; EIO when its device has failed; EPERM
  /// when it was recorded in a capture. Disturbs no capture.
  int (*eventQuery)(void* event);
} tuttiHostRuntime_v1;

/// Name of the symbol: const tuttiHostRuntime_v1* tuttiHostRuntime_v1_get(void).
#define TUTTI_HOST_RUNTIME_SYMBOL "tuttiHostRuntime_v1_get"
typedef const tuttiHostRuntime_v1* (*tuttiHostRuntimeGet_t)(void);

#ifdef __cplusplus
}
#endif
