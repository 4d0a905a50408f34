#include "hostrt/not_implemented.h"

#include <mutex>
#include <set>
#include <string>

#include "hostrt/api.h"
#include "hostrt/log.h"

namespace tutti::hostrt {

int notImplemented(const char* name) {
  return apiCall([&] {
    static std::mutex mutex;
    static auto* named = new std::set<std::string>;
    const std::lock_guard lock(mutex);
    if (named->insert(name).second)
      warn("the host runtime does not implement {} (cudaErrorNotSupported)", name);
    return cudaErrorNotSupported;
  });
}

}  // namespace tutti::hostrt
