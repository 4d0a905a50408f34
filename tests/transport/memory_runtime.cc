#include "memory_runtime.h"

#include <cerrno>
#include <map>
#include <mutex>

#include "base/host_runtime.h"
#include "base/memory_file.h"

namespace {

struct Memory {
  std::mutex mutex;
  struct File {
    uint64_t id;
    tutti::MemoryFile file;
  };
  std::map<const std::byte*, File> files;  // by start
  uint64_t nextId = 1;
};
Memory& memory() {
  static auto* all = new Memory;
  return *all;
}

int memoryFileOf(const void* pointer, tuttiMemoryFileRef* ref) {
  const std::lock_guard lock(memory().mutex);
  const auto* at = static_cast<const std::byte*>(pointer);
  auto after = memory().files.upper_bound(at);
  if (after == memory().files.begin()) return ENOENT;
  --after;
  const auto& [start, entry] = *after;
  if (at >= start + entry.file.size()) return ENOENT;
  *ref = {
      entry.file.fd(), entry.id, entry.file.data(), entry.file.size(), static_cast<size_t>(at - start), 0};
  return 0;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const tuttiHostRuntime_v1* tuttiHostRuntime_v1_get() {
  static const tuttiHostRuntime_v1 table = [] {
    tuttiHostRuntime_v1 made{};
    made.size = sizeof(made);
    made.version = 1;
    made.memoryFileOf = memoryFileOf;
    return made;
  }();
  return &table;
}

namespace tutti::test {

void* allocateInFile(size_t bytes) {
  auto file = MemoryFile::create("test-memory", bytes);
  if (!file.isOk()) return nullptr;
  const std::lock_guard lock(memory().mutex);
  std::byte* start = file->data();
  memory().files.emplace(start, Memory::File{memory().nextId++, std::move(file).value()});
  return start;
}

void freeInFile(void* pointer) {
  const std::lock_guard lock(memory().mutex);
  memory().files.erase(static_cast<const std::byte*>(pointer));
}

}  // namespace tutti::test
