#include "system/process_probe.h"

#include <dirent.h>

#include <ctime>
#include <fstream>
#include <memory>

namespace tutti::system_test {
namespace {

std::set<std::string> entries(const char* folder) {
  std::set<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder), &::closedir);
  if (!open) return names;
  while (const dirent* entry = ::readdir(open.get()))
    if (entry->d_name[0] != '.') names.insert(entry->d_name);
  return names;
}

long field(const char* path, const std::string& name) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line))
    if (line.rfind(name, 0) == 0) return std::stol(line.substr(name.size()));
  return -1;
}

}  // namespace

int countThreads() { return static_cast<int>(entries("/proc/self/task").size()); }
// Without the one that reads the folder.
int countDescriptors() { return static_cast<int>(entries("/proc/self/fd").size()) - 1; }
long privateKilobytes() { return field("/proc/self/smaps_rollup", "Private_Dirty:"); }
std::set<std::string> sharedMemoryFiles() { return entries("/dev/shm"); }

double processorSeconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

}  // namespace tutti::system_test
