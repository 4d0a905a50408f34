// Which kernels and variables programs have, and which of them have a twin that can run here.
//
//   nvcc's code       __cudaRegisterFunction(stub address, mangled name)   --+
//                                                                            +--> Kernel, found by stub or
//                                                                            twin
//   a twin's module   addKernel(twin: RTTI name, address)                  --+    address; joined by name
//
// Names are compared demangled: nvcc marks names in anonymous namespaces with the source file, the host
// compiler does not. Where files have kernels of the same name, that mark decides.
#pragma once

#include <string>

#include "base/kernel_shim/abi.h"
#include "hostrt/api.h"

namespace tutti::hostrt {

/// A kernel of the program. Objects live as long as the module that registered them.
struct Kernel {
  std::string mangled;
  std::string name;         // for people: demangled
  std::string key;          // name without marks of files
  void** module = nullptr;  // of nvcc's registration; null for a twin that was launched by its address
  const void* stub = nullptr;
  const shim::KernelTwin* twin = nullptr;  // looked up when launched
  bool isAmbiguous = false;                // several twins have its name
  size_t mostDynamicShared = 0;            // of cudaFuncSetAttribute; 0: not set
};

/// By host stub or by the twin's address; null when there is none. The twin is looked up.
Kernel* findKernel(const void* hostFunction);
/// The same for a handle that __cudaGetKernel gave.
Kernel* findKernel(cudaKernel_t handle);
/// For a twin that the library launches, registered or not. It may use all of a block's shared memory.
Kernel* kernelOfTwin(const shim::KernelTwin& twin);
/// Why a kernel without a twin is not launched, on stderr.
cudaError_t refuseWithoutTwin(const Kernel& kernel);

struct DeviceVariable {
  void* address = nullptr;  // of the twin's variable
  size_t bytes = 0;
};
/// The variable behind the host's name of it. False, with a message, when it has no twin.
bool findVariable(const void* symbol, DeviceVariable* variable);

}  // namespace tutti::hostrt

extern "C" __attribute__((visibility("default"))) const tutti::shim::TwinTable* tuttiKernelTwins_v1_get(void);
