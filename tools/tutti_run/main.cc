// tutti-run: starts a program on Tutti's host runtime, or on NVIDIA's runtime, without a change to the
// program.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "common/runtime_paths.h"
#include "tutti_run/elf_needs.h"

namespace {

constexpr const char* kUsage =
    "usage: tutti-run [--host | --cuda] [--force] PROGRAM [ARGUMENT...]\n"
    "\n"
    "Runs PROGRAM with Tutti's libnccl.so.2 and\n"
    "  --host    Tutti's host runtime as libcudart.so.13 (no GPU needed)\n"
    "  --cuda    NVIDIA's libcudart.so.13\n"
    "  neither   NVIDIA's when there is a driver with a device, otherwise the host runtime\n"
    "  --force   even when the program does not look as if it could run so\n"
    "PROGRAM must be linked with the shared CUDA runtime: nvcc -cudart shared.\n";

struct Options {
  bool host = false;
  bool cuda = false;
  bool force = false;
  char** program = nullptr;  // and its arguments, ending with a null pointer
};

[[noreturn]] void fail(const std::string& message, int code) {
  std::fprintf(stderr, "tutti-run: %s\n", message.c_str());
  std::exit(code);
}

Options parse(char** argv) {
  Options options;
  for (++argv; *argv && (*argv)[0] == '-'; ++argv) {
    const std::string_view argument = *argv;
    if (argument == "--host") {
      options.host = true;
    } else if (argument == "--cuda") {
      options.cuda = true;
    } else if (argument == "--force") {
      options.force = true;
    } else if (argument == "--help" || argument == "-h") {
      std::fputs(kUsage, stdout);
      std::exit(0);
    } else if (argument == "--version") {
      std::puts("tutti-run " TUTTI_VERSION);
      std::exit(0);
    } else if (argument == "--") {
      ++argv;
      break;
    } else {
      fail("unknown option " + std::string(argument) + "\n" + kUsage, 2);
    }
  }
  if (options.host && options.cuda) fail("--host and --cuda exclude each other", 2);
  if (!*argv) fail("no program given\n" + std::string(kUsage), 2);
  options.program = argv;
  return options;
}

/// The file that execvp would start; the name itself when there is none.
std::string resolve(const std::string& name) {
  const char* path = std::getenv("PATH");
  if (name.find('/') != std::string::npos || !path) return name;
  std::string_view rest = path;
  while (true) {
    const size_t colon = rest.find(':');
    const std::string folder(rest.substr(0, colon));
    std::string file = (folder.empty() ? "." : folder) + "/" + name;
    if (::access(file.c_str(), X_OK) == 0) return file;
    if (colon == std::string_view::npos) return name;
    rest.remove_prefix(colon + 1);
  }
}

/// Why the program cannot run on the libcudart.so.13 that is put in front; empty when nothing speaks against
/// it.
std::string obstacle(const std::string& file) {
  const auto needs = tutti::readElfNeeds(file);
  if (!needs) return {};  // a script; its interpreter decides what is loaded
  for (const std::string& library : needs->libraries) {
    if (library.starts_with("libcudart.so") && library != "libcudart.so.13")
      return "needs " + library +
             ", but the runtime here is libcudart.so.13: relink with -cudart shared of CUDA 13";
  }
  if (needs->hasStaticCudart)
    return "has the CUDA runtime linked in, so no other can be put in its place: relink with -cudart shared "
           "(nvcc's "
           "default is static)";
  for (size_t begin = 0; begin < needs->rpath.size();) {
    const size_t colon = std::min(needs->rpath.find(':', begin), needs->rpath.size());
    std::string folder = needs->rpath.substr(begin, colon - begin);
    begin = colon + 1;
    if (const size_t origin = folder.find("$ORIGIN"); origin != std::string::npos)
      folder.replace(origin, std::strlen("$ORIGIN"), file.substr(0, file.rfind('/')));
    for (const char* library : {"/libcudart.so.13", "/libnccl.so.2"})
      if (::access((folder + library).c_str(), R_OK) == 0)
        return "finds " + folder + library +
               " by its DT_RPATH, which goes before LD_LIBRARY_PATH: relink with "
               "-Wl,--enable-new-dtags, or remove the path (patchelf --remove-rpath)";
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  (void)argc;
  const Options options = parse(argv);
  const bool useHost = options.host || (!options.cuda && !tutti::hasUsableDriver());

  const std::string host = tutti::findHostRuntimeFolder();
  if (useHost && host.empty())
    fail("no libcudart.so.13 of the host runtime in ../lib/host beside " + tutti::programPath(), 1);
  const std::string cuda = useHost ? std::string() : tutti::findCudaRuntimeFolder();
  if (!useHost && cuda.empty())
    fail("no NVIDIA libcudart.so.13 found: set LD_LIBRARY_PATH or CUDA_HOME to where it is", 1);

  const std::string file = resolve(options.program[0]);
  if (const std::string why = obstacle(file); !why.empty() && !options.force) fail(file + " " + why, 1);

  std::string folders;
  if (useHost) folders = host;
  if (const std::string nccl = tutti::findNcclFolder(); !nccl.empty()) folders += (useHost ? ":" : "") + nccl;
  // NVIDIA's folder comes after ours: it may hold NVIDIA's libnccl.so.2 too.
  if (!useHost) folders += (folders.empty() ? "" : ":") + cuda;
  const std::string path = tutti::prependToSearchPath(folders, std::getenv("LD_LIBRARY_PATH"));
  ::setenv("LD_LIBRARY_PATH", path.c_str(), 1);
  ::setenv("TUTTI_RUNTIME", useHost ? "host" : "cuda", 1);
  ::execvp(options.program[0], options.program);
  fail("cannot start " + file + ": " + std::strerror(errno), errno == ENOENT ? 127 : 126);
}
