// What a process holds and uses, read from /proc.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>

namespace tutti::system_test {

int countThreads();
int countDescriptors();
/// Resident memory that is not shared, in KiB: what a leak would grow.
long privateKilobytes();
std::set<std::string> sharedMemoryFiles();
/// Processor time of all threads of this process so far, in seconds.
double processorSeconds();

/// True where a sanitizer's own bookkeeping would be measured instead of the library's.
constexpr bool underSanitizer() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#else
  return false;
#endif
}

}  // namespace tutti::system_test
