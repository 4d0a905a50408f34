#include "base/identity.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

#include "base/params.h"
#include "base/random.h"
#include "base/unique_fd.h"

namespace tutti {

std::string hostName() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "unknown";
  const std::string host = name;
  return host.substr(0, host.find('.'));
}

std::string machineIdentity() {
  std::string boot;
  if (const UniqueFd fd(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC)); fd) {
    char text[64];
    const ssize_t got = ::read(fd.get(), text, sizeof text);
    if (got > 0) boot.assign(text, static_cast<size_t>(got));
    while (!boot.empty() && boot.back() == '\n') boot.pop_back();
  }
  return boot;
}

std::string hostIdentity() {
  if (std::string chosen = params().hostId(); !chosen.empty()) return chosen;
  // Containers with equal host names on one machine differ in their network namespace.
  struct stat net {};
  const bool known = ::stat("/proc/self/ns/net", &net) == 0;
  return fmt::format("{}/{}/{}", hostName(), machineIdentity(), known ? std::to_string(net.st_ino) : "");
}

Result<uint64_t> processToken() {
  static std::mutex* const kMutex = new std::mutex;
  static uint64_t owner = UINT64_MAX;
  static uint64_t token = 0;
  const std::lock_guard lock(*kMutex);
  if (owner != forkCount()) {
    TUTTI_ASSIGN(token, randomU64());
    owner = forkCount();
  }
  return token;
}

uint64_t forkCount() {
  static std::atomic<uint64_t>& count = *[] {
    static std::atomic<uint64_t> forks{0};
    ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
    return &forks;
  }();
  return count.load(std::memory_order_relaxed);
}

}  // namespace tutti
