// tutti-host-kernels: a compiler driver that makes kernels for virtual GPUs of CUDA C++
// (docs/virtual-gpus.md).
//
//   tutti-host-kernels [--beside] [--shim DIR] g++ FLAGS -c SOURCE -o OBJECT
//
//   SOURCE --g++ -E, with the shim first--> OBJECT.ii --translate--> OBJECT.host.ii --g++ -c--> OBJECT
//
// --beside is for objects that are linked beside nvcc's of the same source: every definition becomes local,
// and host code's static initialisers go, since nvcc's object has both.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "host_kernels/translate.h"

extern char** environ;

namespace {

using Arguments = std::vector<std::string>;

struct Job {
  bool isBeside = false;
  std::string shim;
  Arguments compiler;  // "ccache", "g++"
  Arguments flags;     // without -c, -o, the source, and what makes dependencies
  Arguments dependencyFlags;
  std::string source;
  std::string object;
};

int fail(const std::string& message) {
  std::cerr << "tutti-host-kernels: " << message << "\n";
  return 1;
}

bool endsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

bool isSource(const std::string& argument) {
  for (const char* end : {".cu", ".cc", ".cpp", ".cxx"})
    if (endsWith(argument, end)) return true;
  return false;
}

/// Where the shim lies beside this program: in an install prefix.
std::string installedShim() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (self.parent_path().parent_path() / "include/tutti/shim/base/kernel_shim").string();
}

/// Kernels need C++20 of the host compiler, whatever the program is.
bool isOldStandard(const std::string& flag) {
  if (flag.rfind("-std=", 0) != 0) return false;
  for (const char* standard : {"20", "2a", "23", "2b", "26", "2c"})
    if (endsWith(flag, standard)) return false;
  return true;
}

bool takesArgument(const std::string& flag) {
  for (const char* one : {"-I", "-D", "-U", "-isystem", "-include", "-iquote", "-idirafter", "-imacros",
                          "-isysroot", "--param", "-Xpreprocessor", "-Xassembler", "-x"})
    if (flag == one) return true;
  return false;
}

void readFlags(const Arguments& arguments, size_t i, Job& job) {
  job.flags.push_back("-std=gnu++20");
  for (; i < arguments.size(); ++i) {
    const std::string& a = arguments[i];
    const bool hasNext = i + 1 < arguments.size();
    if (a == "-c" || isOldStandard(a)) continue;
    if (a == "-o" && hasNext) {
      job.object = arguments[++i];
    } else if ((a == "-MF" || a == "-MT" || a == "-MQ") && hasNext) {
      job.dependencyFlags.push_back(a);
      job.dependencyFlags.push_back(arguments[++i]);
    } else if (a.rfind("-M", 0) == 0) {
      job.dependencyFlags.push_back(a);
    } else if (a == "-x" && hasNext) {
      ++i;  // it is CUDA C++ anyway
    } else if (takesArgument(a) && hasNext) {
      job.flags.push_back(a);
      job.flags.push_back(arguments[++i]);
    } else if (a[0] != '-' && isSource(a)) {
      job.source = a;
    } else {
      job.flags.push_back(a);
    }
  }
}

bool readArguments(const Arguments& arguments, Job& job) {
  size_t i = 0;
  for (; i < arguments.size() && arguments[i].rfind("--", 0) == 0; ++i) {
    if (arguments[i] == "--beside")
      job.isBeside = true;
    else if (arguments[i] == "--shim" && i + 1 < arguments.size())
      job.shim = arguments[++i];
    else
      return false;
  }
  for (; i < arguments.size() && arguments[i][0] != '-' && !isSource(arguments[i]); ++i)
    job.compiler.push_back(arguments[i]);
  readFlags(arguments, i, job);
  if (job.shim.empty()) job.shim = installedShim();
  return !job.compiler.empty() && !job.source.empty() && !job.object.empty();
}

Arguments operator+(Arguments left, const Arguments& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

/// The command's exit status; 127 when it could not be started.
int run(const Arguments& command) {
  std::vector<char*> pointers;
  for (const std::string& argument : command) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  pid_t child = 0;
  if (const int error = ::posix_spawnp(&child, pointers[0], nullptr, nullptr, pointers.data(), environ);
      error != 0) {
    fail("cannot start " + command[0] + ": " + std::strerror(error));
    return 127;
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

bool translateFile(const std::string& from, const std::string& to) {
  std::ifstream input(from, std::ios::binary);
  const std::string source((std::istreambuf_iterator<char>(input)), std::istreambuf_iterator<char>());
  auto tokens = tutti::hostkernels::tokenize(source);
  const auto messages = tutti::hostkernels::translate(tokens);
  for (const std::string& message : messages) std::cerr << message << "\n";
  if (!messages.empty()) return false;
  std::ofstream output(to, std::ios::binary);
  output << tutti::hostkernels::join(tokens);
  output.close();
  if (!output) fail("cannot write " + to);
  return static_cast<bool>(output);
}

/// Local definitions, and no static initialisers but those that register kernels (.init_array.00200).
int localize(const Job& job, const std::string& from) {
  const Arguments linker = {job.compiler.back(), "-r", "-nostdlib", "-Wl,--force-group-allocation", "-o",
                            job.object,          from};
  if (const int status = run(linker); status != 0) return status;
  const char* objcopy = std::getenv("OBJCOPY");
  return run({objcopy && *objcopy ? objcopy : "objcopy", "--localize-hidden", "--remove-section=.init_array",
              "--remove-section=.rela.init_array", job.object});
}

int compile(const Job& job) {
  const std::string preprocessed = job.object + ".ii";
  const std::string translated = job.object + ".host.ii";
  const Arguments preprocess = {
      "-E", "-idirafter", job.shim + "/../..", "-include", job.shim + "/kernel_shim.h", "-o", preprocessed,
      "-x", "c++",        job.source};
  Arguments dependencies = job.dependencyFlags;
  if (!dependencies.empty()) dependencies = dependencies + Arguments{"-MQ", job.object};
  // Dependencies are made without ccache, which would not see that they are wanted.
  int status = run(Arguments{job.compiler.back()} + job.flags + dependencies + preprocess);
  if (status != 0) return status;
  if (!translateFile(preprocessed, translated)) return 1;
  Arguments flags = job.flags + Arguments{"-Wno-unused-function", "-Wno-unknown-pragmas"};
  if (job.isBeside) flags = flags + Arguments{"-fvisibility=hidden", "-fvisibility-inlines-hidden"};
  const std::string compiled = job.isBeside ? job.object + ".all.o" : job.object;
  status = run(job.compiler + flags + Arguments{"-c", "-o", compiled, "-x", "c++-cpp-output", translated});
  if (status == 0 && job.isBeside) {
    status = localize(job, compiled);
    std::remove(compiled.c_str());
  }
  if (status == 0) {
    std::remove(preprocessed.c_str());
    std::remove(translated.c_str());
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  Job job;
  if (!readArguments(Arguments(argv + 1, argv + argc), job))
    return fail("usage: tutti-host-kernels [--beside] [--shim DIR] COMPILER FLAGS -c SOURCE -o OBJECT");
  if (!std::filesystem::exists(job.shim + "/kernel_shim.h"))
    return fail("no kernel_shim.h in " + job.shim + "; --shim says where it is");
  return compile(job);
}
