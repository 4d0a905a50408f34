// How twins reach the runtime: every kernel registers itself, and launches go through cudaLaunchKernel.
#pragma once

#include <dlfcn.h>

#include <typeinfo>
#include <utility>

#include "base/kernel_shim/core.h"

namespace tutti::shim {

/// Carries a kernel or variable in its own mangled name, where the runtime reads it.
template <auto& Entity>
struct NameTag;

/// The runtime's table; null where the program runs on NVIDIA's runtime, which needs no twins. It is looked
/// up by name, so that a program needs no symbol that only one of the two runtimes has.
inline const TwinTable* loadedTwinTable() {
  using Get = const TwinTable* (*)();
  const auto get = reinterpret_cast<Get>(::dlsym(RTLD_DEFAULT, kTwinTableSymbol));
  const TwinTable* found = get ? get() : nullptr;
  return found && found->version == kTwinVersion ? found : nullptr;
}

/// What is registered while it exists: a kernel or a variable. Where the runtime is loaded later than the
/// module (libnccl.so.2 opens it when it is needed), registrations wait in a list until handOver().
class Registration {
 public:
  ~Registration() {
    if (table_) remove(*table_);
    for (Registration** link = &first; *link; link = &(*link)->next_)
      if (*link == this) {
        *link = next_;
        break;
      }
  }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  static void handOver(const TwinTable& table) {
    for (Registration* one = first; one; one = one->next_)
      if (!one->table_) one->add(table);
  }

 protected:
  explicit Registration(const KernelTwin* kernel) : kernel_(kernel) { enter(); }
  explicit Registration(const VariableTwin* variable) : variable_(variable) { enter(); }

 private:
  void enter() {
    next_ = first;
    first = this;
    if (const TwinTable* table = loadedTwinTable()) add(*table);
  }
  void add(const TwinTable& table) {
    table_ = &table;
    if (kernel_) table.addKernel(kernel_);
    if (variable_) table.addVariable(variable_);
  }
  void remove(const TwinTable& table) {
    if (kernel_) table.removeKernel(kernel_);
    if (variable_) table.removeVariable(variable_);
  }

  __attribute__((visibility("hidden"))) static inline constinit Registration* first = nullptr;
  const KernelTwin* kernel_ = nullptr;
  const VariableTwin* variable_ = nullptr;
  const TwinTable* table_ = nullptr;
  Registration* next_ = nullptr;
};

class KernelRegistration : public Registration {
 public:
  /// `twin` is filled in here, since nothing says when it would be initialised; its bound is there already.
  KernelRegistration(KernelTwin& twin, const KernelTwin& contents) : Registration(fill(twin, contents)) {}

 private:
  static const KernelTwin* fill(KernelTwin& twin, const KernelTwin& contents) {
    const uint32_t maxThreads = twin.maxThreads;
    twin = contents;
    twin.maxThreads = maxThreads;
    return &twin;
  }
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
  LaunchConfiguration(dim3 gridSize, dim3 blockSize, size_t dynamicBytes = 0,
                      cudaStream_t launchStream = nullptr)
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
      {sizeof(KernelTwin), typeid(NameTag<*Kernel>*).name(), TUTTI_TWIN_FILE,
       reinterpret_cast<const void*>(Kernel), &Twin::invoke, &slotsHere, sizeof...(Parameters), kBytes,
       kAlignments, 0}};
};

template <auto Kernel, unsigned Threads>
struct Bound {
  static inline BoundRegistration registered
      __attribute__((init_priority(199))){Twin<Kernel>::record, Threads};
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
class VariableRegistration : public Registration {
 public:
  VariableRegistration() : Registration(&record()) {}

 private:
  static const VariableTwin& record() {
    static const VariableTwin twin = {
        sizeof(VariableTwin), typeid(NameTag<Variable>*).name(), TUTTI_TWIN_FILE,
        const_cast<void*>(static_cast<const volatile void*>(&Variable)), sizeof(Variable)};
    return twin;
  }
};

}  // namespace tutti::shim
