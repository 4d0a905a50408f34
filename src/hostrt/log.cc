#include "hostrt/log.h"

#include <strings.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "hostrt/device.h"

namespace tutti::hostrt {

void writeWarning(const std::string& text) {
  char host[256] = "?";
  ::gethostname(host, sizeof host);
  host[sizeof host - 1] = 0;
  if (char* dot = std::strchr(host, '.')) *dot = 0;
  const std::string line =
      fmt::format("{}:{}:{} [{}] hostrt NCCL WARN {}\n", host, ::getpid(), ::gettid(), currentDevice(), text);
  // One write, so that lines of different processes do not mix.
  if (::write(STDERR_FILENO, line.data(), line.size()) < 0) return;  // nowhere left to say so
}

bool warningsWanted() {
  const char* level = std::getenv("NCCL_DEBUG");
  if (!level) return false;
  for (const char* name : {"WARN", "INFO", "ABORT", "TRACE"})
    if (::strcasecmp(level, name) == 0) return true;
  return false;
}

}  // namespace tutti::hostrt
