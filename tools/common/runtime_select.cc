#include "common/runtime_select.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "common/runtime_paths.h"

namespace tutti {
namespace {

enum class Runtime { none, host, cuda };

const char* nameOf(Runtime runtime) { return runtime == Runtime::host ? "host" : "cuda"; }

Runtime loadedRuntime() {
  if (!::dlsym(RTLD_DEFAULT, "cudaGetDeviceCount")) return Runtime::none;
  return ::dlsym(RTLD_DEFAULT, "tuttiHostRuntime_v1_get") ? Runtime::host : Runtime::cuda;
}

[[noreturn]] void fail(const std::string& message) {
  std::fprintf(stderr, "tutti: %s\n", message.c_str());
  std::exit(1);
}

/// What TUTTI_RUNTIME asks for; none when it is unset.
Runtime requestedRuntime() {
  const char* value = std::getenv("TUTTI_RUNTIME");
  if (!value || !*value) return Runtime::none;
  if (std::strcmp(value, "host") == 0) return Runtime::host;
  if (std::strcmp(value, "cuda") == 0) return Runtime::cuda;
  fail("TUTTI_RUNTIME=" + std::string(value) + ": expected host or cuda");
}

/// Runs this program again with `folder` in front of where libraries are looked for. Returns when that
/// failed.
void restart(int argc, char** argv, const std::string& folder) {
  const std::string program = programPath();
  std::vector<std::string> loader = withSearchPath(loaderCommand(argc), folder);
  if (loader.empty()) {
    const std::string path = prependToSearchPath(folder, std::getenv("LD_LIBRARY_PATH"));
    ::setenv("LD_LIBRARY_PATH", path.c_str(), 1);
    ::execv(program.c_str(), argv);
    return;
  }
  // A loader's --library-path takes the place of LD_LIBRARY_PATH.
  std::vector<char*> words;
  words.reserve(loader.size() + static_cast<size_t>(argc) + 1);
  for (std::string& word : loader) words.push_back(word.data());
  words.push_back(const_cast<char*>(program.c_str()));
  for (int i = 1; i <= argc; ++i) words.push_back(argv[i]);  // the null pointer too
  ::execv(loader[0].c_str(), words.data());
}

}  // namespace

void selectRuntime(int argc, char** argv) {
  // Holds the process id: the restarted program has the same one, a program that inherits the environment has
  // another and decides for itself.
  constexpr const char* kGuard = "TUTTI_RUNTIME_RESTARTED";
  const char* guard = std::getenv(kGuard);
  const std::string self = std::to_string(::getpid());
  const bool restarted = guard && self == guard;
  ::unsetenv(kGuard);

  const Runtime requested = requestedRuntime();
  const Runtime loaded = loadedRuntime();
  if (loaded == Runtime::none || loaded == requested) return;
  Runtime wanted = requested;
  if (wanted == Runtime::none) wanted = hasUsableDriver() ? Runtime::cuda : Runtime::host;
  if (loaded == wanted) return;

  const std::string folder = wanted == Runtime::host ? findHostRuntimeFolder() : findCudaRuntimeFolder();
  std::string problem;
  if (folder.empty()) {
    problem = wanted == Runtime::host
                  ? "no libcudart.so.13 of the host runtime in ../lib/host beside " + programPath()
                  : "no NVIDIA libcudart.so.13 found: set LD_LIBRARY_PATH or CUDA_HOME to where it is";
  } else if (restarted) {
    problem = folder +
              "/libcudart.so.13 is in front of LD_LIBRARY_PATH, but another one was loaded (DT_RPATH or "
              "LD_PRELOAD?)";
  } else {
    ::setenv(kGuard, self.c_str(), 1);
    restart(argc, argv, folder);
    problem = "cannot start " + programPath() + " again: " + std::strerror(errno);
    ::unsetenv(kGuard);
  }
  if (requested != Runtime::none) fail("TUTTI_RUNTIME=" + std::string(nameOf(requested)) + ": " + problem);
  std::fprintf(stderr, "tutti: the %s runtime would be right here, but the %s runtime is loaded: %s\n",
               nameOf(wanted), nameOf(loaded), problem.c_str());
}

}  // namespace tutti
