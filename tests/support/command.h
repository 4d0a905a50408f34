// Runs shell commands and collects what they say.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace tutti::test {

struct Outcome {
  int status = -1;     // exit status, or 128 + signal
  std::string output;  // stdout and stderr
};

inline Outcome runCommand(const std::string& command) {
  Outcome outcome;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (!pipe) return outcome;
  char buffer[4096];
  while (const size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) outcome.output.append(buffer, n);
  const int status = ::pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

/// Path of a program that was built beside this one. Without /proc, its name alone.
inline std::string programBeside(const std::string& name) {
  char self[4096] = {};
  if (::readlink("/proc/self/exe", self, sizeof self - 1) <= 0) return name;
  const std::string path(self);
  return path.substr(0, path.rfind('/') + 1) + name;
}

}  // namespace tutti::test
