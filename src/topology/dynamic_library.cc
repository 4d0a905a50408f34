#include "topology/dynamic_library.h"

#include <dlfcn.h>

namespace tutti {

Result<DynamicLibrary> DynamicLibrary::open(const std::string& file, If condition) {
  DynamicLibrary library;
  library.file_ = file;
  const int flags = RTLD_NOW | RTLD_LOCAL | (condition == If::loaded ? RTLD_NOLOAD : RTLD_NODELETE);
  library.handle_ = ::dlopen(file.c_str(), flags);
  if (library.handle_ != nullptr) return library;
  const char* why = ::dlerror();
  return Status(ncclSystemError, why != nullptr ? why : fmt::format("{} is not loaded", file));
}

void* DynamicLibrary::find(const char* symbol, const char* version) const {
  void* found = version == nullptr ? nullptr : ::dlvsym(handle_, symbol, version);
  return found != nullptr ? found : ::dlsym(handle_, symbol);
}

}  // namespace tutti
