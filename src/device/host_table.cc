#include "device/host_table.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstddef>
#include <string>
#include <vector>

#include "base/params.h"
#include "device/device_world.h"

namespace tutti {
namespace {

constexpr const char* kRuntimeFile = "libtutti_hostrt.so.1";

/// An earlier release's table: it ends before the functions for drivers.
constexpr size_t kOldestBytes = offsetof(tuttiHostRuntime_v1, deviceFacts);

Result<const tuttiHostRuntime_v1*> checked(void* symbol, const std::string& where) {
  const tuttiHostRuntime_v1* table = reinterpret_cast<tuttiHostRuntimeGet_t>(symbol)();
  if (table == nullptr) return internalError("host runtime {}: gives no table", where);
  if (table->version != 1 || table->size < kOldestBytes)
    return internalError(
        "host runtime {}: its table has version {} and {} bytes, this library needs version 1 "
        "with at least {} bytes; install both from the same release",
        where, table->version, table->size, kOldestBytes);
  return table;
}

/// Folder of the library or program that contains this code, with a final slash.
std::string ownFolder() {
  Dl_info info{};
  std::string path;
  if (::dladdr(reinterpret_cast<void*>(&ownFolder), &info) != 0 && info.dli_fname != nullptr)
    path = info.dli_fname;
  if (path.empty() || path.front() != '/') {
    // A program is reported by the name it was started with; ask the kernel for its path.
    std::array<char, PATH_MAX> buffer{};
    const ssize_t length = ::readlink("/proc/self/exe", buffer.data(), buffer.size() - 1);
    if (length > 0) path.assign(buffer.data(), static_cast<size_t>(length));
  }
  return path.substr(0, path.rfind('/') + 1);
}

std::vector<std::string> candidates() {
  const std::string chosen = params().hostRuntime();
  if (!chosen.empty()) return {chosen};
  const std::string folder = ownFolder();
  return {folder + "host/" + kRuntimeFile, folder + "../lib/host/" + kRuntimeFile};
}

Result<const tuttiHostRuntime_v1*> find() {
  if (void* symbol = ::dlsym(RTLD_DEFAULT, TUTTI_HOST_RUNTIME_SYMBOL))
    return checked(symbol, "of the program");
  if (world() == World::gpus)
    return Status(ncclInvalidUsage, "the process runs on GPUs: there is no host runtime in it");
  std::string tried;
  for (const std::string& path : candidates()) {
    void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* why = ::dlerror();
      tried += fmt::format("{}{}", tried.empty() ? "" : "; ", why != nullptr ? why : path);
      continue;
    }
    if (void* symbol = ::dlsym(library, TUTTI_HOST_RUNTIME_SYMBOL)) return checked(symbol, path);
    ::dlclose(library);
    return Status(ncclSystemError,
                  fmt::format("host runtime {}: has no symbol {}", path, TUTTI_HOST_RUNTIME_SYMBOL));
  }
  return Status(ncclSystemError, fmt::format("no host runtime: {} (set TUTTI_HOST_RUNTIME to the path of {})",
                                             tried, kRuntimeFile));
}

}  // namespace

bool hostRuntimeIsLoaded() { return ::dlsym(RTLD_DEFAULT, TUTTI_HOST_RUNTIME_SYMBOL) != nullptr; }

Result<const tuttiHostRuntime_v1*> hostTable() {
  static const auto* table = new Result<const tuttiHostRuntime_v1*>(find());  // kept: used until the very end
  return *table;
}

}  // namespace tutti
