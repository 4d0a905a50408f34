// What a kernel compiled by the host compiler (a *twin*) and the engine that runs it (src/hostrt/kernel_*)
// know of each other. Plain structs: a program and the host runtime may be built at different times.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <vector_types.h>

namespace tutti::shim {

/// A line of device code, for reports. The strings live as long as the program.
struct Place {
  const char* file = "";
  unsigned line = 0;
  const char* what = "";  // "__syncthreads"
};

/// How __syncthreads and its kin combine the predicates of all threads.
enum class BlockVote : uint32_t { none, count, all, any };

/// Operations of a warp. Every lane of the mask hands in a value; each gets its own answer.
enum class WarpOp : uint32_t {
  sync,
  broadcast,  // value of lane `argument` (of the segment of `width` lanes)
  up,
  down,
  exclusive,  // __shfl_xor_sync
  ballot,
  any,
  all,
  matchAny,
  matchAll,
  add,
  min,
  max,
  minSigned,
  maxSigned,
  bitAnd,
  bitOr,
  bitXor,
};

struct WarpCall {
  WarpOp op;
  uint32_t mask;
  uint32_t argument = 0;
  uint32_t width = 32;
  uint64_t value = 0;
  uint64_t result = 0;
  Place place;
};

struct Engine;

/// What all threads of a block share.
struct Block {
  const Engine* engine;
  uint3 blockIdx;
  dim3 blockDim;
  dim3 gridDim;
  void* dynamicShared;
  uint32_t dynamicSharedBytes;
  uint32_t multiprocessor;
};

/// What a CUDA thread knows of itself. The engine's thread object begins with it.
struct Thread {
  const Block* block;
  uint3 threadIdx;
  uint32_t lane;
  uint32_t warp;
  uint32_t polls;    // hooked loads since the thread last gave way
  const char* note;  // what the kernel says it is doing, for reports (see note() in kernel_shim.h)
  unsigned long long noteValue;
};

/// The engine's functions. All are called on the thread's own stack and may switch to another thread.
struct Engine {
  uint32_t size;
  /// The thread polls: lets the others of the block run, and other blocks when all of them poll.
  void (*yield)(Thread& self, const Place& place);
  void (*sleep)(Thread& self, unsigned nanoseconds, const Place& place);
  /// Barrier `id` of the block; `threads` of it, or all that have not ended when 0. Gives the vote's result.
  uint32_t (*barrier)(Thread& self, uint32_t id, uint32_t threads, BlockVote vote, uint32_t predicate,
                      const Place& place);
  void (*warp)(Thread& self, WarpCall& call);
  /// Ends the kernel with a CUDA error (a number of cudaError_t). Does not return.
  void (*fault)(Thread& self, int error, const char* text, const Place& place);
  /// Lanes of the warp that have not ended.
  uint32_t (*activeMask)(const Thread& self);
};

/// Where a module keeps what its code finds under CUDA's names: thread-local variables of the calling OS
/// thread.
struct Slots {
  Thread** current;
  uint3* threadIdx;
  uint3* blockIdx;
  dim3* blockDim;
  dim3* gridDim;
};

/// A kernel that the host compiler compiled. All pointers live as long as the module.
struct KernelTwin {
  uint32_t size;         // of this struct
  const char* typeName;  // RTTI name of NameTag<kernel>: the mangled kernel stands in it
  const char* file;      // source, for kernels of the same name in different files; may be null
  const void* function;  // address of the kernel
  void (*invoke)(void* const* arguments);  // runs the calling thread's part
  Slots (*slots)();
  uint32_t argumentCount;
  const uint32_t* argumentBytes;
  const uint32_t* argumentAlignments;
  uint32_t maxThreads;  // of __launch_bounds__; 0 when it has none
};

/// A __device__ or __constant__ variable of a twin.
struct VariableTwin {
  uint32_t size;
  const char* typeName;
  const char* file;
  void* address;
  uint64_t bytes;
};

/// Handed to the runtime by static constructors (through the symbol below) or later (tuttiHostRuntime_v1).
struct TwinTable {
  uint32_t version;  // kTwinVersion
  void (*addKernel)(const KernelTwin* twin);
  void (*removeKernel)(const KernelTwin* twin);
  void (*addVariable)(const VariableTwin* twin);
  void (*removeVariable)(const VariableTwin* twin);
};

constexpr uint32_t kTwinVersion = 1;
/// const TwinTable* tuttiKernelTwins_v1_get(void), exported by the host runtime.
constexpr const char* kTwinTableSymbol = "tuttiKernelTwins_v1_get";

}  // namespace tutti::shim
