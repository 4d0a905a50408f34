#include "common/runtime_paths.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

namespace tutti {
namespace {

bool isReadable(const std::string& path) { return ::access(path.c_str(), R_OK) == 0; }

std::string canonical(const std::string& path) {
  char buffer[PATH_MAX];
  return ::realpath(path.c_str(), buffer) ? std::string(buffer) : path;
}

/// Tutti's library carries the name of its own entry point; NVIDIA's does not.
bool isHostRuntime(const std::string& library) {
  std::ifstream file(library, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return bytes.find("tuttiHostRuntime_v1_get") != std::string::npos;
}

std::vector<std::string> split(std::string_view path) {
  std::vector<std::string> folders;
  while (true) {
    const size_t colon = path.find(':');
    folders.emplace_back(path.substr(0, colon));
    if (colon == std::string_view::npos) return folders;
    path.remove_prefix(colon + 1);
  }
}

/// What the kernel started: the program, or the dynamic loader that was told to run it.
std::string startedPath() {
  char buffer[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", buffer, sizeof buffer);
  return length > 0 ? std::string(buffer, static_cast<size_t>(length)) : std::string();
}

/// The file that the code at this address was mapped from, or empty.
std::string mappedFile(uintptr_t address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long long from = 0;
    unsigned long long to = 0;
    const size_t slash = line.find('/');
    if (std::sscanf(line.c_str(), "%llx-%llx", &from, &to) != 2 || address < from || address >= to) continue;
    return slash == std::string::npos ? std::string() : line.substr(slash);
  }
  return {};
}

/// The words of this process's command line.
std::vector<std::string> commandWords() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

}  // namespace

std::string programPath() {
  const std::string mapped = mappedFile(reinterpret_cast<uintptr_t>(&programPath));
  return mapped.empty() ? startedPath() : mapped;
}

std::vector<std::string> loaderCommand(int argc) {
  const std::vector<std::string> words = commandWords();
  const auto own = static_cast<size_t>(argc);
  if (startedPath() == programPath() || words.size() <= own) return {};
  std::vector<std::string> loader(words.begin(), words.end() - argc);
  loader[0] = startedPath();
  return loader;
}

std::vector<std::string> withSearchPath(std::vector<std::string> loader, const std::string& folders) {
  const auto option = std::find(loader.begin(), loader.end(), "--library-path");
  if (option != loader.end() && option + 1 != loader.end())
    *(option + 1) = prependToSearchPath(folders, (option + 1)->c_str());
  else if (!loader.empty())
    loader.insert(loader.begin() + 1,
                  {"--library-path", prependToSearchPath(folders, std::getenv("LD_LIBRARY_PATH"))});
  return loader;
}

std::string findHostRuntimeFolder() {
  const std::string program = programPath();
  const size_t slash = program.rfind('/');
  if (slash == std::string::npos) return {};
  const std::string bin = program.substr(0, slash);
  for (const char* lib : {"lib", TUTTI_LIBDIR, "lib64"}) {
    const std::string folder = bin + "/../" + lib + "/host";
    if (isReadable(folder + "/libcudart.so.13")) return canonical(folder);
  }
  return {};
}

std::string findNcclFolder() {
  const std::string host = findHostRuntimeFolder();
  if (host.empty()) return {};
  const std::string folder = canonical(host + "/..");
  return isReadable(folder + "/libnccl.so.2") ? folder : std::string();
}

std::string findCudaRuntimeFolder() {
  std::vector<std::string> folders;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* home = std::getenv(variable); home && *home) {
      folders.push_back(std::string(home) + "/lib64");
      folders.push_back(std::string(home) + "/lib");
    }
  }
  // Beside ours where it travels with them (scripts/gpu-check).
  if (const std::string program = programPath(); !program.empty())
    folders.push_back(program.substr(0, program.rfind('/')) + "/../lib");
  for (const char* folder :
       {"/usr/local/cuda/lib64", "/usr/local/cuda/lib", "/usr/local/cuda/targets/x86_64-linux/lib",
        "/usr/local/cuda/targets/sbsa-linux/lib", "/usr/local/cuda-13.0/lib64", "/opt/cuda/lib64",
        "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib",
        "/usr/lib"})
    folders.emplace_back(folder);
  for (const std::string& folder : folders) {
    const std::string library = folder + "/libcudart.so.13";
    if (isReadable(library) && !isHostRuntime(library)) return folder;
  }
  return {};
}

std::string prependToSearchPath(const std::string& folders, const char* old) {
  std::string result = folders;
  if (!old || !*old) return result;
  const std::vector<std::string> front = split(folders);
  for (const std::string& folder : split(old)) {
    bool repeated = false;
    for (const std::string& other : front) repeated = repeated || folder == other;
    if (!repeated) result += ":" + folder;
  }
  return result;
}

bool hasUsableDriver() {
  // Left loaded on purpose: the driver does not support being unloaded.
  void* driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!driver) return false;
  const auto init = reinterpret_cast<int (*)(unsigned)>(::dlsym(driver, "cuInit"));
  const auto deviceCount = reinterpret_cast<int (*)(int*)>(::dlsym(driver, "cuDeviceGetCount"));
  int count = 0;
  return init && deviceCount && init(0) == 0 && deviceCount(&count) == 0 && count > 0;
}

}  // namespace tutti
