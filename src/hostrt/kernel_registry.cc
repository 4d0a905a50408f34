#include "hostrt/kernel_registry.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "hostrt/kernel_limits.h"
#include "hostrt/log.h"

namespace tutti::hostrt {
namespace {

std::string demangled(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 && text ? text.get() : name;
}

/// Without "_INTERNAL_<hash>_<file>::", which nvcc puts before variables of anonymous namespaces.
std::string keyOf(std::string name) {
  for (size_t at; (at = name.find("_INTERNAL_")) != std::string::npos;) {
    const size_t end = name.find("::", at);
    if (end == std::string::npos) break;
    name.erase(at, end + 2 - at);
  }
  return name;
}

/// The entity's name out of "tutti::shim::NameTag<name>*".
std::string nameInTag(const char* typeName) {
  std::string text = demangled(typeName);
  const size_t open = text.find('<');
  const size_t close = text.rfind('>');
  if (open == std::string::npos || close == std::string::npos) return text;
  text = text.substr(open + 1, close - open - 1);
  while (text.size() > 2 && text.front() == '(' && text.back() == ')' && text.rfind("(anonymous", 0) != 0)
    text = text.substr(1, text.size() - 2);
  return text;
}

/// "a.cu" as nvcc writes it into names: letters, digits and underscores.
std::string fileMark(const char* file) {
  if (!file) return "";
  const char* slash = std::strrchr(file, '/');
  std::string mark = slash ? slash + 1 : file;
  for (char& c : mark)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return std::to_string(mark.size()) + "_" + mark;
}

struct Variable {
  std::string mangled;
  std::string key;
  void** module = nullptr;
};

/// Never destroyed: modules unregister at exit.
struct Registry {
  std::mutex mutex;
  std::map<const void*, std::unique_ptr<Kernel>> kernels;  // by stub
  std::map<const void*, std::unique_ptr<Kernel>> bare;     // by address of a twin
  std::map<const shim::KernelTwin*, std::unique_ptr<Kernel>> ofLibrary;
  std::multimap<std::string, const shim::KernelTwin*> twins;
  std::map<const void*, Variable> variables;  // by the host's variable
  std::multimap<std::string, const shim::VariableTwin*> variableTwins;
};

Registry& registry() {
  static auto* all = new Registry;
  return *all;
}

/// The one twin of that name, or of the file that the mangled name bears the mark of.
template <class Twin>
const Twin* choose(const std::multimap<std::string, const Twin*>& all, const std::string& key,
                   const std::string& mangled, bool* isAmbiguous) {
  const auto [begin, end] = all.equal_range(key);
  *isAmbiguous = false;
  if (begin == end) return nullptr;
  if (std::next(begin) == end) return begin->second;
  const Twin* found = nullptr;
  for (auto entry = begin; entry != end; ++entry) {
    const std::string mark = fileMark(entry->second->file);
    if (mark.empty() || mangled.find("_" + mark) == std::string::npos) continue;
    if (found) *isAmbiguous = true;
    found = entry->second;
  }
  *isAmbiguous = *isAmbiguous || !found;
  return *isAmbiguous ? nullptr : found;
}

void lookUpTwin(const Registry& all, Kernel& kernel) {
  if (!kernel.twin) kernel.twin = choose(all.twins, kernel.key, kernel.mangled, &kernel.isAmbiguous);
}

void addKernel(const shim::KernelTwin* twin) {
  apiCall([&] {
    Registry& all = registry();
    const std::string name = nameInTag(twin->typeName);
    const std::lock_guard lock(all.mutex);
    all.twins.emplace(keyOf(name), twin);
    all.bare[twin->function] =
        std::make_unique<Kernel>(Kernel{name, name, keyOf(name), nullptr, twin->function, twin, false, 0});
    return cudaSuccess;
  });
}

void removeKernel(const shim::KernelTwin* twin) {
  apiCall([&] {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    std::erase_if(all.twins, [&](const auto& entry) { return entry.second == twin; });
    all.bare.erase(twin->function);
    for (auto& [stub, kernel] : all.kernels)
      if (kernel->twin == twin) kernel->twin = nullptr;
    return cudaSuccess;
  });
}

void addVariable(const shim::VariableTwin* twin) {
  apiCall([&] {
    Registry& all = registry();
    const std::string key = keyOf(nameInTag(twin->typeName));
    const std::lock_guard lock(all.mutex);
    all.variableTwins.emplace(key, twin);
    return cudaSuccess;
  });
}

void removeVariable(const shim::VariableTwin* twin) {
  apiCall([&] {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    std::erase_if(all.variableTwins, [&](const auto& entry) { return entry.second == twin; });
    return cudaSuccess;
  });
}

constexpr shim::TwinTable kTwinTable = {shim::kTwinVersion, addKernel, removeKernel, addVariable,
                                        removeVariable};

constexpr const char* kHowTo =
    "compile its source for virtual GPUs too: tutti_add_host_kernels, docs/virtual-gpus.md";

}  // namespace

Kernel* findKernel(const void* hostFunction) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (const auto found = all.kernels.find(hostFunction); found != all.kernels.end()) {
    lookUpTwin(all, *found->second);
    return found->second.get();
  }
  const auto found = all.bare.find(hostFunction);
  return found == all.bare.end() ? nullptr : found->second.get();
}

Kernel* findKernel(cudaKernel_t handle) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (const auto* kernels : {&all.kernels, &all.bare})
    for (const auto& [stub, kernel] : *kernels)
      if (reinterpret_cast<cudaKernel_t>(kernel.get()) == handle) {
        lookUpTwin(all, *kernel);
        return kernel.get();
      }
  return nullptr;
}

Kernel* kernelOfTwin(const shim::KernelTwin& twin) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::unique_ptr<Kernel>& kernel = all.ofLibrary[&twin];
  if (!kernel) {
    const std::string name = nameInTag(twin.typeName);
    kernel = std::make_unique<Kernel>(
        Kernel{name, name, keyOf(name), nullptr, twin.function, &twin, false, kSharedPerBlockOptin});
  }
  return kernel.get();
}

cudaError_t refuseWithoutTwin(const Kernel& kernel) {
  if (kernel.isAmbiguous)
    warn(
        "launch of {} refused (cudaErrorNotSupported): several sources have a kernel of that name for "
        "virtual "
        "GPUs; give the kernels different names",
        kernel.name);
  else
    warn("launch of {} refused (cudaErrorNotSupported): it has no code for virtual GPUs; {}", kernel.name,
         kHowTo);
  return cudaErrorNotSupported;
}

bool findVariable(const void* symbol, DeviceVariable* variable) {
  Registry& all = registry();
  std::string name;
  {
    const std::lock_guard lock(all.mutex);
    const auto found = all.variables.find(symbol);
    if (found == all.variables.end()) {
      for (const auto& [key, twin] : all.variableTwins)
        if (twin->address == symbol) {
          *variable = {twin->address, twin->bytes};
          return true;
        }
      return false;
    }
    bool isAmbiguous = false;
    if (const auto* twin =
            choose(all.variableTwins, found->second.key, found->second.mangled, &isAmbiguous)) {
      *variable = {twin->address, twin->bytes};
      return true;
    }
    name = found->second.key;
  }
  warn("the variable {} has no twin for virtual GPUs (or several); {}", name, kHowTo);
  return false;
}

}  // namespace tutti::hostrt

using namespace tutti::hostrt;

#pragma GCC visibility push(default)
extern "C" {

const tutti::shim::TwinTable* tuttiKernelTwins_v1_get(void) { return &kTwinTable; }

void** __cudaRegisterFatBinary(void* image) {
  return new (std::nothrow) void*(image);  // its identity is what counts
}

void __cudaRegisterFatBinaryEnd(void**) {}

void __cudaUnregisterFatBinary(void** module) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.kernels, [&](const auto& entry) { return entry.second->module == module; });
  std::erase_if(all.variables, [&](const auto& entry) { return entry.second.module == module; });
  delete module;
}

void __cudaRegisterFunction(void** module, const char* hostFunction, char*, const char* deviceName, int,
                            uint3*, uint3*, dim3*, dim3*, int*) {
  apiCall([&] {
    const std::string mangled = deviceName ? deviceName : "?";
    const std::string name = demangled(mangled);
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    all.kernels[hostFunction] =
        std::make_unique<Kernel>(Kernel{mangled, name, keyOf(name), module, hostFunction, nullptr, false, 0});
    return cudaSuccess;
  });
}

void __cudaRegisterVar(void** module, char* hostVariable, char*, const char* deviceName, int, size_t, int,
                       int) {
  apiCall([&] {
    const std::string mangled = deviceName ? deviceName : "?";
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    all.variables[hostVariable] = {mangled, keyOf(demangled(mangled)), module};
    return cudaSuccess;
  });
}

}  // extern "C"
#pragma GCC visibility pop
