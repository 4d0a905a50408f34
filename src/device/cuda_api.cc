#include "device/cuda_api.h"

#include <dlfcn.h>

namespace tutti::cuda {
namespace {

std::string versionText(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

}  // namespace

std::string Api::text(Error error) const {
  const char* name = nullptr;
  const char* words = nullptr;
  if (cuGetErrorName(error, &name) != 0 || name == nullptr) return fmt::format("error {}", error);
  if (cuGetErrorString(error, &words) != 0 || words == nullptr) return name;
  return fmt::format("{} ({})", words, name);
}

Result<Api> open(const std::string& file, int oldest) {
  // RTLD_NODELETE: the driver has threads of its own, and is the program's too.
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* why = ::dlerror();
    return Status(ncclSystemError, fmt::format("no CUDA driver: {}", why != nullptr ? why : file));
  }
  const auto getVersion = reinterpret_cast<Error (*)(int*)>(::dlsym(library, "cuDriverGetVersion"));
  int version = 0;
  if (getVersion == nullptr || getVersion(&version) != 0)
    return Status(ncclSystemError, fmt::format("CUDA driver {}: it does not tell its version", file));
  if (version < oldest)
    return Status(ncclSystemError,
                  fmt::format("CUDA driver {}: it is too old, of CUDA {}; {} or newer is needed", file,
                              versionText(version), versionText(oldest)));
  using GetProcAddress = Error (*)(const char*, void**, int, uint64_t, int*);
  const auto getAddress = reinterpret_cast<GetProcAddress>(::dlsym(library, "cuGetProcAddress_v2"));
  if (getAddress == nullptr)
    return Status(ncclSystemError,
                  fmt::format("CUDA driver {}: it has no function cuGetProcAddress_v2", file));

  const auto find = [&](const char* name, int ofVersion) -> void* {
    void* address = nullptr;
    int state = 0;
    return getAddress(name, &address, ofVersion, kLegacyStream, &state) == 0 && state == 0 ? address
                                                                                           : nullptr;
  };
  Api api;
#define TUTTI_CUDA_FIND(name, version, parameters)                                                       \
  api.name = reinterpret_cast<decltype(api.name)>(find(#name, version));                                 \
  if (api.name == nullptr)                                                                               \
    return Status(ncclSystemError, fmt::format("CUDA driver {}: it has no function {} of CUDA {}", file, \
                                               #name, versionText(version)));
  TUTTI_CUDA_FUNCTIONS(TUTTI_CUDA_FIND)
#undef TUTTI_CUDA_FIND
#define TUTTI_CUDA_TAKE(name, version, parameters) \
  api.name = reinterpret_cast<decltype(api.name)>(find(#name, version));
  TUTTI_CUDA_OPTIONAL_FUNCTIONS(TUTTI_CUDA_TAKE)
#undef TUTTI_CUDA_TAKE
  return api;
}

}  // namespace tutti::cuda
