// How twins reach the runtime: every kernel registers itself, and launches go through cudaLaunchKernel.
#pragma once

#include <dlfcn.h>

#include <typeinfo>
#include <utility>

#include "kernel_shim.h"

namespace tutti::shim {

/// Carries a kernel or variable in its own mangled name, where the runtime reads it.
template <auto& Entity>
struct NameTag;

/// The runtime's table; null where the program runs on NVIDIA's runtime, which needs no twins. It is looked up
/// by name, so that a program needs no symbol that only one of the two runtimes has.
inline const TwinTable* twinTable() {
  using Get = const TwinTable* (*)();
  static const TwinTable* const table = [] {
    const auto get = reinterpret_cast<Get>(::dlsym(RTLD_DEFAULT, kTwinTableSymbol));
    const TwinTable* found = get ? get() : nullptr;
    return found && found->version == kTwinVersion ? found : nullptr;
  }();
  return table;
}

/// Registers a kernel while it exists. A module that is loaded before its runtime can hand over later.
class KernelRegistration {
 public:
  /// `twin` is filled in here, since nothing says when it would be initialised; its bound is there already.
  KernelRegistration(KernelTwin& twin, const KernelTwin& contents) : twin_(twin) {
    const uint32_t maxThreads = twin.maxThreads;
    twin = contents;
    twin.maxThreads = maxThreads;
    if (const TwinTable* table = twinTable()) table->addKernel(&twin_);
  }
  ~KernelRegistration() {
    if (const TwinTable* table = twinTable()) table->removeKernel(&twin_);
  }
  KernelRegistration(const KernelRegistration&) = delete;
  KernelRegistration& operator=(const KernelRegistration&) = delete;

 private:
  KernelTwin& twin_;
};

class BoundRegistration {
 public:
  BoundRegistration(KernelTwin& twin, unsigned threads) { twin.maxThreads = threads; }
};

struct LaunchConfiguration {
  dim3 grid;
  dim3 block;
  size_t sharedBytes;
  cudaStream_t stream;
  LaunchConfiguration(dim3 gridSize, dim3 blockSize, size_t dynamicBytes = 0, cudaStream_t launchStream = nullptr)
      : grid(gridSize), block(blockSize), sharedBytes(dynamicBytes), stream(launchStream) {}
};

inline Slots slotsHere() { return {&current, &threadIdx, &blockIdx, &blockDim, &gridDim}; }

#ifndef TUTTI_TWIN_FILE
#define TUTTI_TWIN_FILE nullptr
#endif

template <auto Kernel>
struct Twin;

/// A kernel as the runtime sees it. Order of initialisation: bounds (199), then registration (200), then
/// everything else of the program.
template <class... Parameters, void (*Kernel)(Parameters...)>
struct Twin<Kernel> {
  static constexpr uint32_t kBytes[] = {sizeof(Parameters)..., 0};
  static constexpr uint32_t kAlignments[] = {alignof(Parameters)..., 0};

  static void invoke(void* const* arguments) { invoke(arguments, std::index_sequence_for<Parameters...>()); }
  template <size_t... I>
  static void invoke([[maybe_unused]] void* const* arguments, std::index_sequence<I...>) {
    Kernel(*static_cast<Parameters*>(arguments[I])...);
  }

  /// The parameters have the kernel's types, so that arguments are converted before they are copied.
  static void launch(const LaunchConfiguration& c, Parameters... parameters) {
    void* arguments[] = {const_cast<void*>(static_cast<const volatile void*>(&parameters))..., nullptr};
    (void)::cudaLaunchKernel(reinterpret_cast<const void*>(Kernel), c.grid, c.block, arguments, c.sharedBytes,
                             c.stream);
  }

  static inline constinit KernelTwin record{};
  static inline KernelRegistration registered __attribute__((init_priority(200))){
      record,
      {sizeof(KernelTwin), typeid(NameTag<*Kernel>*).name(), TUTTI_TWIN_FILE, reinterpret_cast<const void*>(Kernel),
       &Twin::invoke, &slotsHere, sizeof...(Parameters), kBytes, kAlignments, 0}};
};

template <auto Kernel, unsigned Threads>
struct Bound {
  static inline BoundRegistration registered __attribute__((init_priority(199))){Twin<Kernel>::record, Threads};
};

/// A launch through a pointer to a kernel.
template <class... Parameters, class... Arguments>
void launchPointer(const LaunchConfiguration& c, void (*kernel)(Parameters...), Arguments&&... arguments) {
  [&](Parameters... parameters) {
    void* copies[] = {const_cast<void*>(static_cast<const volatile void*>(&parameters))..., nullptr};
    (void)::cudaLaunchKernel(reinterpret_cast<const void*>(kernel), c.grid, c.block, copies, c.sharedBytes,
                             c.stream);
  }(std::forward<Arguments>(arguments)...);
}

/// Registers a __device__ or __constant__ variable, for cudaMemcpyToSymbol and its kin.
template <auto& Variable>
class VariableRegistration {
 public:
  VariableRegistration() {
    if (const TwinTable* table = twinTable()) table->addVariable(&record());
  }
  ~VariableRegistration() {
    if (const TwinTable* table = twinTable()) table->removeVariable(&record());
  }
  VariableRegistration(const VariableRegistration&) = delete;
  VariableRegistration& operator=(const VariableRegistration&) = delete;

 private:
  static const VariableTwin& record() {
    static const VariableTwin twin = {sizeof(VariableTwin), typeid(NameTag<Variable>*).name(), TUTTI_TWIN_FILE,
                                      const_cast<void*>(static_cast<const volatile void*>(&Variable)),
                                      sizeof(Variable)};
    return twin;
  }
};

}  // namespace tutti::shim
