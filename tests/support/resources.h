// What a process holds: for tests that nothing is left behind.
#pragma once

#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

namespace tutti::test {

inline size_t countEntries(const char* folder) {
  size_t count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    (void)entry;
    ++count;
  }
  return count;
}
inline size_t openDescriptors() { return countEntries("/proc/self/fd"); }
inline size_t threads() { return countEntries("/proc/self/task"); }

/// Our named segments in /dev/shm.
inline std::set<std::string> namedSegments() {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("tutti-")) names.insert(name);
  }
  return names;
}

/// Mappings of memory files or segments of ours.
inline size_t memoryFileMappings() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);)
    if (line.find("tutti-") != std::string::npos) ++count;
  return count;
}

inline double cpuSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace tutti::test
