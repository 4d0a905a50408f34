// Text of a configuration file, parsed by itself and read as NCCL_CONF_FILE.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "base/params.h"
#include "fuzz.h"

using namespace tutti;
using fuzz::require;

namespace {

/// A file in memory that NCCL_CONF_FILE names.
int confFile() {
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  ::dup2(nowhere, STDOUT_FILENO);
  const int fd = ::memfd_create("conf", MFD_CLOEXEC);
  ::setenv("NCCL_CONF_FILE", ("/proc/self/fd/" + std::to_string(fd)).c_str(), 1);
  // What these name would be opened.
  for (const char* name : {"NCCL_DEBUG_FILE", "NCCL_DEBUG"})
    ::setenv(name, name[10] != 0 ? "/dev/null" : "WARN", 1);
  return fd;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int kFile = confFile();
  const std::string_view text = fuzz::viewOf(data, size);
  std::vector<std::string> problems;
  const auto values = Params::parseFile(text, "file", problems);
  const auto lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) + 1;
  require(values.size() + problems.size() <= lines, "a line gives one value or one problem at most");
  for (const auto& [name, entry] : values) {
    require(!name.empty() && name.find_first_of(" \t\r\n=#") == std::string::npos, "names are names");
    require(entry.line >= 1 && static_cast<size_t>(entry.line) <= lines, "lines exist");
    require(entry.value.find('\n') == std::string::npos && entry.value.find('\0') == std::string::npos,
            "values are of one line");
  }
  for (const std::string& problem : problems)
    require(problem.starts_with("file:"), "a problem names file and line");

  if (::ftruncate(kFile, 0) != 0 || ::pwrite(kFile, data, size, 0) != static_cast<ssize_t>(size)) return 0;
  params().reload();
  require(params().problems().size() >= problems.size(), "problems are kept");
  for (const ParamBase* param : params().all()) {
    const auto found = values.find(param->name());
    if (param->source() == ParamSource::file)
      require(found != values.end(), "values come from where they say");
  }
  return 0;
}
