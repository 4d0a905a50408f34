#include "topology/host_identity.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdio>
#include <memory>

#include <fmt/format.h>

#include "base/params.h"
#include "base/identity.h"
#include "base/random.h"

namespace tutti {
namespace {

std::atomic<uint64_t> token{0};

/// The first word of a small file, or empty.
std::string firstWord(const char* path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path, "re"), std::fclose);
  std::array<char, 128> word{};
  if (!file || std::fscanf(file.get(), "%127s", word.data()) != 1) return {};
  return word.data();
}

/// Inode of a namespace: its identity on this kernel; 0 when unknown.
uint64_t namespaceInode(const char* path) {
  struct stat info {};
  return ::stat(path, &info) == 0 ? info.st_ino : 0;
}

}  // namespace

uint64_t processToken() {
  // The child of a fork draws its own.
  static const int registered =
      ::pthread_atfork(nullptr, nullptr, [] { token.store(0, std::memory_order_relaxed); });
  (void)registered;
  uint64_t current = token.load(std::memory_order_acquire);
  while (current == 0) {
    uint64_t fresh = 0;
    if (!tryRandomBytes(&fresh, sizeof(fresh)))  // unique on this host at least
      fresh = static_cast<uint64_t>(::getpid()) << 32 ^
              static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
    if (fresh != 0 && token.compare_exchange_strong(current, fresh, std::memory_order_acq_rel)) return fresh;
  }
  return current;
}

HostIdentity hostIdentity() {
  HostIdentity identity;
  identity.hostName = hostName();
  identity.pid = ::getpid();
  identity.processToken = processToken();
  identity.hostId = params().hostId();
  if (identity.hostId.empty())
    identity.hostId =
        fmt::format("{}/{}/net:{}", identity.hostName, firstWord("/proc/sys/kernel/random/boot_id"),
                    namespaceInode("/proc/self/ns/net"));
  return identity;
}

}  // namespace tutti
